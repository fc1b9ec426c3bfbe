"""The one textual form of a JSON value, and the keyed digests over it.

Canonical form: UTF-8, keys sorted by code point, no white space, only the escapes JSON
demands, integers exact at any size, floats in their shortest round-trip form as Python's
``repr`` writes them. NaN, infinities, NUL, lone surrogates, repeated keys and keys that
are not strings have no canonical form and are refused. Test vectors: ``docs/canonical.md``.

RFC 8785 is not used: it writes every number as a double and so rounds integers over 2^53.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import math
import secrets
from typing import Any

from approvals.exceptions import InvalidArguments

type JSON = dict[str, JSON] | list[JSON] | str | int | float | bool | None

MAX_BYTES = 8 * 1024 * 1024
MAX_DEPTH = 64
SALT_BYTES = 32


def dumps(value: Any) -> str:
    """Return the canonical text of ``value``; raise InvalidArguments saying where and why."""
    _check(value, "", 0)
    text = _ENCODER.encode(value)
    if len(text) > MAX_BYTES or len(text.encode()) > MAX_BYTES:
        raise InvalidArguments(
            f"The value is larger than {MAX_BYTES // 1024 // 1024} MB."
        )
    return text


def loads(text: str) -> Any:
    """Parse JSON strictly: no NaN, no repeated keys, no absurd depth; integers stay exact."""
    try:
        return _DECODER.decode(text)
    except InvalidArguments:
        raise
    except RecursionError:
        raise InvalidArguments(
            f"The value is nested deeper than {MAX_DEPTH} levels."
        ) from None
    except ValueError as error:
        raise InvalidArguments(f"The text is not valid JSON: {error}.") from None


def new_salt() -> str:
    """A fresh 256-bit salt as 64 hex digits."""
    return secrets.token_hex(SALT_BYTES)


def keyed_digest(salt: str, domain: str, text: str) -> str:
    """HMAC-SHA-256 over ``domain NUL text`` under the hex salt, as hex.

    Keyed, so that a short secret inside the text cannot be guessed from its digest.
    """
    message = domain.encode() + b"\0" + text.encode()
    return hmac.digest(bytes.fromhex(salt), message, "sha256").hex()


def plain_digest(domain: str, text: str) -> str:
    """SHA-256 over ``domain NUL text`` as hex, for what is no secret (schemas, the chain)."""
    return hashlib.sha256(domain.encode() + b"\0" + text.encode()).hexdigest()


def _check(value: Any, path: str, depth: int) -> None:
    where = path or "the value"
    if depth > MAX_DEPTH:
        raise InvalidArguments(f"{where} is nested deeper than {MAX_DEPTH} levels.")
    if value is None or isinstance(value, bool | int):
        return
    if isinstance(value, str):
        _check_text(value, where)
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise InvalidArguments(f"{where} is {value!r}, which JSON cannot hold.")
    elif isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise InvalidArguments(f"{where} has a key that is not text: {key!r}.")
            _check_text(key, f"a key of {where}")
            _check(item, f"{path}.{key}" if path else key, depth + 1)
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            _check(item, f"{path}[{index}]", depth + 1)
    else:
        raise InvalidArguments(
            f"{where} is a {type(value).__name__}, which JSON cannot hold."
        )


def _check_text(text: str, where: str) -> None:
    if "\0" in text:
        raise InvalidArguments(f"{where} holds a NUL character.")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidArguments(f"{where} holds half a character.") from None


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise InvalidArguments(f"The key {key!r} appears twice.")
            seen.add(key)
    return found


def _no_constant(name: str) -> None:
    raise InvalidArguments(f"{name} is not JSON.")


_ENCODER = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
)
_DECODER = json.JSONDecoder(object_pairs_hook=_unique_keys, parse_constant=_no_constant)
