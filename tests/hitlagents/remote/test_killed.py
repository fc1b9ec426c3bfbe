"""M18, M21: kill -9 while a remote agent has been asked something."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from approvals import services
from approvals.models import ToolExecution
from approvals.states import ExecutionStatus, RunStatus, Settlement
from hitlagents import conversations
from hitlagents.models import RemoteAgent
from hitlsite.paths import BASE_DIR
from tests.hitlagents.driving import rules
from tests.hitlagents.engine.conftest import eventually
from tests.hitlagents.engine.processes import OURS, Served, shared_database
from tests.hitlagents.remote.conftest import finished, pauses, result, sse, started
from tests.plugins.cast import ballot


@pytest.fixture
def site(tmp_path, transactional_db):
    """The product as a process of its own, on the database of the test."""
    running: list[Served] = []

    def start() -> Served:
        clean = {k: v for k, v in os.environ.items() if not k.startswith(OURS)}
        process = subprocess.Popen(
            [sys.executable, "manage.py", "serve"],
            cwd=BASE_DIR,
            env={
                **clean,
                "SAYSO_DATA": str(tmp_path / "data"),
                "PORT": "0",
                "SAYSO_DEMO": "0",
                **shared_database(tmp_path),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        running.append(Served(process))
        return running[-1].until_ready()

    yield start
    for served in running:
        served.kill()
        assert served.process.stdout is not None
        served.process.stdout.close()


def agent(slug, stub):
    row = RemoteAgent(slug=slug, name=slug, url=stub.url, allow_private=True)
    row.save()
    rules(slug)
    return row


def has_status(run, status):
    run.refresh_from_db()
    return run.status == status


def test_m18_a_killed_worker_sends_nothing_twice(serve, site, desk, mia, rita):
    held = {"parts": [{"until": "never"}]}
    asking = serve(pauses(), held, sse(started(), result("Deleted 1.txt."), finished()))
    silent = serve(held)
    agent("asking", asking)
    agent("silent", silent)
    runs = {}
    for slug in ("asking", "silent"):
        thread = conversations.open_thread(slug, owner=mia)
        runs[slug] = conversations.send(thread.pk, "Please", author=mia)

    served = site()
    assert eventually(lambda: has_status(runs["asking"], RunStatus.WAITING))
    interrupt = runs["asking"].interrupts.get()
    services.decide(interrupt.pk, ballot(interrupt), reviewer=rita)
    assert eventually(lambda: len(asking.bodies) == 2 and len(silent.bodies) == 1)
    served.kill()

    site()
    assert eventually(lambda: has_status(runs["asking"], RunStatus.IN_DOUBT))
    assert eventually(lambda: has_status(runs["silent"], RunStatus.FAILED))
    assert "sent to the agent before" in runs["silent"].error
    assert (len(asking.bodies), len(silent.bodies)) == (2, 1)

    # A person looked there, and found that it had not arrived.
    services.settle_execution(
        ToolExecution.objects.get().pk,
        settlement=Settlement.RUN_AGAIN,
        actor=rita,
        note="Nothing in their log.",
    )
    assert eventually(lambda: has_status(runs["asking"], RunStatus.FINISHED))
    assert len(asking.bodies) == 3
    execution = ToolExecution.objects.get()
    assert (execution.status, execution.result) == (
        ExecutionStatus.DONE,
        "Deleted 1.txt.",
    )
