"""The scripted model of scheduler: what it understands and what it says."""

from __future__ import annotations

import json
import time

import pytest

from hitlagents.demo.scripted import MAX_CALLS, Call, Item, Reply, Result, Said
from hitlagents.demo.scripted_scheduler import GREETING, reply

pytestmark = pytest.mark.once

BEFORE: list[Item] = [
    Said("user", "schedule a 1:1 with Alice"),
    Call("c", "schedule_meeting", '{"topic": "1:1", "attendee": "Alice"}'),
    Result("c", "Booked “1:1” with Alice, Monday."),
    Said("assistant", "Booked “1:1” with Alice, Monday."),
]


def ask(text: str, before: list[Item] = BEFORE) -> Reply:
    return reply([*before, Said("user", text)])


def wishes(text: str) -> list[tuple[str, ...]]:
    """The calls of the first turn, as (topic, attendee), ("call", topic, attendee),
    ("cancel", …) or ("list",)."""
    found = []
    for call in ask(text).calls:
        verb = call.tool.removesuffix("_meeting").removesuffix("_meetings")
        verb = verb.removeprefix("book_")
        values = tuple(json.loads(call.arguments).values())
        found.append(values if verb == "schedule" else (verb, *values))
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Please schedule a 1:1 with Alice", [("1:1", "Alice")]),
        ("schedule a 1:1 with alice!", [("1:1", "alice")]),
        (
            "Schedule a 1:1 with Alice next week to review Q2 goals.",
            [("1:1 to review Q2 goals", "Alice")],
        ),
        (
            "Please book an intro call with the sales team to discuss pricing.",
            [("call", "Intro call to discuss pricing", "sales team")],
        ),
        (
            "Please book an intro call with sales to discuss pricing",
            [("call", "Intro call to discuss pricing", "sales")],
        ),
        ("Book a call with sales", [("call", "Call", "sales")]),
        ("please book me a call with Ann", [("call", "Call", "Ann")]),
        (
            "Can you book an onboarding call with Bob next week?",
            [("call", "Onboarding call", "Bob")],
        ),
        ("book a demo with Bob", [("Demo", "Bob")]),
        ("book a call-centre visit with Bob", [("Call-centre visit", "Bob")]),
        ("schedule a call with Bob", [("Call", "Bob")]),
        (
            "book a call with Ann and schedule a demo with Bob",
            [("call", "Call", "Ann"), ("Demo", "Bob")],
        ),
        ("schedule X with Bob and Y with Carol", [("X", "Bob"), ("Y", "Carol")]),
        (
            "schedule a 1:1 with Bob, a demo with Carol, and lunch with Dan",
            [("1:1", "Bob"), ("Demo", "Carol"), ("Lunch", "Dan")],
        ),
        (
            "set up a meeting with Bob and Carol about hiring and budget",
            [("Meeting about hiring and budget", "Bob and Carol")],
        ),
        (
            "book calls with Bob, Carol and Dan",
            [
                ("call", "Call", "Bob"),
                ("call", "Call", "Carol"),
                ("call", "Call", "Dan"),
            ],
        ),
        (
            "Could we arrange a coffee chat with María José tomorrow at 10?",
            [("Coffee chat", "María José")],
        ),
        (
            "organise an interview with O'Brien for the QA role",
            [("Interview for the QA role", "O'Brien")],
        ),
        (
            'book a 30-minute sync with Dr. Müller on Friday at 3 about "cost, and more"',
            [("30-minute sync about cost, and more", "Dr. Müller")],
        ),
        (
            'schedule "Budget and plans" with "Bob, and Co"',
            [("Budget and plans", "Bob, and Co")],
        ),
        ("put lunch with Bob on my calendar", [("Lunch", "Bob")]),
        ("schedule a retrospective for Monday", [("Retrospective", "")]),
        ("schedule 山田 review with 田中", [("山田 review", "田中")]),
        (
            "schedule <b>x</b> with <script>alert(1)</script>",
            [("<b>x</b>", "<script>alert(1)</script>")],
        ),
        # Follow-ups take the topic of the meeting before.
        ("and another with Dana", [("1:1", "Dana")]),
        ("And one more with Émile Zola, please", [("1:1", "Émile Zola")]),
        ("the same with Bob", [("1:1", "Bob")]),
        ("also with Dana", [("1:1", "Dana")]),
        ("another one with Eve about money", [("1:1 about money", "Eve")]),
        # The calendar
        ("What is on my calendar?", [("list",)]),
        ("what's on the calendar", [("list",)]),
        ("list my meetings", [("list",)]),
        ("Which meetings are booked?", [("list",)]),
        ("show me the schedule", [("list",)]),
        ("cancel the meeting with Alice", [("cancel", "Alice")]),
        ("cancel #3 and 4", [("cancel", "3"), ("cancel", "4")]),
        ("call off meeting 12", [("cancel", "12")]),
        ("cancel the 1:1", [("cancel", "1:1")]),
        ("Cancel the 1:1 with Alice", [("cancel", "1:1 with Alice")]),
        ("cancel the retro with me", [("cancel", "retro")]),
        ("cancel the meeting with me", []),
        (
            "cancel my 1:1 with Bob and the call with Carol",
            [("cancel", "1:1 with Bob"), ("cancel", "Carol")],
        ),
        (
            "cancel the call with Bob and schedule a demo with Eve",
            [("cancel", "Bob"), ("Demo", "Eve")],
        ),
        # Nothing to do
        ("don't schedule anything with Bob", []),
        ("do not book a call with Bob", []),
        ("book a call", []),
        ("schedule a meeting with me", []),
        ("cancel everything", []),
        ("cancel it", []),
        ("and with that, thanks", []),
        ("I am happy with Bob", []),
        ("reschedule the call with Bob", []),
    ],
)
def test_what_it_understands(text, expected):
    assert wishes(text) == expected


def test_the_words_it_answers_with_are_never_a_call():
    for text in ("", "hi", "thanks", "who are you?", "cancel it", "book a call", "no"):
        assert ask(text).calls == ()
        assert ask(text).text


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("", "I did not understand"),
        ("Hello there", "Hello."),
        ("thank you", "You are welcome."),
        ("who are you?", "I am scheduler"),
        ("book a call", "Who should it be with"),
        ("cancel it", "Which meeting?"),
        ("don't book a call with Bob", "All right"),
        ("move the call with Bob", "I cannot move"),
        ("a\0b \ud800 \ue0000\ue000", "I did not understand"),
    ],
)
def test_it_answers_everything_else(text, start):
    assert ask(text).text.startswith(start)


def test_without_a_message_it_says_hello():
    assert reply([]).text == GREETING


def test_a_follow_up_without_a_meeting_before_is_a_meeting():
    [call] = ask("and another with Dana", []).calls
    assert json.loads(call.arguments) == {"topic": "Meeting", "attendee": "Dana"}


def test_steps_are_turns_of_their_own():
    history: list[Item] = [Said("user", "cancel #1, then list my meetings")]
    first = reply(history)
    assert [c.tool for c in first.calls] == ["cancel_meeting"]
    history += [Said("assistant", first.text), *first.calls]
    history += [Result(c.call_id, "Cancelled “1:1”, Monday.") for c in first.calls]
    second = reply(history)
    assert [c.tool for c in second.calls] == ["list_meetings"]
    assert second.text.startswith("Cancelled “1:1”, Monday.")


def after(text: str, *results: str) -> str:
    said = ask(text)
    history: list[Item] = [Said("user", text), Said("assistant", said.text)]
    history += said.calls
    pairs = zip(said.calls, results, strict=True)
    history += [Result(call.call_id, result) for call, result in pairs]
    again = reply(history)
    assert again.calls == ()
    return again.text


@pytest.mark.parametrize(
    ("result", "told"),
    [
        # The reviewer changed the arguments: what was done is said, not what was meant.
        ("Booked “Chat” with Bob, Monday.", "Booked “Chat” with Bob, Monday."),
        (
            "Nothing was scheduled, since no time was chosen: “1:1”.",
            "Nothing was scheduled, since no time was chosen: “1:1”.",
        ),
        (
            "Not executed: a reviewer denied this call. Ask Ann first",
            "I did not schedule “1:1” with Alice, because the reviewer said "
            "“Ask Ann first”.",
        ),
        (
            "Not executed: a reviewer cancelled this call.",
            "I did not schedule “1:1” with Alice, because a reviewer cancelled this call.",
        ),
        (
            "Error: schedule_meeting failed.",
            "I could not schedule “1:1” with Alice. Error: schedule_meeting failed.",
        ),
        (
            "Alice is on leave.",
            "When I wanted to schedule “1:1” with Alice, I was told: Alice is on leave.",
        ),
    ],
)
def test_it_says_what_happened_and_proposes_nothing_again(result, told):
    assert after("schedule a 1:1 with Alice", result) == told


def test_many_meetings_are_taken_in_portions():
    said = ask("schedule " + ", ".join(f"a call with P{n}" for n in range(50)))
    assert len(said.calls) == MAX_CALLS
    assert "first 20 of 50" in said.text


@pytest.mark.parametrize(
    "text",
    [
        "schedule " + "x" * 1_000_000,
        "schedule x with " + "y" * 1_000_000,
        " " * 1_000_000,
        "\n" * 1_000_000,
        "“" * 1_000_000,
        "schedule " * 110_000,
        "with " * 200_000,
        "schedule a with b and " * 45_000,
        "schedule calls with a, " + "b and " * 160_000,
        "and also " * 110_000,
        "then " * 200_000,
        "list " * 200_000,
        "what is " * 120_000,
        "to for on " * 100_000,
        "cancel " + "#1 " * 300_000,
        "\ue0009\ue000" * 100_000,
    ],
    ids=lambda text: repr(text[:8]),
)
def test_a_megabyte_of_anything_takes_a_moment(text):
    began = time.process_time()
    ask(text)
    assert time.process_time() - began < 5


def test_a_very_long_name_is_cut_and_told_short():
    [call] = ask("schedule a call with " + "x" * 1_000_000).calls
    assert len(json.loads(call.arguments)["attendee"]) == 200
    assert len(ask("schedule a call with " + "x" * 1_000_000).text) < 200


@pytest.mark.parametrize(
    ("result", "told"),
    [
        (
            '{"chosen_label":"Mon 07 Dec 2026, 10:00 CET","chosen_time":"x"}',
            "“Intro call” with sales suits you on Mon 07 Dec 2026, 10:00 CET.",
        ),
        (
            '{"chosen_time":"2026-12-07T10:00:00+01:00"}',
            "“Intro call” with sales suits you on 2026-12-07T10:00:00+01:00.",
        ),
        (
            '{"cancelled":true}',
            "None of the times suits you, so “Intro call” with sales has no time yet.",
        ),
        (
            "Not answered: the person who was asked declined to answer. Ask Ann",
            "I did not get a time for “Intro call” with sales, because the reviewer said "
            "“Ask Ann”.",
        ),
        (
            "Not answered: nobody answered before the deadline.",
            "I did not get a time for “Intro call” with sales, because nobody answered "
            "before the deadline.",
        ),
        (
            "whatever",
            "When I wanted to get a time for “Intro call” with sales, I was told: whatever",
        ),
    ],
)
def test_m10_what_was_answered_is_said(result, told):
    assert after("book an intro call with sales", result) == told


def test_another_call_is_asked_for_like_the_one_before():
    before: list[Item] = [
        Said("user", "book a demo call with Ann"),
        Call("c", "book_call", '{"topic": "Demo call", "attendee": "Ann"}'),
        Result("c", '{"cancelled":true}'),
        Said("assistant", "None of the times suits you."),
    ]
    [call] = ask("and another with Dana", before).calls
    assert call.tool == "book_call"
    assert json.loads(call.arguments) == {"topic": "Demo call", "attendee": "Dana"}
