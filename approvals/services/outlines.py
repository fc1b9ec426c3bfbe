"""Whether what a stranger sent can be the schema of a tool's arguments.

Pages send their tools with every request, and to hold a large schema to the whole of JSON
Schema takes seconds. So only what model providers and frameworks stumble over is looked
at, each part once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from approvals import canonical
from approvals.exceptions import InvalidArguments

#: Both with references put in their places: some providers do that.
MAX_DEPTH = 16
MAX_PARTS = 2_000

_TYPES = frozenset(
    {"array", "boolean", "integer", "null", "number", "object", "string"}
)
_TEXTS = frozenset({"title", "description", "format", "pattern", "$schema", "$ref"})
_COUNTS = frozenset(
    {"minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"}
)
_BY_NAME = frozenset(
    {"properties", "patternProperties", "dependentSchemas", "$defs", "definitions"}
)
_LISTS = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
_SINGLE = frozenset({"items", "contains", "propertyNames", "not", "if", "then", "else"})
#: These alone may be true or false in the place of a schema.
_CLOSING = frozenset(
    {"additionalProperties", "unevaluatedProperties", "unevaluatedItems"}
)


class _Flaw(ValueError):
    """In words, with the place."""


def flaw_of(schema: object) -> str:
    """Why this cannot be the schema of a tool's arguments; empty if it can."""
    if not isinstance(schema, dict) or schema.get("type", "object") != "object":
        return "it has to be the schema of an object"
    try:
        canonical.dumps(schema)
        _Outline(schema).measure(schema, "")
    except InvalidArguments as error:
        return error.message.rstrip(".")
    except _Flaw as flaw:
        return str(flaw)
    return ""


class _Outline:
    def __init__(self, whole: dict[str, Any]) -> None:
        self._whole = whole
        #: Depth and number of parts of what was measured; None while it is.
        self._known: dict[int, tuple[int, int] | None] = {}
        self._above = 0

    def measure(self, part: object, place: str) -> tuple[int, int]:
        """Raises _Flaw."""
        if not isinstance(part, dict):
            raise _Flaw(f"{place or 'it'} has to be a schema")
        if id(part) in self._known:
            known = self._known[id(part)]
            if known is None:
                raise _Flaw(f"{place} refers to what it is in itself")
            return known
        if self._above >= MAX_DEPTH:
            raise _Flaw(f"it is deeper than {MAX_DEPTH} levels")
        self._known[id(part)] = None
        self._above += 1
        depth, parts = 0, 1
        for below, where in self._below(part, place):
            deep, many = self.measure(below, where)
            depth, parts = max(depth, deep), parts + many
            if self._above + depth > MAX_DEPTH:
                raise _Flaw(f"it is deeper than {MAX_DEPTH} levels")
            if parts > MAX_PARTS:
                raise _Flaw(f"it has more than {MAX_PARTS:,} parts")
        self._above -= 1
        self._known[id(part)] = depth + 1, parts
        return depth + 1, parts

    def _below(self, part: dict[str, Any], place: str) -> Iterator[tuple[object, str]]:
        for key, value in part.items():
            where = f"{place}.{key}".removeprefix(".")
            _check(key, value, where)
            if key == "$ref":
                yield self._target(value, where), where
            elif key in _BY_NAME:
                yield from ((each, f"{where}.{name}") for name, each in value.items())
            elif key in _LISTS or (key == "items" and isinstance(value, list)):
                yield from ((each, f"{where}.{at}") for at, each in enumerate(value))
            elif key in _SINGLE or (key in _CLOSING and not isinstance(value, bool)):
                yield value, where

    def _target(self, reference: str, place: str) -> object:
        found: object = self._whole
        start, *names = reference.split("/")
        for name in names:
            name = name.replace("~1", "/").replace("~0", "~")
            found = found.get(name) if isinstance(found, dict) else None
        if start != "#" or not isinstance(found, dict):
            raise _Flaw(f"{place} refers to what is not in it")
        return found


def _check(key: str, value: Any, place: str) -> None:
    """Raises _Flaw for a keyword with a value of another type than it can have."""
    if key == "type":
        types = value if isinstance(value, list) else [value]
        if not types or not all(isinstance(t, str) and t in _TYPES for t in types):
            raise _Flaw(f"{place} is no type of JSON")
    elif key == "required":
        if not isinstance(value, list) or not all(isinstance(n, str) for n in value):
            raise _Flaw(f"{place} has to be a list of names")
    elif key == "enum" or key in _LISTS:
        if not isinstance(value, list) or not value:
            raise _Flaw(f"{place} has to be a list with something in it")
    elif key in _BY_NAME:
        if not isinstance(value, dict):
            raise _Flaw(f"{place} has to be schemas by their names")
    elif key in _TEXTS:
        if not isinstance(value, str):
            raise _Flaw(f"{place} has to be a text")
    elif key in _COUNTS and (not isinstance(value, int) or isinstance(value, bool)):
        raise _Flaw(f"{place} has to be a number")
