"""M17: no schema and no value holds up whoever checks one against the other."""

from __future__ import annotations

import json
import time

import pytest

from approvals import services
from approvals.exceptions import InvalidDecision
from approvals.schemas import ToolSpec
from approvals.services.tools import misfit, misfit_of_answer
from approvals.states import InterruptKind, InterruptStatus, Verdict
from tests.plugins.cast import AGENT, TOOLS, ballot, call

CANNOT = "The value cannot be checked against the schema."
#: Backtracks for longer than anybody lives.
SLOW = "^(r+)+$"
#: As pydantic writes the pattern of a decimal number.
DECIMAL = r"^(?!^[-+.]*$)[+-]?0*\d*\.?\d*$"


def check(part, value):
    schema = {"type": "object", "properties": {"a": part}}
    began = time.thread_time()
    found = misfit(json.dumps(schema), json.dumps({"a": value}))
    assert time.thread_time() - began < 5
    return found


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ({"pattern": SLOW}, "r" * 50_000 + "!"),
        ({"pattern": r"^(\w+\s?)*$"}, "a" * 50_000 + "!"),
        ({"propertyNames": {"pattern": SLOW}}, {"r" * 60 + "!": 1}),
        (
            {"patternProperties": {SLOW: True}, "additionalProperties": False},
            {"r" * 60 + "!": 1},
        ),
    ],
)
def test_m17_a_pattern_takes_time_by_the_length_of_the_text(part, value):
    assert check(part, value)


@pytest.mark.parametrize(
    ("part", "value", "fits"),
    [
        ({"pattern": "b"}, "abc", True),
        ({"pattern": "^b"}, "abc", False),
        ({"pattern": DECIMAL}, "12.50", True),
        ({"pattern": DECIMAL}, "+", False),
        ({"pattern": "^(?!admin)"}, "admin", False),
        ({"pattern": "x"}, 5, True),
        ({"patternProperties": {"^x-": {"type": "string"}}}, {"x-a": 1}, False),
        (
            {"patternProperties": {"^x-": {}}, "additionalProperties": False},
            {"x-a": 1},
            True,
        ),
        (
            {"patternProperties": {"^x-": {}}, "additionalProperties": False},
            {"b": 1},
            False,
        ),
        ({"additionalProperties": {"type": "string"}}, {"b": 1}, False),
        ({"additionalProperties": {"type": "string"}}, {"b": "1"}, True),
        ({"uniqueItems": True}, [1, "1", True, None, [1], {"a": 1}], True),
        ({"uniqueItems": True}, [{"a": 1, "b": 2}, {"b": 2.0, "a": 1}], False),
    ],
)
def test_m17_what_is_checked_means_the_same_as_ever(part, value, fits):
    assert (check(part, value) == "") == fits


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (f"(?!x){SLOW}", "r"),
        (DECIMAL, "0" * 10_000 + "x"),
        ("(", "x"),
    ],
)
def test_m17_what_could_take_long_is_not_tried_and_does_not_fit(pattern, text):
    found = check({"pattern": pattern}, text)
    # Of one that is broken the schema itself says so.
    assert found == CANNOT or "own schema is broken" in found


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ({"items": {"anyOf": [{"const": n} for n in range(2_000)]}}, ["x"] * 20_000),
        ({"items": {"enum": list(range(2_000))}}, ["x"] * 20_000),
        ({"items": {"required": [f"n{n}" for n in range(500)]}}, [{}] * 20_000),
        ({"uniqueItems": True}, [{"a": n} for n in range(20_000)] + ["x", {"a": 1}]),
    ],
)
def test_m17_many_parts_over_many_values_are_given_up(part, value):
    assert check(part, value)


def test_m17_references_that_multiply_are_given_up():
    parts = {"d0": {"type": "string"}}
    for n in range(1, 9):
        parts[f"d{n}"] = {"allOf": [{"$ref": f"#/$defs/d{n - 1}"}] * 10}
    schema = {"$ref": "#/$defs/d8", "$defs": parts}
    began = time.thread_time()
    assert misfit(json.dumps(schema), '"x"') == CANNOT
    assert time.thread_time() - began < 10


def test_m17_a_long_list_of_ordinary_things_is_checked():
    row = {
        "type": "object",
        "properties": {"name": {"type": "string"}, "size": {"type": "integer"}},
        "required": ["name"],
        "additionalProperties": False,
    }
    rows = [{"name": f"file-{n}", "size": n} for n in range(10_000)]
    assert check({"type": "array", "items": row}, rows) == ""


def test_m10_m17_an_answer_takes_no_longer(make_interrupts, rita):
    answer = {
        "type": "object",
        "properties": {"slot": {"type": "string", "pattern": SLOW}},
        "required": ["slot"],
    }
    kind = InterruptKind.QUESTION
    spec = ToolSpec(name="delete_slot", kind=kind, answer=answer)
    services.register_tools(AGENT, [*TOOLS, spec])
    [interrupt] = make_interrupts([call("delete_slot", day="Monday")])
    assert misfit_of_answer(json.dumps(answer), json.dumps({"slot": "rrr!"}))
    bad = ballot(interrupt, Verdict.ANSWER, answer={"slot": "r" * 60 + "!"})
    with pytest.raises(InvalidDecision):
        services.decide(interrupt.pk, bad, reviewer=rita)
    good = ballot(interrupt, Verdict.ANSWER, answer={"slot": "r" * 60})
    services.decide(interrupt.pk, good, reviewer=rita)
    interrupt.refresh_from_db()
    assert interrupt.status == InterruptStatus.ANSWERED
