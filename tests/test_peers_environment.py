"""The environment of the servers in tests/peers: made once, and again for another lock file."""

from __future__ import annotations

import pytest

from tests.plugins import peers

pytestmark = pytest.mark.once


@pytest.fixture
def calls(monkeypatch):
    """The commands, which only make what is looked for afterwards."""
    made = []

    def call(*command):
        made.append(command)
        if "venv" in command:
            python = peers.Path(command[-1]) / "bin" / "python"
            python.parent.mkdir(parents=True, exist_ok=True)
            python.touch()

    monkeypatch.setattr(peers, "_call", call)
    return made


def test_it_is_made_when_the_lock_file_has_changed(tmp_path, calls):
    lock = tmp_path / "requirements.lock"
    lock.write_text("one")
    python = peers.prepare(tmp_path / "env", lock)
    assert python == tmp_path / "env" / "bin" / "python"
    assert len(calls) == 2
    assert "--require-hashes" in calls[1]
    assert peers.prepare(tmp_path / "env", lock) == python
    assert len(calls) == 2
    lock.write_text("two")
    peers.prepare(tmp_path / "env", lock)
    assert len(calls) == 4


def test_one_that_was_not_finished_is_made_again(tmp_path, calls, monkeypatch):
    lock = tmp_path / "requirements.lock"
    lock.write_text("one")

    def fails(python, lock):
        raise peers.Unavailable("no network")

    with monkeypatch.context() as patch:
        patch.setattr(peers, "_install", fails)
        with pytest.raises(peers.Unavailable, match="no network"):
            peers.prepare(tmp_path / "env", lock)
    assert len(calls) == 1
    peers.prepare(tmp_path / "env", lock)
    assert len(calls) == 3


def test_what_a_command_says_is_the_reason():
    with pytest.raises(peers.Unavailable, match="No such file"):
        peers._call("/no/such/command")
    with pytest.raises(peers.Unavailable, match="it is so"):
        peers._call("sh", "-c", "echo first >&2; echo it is so >&2; exit 3")
