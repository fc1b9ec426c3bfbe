"""The scripted model of banking: what it understands and what it says."""

from __future__ import annotations

import json
import time

import pytest

from hitlagents.demo.scripted import MAX_CALLS, Call, Item, Reply, Result, Said
from hitlagents.demo.scripted_banking import GREETING, reply

pytestmark = pytest.mark.once

DONE = "Transferred 500.00 to Account 12345 (Landlord). Account 1001 (Main) now holds 1.00."
BEFORE: list[Item] = [
    Said("user", "Transfer 500 to 12345"),
    Call("c", "transferMoney", '{"amount": 500, "toAccount": "12345"}'),
    Result("c", DONE),
    Said("assistant", DONE),
]


def ask(text: str, before: list[Item] | None = None) -> Reply:
    return reply([*(before or []), Said("user", text)])


def wishes(text: str, before: list[Item] | None = None) -> list[tuple[str, ...]]:
    """The calls of the first turn: (amount as it is written, account), or (account,)."""
    return [
        tuple(json.loads(call.arguments, parse_int=str, parse_float=str).values())
        for call in ask(text, before).calls
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Transfer $500 to account 12345 for rent.", [("500", "12345")]),
        ("please send 20.50 to Electricity!", [("20.50", "Electricity")]),
        ("Can you move €75 into my savings account today?", [("75", "savings")]),
        ("pay 12345 100", [("100", "12345")]),
        ("pay the landlord 500 please", [("500", "landlord")]),
        ("transfer to account 777 the amount of 42", [("42", "777")]),
        ("wire 1,250.00 EUR to DE8937040044", [("1250.00", "DE8937040044")]),
        ("transfer 1.250,00 to 777", [("1250.00", "777")]),
        ("transfer 1,250 to 777", [("1250", "777")]),
        ("transfer 1.000.000 to 777", [("1000000", "777")]),
        ("transfer -5 to 777", [("-5", "777")]),
        ("transfer 0 to 777", [("0", "777")]),
        ("pay 50 to “Electric Co & Sons”", [("50", "Electric Co & Sons")]),
        ("pay 100 to Dr. Müller", [("100", "Dr. Müller")]),
        ("transfer 5 to 777 on 3 May", [("5", "777")]),
        ("transfer 5 to 777 and tell me", [("5", "777")]),
        (
            "Transfer $500 to account 12345 for rent and $80 to account 777 for power.",
            [("500", "12345"), ("80", "777")],
        ),
        ("send 5 to A1, 6 to B2 and 7 to C3", [("5", "A1"), ("6", "B2"), ("7", "C3")]),
        ("Transfer 100 to 777 and 888", [("100", "777"), ("100", "888")]),
        ("transfer 10 to 777\ntransfer 20 to 888", [("10", "777"), ("20", "888")]),
        ("transfer 1 to 2, transfer 1 to 2", [("1", "2")]),
        ("What's my balance?", [("Main",)]),
        ("how much money do I have", [("Main",)]),
        ("what is the balance of account 12345?", [("12345",)]),
        ("how much is in savings", [("savings",)]),
        ("show me the balances of Main and Savings", [("Main",), ("Savings",)]),
        ("What is my balance and transfer 5 to 777", [("Main",), ("5", "777")]),
    ],
)
def test_it_understands_what_is_asked_for(text, expected):
    assert wishes(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("and another 200 to 777", [("200", "777")]),
        ("and 50 more to savings", [("50", "savings")]),
        ("another 50", [("50", "12345")]),
        ("the same to 777", [("500", "777")]),
        ("same again", [("500", "12345")]),
        ("and to 777", [("500", "777")]),
        ("also 5 to A1 and 6 to B2", [("5", "A1"), ("6", "B2")]),
    ],
)
def test_it_goes_on_from_the_transfer_before(text, expected):
    assert wishes(text, BEFORE) == expected
    assert wishes(text) == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("hi", GREETING),
        ("thanks!", "You are welcome."),
        ("who are you?", "scripted model without a network"),
        ("transfer money", "How much, and to which account?"),
        ("transfer 500", "How much, and to which account?"),
        ("send half of it to 777", "How much, and to which account?"),
        ("transfer 1.5.5 to 777", "How much, and to which account?"),
        ("don't transfer 500 to 777", "I leave the money where it is"),
        ("never send 5 to 777", "I leave the money where it is"),
        ("sing a song", "I did not understand that."),
        ("", "I did not understand that."),
    ],
)
def test_what_asks_for_nothing_is_answered_in_words(text, said):
    answer = ask(text, BEFORE)
    assert answer.calls == ()
    assert said in answer.text


def test_then_is_another_turn():
    history: list[Item] = [Said("user", "transfer 5 to 777, then check the balance")]
    first = reply(history)
    assert [call.tool for call in first.calls] == ["transferMoney"]
    history += [Said("assistant", first.text), *first.calls]
    history.append(Result(first.calls[0].call_id, DONE))
    second = reply(history)
    assert [call.tool for call in second.calls] == ["lookup_balance"]
    assert second.text.startswith("Transferred 500.00")


def test_a_denial_is_told_with_its_note_and_not_tried_again():
    said = ask("transfer 5 to 777")
    history: list[Item] = [Said("user", "transfer 5 to 777"), *said.calls]
    note = "Not executed: a reviewer denied this call. Too much."
    answer = reply([*history, Result(said.calls[0].call_id, note)])
    assert answer.calls == ()
    assert answer.text == (
        "I did not transfer 5 to 777, because the reviewer said “Too much.”."
    )


def test_it_says_no_currency_nobody_told():
    texts = [ask(text).text for text in ("transfer 5 to 777", "hi", "transfer")]
    assert not set("$€£") & set("".join(texts))


def test_long_and_odd_messages_cost_little():
    began = time.process_time()
    for text in (
        "transfer " * 5000,
        "send 1 to A1 and " * 3000,
        "balance of " * 5000,
        "$" * 20_000 + "5 to 777",
        "transfer " + "1," * 20_000 + "1 to 777",
        "and " * 20_000,
        "what is " * 8000,
    ):
        assert len(ask(text, BEFORE).calls) <= MAX_CALLS
    assert time.process_time() - began < 5
