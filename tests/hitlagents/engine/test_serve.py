"""The served product as a process: started, refused, killed, stopped."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from django.db import transaction

from approvals import services
from approvals.models import AuditEntry, Interrupt, Run
from approvals.states import ExecutionStatus, RunStatus, Settlement
from hitlagents.models import RunInput, Thread
from hitlsite.paths import BASE_DIR
from tests.hitlagents.engine.conftest import eventually
from tests.hitlagents.engine.processes import OURS, Served, shared_database
from tests.plugins.cast import AGENT, ballot


@pytest.fixture
def folder(tmp_path):
    return tmp_path


@pytest.fixture
def manage(folder):
    started: list[Served] = []

    def run(*arguments, program=("manage.py",), **environment) -> Served:
        clean = {k: v for k, v in os.environ.items() if not k.startswith(OURS)}
        settings = {"SAYSO_DATA": str(folder / "data"), "PORT": "0", **environment}
        process = subprocess.Popen(
            [sys.executable, *program, *arguments],
            cwd=BASE_DIR,
            env={**clean, **settings},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        started.append(Served(process))
        return started[-1]

    yield run
    for served in started:
        served.kill()
        assert served.process.stdout is not None
        served.process.stdout.close()


@pytest.mark.once
def test_an_empty_folder_becomes_a_demo_that_one_process_serves(manage):
    served = manage("serve").until_ready()
    page = served.get("/accounts/login/")
    assert "ops-reviewer" in page
    # Hashed names, collected by the start itself.
    styles = re.search(r"/static/css/app\.\w+\.css", page)
    assert styles
    assert served.get(styles[0])

    refused = manage("serve").refused()
    assert "Sayso already runs on" in refused
    assert f"process {served.process.pid}" in refused
    assert "Traceback" not in refused

    assert served.end() < 15


@pytest.mark.once
def test_a_taken_port_is_told_in_a_sentence(manage):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = manage("serve", PORT=str(port)).refused()
    assert f"Cannot listen on port {port} of 127.0.0.1: another program uses it" in said
    assert "Traceback" not in said


@pytest.mark.once
def test_a_worker_of_its_own_is_refused_on_sqlite(manage):
    assert "Set DATABASE_URL to a PostgreSQL database." in manage("worker").refused()


# From here on the process works on the database of the test.


@pytest.fixture
def play(folder):
    """The folder through which the test and the agent of served.py speak."""
    play = folder / "play"
    play.mkdir()
    (play / "hold").touch()
    return play


@pytest.fixture
def serve(manage, folder, play, transactional_db):
    def run(*arguments: str) -> Served:
        return manage(
            *(arguments or ("serve",)),
            program=("-m", "tests.hitlagents.engine.served"),
            SAYSO_PLAY=str(play),
            SAYSO_DEMO="0",
            **shared_database(folder),
        )

    return run


@pytest.fixture
def ask(make_run, mia):
    """Ask the agent to delete a file."""

    def ask(filename: str) -> Run:
        with transaction.atomic():
            run = make_run()
            thread = Thread.objects.create(id=run.thread, agent=AGENT, owner=mia)
            RunInput.objects.create(run=run, thread=thread, message=filename)
        return run

    return ask


def has_status(run: Run, *statuses: RunStatus) -> bool:
    run.refresh_from_db()
    return run.status in statuses


def approve(run: Run, reviewer) -> None:
    interrupt: Interrupt = run.interrupts.get()
    services.decide(interrupt.pk, ballot(interrupt), reviewer=reviewer)


def ran(play: Path) -> list[str]:
    return sorted((play / "ran").read_text(encoding="utf-8").split())


def test_k05_k06_no_kill_loses_or_repeats_anything(serve, ask, play, rita):
    spots = ("before", "inside", "after")
    runs = {spot: ask(f"{spot}.txt") for spot in (*spots, "waiting")}
    served = serve().until_ready()
    for run in runs.values():
        assert eventually(lambda run=run: has_status(run, RunStatus.WAITING))
    for spot in spots:
        approve(runs[spot], rita)
    assert eventually(lambda: all((play / f"at-{spot}").exists() for spot in spots))
    served.kill()
    assert ran(play) == ["after.txt", "inside.txt"]

    # Decided while nothing runs that could act on it.
    approve(runs["waiting"], rita)
    (play / "hold").unlink()
    serve().until_ready()
    for spot in ("before", "after", "waiting"):
        assert eventually(lambda run=runs[spot]: has_status(run, RunStatus.FINISHED))
    assert eventually(lambda: has_status(runs["inside"], RunStatus.IN_DOUBT))
    assert ran(play) == ["after.txt", "before.txt", "inside.txt", "waiting.txt"]

    # A person looks, and it goes on without running again.
    doubtful = runs["inside"].executions.get(status=ExecutionStatus.IN_DOUBT)
    services.settle_execution(
        doubtful.pk, settlement=Settlement.RAN, actor=rita, note="The file is gone."
    )
    assert eventually(lambda: has_status(runs["inside"], RunStatus.FINISHED))
    assert len(ran(play)) == 4
    assert AuditEntry.objects.filter(action="execution.started").count() == 4


def test_it_ends_in_time_although_a_tool_never_returns(serve, ask, play, rita):
    stuck, cut = ask("blocked.txt"), ask("before.txt")
    served = serve().until_ready()
    for run in (stuck, cut):
        assert eventually(lambda run=run: has_status(run, RunStatus.WAITING))
        approve(run, rita)
    assert eventually((play / "at-blocked").exists)
    assert eventually((play / "at-before").exists)
    assert served.end() < 15
    # The lease was given back, so whoever comes next need not wait for it to lapse.
    assert services.claim_run(cut.pk, owner="next") is not None
    assert services.claim_run(stuck.pk, owner="next") is None
    assert has_status(stuck, RunStatus.IN_DOUBT)


@pytest.mark.postgresql
def test_a_worker_runs_what_a_process_without_one_serves(
    serve, ask, rita, redis_url, manage, folder, play
):
    (play / "hold").unlink()
    shared = {**shared_database(folder), "REDIS_URL": redis_url}
    shared |= {"SAYSO_PLAY": str(play), "SAYSO_DEMO": "0"}
    program = ("-m", "tests.hitlagents.engine.served")
    manage("serve", "--no-worker", program=program, **shared).until_ready()
    run = ask("one.txt")
    worker = manage("worker", program=program, **shared)
    assert eventually(lambda: has_status(run, RunStatus.WAITING))
    approve(run, rita)
    assert eventually(lambda: has_status(run, RunStatus.FINISHED))
    assert worker.end() < 15
