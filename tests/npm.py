"""Installs the npm packages of a folder, exactly as its lock file has them."""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
from pathlib import Path

import pytest

#: npm's own words for a registry that it cannot reach.
UNREACHABLE = (
    "EAI_AGAIN",
    "ECONNREFUSED",
    "ECONNRESET",
    "ENOTCACHED",
    "ENOTFOUND",
    "ETIMEDOUT",
)
#: Packages neither run anything while they are installed nor report that they were.
QUIET = {
    "COPILOTKIT_TELEMETRY_DISABLED": "true",
    "DO_NOT_TRACK": "1",
    "SCARF_ANALYTICS": "false",
}


def install(folder: Path) -> Path:
    """Bring ``node_modules`` in step with ``package-lock.json``; returns the folder.

    Skips where the packages are not there and no registry answers.
    """
    lock = folder / "package-lock.json"
    with lock.open("rb") as file:
        # Two passes of the tests run at once, and `npm ci` starts by clearing up.
        fcntl.flock(file, fcntl.LOCK_EX)
        wanted = hashlib.sha256(file.read()).hexdigest()
        stamp = folder / "node_modules" / ".sayso-installed"
        if not stamp.exists() or stamp.read_text("utf-8") != wanted:
            _install(folder)
            stamp.write_text(wanted, "utf-8")
    return folder


def _install(folder: Path) -> None:
    words = ["--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline"]
    done = subprocess.run(
        ["npm", "ci", *words],
        cwd=folder,
        env=os.environ | QUIET,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == 0:
        return
    if any(f"code {reason}" in done.stderr for reason in UNREACHABLE):
        pytest.skip("needs npm packages, and their registry does not answer")
    pytest.fail(f"npm ci failed in {folder.name}:\n{done.stderr}")
