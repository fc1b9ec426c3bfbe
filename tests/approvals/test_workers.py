"""M18: a worker that may live is never taken for one that is gone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from approvals.services import (
    keep_work_to_this_process,
    worker_is_gone,
    worker_name,
    workers,
)
from hitlsite.paths import BASE_DIR

#: A number that no process has.
NOBODY = 2**22 + 1


@pytest.fixture
def other():
    """The name of another process, and the process."""
    program = (
        "from approvals.services.workers import worker_name;"
        "print(worker_name(), flush=True); input()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", f"import django; django.setup(); {program}"],
        cwd=BASE_DIR,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"DJANGO_SETTINGS_MODULE": "hitlsite.settings"},
    )
    yield process.stdout.readline().strip(), process
    process.kill()
    process.wait()
    process.stdin.close()
    process.stdout.close()


def elsewhere(name, monkeypatch, place):
    """The name as a worker of the same host, process and start would have it there."""
    here = workers._here()
    with monkeypatch.context() as there:
        there.setattr(workers, "_place", lambda: place)
        return name.replace(here, workers._here())


def test_m18_a_process_is_gone_once_it_has_ended(other):
    name, process = other
    assert not worker_is_gone(name)
    assert not worker_is_gone(worker_name())
    process.kill()
    process.wait()
    assert worker_is_gone(name)


def test_m18_a_number_that_was_given_again_is_another_process():
    here, pid, start = worker_name().rsplit(":", 2)
    assert worker_is_gone(f"{here}:{pid}:{int(start) - 1}")
    assert worker_is_gone(f"{here}:{NOBODY}:{start}")
    assert worker_is_gone("")


@pytest.mark.parametrize("place", ["another-start 4026531836", "this-start 4026532000"])
def test_m18_machines_and_containers_of_one_name_are_not_taken_for_one(
    monkeypatch, place
):
    monkeypatch.setattr(workers, "_place", lambda: "this-start 4026531836")
    name = worker_name().rsplit(":", 2)[0] + f":{NOBODY}:1"
    assert worker_is_gone(name)
    assert not worker_is_gone(elsewhere(name, monkeypatch, place))


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere it is a network card")
def test_m18_a_place_is_a_start_of_the_machine_and_a_room_of_processes():
    place = workers._place()
    assert Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip() in place
    assert str(Path("/proc/self/ns/pid").stat().st_ino) in place


@pytest.mark.parametrize("name", ["host:1:1", "w", "host/place:x:1", ":::"])
def test_m18_of_a_name_that_says_too_little_nothing_is_known(name):
    assert not worker_is_gone(name)


def test_m18_where_processes_cannot_be_told_nothing_is_known(monkeypatch):
    here = worker_name().rsplit(":", 2)[0]
    monkeypatch.setattr(workers, "_sees_itself", lambda: False)
    assert not worker_is_gone(f"{here}:{NOBODY}:1")


def test_m18_alone_on_its_database_a_worker_knows_that_others_are_gone(monkeypatch):
    """Also after the machine was started anew, or its container."""
    name = elsewhere(worker_name(), monkeypatch, "the start before")
    assert not worker_is_gone(name)
    keep_work_to_this_process()
    try:
        assert worker_is_gone(name)
        assert not worker_is_gone(worker_name())
    finally:
        workers._alone.clear()
