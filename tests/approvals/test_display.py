from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from approvals import display, wording
from approvals.hiding import Hiding


def only(text: str) -> display.Argument:
    (argument,) = display.arguments_of(text)
    return argument


@pytest.mark.parametrize(
    "number",
    [
        "9007199254740993",
        "-0",
        "1e400",
        "0.1000",
        "123456789012345678901234567890",
        "9" * 5000,
    ],
)
def test_a_number_keeps_every_digit(number):
    argument = only(f'{{"n": {number}}}')
    assert argument.kind == "number"
    assert (argument.value.rest or argument.value.html) == number


def test_types_are_told_apart():
    arguments = display.arguments_of(
        '{"a": "12345", "b": 12345, "c": true, "d": "true", "e": null, "f": [1, 2], "g": {"x": 1}}'
    )
    assert [(str(a.value.html).split("\n")[0], a.type_word) for a in arguments] == [
        ("&quot;12345&quot;", "text"),
        ("12345", "number"),
        ("true", "yes or no"),
        ("&quot;true&quot;", "text"),
        ("null", "no value"),
        ("[", "list of 2"),
        ("{", "1 field"),
    ]


def test_a_nested_value_keeps_its_digits_and_its_characters():
    html = only('{"x": {"n": [9007199254740993], "s": "a\\u202eb"}}').value.html
    assert "9007199254740993" in html
    assert "⟦U+202E⟧" in html


@pytest.mark.parametrize(
    ("char", "mark"),
    [
        ("\u202e", "⟦U+202E⟧"),
        ("\u2066", "⟦U+2066⟧"),
        ("\u200b", "⟦U+200B⟧"),
        ("\ufeff", "⟦U+FEFF⟧"),
        ("\u00ad", "⟦U+00AD⟧"),
        ("\u00a0", "⟦U+00A0⟧"),
        ("\u3164", "⟦U+3164⟧"),
        ("\u2028", "⟦U+2028⟧"),
        ("\x00", "⟦U+0000⟧"),
        ("\x1b", "⟦U+001B⟧"),
        ("\r", "⟦U+000D⟧"),
        ("\ud800", "⟦U+D800⟧"),
        ("\U000e0041", "⟦U+E0041⟧"),
        ("\ufe0f", "⟦U+FE0F⟧"),
    ],
)
def test_what_cannot_be_seen_is_marked(char, mark):
    shown = display.show(f"pay{char}ment")
    assert mark in shown.html
    assert char not in shown.html
    assert shown.hidden == 1
    assert "1 character that cannot be seen" in shown.warnings[0]


@pytest.mark.parametrize(
    "text",
    [
        "Zürich, naïve",
        "日本語",
        "שלום",
        "مرحبا",
        "line\nline\ttab",
        "❤️ 👩‍👩‍👧",
        "привет",
    ],
)
def test_honest_text_raises_no_warning(text):
    assert display.show(text).warnings == []
    assert display.show(text).html == text


@pytest.mark.parametrize(
    "text",
    [
        "p\u0430ypal.com",  # one Cyrillic letter
        "https://\u0440\u0430\u0443\u0440\u0430\u04cf.com/login",  # wholly Cyrillic label
        "\u0391mazon",  # a Greek capital
        "example.com\u2215login.evil.example",  # a slash that is none
        "\uff45xample.com",  # a fullwidth letter
    ],
)
def test_a_lookalike_is_flagged(text):
    shown = display.show(text)
    assert shown.odd_words
    assert '<mark class="odd">' in shown.html
    assert "look-alike" in shown.warnings[-1]


def test_html_is_escaped():
    argument = only('{"<b>": "<script>alert(1)</script>"}')
    assert "<script" not in argument.value.html
    assert argument.name.html == "&lt;b&gt;"


def test_a_long_value_is_cut_and_keeps_its_end_behind_a_click():
    value = only('{"x": "' + "a" * 5000 + 'END"}').value
    assert len(value.html) < 1000
    assert value.rest is not None
    assert value.rest.endswith("END")
    assert value.size_words == "5,003 characters"


def test_a_hidden_character_behind_the_cut_is_still_announced():
    assert only('{"x": "' + "a" * 5000 + '\\u202e"}').value.hidden == 1


def test_a_megabyte_is_shown_in_part_and_kept_whole():
    value = only('{"x": "' + "é<a.b " * 170_000 + '"}').value
    assert value.size > 1_000_000


def test_secret_values_show_their_length_only():
    (pin,) = display.arguments_of('{"pin": "hunter2"}', hiding=Hiding.of(["pin"]))
    assert pin.value.html == "hidden, 7 characters"


@pytest.mark.parametrize("text", ["{not json", "[" * 100_000, ""])
def test_unreadable_text_is_shown_raw(text):
    argument = only(text)
    assert argument.kind == "raw"
    assert argument.value.html.startswith(text[:100])


def test_a_value_that_is_no_object_is_shown():
    assert only("[1]").type_word == "list of 1"


@pytest.mark.parametrize(
    ("tool", "arguments", "words"),
    [
        (
            "delete_file",
            '{"path": "/finance/q3-draft.xlsx"}',
            "Delete file q3-draft.xlsx",
        ),
        (
            "transferMoney",
            '{"amount": 500.0, "toAccount": "12345"}',
            "Transfer money 500.0, 12345",
        ),
        ("ping", "{}", "Ping"),
        ("x.y", "broken", "X y"),
    ],
)
def test_effect_in_words(tool, arguments, words):
    assert display.effect(tool, arguments) == words


def test_json_text_keeps_its_value_with_nothing_hidden():
    text = json.dumps({"a": "x\u202ey\U000e0041\u00a0é日"}, ensure_ascii=False)
    shown = display.json_text(text)
    assert json.loads(shown) == json.loads(text)
    assert display.hidden_characters(shown) == []
    assert "é日" in shown


def test_changes_are_told_by_argument():
    before = '{"a": "will credit 840", "b": 1, "c": "x", "pin": "1"}'
    after = '{"a": "credited 84", "b": "1", "d": [1], "pin": "2"}'
    found = {
        str(c.name.html): str(c.html)
        for c in display.changes(before, after, hiding=Hiding.of(["pin"]))
    }
    assert list(found) == ["a", "b", "c", "pin", "d"]
    assert "<del>will</del>" in found["a"] or "<del>will credit</del>" in found["a"]
    assert "<ins>84</ins>" in found["a"]
    assert found["c"] == "<del>x</del>"
    assert "2" not in found["pin"]
    assert display.changes(before, before) == []


def test_a_difference_hides_nothing():
    html = display.difference("<b>", "a\u202e")
    assert (
        html == "<del>&lt;b&gt;</del><ins>a" + html[len("<del>&lt;b&gt;</del><ins>a") :]
    )
    assert "⟦U+202E⟧" in html
    assert len(display.difference("a " * 40_000, "b " * 40_000)) > 80_000


def test_effect_leaves_secrets_out():
    assert (
        display.effect("log_in", '{"pin": "1234"}', hiding=Hiding.of(["pin"]))
        == "Log in"
    )


def test_approve_label():
    assert wording.approve_label("delete_file") == "Approve and delete file"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 s"),
        (40, "40 s"),
        (124, "2 min 04 s"),
        (900, "15 min"),
        (4320, "1 h 12 min"),
        (3600, "1 h"),
        (273600, "3 d 4 h"),
        (-5, "0 s"),
    ],
)
def test_duration(seconds, words):
    assert wording.duration(seconds) == words


def test_age_and_time_left():
    now = datetime(2026, 11, 29, 14, 20, tzinfo=UTC)
    assert wording.age(now - timedelta(seconds=59), now) == "now"
    assert wording.age(now - timedelta(minutes=9), now) == "9m"
    assert wording.age(now - timedelta(hours=26), now) == "1d"
    assert (
        wording.time_left(now + timedelta(minutes=12, seconds=30), now) == "12 min left"
    )
    assert wording.time_left(now, now) == "expired"


def test_markdown_is_harmless():
    html = display.markdown(
        "# Big\n\n**bold** <script>alert(1)</script> ![pixel](https://evil.example/p.png)\n\n"
        "[invoice](https://evil.example/x) [bad](javascript:alert(1)) <img src=x onerror=y>"
    )
    assert "<strong>bold</strong>" in html
    assert "<script" not in html
    assert "<img" not in html
    assert "<h1" not in html
    assert 'href="javascript' not in html
    assert "[picture: pixel]" in html
    assert 'rel="nofollow noopener noreferrer"' in html
    assert '<span class="host">(evil.example)</span>' in html


def test_markdown_marks_what_cannot_be_seen():
    assert "⟦U+202E⟧" in display.markdown("a\u202eb `c\u200bd`")


def test_very_long_markdown_stays_plain():
    html = display.markdown("**a** " * 10_000)
    assert "<strong>" not in html
    assert len(html) < 21_000


@pytest.mark.parametrize(
    ("status", "state", "word"),
    [
        ("open", "pending", "Pending"),
        ("approved", "approved", "Approved"),
        ("in_doubt", "failed", "Outcome unknown"),
        ("something_new", "cancelled", "Something new"),
    ],
)
def test_states_have_a_drawing_and_a_word(status, state, word):
    assert wording.state_of(status) == state
    assert wording.state_word(status) == word


def test_times_are_told_in_one_way_by_how_far_off_they_are(monkeypatch):
    now = datetime(2026, 11, 30, 14, 32, 7, tzinfo=UTC)
    monkeypatch.setattr(wording.timezone, "localdate", lambda: now.date())
    assert wording.time_of(now) == "14:32"
    assert wording.time_of(now, "second") == "14:32:07"
    assert wording.time_of(now - timedelta(days=1)) == "29 Nov, 14:32"
    assert (
        wording.time_of(now - timedelta(days=365), "second") == "30 Nov 2025, 14:32:07"
    )
    assert wording.exact_time(now) == "30 Nov 2026, 14:32:07 UTC"
