"""Typed readers of environment variables.

A value that cannot be read stops the start with a sentence that names the variable;
a variable that is set to nothing counts as not set.
"""

from __future__ import annotations

import os
from pathlib import Path

from django.core.exceptions import ImproperlyConfigured

TRUE = {"1", "true", "yes", "on"}
FALSE = {"0", "false", "no", "off"}


def env_str(name: str, default: str = "") -> str:
    return os.environ.get(name, "").strip() or default


def env_bool(name: str, *, default: bool = False) -> bool:
    value = env_str(name)
    if not value:
        return default
    if value.lower() in TRUE:
        return True
    if value.lower() in FALSE:
        return False
    raise ImproperlyConfigured(
        f"{name} is {value!r}, but it must be one of 1, true, yes, on, "
        "0, false, no or off."
    )


def env_int(
    name: str, default: int, *, minimum: int = 0, maximum: int | None = None
) -> int:
    value = env_str(name)
    if not value:
        return default
    try:
        number = int(value)
    except ValueError:
        raise ImproperlyConfigured(
            f"{name} is {value!r}, but it must be a whole number."
        ) from None
    if number < minimum or (maximum is not None and number > maximum):
        bounds = f"at least {minimum}"
        if maximum is not None:
            bounds = f"between {minimum} and {maximum}"
        raise ImproperlyConfigured(f"{name} is {number}, but it must be {bounds}.")
    return number


def env_list(name: str, default: list[str] | None = None) -> list[str]:
    items = [item.strip() for item in env_str(name).split(",")]
    return [item for item in items if item] or list(default or [])


def env_secret(name: str, default: str = "") -> str:
    """Read NAME, or the file that NAME_FILE points to; never both."""
    value, file_name = env_str(name), env_str(f"{name}_FILE")
    if value and file_name:
        raise ImproperlyConfigured(
            f"{name} and {name}_FILE are both set, but only one of them may be."
        )
    if not file_name:
        return value or default
    try:
        value = Path(file_name).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as exc:
        raise ImproperlyConfigured(
            f"{name}_FILE names {file_name!r}, which cannot be read: {exc}."
        ) from exc
    if not value:
        raise ImproperlyConfigured(f"{name}_FILE names {file_name!r}, which is empty.")
    return value
