"""The two databases Sayso runs on, as entries of Django's DATABASES."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from django.core.exceptions import ImproperlyConfigured

# Every atomic block takes the write lock at once: with the default, a block that reads
# first and then writes fails with "database is locked" as soon as a second one writes.
# FULL, because a decision must survive a power cut.
SQLITE_PRAGMAS = (
    "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA foreign_keys=ON;"
)


def sqlite(path: Path, *, test_directory: Path) -> dict[str, Any]:
    return {
        # Its own queue for writers: see the module.
        "ENGINE": "hitlsite.sqlite",
        "NAME": path,
        # Opening the file costs more than most queries; our threads are few and last.
        "CONN_MAX_AGE": None,
        "OPTIONS": {
            "transaction_mode": "IMMEDIATE",
            "timeout": 20,
            "init_command": SQLITE_PRAGMAS,
        },
        # A file, not memory: threads cannot wait for each other on a database in memory.
        "TEST": {"NAME": str(test_directory / "test.sqlite3")},
    }


def refuse_dropped(connection: Any) -> None:
    """Raise if the server dropped this connection while it was in the pool.

    A restart drops them all, and the pool waits longer after each one it finds: the sixth
    would come after the twenty seconds that anybody waits. So the first looks at all.
    """
    pool = connection._pool
    try:
        pool.check_connection(connection)
    except Exception:
        pool.check()
        raise


def postgresql(url: str, *, pool_size: int) -> dict[str, Any]:
    parts = urlsplit(url)
    if parts.scheme not in {"postgres", "postgresql"}:
        raise ImproperlyConfigured(
            f"DATABASE_URL begins with {parts.scheme!r}, but it must be a "
            "postgres:// address. Leave it out to use SQLite."
        )
    name = unquote(parts.path.removeprefix("/"))
    if not name:
        raise ImproperlyConfigured("DATABASE_URL names no database.")
    try:
        port = parts.port
    except ValueError:
        raise ImproperlyConfigured(
            "DATABASE_URL has a port that is not a number between 0 and 65535."
        ) from None
    options: dict[str, Any] = dict(parse_qsl(parts.query))
    # `?host=/var/run/postgresql` is how such an address names a socket folder.
    host = options.pop("host", None) or unquote(parts.hostname or "")
    # Connections belong to the pool, so Django must not keep any of its own.
    options["pool"] = {
        "min_size": 1,
        "max_size": pool_size,
        "timeout": 20,
        "check": refuse_dropped,
    }
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": name,
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": host,
        "PORT": str(port or options.pop("port", "")),
        "CONN_MAX_AGE": 0,
        "OPTIONS": options,
        # The process is in the name so that two test runs do not drop each other's.
        "TEST": {"NAME": f"test_{name}_{os.getpid()}"},
    }
