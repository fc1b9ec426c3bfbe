"""What the agent support understands without a real model."""

from __future__ import annotations

import json
import time

import pytest

from hitlagents.demo import scripted_support
from hitlagents.demo.scripted import Call, Result, Said

pytestmark = pytest.mark.once


def planned(text):
    loaded = json.loads(scripted_support.plan([Said("user", text)]).text)
    return [(each["to"], each["about"]) for each in loaded["replies"]], loaded["rest"]


def calls(text):
    said = scripted_support.reply([Said("user", text)])
    return [(call.tool, json.loads(call.arguments)) for call in said.calls]


@pytest.mark.parametrize(
    ("text", "replies", "rest"),
    [
        ("Reply to Dana about invoice 1042", [("Dana", "invoice 1042")], False),
        ("reply to dana whitfield", [("dana whitfield", "")], False),
        ("Please answer ticket 8812", [("8812", "")], False),
        ("Please answer tickets 8812 and 8813.", [("8812", ""), ("8813", "")], False),
        ("Could you write to Omar and Lena?", [("Omar", ""), ("Lena", "")], False),
        (
            "Send an e-mail to eve@example.com saying that we are closed",
            [("eve@example.com", "we are closed")],
            False,
        ),
        (
            "Write an email to Dana about the lamp, please",
            [("Dana", "the lamp")],
            False,
        ),
        ("Get back to ticket #8820", [("8820", "")], False),
        ("reply about ticket 8812", [("8812", "ticket 8812")], False),
        ('Reply to "Dana Whitfield"', [("Dana Whitfield", "")], False),
        (
            "Reply to Dana about invoice 1042 and refund invoice 1042",
            [("Dana", "invoice 1042")],
            True,
        ),
        (
            "Refund invoice 1042, then reply to Dana, and answer ticket 8813",
            [("Dana", ""), ("8813", "")],
            True,
        ),
        ("Don't reply to Dana", [], True),
        ("refund 1042", [], True),
        ("hello", [], True),
        ("", [], True),
        ("answer", [], True),
    ],
)
def test_replies_are_planned(text, replies, rest):
    assert planned(text) == (replies, rest)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "refund invoice 1042 because the lamp arrived broken",
            [
                (
                    "refund_invoice",
                    {"invoice": "1042", "reason": "the lamp arrived broken"},
                )
            ],
        ),
        (
            "Please refund 1042 and 1043",
            [
                ("refund_invoice", {"invoice": "1042", "reason": ""}),
                ("refund_invoice", {"invoice": "1043", "reason": ""}),
            ],
        ),
        ("look up ticket 8812", [("lookup_ticket", {"query": "8812"})]),
        ("What is ticket 8812 about?", [("lookup_ticket", {"query": "8812"})]),
        ("show me invoice 1051", [("lookup_ticket", {"query": "1051"})]),
        (
            "Look up Dana and refund invoice 1042",
            [
                ("lookup_ticket", {"query": "Dana"}),
                ("refund_invoice", {"invoice": "1042", "reason": ""}),
            ],
        ),
        ("do not refund invoice 1042", []),
        ("refund", []),
    ],
)
def test_calls_are_proposed(text, expected):
    assert calls(text) == expected


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("hi", scripted_support.GREETING),
        ("Thanks!", "You are welcome."),
        ("refund it", "Which invoice? Say its number."),
        ("reply", "To whom?"),
        ("don't refund 1042", "All right"),
        ("who are you?", "scripted model without a network"),
        ("sing", "I did not understand that."),
    ],
)
def test_small_talk(text, said):
    assert said in scripted_support.reply([Said("user", text)]).text


def test_what_happened_is_told_by_the_results():
    call = Call("c1", "refund_invoice", '{"invoice": "1042"}')

    def after(result):
        history = [Said("user", "refund 1042"), call, Result("c1", result)]
        return scripted_support.reply(history).text

    assert after("Refunded invoice 1043.") == "Refunded invoice 1043."
    assert after("Not executed: a reviewer denied this call. Not yet") == (
        "I did not refund invoice 1042, because the reviewer said “Not yet”."
    )
    assert after("Error: no") == "I could not refund invoice 1042. Error: no"


def test_a_draft_keeps_to_what_is_on_file():
    request = (
        "To: 8812\nAbout: the refund\n"
        "On file: Ticket 8812 from Dana Whitfield <d@w.example>: “It broke.” Invoice 1.\n"
        "Remark: Offer a new one."
    )
    text = scripted_support.draft([Said("user", request)]).text
    assert text.startswith("Subject: About the refund\n\nDear Dana,\n\n")
    assert "“It broke.”" in text
    assert "Offer a new one." in text
    assert scripted_support.draft([]).text.startswith("Subject: Your message to us")


@pytest.mark.parametrize(
    "text",
    ["reply to " * 20_000, "a" * 200_000, "1 " * 100_000, "reply to " + "x, " * 9],
)
def test_long_and_odd_messages_take_no_time(text):
    began = time.process_time()
    scripted_support.plan([Said("user", text)])
    scripted_support.reply([Said("user", text)])
    scripted_support.draft([Said("user", text)])
    assert time.process_time() - began < 5
