"""How npm packages come to the tests that need them."""

from __future__ import annotations

import os

import pytest

from tests import npm

pytestmark = pytest.mark.once

OFFLINE = "npm error code EAI_AGAIN\nnpm error request to the registry failed"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a lock, and an npm that notes how it was called."""
    program = tmp_path / "bin" / "npm"
    program.parent.mkdir()
    program.write_text(
        "#!/bin/sh\n"
        'mkdir -p node_modules && echo "$@" >>calls\n'
        'if [ -n "$SAYS" ]; then echo "$SAYS" >&2; exit 1; fi\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    (tmp_path / "package-lock.json").write_text("{}")
    return tmp_path


def calls(folder):
    return (folder / "calls").read_text().splitlines()


def test_packages_are_installed_once_for_each_lock(folder):
    assert npm.install(folder) == folder
    npm.install(folder)
    (call,) = calls(folder)
    assert call.startswith("ci --ignore-scripts")
    (folder / "package-lock.json").write_text("{ }")
    npm.install(folder)
    assert len(calls(folder)) == 2


def test_without_packages_and_registry_a_test_is_left_out(folder, monkeypatch):
    monkeypatch.setenv("SAYS", OFFLINE)
    for _ in range(2):
        with pytest.raises(pytest.skip.Exception, match="needs npm packages"):
            npm.install(folder)
    assert len(calls(folder)) == 2


def test_packages_that_cannot_be_installed_are_a_failure(folder, monkeypatch):
    monkeypatch.setenv("SAYS", "npm error code EINTEGRITY")
    with pytest.raises(pytest.fail.Exception, match="EINTEGRITY"):
        npm.install(folder)
