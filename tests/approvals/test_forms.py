"""Answer forms made from response schemas."""

from __future__ import annotations

import json
from typing import Any

import pytest

from approvals.forms import AnswerForm, asks_more


def answered(schema: dict[str, Any] | None, data: dict[str, str]) -> Any:
    form = AnswerForm(
        json.dumps(schema) if schema else "",
        {f"answer-{k}": v for k, v in data.items()},
    )
    assert form.is_valid(), form.errors
    return form.value()


def thing(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


@pytest.mark.parametrize(
    ("part", "typed", "value"),
    [
        ({"type": "string"}, " as typed ", " as typed "),
        ({"type": "integer"}, "9007199254740993", 9007199254740993),
        ({"type": "number"}, "12.5", 12.5),
        ({"type": "boolean"}, "1", False),
        ({"enum": ["a", 2, None]}, "1", 2),
        ({"oneOf": [{"const": {"x": 1}, "title": "One"}]}, "0", {"x": 1}),
        ({"type": "string", "format": "date"}, "2026-11-30", "2026-11-30"),
        ({"type": "array"}, "[1, 2]", [1, 2]),
        ({}, '{"a": null}', {"a": None}),
    ],
)
def test_values_keep_their_type(part, typed, value):
    assert answered(thing(x=part), {"x": typed}) == {"x": value}


def test_a_moment_carries_its_offset(settings):
    settings.TIME_ZONE = "Europe/Berlin"
    part = {"type": "string", "format": "date-time"}
    assert answered(thing(x=part), {"x": "2026-07-01T10:00"}) == {
        "x": "2026-07-01T10:00:00+02:00"
    }


@pytest.mark.parametrize(
    ("part", "typed"),
    [
        ({"type": "integer"}, "1.5"),
        ({"type": "integer"}, "many"),
        ({"type": "number"}, "NaN"),
        ({"type": "number"}, "true"),
        ({"enum": ["a"]}, "7"),
        ({"type": "string", "format": "date-time"}, "yesterday"),
        ({"type": "string", "format": "date"}, "2026-13-01"),
        ({"type": "object"}, "{"),
    ],
)
def test_nonsense_is_told(part, typed):
    form = AnswerForm(json.dumps(thing(x=part)), {"answer-x": typed})
    assert not form.is_valid()


def test_an_untouched_field_sends_nothing():
    assert answered(thing(a={"type": "string"}, b={"enum": ["x"]}), {}) == {}


def test_required_keys_are_required():
    schema = thing(a={"type": "string"}) | {"required": ["a"]}
    assert not AnswerForm(json.dumps(schema), {}).is_valid()


def test_a_plain_schema_is_one_field():
    assert answered({"type": "integer"}, {"answer": "3"}) == 3
    assert answered(None, {"answer": "free words"}) == "free words"


def test_keys_of_the_desk_are_not_asked_for():
    schema = thing(approved={"type": "boolean"}, chosen_time={"type": "string"})
    assert list(AnswerForm(json.dumps(schema)).fields) == ["chosen_time"]
    assert asks_more(json.dumps(schema))
    assert not asks_more(json.dumps(thing(approved={"type": "boolean"})))
    assert not asks_more("")
    assert not asks_more("{broken")


@pytest.mark.parametrize("schema", ["{broken", "[]", "null", '{"properties": 3}'])
def test_a_broken_schema_still_gives_a_form(schema):
    assert AnswerForm(schema).fields
