"""`manage.py` as a process of its own, and the database of the test in it."""

from __future__ import annotations

import os
import re
import selectors
import signal
import subprocess
import time
from pathlib import Path
from urllib.parse import urlsplit

import httpx
from django.db import connection

OURS = ("SAYSO_", "DATABASE_URL", "REDIS_URL", "DJANGO_", "PYTEST_", "HOST", "PORT")

#: Seconds for what takes two or three on a machine that is not busy.
PATIENCE = 120


class Served:
    """A process of `manage.py`, ended at the latest with the test."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.said = ""
        self.url = ""

    def until_ready(self) -> Served:
        assert self.process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            while not self.url and selector.select(timeout=PATIENCE):
                line = self.process.stdout.readline()
                assert line, f"It ended: {self.said}"
                self.said += line
                if found := re.search(r"http://\S+", line):
                    self.url = found[0]
        assert self.url, f"It did not become ready: {self.said}"
        return self

    def get(self, path: str) -> str:
        return httpx.get(self.url + path, timeout=PATIENCE).raise_for_status().text

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(PATIENCE)

    def end(self) -> float:
        """Ask it to end; say how many seconds that took."""
        begun = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(PATIENCE) == 0
        return time.monotonic() - begun

    def refused(self) -> str:
        """What it says when it does not start."""
        said, _ = self.process.communicate(timeout=PATIENCE)
        assert self.process.returncode == 1, said
        return said


def shared_database(folder: Path) -> dict[str, str]:
    name = connection.settings_dict["NAME"]
    if connection.vendor == "sqlite":
        data = folder / "data"
        data.mkdir(exist_ok=True)
        link = data / "sayso.sqlite3"
        if not link.exists():
            link.symlink_to(name)
        return {}
    url = urlsplit(os.environ["DATABASE_URL"])._replace(path=f"/{name}").geturl()
    return {"DATABASE_URL": url, "SAYSO_SECRET_KEY": "for-tests-" + "x" * 50}


def drop_the_others() -> None:
    """As a restart of the server does it: everybody's connection is gone but this one."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
