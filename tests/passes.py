"""Runs the tests on SQLite, and a second time on PostgreSQL when one answers.

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
from pathlib import Path

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


def run_pytest(arguments: list[str], database_url: str | None) -> int:
    environment = dict(os.environ)
    for name in ("DATABASE_URL", "REDIS_URL"):
        environment.pop(name, None)
    if database_url:
        environment["DATABASE_URL"] = database_url
    # What takes long is said at the end of a whole pass: it is where to look first.
    command = [sys.executable, "-m", "pytest", *(arguments or ["--durations=15"])]
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(arguments: list[str]) -> int:
    only = next((a for a in arguments if a in {"--sqlite", "--postgres"}), None)
    arguments = [argument for argument in arguments if argument != only]
    codes: list[int] = []
    if only != "--postgres":
        say("== Tests on SQLite")
        codes.append(run_pytest(arguments, None))
    if only == "--sqlite" or (arguments and only is None):
        return max(codes)

    url = find_postgres()
    if url:
        say("== Tests on PostgreSQL")
        codes.append(run_pytest(arguments, url))
    elif CI or only:
        say("== Tests on PostgreSQL: no server answers (SAYSO_TEST_POSTGRES).")
        codes.append(1)
    else:
        say(
            "== Left out: the second pass, on PostgreSQL. No server answers at "
            "127.0.0.1:5432\n   that lets this account make databases; name one with "
            "SAYSO_TEST_POSTGRES."
        )
    return next((code for code in codes if code), 0)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
