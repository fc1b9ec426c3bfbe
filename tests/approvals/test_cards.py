"""Cards of known tools: the time picker, and the plain form for everything else."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from typing import Any

import pytest
from django.template.loader import render_to_string
from django.utils import timezone

from approvals import cards, wording
from approvals.cards import TimePicker
from approvals.forms import AnswerForm
from approvals.models import Interrupt
from approvals.states import InterruptKind

SOON = (timezone.now() + timedelta(days=20)).replace(microsecond=0, second=0)
LATER = SOON + timedelta(days=1)
PAST = SOON - timedelta(days=40)


def schema(time: Any = None, **more: Any) -> str:
    part = {"type": "string"} if time is None else time
    properties = {"approved": {"type": "boolean"}, "chosen_time": part, **more}
    return json.dumps({"type": "object", "properties": properties})


EXAMPLES = {"type": "string", "examples": [SOON.isoformat(), LATER.isoformat()]}
WHOLE = schema(EXAMPLES, chosen_label={"type": "string"}, cancelled={"const": True})


def picked(schema_text: str = WHOLE, **typed: str) -> TimePicker:
    return TimePicker(schema_text, {f"answer-{k}": v for k, v in typed.items()})


def given(schema_text: str = WHOLE, **typed: str) -> Any:
    form = picked(schema_text, **typed)
    assert form.is_valid(), form.errors
    return form.value()


def form_of(card: str, schema_text: str) -> AnswerForm:
    return cards.answer_form(
        Interrupt(card=card, response_schema=schema_text, kind=InterruptKind.QUESTION)
    )


def test_a_tool_names_its_card_and_others_get_the_plain_form():
    assert isinstance(form_of("time-picker", WHOLE), TimePicker)
    for card in ("", "unheard-of"):
        assert type(form_of(card, WHOLE)) is AnswerForm


@pytest.mark.parametrize(
    "odd",
    [
        "",
        "{broken",
        "[]",
        '{"type": "object", "properties": {"day": {}}}',
        schema(None, guests={"type": "integer"}),
    ],
)
def test_what_the_card_cannot_ask_for_gets_the_plain_form(odd):
    assert type(form_of("time-picker", odd)) is AnswerForm


def test_a_proposed_time_goes_back_exactly_and_its_words_come_from_the_calendar(
    settings,
):
    settings.TIME_ZONE = "Europe/Berlin"
    time = {"oneOf": [{"const": "2099-12-07T09:00:00-08:00", "title": "Friday 1 PM"}]}
    form = picked(schema(time, chosen_label={}), time="2099-12-07T09:00:00-08:00")
    assert form.is_valid()
    assert form.value() == {
        "chosen_time": "2099-12-07T09:00:00-08:00",
        "chosen_label": "Mon 07 Dec 2099, 18:00 CET",
    }
    [slot] = form.slots
    assert slot.quote == "Friday 1 PM"
    assert not form.takes_other
    assert not form.takes_none


def test_any_other_time_is_one_of_the_readers_zone():
    answer = given(time="other", other="2099-07-01T10:00", zone="Asia/Kolkata")
    assert answer == {
        "chosen_time": "2099-07-01T10:00:00+05:30",
        "chosen_label": "Wed 01 Jul 2099, 10:00 IST",
    }


@pytest.mark.parametrize(
    "zone", ["", "Nowhere/Else", "../../etc/passwd", "é", "Europe"]
)
def test_an_unknown_zone_is_that_of_the_site(settings, zone):
    settings.TIME_ZONE = "Europe/Berlin"
    answer = given(time="other", other="2099-07-01T10:00", zone=zone)
    assert answer["chosen_time"] == "2099-07-01T10:00:00+02:00"


def test_none_of_these_is_an_answer():
    assert given(time="none", other="2099-07-01T10:00") == {"cancelled": True}


@pytest.mark.parametrize(
    ("typed", "field"),
    [
        ({}, "time"),
        ({"time": "sometime"}, "time"),
        ({"time": (SOON + timedelta(hours=1)).isoformat()}, "time"),
        ({"time": "other"}, "other"),
        ({"time": "other", "other": "soon"}, "other"),
        ({"time": "other", "other": "2099-13-01T10:00"}, "other"),
        ({"time": "other", "other": "2001-01-01T10:00"}, "time"),
    ],
)
def test_nonsense_is_told_where_it_stands(typed, field):
    form = picked(**typed)
    assert not form.is_valid()
    assert list(form.errors) == [field]


def test_a_schema_with_fixed_times_takes_no_others():
    fixed = schema({"enum": [SOON.isoformat()]})
    for typed in ({"time": "other", "other": "2099-07-01T10:00"}, {"time": "none"}):
        assert not picked(fixed, **typed).is_valid()
    assert given(fixed, time=SOON.isoformat()) == {"chosen_time": SOON.isoformat()}


def test_a_time_that_has_passed_cannot_be_picked():
    form = picked(schema({"examples": [PAST.isoformat()]}), time=PAST.isoformat())
    assert not form.is_valid()
    assert form.slots[0].is_past


@pytest.mark.parametrize("part", [True, {"oneOf": 3}, {"examples": "x", "enum": 1}])
def test_a_broken_schema_of_a_time_leaves_the_time_open(part):
    form = picked(schema(part), time="other", other="2099-07-01T10:00")
    assert form.is_valid()
    assert form.slots == []


def test_what_is_no_moment_is_not_proposed():
    odd = {"examples": ["tomorrow", 9, None, "2099-07-01T10:00:00", SOON.isoformat()]}
    assert [slot.value for slot in picked(schema(odd)).slots] == [SOON.isoformat()]


@pytest.mark.parametrize("fixed", [False, True], ids=["open", "fixed"])
@pytest.mark.parametrize("proposed", [0, 2, 6, 9])
def test_the_keys_of_the_times_follow_each_other(proposed, fixed):
    times = [(SOON + timedelta(days=n)).isoformat() for n in range(proposed)]
    part = {"enum": times} if fixed and times else {"examples": times}
    form = form_of("time-picker", schema(part, cancelled={"const": True}))
    drawn = render_to_string(form.drawn_by, {"answer_form": form, "keys": True})
    keys = [int(key) for key in re.findall(r'data-hotkey="(\d+)"', drawn)]
    assert keys == list(range(1, len(keys) + 1))
    assert [int(key) for key in re.findall(r"<kbd[^>]*>(\d+)</kbd>", drawn)] == keys
    assert len(keys) == min(proposed, 7) + (1 if fixed and times else 2)


@pytest.mark.parametrize(
    ("site", "value"),
    [
        ("Asia/Tokyo", "9999-12-31T23:59:00Z"),
        ("America/New_York", "0001-01-01T00:00:00Z"),
    ],
)
def test_the_ends_of_all_time_break_no_page(settings, site, value):
    settings.TIME_ZONE = site
    for part in (
        {"enum": [value]},
        {"examples": [value]},
        {"oneOf": [{"const": value}]},
    ):
        for card in ("", "time-picker"):
            form = form_of(card, schema({"type": "string", **part}))
            assert form.as_p()
            for slot in getattr(form, "slots", []):
                assert wording.moment(slot.moment)


@pytest.mark.parametrize("other", ["9999-12-31T23:59:00-12:00", "9999-12-31T23:59:00Z"])
def test_a_time_that_the_readers_zone_cannot_tell_is_refused(other):
    form = picked(time="other", other=other, zone="Pacific/Kiritimati")
    assert not form.is_valid() or form.value()


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ('{"cancelled":true}', "None of these work"),
        (
            '{"chosen_label":"Mon 07 Dec","chosen_time":"2026-12-07T10:00Z"}',
            "Mon 07 Dec",
        ),
        ('{"chosen_time":"2026-12-07T10:00Z"}', "2026-12-07T10:00Z"),
        ('{"a":[1],"b":"two"}', "a: [1], b: two"),
        ('"yes"', "yes"),
        ("3", "3"),
        (f'"{"x" * 300}"', "x" * 199 + "…"),
    ],
)
def test_an_answer_in_a_line(answer, words):
    assert cards.in_words(answer) == words
