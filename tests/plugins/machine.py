"""What this machine offers beyond Python: Chromium, Node.js, PostgreSQL, Redis.

Tests say what they need by using a fixture or a marker of this file:

- fixture `chromium`      path of a Chromium to drive; skips without one
- fixture `node`          path of a Node.js that has npm; skips without one
- fixture `redis_url`     address of a Redis to use; skips without one
- marker `postgresql`     runs in the PostgreSQL pass only (see tests/passes.py)
- marker `once`           one database will do: a pass of its own, on SQLite
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from urllib.parse import urlsplit

import pytest
from django.conf import settings

CHROMIUM_NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
OLDEST_NODE = 20


def find_chromium() -> str | None:
    named = os.environ.get("SAYSO_CHROMIUM")
    if named:
        return named
    return next((path for name in CHROMIUM_NAMES if (path := shutil.which(name))), None)


def find_node() -> str | None:
    """A Node.js of version 20 or newer, with npm."""
    path = shutil.which("node")
    if path is None or shutil.which("npm") is None:
        return None
    said = subprocess.run([path, "--version"], capture_output=True, text=True)
    major = said.stdout.strip().removeprefix("v").partition(".")[0]
    return path if major.isdigit() and int(major) >= OLDEST_NODE else None


def find_redis() -> str | None:
    url = os.environ.get("SAYSO_TEST_REDIS") or "redis://127.0.0.1:6379/0"
    parts = urlsplit(url)
    try:
        with socket.create_connection(
            (parts.hostname or "127.0.0.1", parts.port or 6379), timeout=1
        ) as connection:
            connection.sendall(b"PING\r\n")
            answer = connection.recv(16)
    except OSError:
        return None
    # A Redis that wants a password answers too; the tests bring the password along.
    return url if answer.startswith((b"+PONG", b"-NOAUTH")) else None


def on_postgresql() -> bool:
    engine: str = settings.DATABASES["default"]["ENGINE"]
    return engine.endswith("postgresql")


@pytest.fixture(scope="session")
def chromium() -> str:
    path = find_chromium()
    if path is None:
        pytest.skip("needs Chromium, which is not installed")
    return path


@pytest.fixture(scope="session")
def node() -> str:
    path = find_node()
    if path is None:
        pytest.skip(f"needs Node.js {OLDEST_NODE} with npm, which is not installed")
    return path


@pytest.fixture(scope="session")
def redis_url() -> str:
    url = find_redis()
    if url is None:
        pytest.skip("needs Redis, which does not answer (SAYSO_TEST_REDIS)")
    return url


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "postgresql: runs in the PostgreSQL pass only.")
    config.addinivalue_line("markers", "once: one database will do.")


def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    unwanted = "once" if on_postgresql() else "postgresql"
    deselected = [item for item in items if item.get_closest_marker(unwanted)]
    if deselected:
        items[:] = [item for item in items if item not in set(deselected)]
        config.hook.pytest_deselected(items=deselected)
