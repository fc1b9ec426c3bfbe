"""What an installation needs before it serves: one process on its data, and a database
and static files that are up to date. All of it may be done again at every start.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from django.conf import settings
from django.core.files import locks
from django.core.management import call_command
from django.db import close_old_connections, connection
from django.db.migrations.executor import MigrationExecutor

from approvals import services
from hitlagents.demo import people
from hitlsite import static_files

#: PostgreSQL's name for "somebody brings this database up to date": any fixed number.
UPGRADE_LOCK = 7_236_511


class AlreadyRunning(Exception):
    """Another process works on this data folder."""


@contextmanager
def only_process(folder: Path) -> Iterator[None]:
    """Keep the data folder to this process. Raises AlreadyRunning.

    Two on one SQLite database would tell each other nothing: pages would go stale and
    runs would wait. The system frees the lock however this process ends.
    """
    with (folder / "serve.lock").open("a+", encoding="ascii") as file:
        if not locks.lock(file, locks.LOCK_EX | locks.LOCK_NB):
            file.seek(0)
            raise AlreadyRunning(
                f"Sayso already runs on {folder} (process {file.read().strip()}). "
                "Stop it first, or name another folder with SAYSO_DATA."
            )
        file.seek(0)
        file.truncate()
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield


def bring_up_to_date() -> None:
    """Tables, groups, the demo on an empty database, static files."""
    with _one_at_a_time():
        _migrate()
        services.prepare()
        if settings.SAYSO_DEMO:
            people.seed()
    static_files.collect_if_changed()
    # This thread asks nothing more, and others need what the pool has.
    close_old_connections()


@contextmanager
def _one_at_a_time() -> Iterator[None]:
    """Processes that start together on PostgreSQL take turns; on SQLite there is one."""
    if connection.vendor != "postgresql":
        yield
        return
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_lock(%s)", [UPGRADE_LOCK])
        try:
            yield
        finally:
            cursor.execute("SELECT pg_advisory_unlock(%s)", [UPGRADE_LOCK])


def _migrate() -> None:
    executor = MigrationExecutor(connection)
    # The command also looks for new permissions and types, which takes a while.
    if executor.migration_plan(executor.loader.graph.leaf_nodes()):
        call_command("migrate", interactive=False, verbosity=0)
