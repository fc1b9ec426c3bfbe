"""Python in a process of its own, where nothing has been imported yet."""

from __future__ import annotations

import os
import subprocess
import sys

#: Sets Django up; where pytest has been imported, with the settings of a test.
SET_UP = """
import django, pytest
django.setup()
"""


def run_python(*arguments: str, given: str = "", **environ: str) -> str:
    """What it writes to standard output. A warning ends it, and so fails the test."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("OPENAI_")}
    done = subprocess.run(
        [sys.executable, "-W", "error", *arguments],
        input=given,
        env={
            **inherited,
            "PYTHONPATH": os.pathsep.join([".", "agents"]),
            "SAYSO_MODEL": "",
            **environ,
        },
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def run_code(code: str, **environ: str) -> None:
    """Run code of the tests in it, with Django set up."""
    run_python(
        "-c", SET_UP + code, DJANGO_SETTINGS_MODULE="hitlsite.settings", **environ
    )
