"""`manage.py serve` in a process of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from hitlsite.paths import BASE_DIR

READY = re.compile(r"Sayso is ready on (http://\S+)")
#: Seconds a busy machine may need to make a database and to start.
STARTS_WITHIN = 120


class Served:
    """A running Sayso and where its data is.

    ``environment`` replaces that of a demo on an empty SQLite database, with scripted
    models and nothing of this machine's own settings.
    """

    def __init__(
        self,
        data: Path,
        *,
        program: Sequence[str] = ("manage.py",),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.data = data
        self.log = data / "serve.log"
        self.url = ""
        self._program = program
        if environment is None:
            environment = _environment() | {"SAYSO_DATA": str(data), "PORT": "0"}
        self._environment = dict(environment)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *words: str, **environment: str) -> None:
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, *self._program, "serve", *words],
                cwd=BASE_DIR,
                env=self._environment | environment,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self.url = self._wait()

    def manage(self, *words: str) -> str:
        """Run another command on the same data."""
        return subprocess.run(
            [sys.executable, *self._program, *words],
            cwd=BASE_DIR,
            env=self._environment,
            capture_output=True,
            text=True,
            check=True,
        ).stdout

    def said(self) -> str:
        """What it wrote since its data folder was made."""
        return self.log.read_text(encoding="utf-8")

    def _wait(self) -> str:
        assert self._process is not None
        until = time.monotonic() + STARTS_WITHIN
        while time.monotonic() < until and self._process.poll() is None:
            found = READY.findall(self.said())
            if found:
                return str(found[-1])
            time.sleep(0.1)
        self.stop()
        pytest.fail("Sayso did not start:\n" + self.said())

    def stop(self) -> None:
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(timeout=15)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None


def _environment() -> dict[str, str]:
    keep = ("PATH", "HOME", "LANG", "TMPDIR", "VIRTUAL_ENV")
    return {name: os.environ[name] for name in keep if name in os.environ}
