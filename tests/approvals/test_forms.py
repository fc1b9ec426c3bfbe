"""Answer forms made from response schemas."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from approvals.forms import AnswerForm, ArgumentsForm, asks_more
from approvals.hiding import Hiding
from approvals.services.tools import misfit, misfit_of_answer


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


@pytest.mark.parametrize(
    "schema",
    [
        "{broken",
        "[]",
        "null",
        '{"properties": 3}',
        json.dumps(thing(x={"oneOf": 3, "enum": True}) | {"required": 3}),
        json.dumps(thing(x=True)),
    ],
)
def test_a_broken_schema_still_gives_a_form(schema):
    assert AnswerForm(schema).fields


# Arguments to edit


def edited(
    arguments: dict[str, Any], schema: dict[str, Any] | None = None, **typed: str
) -> Any:
    """What the form gives when a browser sends back all it showed, but for ``typed``."""
    text = json.dumps(arguments)
    schema_text = json.dumps(schema or {})
    shown = ArgumentsForm(text, schema_text)
    data = {f"argument-{name}": field.initial for name, field in shown.fields.items()}
    data |= {f"argument-{name}": value for name, value in typed.items()}
    # Browsers send line ends as CRLF.
    data = {k: re.sub("\r\n|\r|\n", "\r\n", v) for k, v in data.items()}
    form = ArgumentsForm(text, schema_text, data)
    assert form.is_valid(), form.errors
    return form.value()


AS_THEY_ARE = {
    "text": "two\nlines",
    "spaces": "  kept ",
    "ends": "a\r\nb\rc",
    "empty": "",
    "big": 9007199254740993,
    "float": 500.0,
    "flag": False,
    "nothing": None,
    "list": [1, "x", {"y": 1.5}],
    "digits": "12345",
}


def test_what_nobody_touched_is_no_edit():
    assert edited(AS_THEY_ARE) is None
    kinds = thing(
        big={"type": "integer"},
        float={"type": "number"},
        flag={"type": "boolean"},
        absent={"type": "string"},
        missing={"type": "integer"},
        choice={"enum": ["a", "b"]},
    )
    assert edited(AS_THEY_ARE, kinds) is None


@pytest.mark.parametrize(
    ("name", "typed", "value"),
    [
        ("text", "new\nlines", "new\nlines"),
        ("empty", "no more", "no more"),
        ("big", "9007199254740994", 9007199254740994),
        ("nothing", '"now"', "now"),
        ("list", "[]", []),
        ("digits", "", ""),
    ],
)
def test_one_edit_leaves_the_rest_exact(name, typed, value):
    after = edited(AS_THEY_ARE, thing(big={"type": "integer"}), **{name: typed})
    assert after == AS_THEY_ARE | {name: value}
    assert after["ends"] == "a\r\nb\rc"


def test_edits_follow_the_schema():
    schema = thing(flag={"type": "boolean"}, size={"type": "integer"})
    assert edited({"flag": False}, schema, flag="0") == {"flag": True}
    assert edited({"flag": False}, schema, size="3") == {"flag": False, "size": 3}
    assert edited({"size": 3}, schema, size="") == {}
    form = ArgumentsForm('{"size": 3}', json.dumps(schema), {"argument-size": "three"})
    assert not form.is_valid()


def test_secrets_are_not_in_the_form_and_go_along():
    text = '{"account": "x", "pin": "hunter2"}'
    form = ArgumentsForm(text, "", {"argument-account": "y"}, hiding=Hiding.of(["pin"]))
    assert "hunter2" not in form.as_p()
    assert form.is_valid()
    assert form.value() == {"account": "y", "pin": "hunter2"}


def test_what_is_hidden_has_a_row_in_its_place_and_no_field():
    text = '{"pin": "hunter2", "note": "token=abcdef12345", "account": "x"}'
    schema = thing(memo={"type": "string"}, password={"type": "string"})
    typed = {"argument-pin": "other", "argument-note": "other", "argument-account": "x"}
    for data in (None, typed):
        form = ArgumentsForm(text, json.dumps(schema), data, hiding=Hiding.of(["pin"]))
        pin, note, *fields = form.rows
        assert (pin.name.html, pin.value.html) == ("pin", "hidden, 7 characters")
        assert note.value.html == "token=⟦hidden, 11 characters⟧"
        # What the call has not is no secret of it.
        assert [field.name for field in fields] == ["account", "memo"]
    assert form.is_valid()
    assert form.value() is None


# What a schema says beside the type


RICH = thing(
    city={"type": "string", "title": "Which city?", "default": "Ulm"},
    floor={"type": "integer", "default": 0, "minimum": 0, "maximum": 9},
    code={"type": "string", "pattern": "^[A-Z]{3}$", "default": "ABC"},
    at={
        "type": "string",
        "format": "date-time",
        "default": "2026-07-01T10:00:00+02:00",
    },
    mail={"type": "string", "format": "email", "description": "Yours, please."},
    days={"type": "array", "items": {"enum": ["Mo", "Tu", 3]}, "minItems": 1},
    sure={"type": ["boolean", "null"], "default": False},
) | {"required": ["city", "days"]}


def test_b42_defaults_titles_and_descriptions_are_shown(settings):
    settings.TIME_ZONE = "Europe/Berlin"
    form = AnswerForm(json.dumps(RICH))
    shown = {bound.name: bound.value() for bound in form}
    assert shown == {
        "city": "Ulm",
        "floor": "0",
        "code": "ABC",
        "at": "2026-07-01T10:00",
        "mail": None,
        "days": [],
        "sure": "1",
    }
    assert form["city"].label == "Which city?"
    assert form["mail"].help_text == "Yours, please."
    assert [box.data["type"] for box in form["days"].subwidgets] == ["checkbox"] * 3


def test_b42_several_of_a_list_are_chosen_and_keep_their_type():
    form = AnswerForm(
        json.dumps(RICH), {"answer-city": "Ulm", "answer-days": ["2", "0"]}
    )
    assert form.is_valid(), form.errors
    assert form.value() == {"city": "Ulm", "days": ["Mo", 3]}


@pytest.mark.parametrize(
    ("name", "typed", "told"),
    [
        ("floor", "10", "maximum of 9"),
        ("floor", "-1", "minimum of 0"),
        ("code", "abc", "does not have the form that is asked for"),
        ("mail", "nobody", "valid email"),
        ("days", [], "non-empty"),
        ("days", ["9"], "not one of the available choices"),
        ("city", "", "required"),
    ],
)
def test_b42_what_the_schema_forbids_is_told_at_its_field(name, typed, told):
    good: dict[str, Any] = {"answer-city": "Ulm", "answer-days": ["0"]}
    form = AnswerForm(json.dumps(RICH), good | {f"answer-{name}": typed})
    assert list(form.errors) == [name]
    assert told in str(form.errors[name])


CODE = {
    "type": "string",
    "pattern": "^[A-Z]{3}$",
    "description": "Three\ncapital letters.",
    "examples": ["ABC", 5, "XYZ"],
}


@pytest.mark.parametrize(
    ("left_out", "told"),
    [
        ((), "asked for: Three capital letters, such as “ABC”, “XYZ”."),
        (("examples",), "asked for: Three capital letters."),
        (("description",), "asked for, such as “ABC”, “XYZ”."),
        (("description", "examples"), "asked for."),
    ],
)
def test_b42_a_pattern_is_told_in_the_words_of_its_schema(left_out, told):
    part = {name: each for name, each in CODE.items() if name not in left_out}
    schema = json.dumps(thing(code=part))
    form = AnswerForm(schema, {"answer-code": "abc"})
    assert form.errors["code"] == [f"“abc” does not have the form that is {told}"]
    form = ArgumentsForm('{"code": "ABC"}', schema, {"argument-code": "abc"})
    assert form.errors["code"] == [f"“abc” does not have the form that is {told}"]
    for found in (
        misfit_of_answer(schema, '{"code":"abc"}'),
        misfit(schema, '{"code":"abc"}', typed=True),
    ):
        assert found == f"code: “abc” does not have the form that is {told}"
    # A model reads the pattern itself.
    assert "^[A-Z]{3}$" in misfit(schema, '{"code":"abc"}')


def test_b42_what_was_there_before_is_no_fault_of_the_person():
    schema = json.dumps(thing(code=CODE, size={"type": "integer"}))
    unchanged = {"argument-code": "abc", "argument-size": "3"}
    assert ArgumentsForm('{"code": "abc", "size": 3}', schema, unchanged).is_valid()


def test_b27_an_empty_list_is_an_answer_where_one_is_asked_for():
    part = {"type": "array", "items": {"enum": ["a"]}}
    schema = json.dumps(thing(must=part, may=part) | {"required": ["must"]})
    form = AnswerForm(schema, {})
    assert form.is_valid(), form.errors
    assert form.value() == {"must": []}


def test_a_type_may_be_a_list_of_types():
    part = {"type": ["string", "null"]}
    assert answered(thing(x=part), {"x": "as typed"}) == {"x": "as typed"}
    assert answered(thing(x={"type": ["string", "integer"]}), {"x": "3"}) == {"x": 3}
    assert edited({"x": None}, thing(x=part)) is None
    assert edited({"x": None}, thing(x=part), x='"now"') == {"x": "now"}
