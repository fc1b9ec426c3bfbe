"""The served product as a process: started, refused, killed, stopped."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections import Counter
from pathlib import Path

import httpx
import pytest
from django.db import transaction
from django.test import Client
from django.urls import reverse

from approvals import services
from approvals.models import AuditEntry, Interrupt, Run
from approvals.states import ExecutionStatus, RunStatus, Settlement
from hitlagents import conversations
from hitlagents.models import LedgerEntry, OutboxMail, RunInput, Thread
from hitlsite.paths import BASE_DIR
from tests.approvals.pages import sign_in
from tests.hitlagents.driving import rules
from tests.hitlagents.engine.conftest import eventually
from tests.hitlagents.engine.processes import (
    OURS,
    PATIENCE,
    Served,
    drop_the_others,
    shared_database,
)
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
def serve(manage, folder, play, transactional_db, settings):
    def run(*arguments: str) -> Served:
        return manage(
            *(arguments or ("serve",)),
            program=("-m", "tests.hitlagents.engine.served"),
            SAYSO_PLAY=str(play),
            SAYSO_DEMO="0",
            # The test's own, so that the process knows sessions that the test made.
            **{**shared_database(folder), "SAYSO_SECRET_KEY": settings.SECRET_KEY},
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


def test_b106_a_tool_that_blocks_holds_up_nobody_else(serve, ask, play, rita):
    """Pages are served, others decide and their runs end while one tool never returns."""
    stuck = ask("blocked.txt")
    served = serve().until_ready()
    assert eventually(lambda: has_status(stuck, RunStatus.WAITING))
    approve(stuck, rita)
    assert eventually((play / "at-blocked").exists)
    others = [ask(f"other-{number}.txt") for number in range(3)]
    cookies = {"sayso_session": sign_in(rita)}
    with httpx.Client(
        base_url=served.url, cookies=cookies, timeout=PATIENCE
    ) as browser:
        for run in others:
            assert eventually(lambda run=run: has_status(run, RunStatus.WAITING))
            asked = run.interrupts.get()
            page = browser.get(reverse("interrupt", args=[asked.pk]))
            assert page.status_code == 200
            assert services.shown_digest(asked) in page.text
            approve(run, rita)
    for run in others:
        assert eventually(lambda run=run: has_status(run, RunStatus.FINISHED))
    assert has_status(stuck, RunStatus.RUNNING)
    assert ran(play) == ["blocked.txt", *(f"other-{number}.txt" for number in range(3))]


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


@pytest.mark.postgresql
def test_a_server_that_drops_idle_connections_is_nobodys_error(
    serve, ask, play, rita, aud
):
    (play / "hold").unlink()
    served = serve().until_ready()
    runs = [ask(f"{number}.txt") for number in range(2)]
    for run in runs:
        assert eventually(lambda run=run: has_status(run, RunStatus.WAITING))
    readers = [
        httpx.Client(
            base_url=served.url,
            cookies={"sayso_session": sign_in(person)},
            timeout=PATIENCE,
        )
        for person in (rita, aud)
    ]
    with readers[0] as reviewer, readers[1] as auditor:
        for run in runs:
            assert reviewer.get(reverse("inbox")).status_code == 200
            assert auditor.get(reverse("audit-export")).text.count("\n") > 1
            drop_the_others()
            assert reviewer.get(reverse("inbox")).status_code == 200
            drop_the_others()
            assert auditor.get(reverse("audit-export")).text.count("\n") > 1
            approve(run, rita)
            assert eventually(lambda run=run: has_status(run, RunStatus.FINISHED))


#: What is said to one agent of each framework, and how often its tools run for it.
SAID = {
    "file-ops": (
        "List the files, then read notes.md, then delete report.txt",
        {"list_files": 1, "read_file": 1, "delete_file": 1},
    ),
    "scheduler": ("Please schedule a 1:1 with Alice", {"schedule_meeting": 1}),
    "support": ("Refund invoice 1042", {"refund_invoice": 1}),
    "banking": (
        "Transfer $500 to account 12345 for rent.",
        {"transferMoney": 1},
    ),
}


def test_b11_b155_b162_every_framework_goes_on_in_another_process(
    manage, folder, transactional_db, mia, rita
):
    """Killed while one request of each framework waits: all are still there, with what they
    asked, each is approved and runs once, and what ran before does not run again."""
    rules("file-ops", "list_files", "read_file")
    for agent in ("scheduler", "support", "banking"):
        rules(agent)
    runs = {}
    for agent, (text, _tools) in SAID.items():
        thread = Thread.objects.create(agent=agent, owner=mia)
        runs[agent] = conversations.send(thread.pk, text, author=mia)
    environment = {"SAYSO_DEMO": "0", **shared_database(folder)}
    first = manage("serve", **environment).until_ready()
    for run in runs.values():
        there = eventually(lambda run=run: has_status(run, RunStatus.WAITING), PATIENCE)
        assert there, run.error
    waiting = {one.pk: one.arguments for one in Interrupt.objects.open()}
    assert len(waiting) == len(runs)
    first.kill()

    manage("serve", **environment).until_ready()
    client = Client()
    client.force_login(rita)
    page = client.get(reverse("inbox"))
    rows = page.context["listing"].open_rows
    assert {row.interrupt.pk: row.interrupt.arguments for row in rows} == waiting
    (badge,) = [each["count"] for each in page.context["nav"] if each["key"] == "inbox"]
    assert badge == str(len(waiting))
    for row in rows:
        asked = client.get(reverse("interrupt", args=[row.interrupt.pk])).context
        sent = {"confirmed": "approve", "shown": asked["case"].shown}
        if asked["answer_form"]:
            sent["answer-time"] = asked["answer_form"].slots[0].value
        decide = reverse("decide", args=[row.interrupt.pk])
        assert client.post(decide, sent).status_code == 302
    for agent, run in runs.items():
        there = eventually(
            lambda run=run: has_status(run, RunStatus.FINISHED), PATIENCE
        )
        assert there, run.error
        done = run.executions.filter(status=ExecutionStatus.DONE)
        assert Counter(done.values_list("tool", flat=True)) == SAID[agent][1]
    assert OutboxMail.objects.count() == 1
    assert LedgerEntry.objects.count() == 1
