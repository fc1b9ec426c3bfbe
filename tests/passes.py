"""Runs the tests on SQLite and, when one answers, on PostgreSQL.

    ./dev test                      everything, in passes that run at once
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
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Pass:
    name: str
    arguments: Sequence[str]
    database_url: str | None = None

    def command(self) -> tuple[list[str], dict[str, str]]:
        """What to call, and its environment."""
        environment = dict(os.environ)
        for name in ("DATABASE_URL", "REDIS_URL"):
            environment.pop(name, None)
        if self.database_url:
            environment["DATABASE_URL"] = self.database_url
            # What no test looks at: whether a commit outlives a power cut.
            environment.setdefault("PGOPTIONS", "-c synchronous_commit=off")
        return [sys.executable, "-m", "pytest", *self.arguments], environment

    def run(self) -> int:
        command, environment = self.command()
        return subprocess.run(
            command, cwd=ROOT, env=environment, check=False
        ).returncode

    @contextmanager
    def beside(self) -> Iterator[Callable[[], int]]:
        """Have it run meanwhile.

        What this gives waits for the end, says all that was said, and gives its code.
        """
        command, environment = self.command()
        with tempfile.TemporaryFile() as said:
            process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=environment,
                stdout=said,
                stderr=subprocess.STDOUT,
            )

            def end() -> int:
                code = process.wait()
                say(f"== Tests {self.name}")
                said.seek(0)
                sys.stdout.buffer.write(said.read())
                sys.stdout.flush()
                return code

            try:
                yield end
            finally:
                process.kill()
                process.wait()


def whole(url: str | None) -> int:
    """All tests, in passes that run at once: each of them waits more than it works."""
    # What takes long is said at the end: it is where to look first.
    slowest = "--durations=15"
    first = Pass("for which one database will do", ["-m", "once", slowest])
    others = [Pass("on SQLite", ["-m", "not once", slowest])]
    if url:
        others.append(Pass("on PostgreSQL", [slowest], url))
    with ExitStack() as stack:
        ends = [stack.enter_context(other.beside()) for other in others]
        say(f"== Tests {first.name}")
        codes = [first.run(), *(end() for end in ends)]
    return next(filter(None, codes), 0)


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(arguments: list[str]) -> int:
    only = next((a for a in arguments if a in {"--sqlite", "--postgres"}), None)
    arguments = [argument for argument in arguments if argument != only]
    if only == "--sqlite" or (arguments and only is None):
        return Pass("on SQLite", arguments).run()

    url = find_postgres()
    if only is None:
        return whole(url) or (0 if url else without_postgres(required=CI))
    if url is None:
        return without_postgres(required=True)
    return Pass("on PostgreSQL", arguments, url).run()


def without_postgres(*, required: bool) -> int:
    if required:
        say("== Tests on PostgreSQL: no server answers (SAYSO_TEST_POSTGRES).")
        return 1
    say(
        "== Left out: the tests on PostgreSQL. No server answers at "
        "127.0.0.1:5432\n   that lets this account make databases; name one with "
        "SAYSO_TEST_POSTGRES."
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
