"""Runs the tests on SQLite, and meanwhile on PostgreSQL when one answers.

    ./dev test                      everything
    ./dev test tests/test_env.py    arguments go to pytest; SQLite only
    ./dev test --postgres [...]     PostgreSQL only
    ./dev test --sqlite [...]       SQLite only

SAYSO_TEST_POSTGRES names the server, as postgres://user:password@host:port/database;
the tests make a database of their own there and drop it again.
"""

from __future__ import annotations

import getpass
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
CI = os.environ.get("SAYSO_REQUIRE_ALL", "") not in {"", "0"}


def find_postgres() -> str | None:
    import psycopg

    named = os.environ.get("SAYSO_TEST_POSTGRES")
    candidates = [named] if named else guesses()
    for url in candidates:
        try:
            with psycopg.connect(url, connect_timeout=2) as connection:
                row = connection.execute(
                    "SELECT rolcreatedb OR rolsuper FROM pg_roles"
                    " WHERE rolname = current_user"
                ).fetchone()
        except psycopg.OperationalError:
            continue
        if row and row[0]:
            return url
    return None


def guesses() -> list[str]:
    user = getpass.getuser()
    return [f"postgres://{name}@127.0.0.1:5432/postgres" for name in (user, "postgres")]


def pytest(arguments: list[str], database_url: str | None) -> tuple[list[str], Any]:
    """The command of one pass and its environment."""
    environment = dict(os.environ)
    for name in ("DATABASE_URL", "REDIS_URL"):
        environment.pop(name, None)
    if database_url:
        environment["DATABASE_URL"] = database_url
    # What takes long is said at the end of a whole pass: it is where to look first.
    arguments = arguments or ["--durations=15"]
    return [sys.executable, "-m", "pytest", *arguments], environment


def run_pytest(arguments: list[str], database_url: str | None) -> int:
    command, environment = pytest(arguments, database_url)
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


@contextmanager
def beside(arguments: list[str], database_url: str) -> Iterator[Callable[[], int]]:
    """A pass that runs meanwhile, since a pass waits more than it works.

    What it gives waits for the end, says all that the pass said, and gives its code.
    """
    command, environment = pytest(arguments, database_url)
    with tempfile.TemporaryFile() as said:
        second = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=said, stderr=subprocess.STDOUT
        )

        def end() -> int:
            code = second.wait()
            said.seek(0)
            sys.stdout.buffer.write(said.read())
            sys.stdout.flush()
            return code

        try:
            yield end
        finally:
            second.kill()
            second.wait()


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(arguments: list[str]) -> int:
    only = next((a for a in arguments if a in {"--sqlite", "--postgres"}), None)
    arguments = [argument for argument in arguments if argument != only]
    if only == "--sqlite" or (arguments and only is None):
        return run_pytest(arguments, None)

    url = find_postgres()
    if only == "--postgres":
        return run_pytest(arguments, url) if url else without_postgres(required=True)
    say("== Tests on SQLite")
    if url is None:
        return run_pytest(arguments, None) or without_postgres(required=CI)
    with beside(arguments, url) as end:
        code = run_pytest(arguments, None)
        say("== Tests on PostgreSQL")
        return end() or code


def without_postgres(*, required: bool) -> int:
    if required:
        say("== Tests on PostgreSQL: no server answers (SAYSO_TEST_POSTGRES).")
        return 1
    say(
        "== Left out: the second pass, on PostgreSQL. No server answers at "
        "127.0.0.1:5432\n   that lets this account make databases; name one with "
        "SAYSO_TEST_POSTGRES."
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
