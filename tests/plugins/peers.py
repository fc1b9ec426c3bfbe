"""An environment of its own for the servers in tests/peers, whose packages do not fit
beside ours.

Fixture `peers_python`: its interpreter. The environment is made where the lock file has
changed; a test that needs it skips where that cannot be done.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hitlsite.paths import BASE_DIR

LOCK = BASE_DIR / "tests" / "peers" / "requirements.lock"
FOLDER = BASE_DIR / ".venv-peers"
#: Seconds a slow network may take.
PATIENCE = 900


class Unavailable(Exception):
    """The packages could not be installed."""


def prepare(folder: Path, lock: Path) -> Path:
    """The interpreter of an environment that holds what a lock file lists.

    Raises Unavailable.
    """
    python, stamp = folder / "bin" / "python", folder / ".sayso-peers"
    with lock.open("rb") as file:
        # Two passes of the tests may come here at once.
        fcntl.flock(file, fcntl.LOCK_EX)
        wanted = f"{sys.version} {hashlib.sha256(file.read()).hexdigest()}"
        if stamp.is_file() and stamp.read_text() == wanted and python.exists():
            return python
        _call(sys.executable, "-m", "venv", "--clear", str(folder))
        _install(python, lock)
        stamp.write_text(wanted)
    return python


def _install(python: Path, lock: Path) -> None:
    what = ("--require-hashes", "-r", str(lock))
    if shutil.which("uv"):
        _call("uv", "pip", "install", "--quiet", "--python", str(python), *what)
    else:
        _call(str(python), "-m", "pip", "install", "--quiet", *what)


def _call(*command: str) -> None:
    clean = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    try:
        subprocess.run(
            command,
            env=clean,
            check=True,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
    except subprocess.CalledProcessError as error:
        said = error.stderr.strip().splitlines() or ["no reason given"]
        raise Unavailable(said[-1][:200]) from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(str(error)[:200]) from error


@pytest.fixture(scope="session")
def peers_python() -> Path:
    try:
        return prepare(FOLDER, LOCK)
    except Unavailable as error:
        pytest.skip(f"needs packages that cannot be installed here: {error}")
