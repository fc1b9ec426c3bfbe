"""M10: which schemas a page may bring with its tools."""

from __future__ import annotations

import time
from typing import Any

import pytest

from approvals.services import flaw_of


def under(part: object) -> dict[str, Any]:
    return {"type": "object", "properties": {"a": part}}


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(levels - 1):
        schema = under(schema)
    return schema


@pytest.mark.parametrize(
    "schema",
    [
        None,
        [],
        True,
        {"type": "string"},
        {"properties": 1},
        {"properties": {"a": 1}},
        {"required": [1]},
        {"required": "shade"},
        {"title": "nul \0"},
        {"minimum": float("nan")},
    ],
)
def test_m10_what_is_no_schema_of_arguments_has_a_flaw(schema):
    assert flaw_of(schema)


@pytest.mark.parametrize(
    ("part", "flaw"),
    [
        (False, "properties.a has to be a schema"),
        ({"type": 5}, "properties.a.type is no type of JSON"),
        ({"type": []}, "properties.a.type is no type of JSON"),
        ({"type": "strng"}, "properties.a.type is no type of JSON"),
        ({"type": ["string", {}]}, "properties.a.type is no type of JSON"),
        (
            {"properties": {"b": 5}},
            "properties.a.properties.b has to be a schema",
        ),
        ({"items": 5}, "properties.a.items has to be a schema"),
        ({"items": [5]}, "properties.a.items.0 has to be a schema"),
        ({"anyOf": {}}, "properties.a.anyOf has to be a list with something in it"),
        ({"anyOf": [5]}, "properties.a.anyOf.0 has to be a schema"),
        ({"enum": 5}, "properties.a.enum has to be a list with something in it"),
        ({"pattern": 5}, "properties.a.pattern has to be a text"),
        ({"minLength": "1"}, "properties.a.minLength has to be a number"),
        (
            {"additionalProperties": 5},
            "properties.a.additionalProperties has to be a schema",
        ),
        ({"$ref": 5}, "properties.a.$ref has to be a text"),
        ({"$ref": "#/nope"}, "properties.a.$ref refers to what is not in it"),
        ({"$ref": "https://x.test/a"}, "properties.a.$ref refers to what is not in it"),
        ({"$ref": "#"}, "properties.a.$ref refers to what it is in itself"),
        (
            {"$ref": "#/properties/a"},
            "properties.a.$ref refers to what it is in itself",
        ),
    ],
)
def test_m10_a_flaw_is_named_with_its_place(part, flaw):
    assert flaw_of(under(part)) == flaw


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"properties": {}},
        {"$schema": "https://json-schema.org/draft/2020-12/schema"},
        {"additionalProperties": False},
        under({"pattern": "^(r+)+$"}),
        under({"type": ["string", "null"], "default": None}),
        under({"items": [{}, {}], "minItems": 2}),
        under({"x-of-somebody": [1], "exclusiveMinimum": True}),
        under({"$ref": "#/$defs/a~1b"}) | {"$defs": {"a/b": {"type": "string"}}},
        {"properties": {"a": {"$ref": "#/$defs/x"}, "b": {"$ref": "#/$defs/x"}}}
        | {"$defs": {"x": {"enum": [1, "two", None]}}},
    ],
)
def test_m10_schemas_that_can_be_offered(schema):
    assert flaw_of(schema) == ""


def test_m10_a_schema_has_so_many_levels():
    assert flaw_of(nested(16)) == ""
    assert flaw_of(nested(17)) == "it is deeper than 16 levels"
    assert "nested deeper" in flaw_of(nested(500))


@pytest.mark.parametrize(
    "chain",
    [
        {f"d{n}": {"$ref": f"#/$defs/d{n + 1}"} for n in range(900)},
        # From behind, so that each is known when it is referred to.
        {f"d{n}": {"$ref": f"#/$defs/d{n + 1}"} for n in reversed(range(900))},
    ],
)
def test_m10_references_count_as_what_they_refer_to(chain):
    schema = under({"$ref": "#/$defs/d0"}) | {"$defs": chain | {"d900": {}}}
    assert flaw_of(schema) == "it is deeper than 16 levels"


def test_m10_references_that_multiply_are_counted_and_not_followed():
    """Put in their places, they would be a hundred million schemas."""
    parts: dict[str, Any] = {"d0": {"type": "string"}}
    for n in range(1, 7):
        parts[f"d{n}"] = {"allOf": [{"$ref": f"#/$defs/d{n - 1}"}] * 20}
    schema = under({"$ref": "#/$defs/d6"}) | {"$defs": parts}
    began = time.thread_time()
    assert flaw_of(schema) == "it has more than 2,000 parts"
    assert time.thread_time() - began < 1


def test_m10_a_large_schema_of_a_stranger_is_looked_at_in_no_time():
    """Against the whole of JSON Schema this one takes a minute."""
    many = under({"allOf": [{} for _ in range(20_000)]})
    began = time.thread_time()
    assert flaw_of(many) == "it has more than 2,000 parts"
    assert time.thread_time() - began < 5
