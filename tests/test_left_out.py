from __future__ import annotations

import os
import subprocess
import sys

import pytest

from hitlsite.paths import BASE_DIR

pytestmark = pytest.mark.once

SAMPLE = """
import pytest

def test_that_runs():
    pass

def test_that_skips():
    pytest.skip("needs the moon")

@pytest.mark.xfail(reason="known")
def test_that_fails_as_expected():
    assert False
"""


def run(folder, source: str, **environment: str) -> subprocess.CompletedProcess[str]:
    folder.joinpath("test_sample.py").write_text(source)
    folder.joinpath("pytest.ini").write_text("[pytest]\n")
    clean = {k: v for k, v in os.environ.items() if k != "SAYSO_REQUIRE_ALL"}
    plugins = ("no:django", "no:langsmith_plugin", "tests.plugins.left_out")
    return subprocess.run(
        [sys.executable, "-m", "pytest", *(f"-p{name}" for name in plugins)],
        cwd=folder,
        env={**clean, "PYTHONPATH": str(BASE_DIR), **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_what_was_left_out_is_said_at_the_end(tmp_path):
    done = run(tmp_path, SAMPLE)
    assert done.returncode == 0
    assert "1 test: needs the moon" in done.stdout
    assert "known" not in done.stdout.split("left out")[1]


def test_nothing_may_be_left_out_when_everything_is_required(tmp_path):
    done = run(tmp_path, SAMPLE, SAYSO_REQUIRE_ALL="1")
    assert done.returncode == 1
    assert "so this run has failed" in done.stdout


def test_a_run_without_skips_passes_when_everything_is_required(tmp_path):
    source = SAMPLE.replace('pytest.skip("needs the moon")', "pass")
    done = run(tmp_path, source, SAYSO_REQUIRE_ALL="1")
    assert done.returncode == 0
    assert "left out" not in done.stdout
