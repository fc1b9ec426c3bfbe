"""The main job in one process: the real framework, runner, rows and files."""

from __future__ import annotations

from collections import Counter
from functools import partial

import pytest
from asgiref.sync import async_to_sync
from django.test import Client
from django.urls import reverse

from approvals import services
from approvals.models import AuditEntry, Policy, ToolExecution
from approvals.states import Gate, RunStatus, Verdict
from hitlagents import conversations, events, registry, runner
from hitlagents.demo import file_ops
from hitlagents.models import Checkpoint, Thread
from tests.hitlagents.reading import said
from tests.plugins.cast import OPS, ballot
from tests.racing import race

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def thread(mia, settings, tmp_path, monkeypatch):
    settings.SAYSO_DATA = tmp_path
    monkeypatch.setattr(registry, "_adapters", {})
    monkeypatch.setattr(registry, "_registered", set())
    monkeypatch.delenv("SAYSO_MODEL", raising=False)
    for position, (pattern, gate) in enumerate(
        [("list_files", Gate.ALLOW), ("read_file", Gate.ALLOW), ("*", Gate.HOLD)], 10
    ):
        policy = Policy.objects.create(
            position=position,
            name=f"file-ops {pattern}",
            agent_pattern="file-ops",
            tool_pattern=pattern,
            gate=gate,
        )
        policy.groups.add(services.make_group(OPS))
    return Thread.objects.create(agent="file-ops", owner=mia)


@pytest.fixture
def files(thread):
    folder = file_ops.workspaces() / str(thread.pk)
    return lambda: {path.name for path in folder.iterdir()} if folder.exists() else None


def advance(run):
    async_to_sync(runner.advance)(run.pk, owner="worker")
    run.refresh_from_db()
    return run


def test_the_file_goes_once_and_only_after_the_approval(thread, files, mia, rita):
    run = advance(conversations.send(thread.pk, "What files are there?", author=mia))
    assert run.status == RunStatus.FINISHED
    assert "report.txt" in said(run)

    text = "Delete report.txt and notes.md, and list the files"
    run = advance(conversations.send(thread.pk, text, author=mia))
    assert run.status == RunStatus.WAITING
    assert "report.txt" in files()
    approved, denied = run.interrupts.open().order_by("pk")
    if "notes.md" in approved.arguments:
        approved, denied = denied, approved
    services.decide(approved.pk, ballot(approved, Verdict.APPROVE), reviewer=rita)
    note = 'Legal "needs" it 🙂'
    services.decide(denied.pk, ballot(denied, Verdict.DENY, note=note), reviewer=rita)
    stored = Checkpoint.objects.get(run=run).state

    run = advance(run)
    assert run.status == RunStatus.FINISHED, run.error
    assert "report.txt" not in files()
    assert "notes.md" in files()
    assert "Deleted report.txt." in said(run)
    assert f"because the reviewer said “{note}”" in said(run)
    assert ToolExecution.objects.filter(run=run, status="done").count() == 2
    assert stored != Checkpoint.objects.get(run=run).state


def test_the_conversation_goes_on_after_a_cancelled_run(thread, files, mia, rita):
    run = advance(conversations.send(thread.pk, "Delete report.txt", author=mia))
    services.cancel_run(run.pk, actor=mia)
    run = advance(conversations.send(thread.pk, "List the files", author=mia))
    assert run.status == RunStatus.FINISHED, run.error
    assert "report.txt" in said(run)
    assert "report.txt" in files()


def test_m2_the_interrupt_on_the_wire_names_the_whole_call(thread, mia):
    run = advance(conversations.send(thread.pk, "Delete report.txt", author=mia))
    shown = {event.type: members for event, members in events.shown(run)}
    (shape,) = shown["RUN_FINISHED"]["outcome"]["interrupts"]
    call = shape["metadata"]["agent_framework"]["function_call"]
    assert call["name"] == "delete_file"
    assert call["arguments"] == {"filename": "report.txt"}
    assert shape["reason"] == "tool_call"
    assert shape["message"] == "Approve running delete_file?"
    assert shape["toolCallId"] == shown["TOOL_CALL_START"]["toolCallId"]
    assert shape["responseSchema"]["properties"]["approved"]["type"] == "boolean"


def test_a_reviewer_sees_what_the_agent_wrote_and_the_calls_in_their_order(thread, mia):
    text = "Delete report.txt and notes.md"
    run = advance(conversations.send(thread.pk, text, author=mia))
    first, second = run.interrupts.order_by("created")
    assert "report.txt" in first.arguments
    assert "notes.md" in second.arguments
    assert first.said == "I am going to delete report.txt and delete notes.md."


def test_b01_ten_approvals_at_once_delete_the_file_once(thread, files, mia, rita, ravi):
    run = advance(conversations.send(thread.pk, "Delete report.txt", author=mia))
    asked = run.interrupts.get()
    sent = {"confirmed": "approve", "shown": services.shown_digest(asked)}
    clients = []
    for at in range(10):
        client = Client(raise_request_exception=False)
        client.force_login(rita if at % 2 else ravi)
        clients.append(client)
    address = reverse("decide", args=[asked.pk])
    answers = race([partial(client.post, address, sent) for client in clients])
    assert Counter(a.status_code for a in answers) == {302: 1, 409: 9}
    for _ in range(3):
        run = advance(run)
    assert run.status == RunStatus.FINISHED, run.error
    assert "report.txt" not in files()
    assert ToolExecution.objects.filter(run=run).count() == 1
    assert AuditEntry.objects.filter(action="execution.started").count() == 1
    assert AuditEntry.objects.filter(action="interrupt.approved").count() == 1
