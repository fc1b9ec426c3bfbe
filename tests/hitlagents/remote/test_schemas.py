"""M21: a schema of a remote agent can do no harm here."""

from __future__ import annotations

import pytest

from approvals import canonical
from approvals.services.tools import misfit
from hitlagents.remote.schemas import MAX_DEPTH, tamed

pytestmark = pytest.mark.once


def nested(depth):
    schema = {"type": "string"}
    for _ in range(depth):
        schema = {"type": "array", "items": schema}
    return schema


def test_m21_an_ordinary_schema_stays_as_it_is():
    schema = {
        "type": "object",
        "title": "Answer",
        "properties": {
            "approved": {"type": "boolean"},
            "when": {"type": "string", "format": "date-time", "maxLength": 40},
            "many": {"type": "array", "items": {"enum": [1, 2]}, "minItems": 1},
        },
        "required": ["approved"],
        "additionalProperties": False,
    }
    assert tamed(schema) == schema


def test_m21_nothing_is_fetched_and_nothing_hangs():
    schema = {
        "$schema": "https://schemas.example/",
        "type": "object",
        "properties": {
            "a": {"$ref": "https://schemas.example/x"},
            "b": {"type": "string", "pattern": "(a+)+$"},
        },
        "patternProperties": {"(a+)+$": {"type": "string"}},
        "additionalProperties": False,
        "not": {"pattern": "x"},
    }
    found = tamed(schema)
    assert found == {
        "type": "object",
        "properties": {"a": {}, "b": {"type": "string"}},
    }
    value = canonical.dumps({"a": 1, "b": "a" * 60 + "!", "aaa": "x"})
    assert misfit(canonical.dumps(found), value) == ""


def test_m21_one_of_several_may_have_become_any_of_them():
    either = {"oneOf": [{"pattern": "a"}, {"pattern": "b"}]}
    found = tamed(either)
    assert found == {"anyOf": [{}, {}]}
    assert misfit(canonical.dumps(found), '"ab"') == ""


@pytest.mark.parametrize(
    "schema",
    [
        None,
        True,
        [],
        "text",
        {"type": "nonsense"},
        {"required": "approved"},
        {"items": 7},
        {"const": float("nan")},
        {"title": "a\0b"},
        nested(MAX_DEPTH + 1),
        {"properties": {f"p{n}": {} for n in range(3000)}},
    ],
)
def test_m21_what_is_no_schema_says_nothing(schema):
    assert tamed(schema) == {}
