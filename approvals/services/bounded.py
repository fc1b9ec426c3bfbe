"""JSON Schema, checked within bounds.

Arguments come from models and answers from pages, and both are checked inside a transaction.
A pattern that backtracks would hold the whole process for as long as it likes, since a match
lets no other thread run; so would a few nested alternatives over a long list.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from functools import lru_cache
from itertools import islice
from typing import Annotated, Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError as JSONSchemaFault
from jsonschema.validators import extend
from pydantic import StringConstraints, TypeAdapter, ValidationError
from pydantic_core import SchemaError as PatternError

type Check = Callable[[Any, Any, Any, Any], Iterator[JSONSchemaFault] | None]

#: Keywords, and what they list, that are looked at for one value: about a second.
MAX_STEPS = 200_000
#: To say what does not fit takes longer than to see that something does.
STEPS_OF_FAULT = 20
STEPS_OF_REFERENCE = 10
#: Nobody reads more.
MAX_FAULTS = 100
#: Texts that are tried on a pattern which only a backtracking engine takes.
MAX_BACKTRACKED = 256
#: Such a pattern may need exponential time, whatever is inside of the group.
_REPEATED_GROUP = re.compile(r"\)[*+{]")

_left: ContextVar[int] = ContextVar("left")


class Uncheckable(ValueError):
    """It would take too long to find out."""


def faults(validator: Draft202012Validator, value: Any) -> Iterator[JSONSchemaFault]:
    """What does not fit. Raises Uncheckable."""
    token = _left.set(MAX_STEPS)
    try:
        yield from islice(validator.iter_errors(value), MAX_FAULTS)
    finally:
        _left.reset(token)


def matches(pattern: str, text: str) -> bool:
    """Whether the pattern is found in the text. Raises Uncheckable."""
    linear = _linear(pattern)
    if linear is not None:
        try:
            linear.validate_python(text)
        except ValidationError:
            return False
        return True
    # Looking around and back needs the other engine.
    if len(text) > MAX_BACKTRACKED or _REPEATED_GROUP.search(pattern):
        raise Uncheckable(pattern)
    try:
        return re.search(pattern, text) is not None
    except re.error as error:
        raise Uncheckable(pattern) from error


@lru_cache(maxsize=256)
def _linear(pattern: str) -> TypeAdapter[str] | None:
    """The pattern for an engine that takes time in proportion to the text; None if it
    does not know all of it."""
    try:
        return TypeAdapter(Annotated[str, StringConstraints(pattern=pattern)])
    except PatternError:
        return None


def _counted(check: Check, price: int) -> Check:
    def counted(
        validator: Any, said: Any, value: Any, schema: Any
    ) -> Iterator[JSONSchemaFault]:
        _spend(price + (len(said) if isinstance(said, list | dict) else 0))
        for fault in check(validator, said, value, schema) or ():
            _spend(STEPS_OF_FAULT)
            yield fault

    return counted


def _spend(steps: int) -> None:
    left = _left.get() - steps
    if left < 0:
        raise Uncheckable
    _left.set(left)


def _pattern(
    validator: Any, pattern: str, value: Any, schema: Any
) -> Iterator[JSONSchemaFault]:
    if isinstance(value, str) and not matches(pattern, value):
        yield JSONSchemaFault(f"{value!r} does not match {pattern!r}")


def _pattern_properties(
    validator: Any, patterns: Mapping[str, Any], value: Any, schema: Any
) -> Iterator[JSONSchemaFault]:
    if isinstance(value, dict):
        for pattern, part in patterns.items():
            for name, item in value.items():
                if matches(pattern, name):
                    yield from validator.descend(
                        item, part, path=name, schema_path=pattern
                    )


def _additional_properties(
    validator: Any, others: Any, value: Any, schema: Mapping[str, Any]
) -> Iterator[JSONSchemaFault]:
    if not isinstance(value, dict):
        return
    named, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    extra = [
        name
        for name in value
        if name not in named and not any(matches(each, name) for each in patterns)
    ]
    if others is False and extra:
        names = ", ".join(map(repr, sorted(extra)))
        yield JSONSchemaFault(f"Additional properties are not allowed: {names}")
    elif isinstance(others, dict):
        for name in extra:
            yield from validator.descend(value[name], others, path=name)


def _unique_items(
    validator: Any, unique: Any, value: Any, schema: Any
) -> Iterator[JSONSchemaFault]:
    if unique and isinstance(value, list):
        seen = {json.dumps(_as_compared(item), sort_keys=True) for item in value}
        if len(seen) < len(value):
            yield JSONSchemaFault("There are equal items in the list")


def _as_compared(value: Any) -> Any:
    """One and 1.0 are the same number."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {name: _as_compared(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_as_compared(item) for item in value]
    return value


_OWN: dict[str, Check] = {
    "pattern": _pattern,
    "patternProperties": _pattern_properties,
    "additionalProperties": _additional_properties,
    "uniqueItems": _unique_items,
}
Bounded: type[Draft202012Validator] = extend(  # type: ignore[no-untyped-call]
    Draft202012Validator,
    {
        name: _counted(check, STEPS_OF_REFERENCE if name == "$ref" else 1)
        for name, check in {**Draft202012Validator.VALIDATORS, **_OWN}.items()
    },
)
