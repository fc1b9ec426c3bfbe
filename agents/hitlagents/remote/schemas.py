"""Schemas as a remote agent sent them, made harmless.

A schema is run against values here. A reference in it could fetch an address, and a
pattern could take for ever, so only keywords that can do neither are kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError

from approvals import canonical
from approvals.exceptions import InvalidArguments

MAX_DEPTH = 12
MAX_PARTS = 2_000

_PLAIN = frozenset(
    {
        "type", "title", "description", "default", "examples", "enum", "const", "format",
        "required", "minLength", "maxLength", "minimum", "maximum", "exclusiveMinimum",
        "exclusiveMaximum", "multipleOf", "minItems", "maxItems", "uniqueItems",
        "minProperties", "maxProperties", "readOnly", "writeOnly",
    }
)  # fmt: skip
_ONE = frozenset({"items", "additionalProperties", "contains"})
#: A copy is looser than what was sent, so that one of several may become any of them.
_LISTS = {
    "anyOf": "anyOf",
    "oneOf": "anyOf",
    "allOf": "allOf",
    "prefixItems": "prefixItems",
}


def tamed(schema: Any) -> dict[str, Any]:
    """A copy with nothing in it that reaches out or hangs; empty if it is no schema."""
    if not isinstance(schema, Mapping):
        return {}
    try:
        copied = _Copy().schema(schema, 0)
        Draft202012Validator.check_schema(copied)
        canonical.dumps(copied)
    except (InvalidArguments, SchemaError, TypeError, ValueError):
        return {}
    assert isinstance(copied, dict)
    return copied


class _Copy:
    def __init__(self) -> None:
        self._parts = 0

    def schema(self, schema: Any, depth: int) -> dict[str, Any] | bool:
        if isinstance(schema, bool):
            return schema
        self._parts += 1
        if not isinstance(schema, Mapping) or depth > MAX_DEPTH:
            raise ValueError(schema)
        if self._parts > MAX_PARTS:
            raise ValueError(self._parts)
        copied: dict[str, Any] = {}
        for key, value in schema.items():
            if key in _PLAIN:
                copied[key] = value
            elif key in _ONE:
                copied[key] = self.schema(value, depth + 1)
            elif key in _LISTS and isinstance(value, list):
                parts = [self.schema(part, depth + 1) for part in value]
                copied.setdefault(_LISTS[key], []).extend(parts)
            elif key == "properties" and isinstance(value, Mapping):
                copied[key] = {
                    str(name): self.schema(part, depth + 1)
                    for name, part in value.items()
                }
        if "patternProperties" in schema:
            copied.pop("additionalProperties", None)
        return copied
