"""Genkit's sessions in our database: by the framework's own chat, and under the runner."""

from __future__ import annotations

import asyncio
import json
import uuid
from dataclasses import replace
from typing import Any

import pytest
from genkit import GenkitError, tool
from genkit.exp import Genkit
from genkit.exp.agent import (
    AgentFinishReason,
    SessionSnapshot,
    SessionState,
    SnapshotStatus,
)
from genkit_middleware import ToolApproval

from approvals import services
from approvals.states import RunStatus, Verdict
from hitlagents import conversations, registry
from hitlagents.adapters import genkit_models
from hitlagents.adapters.base import CheckpointError, Gating, Start
from hitlagents.adapters.genkit import GenkitAdapter
from hitlagents.adapters.genkit_scripted import ScriptedModel
from hitlagents.demo import banking, scripted_banking
from hitlagents.demo.scripted import Reply
from hitlagents.genkit_store import DatabaseSessions
from hitlagents.models import Checkpoint, GenkitSnapshot, LedgerEntry, Thread
from tests.hitlagents.driving import advance, decide, rules, yes
from tests.hitlagents.fakes import FakeHost, call, heard, plays
from tests.hitlagents.reading import said

pytestmark = pytest.mark.django_db(transaction=True)

RENT = "Transfer $500 to account 12345 for rent."


@pytest.fixture
def thread(mia, fresh):
    return Thread.objects.create(agent="banking", owner=mia)


# The framework's own way


async def pay(input: dict[str, Any]) -> str:
    """Pay."""
    raise AssertionError(input)


def chatter():
    """The agent as a process of its own would define it."""
    ai = Genkit()
    script = plays(Reply("One moment.", [call("pay", amount=5)]), heard)
    ai.define_model("scripted", ScriptedModel(script).__call__)

    return ai.define_agent(
        "teller",
        model="scripted",
        tools=[tool(pay)],
        use=[ToolApproval(allowed_tools=[])],
        store=DatabaseSessions(),
    )


def test_m12_a_chat_of_the_framework_goes_on_in_another_process(thread):
    session = str(thread.pk)

    async def first():
        return await chatter().chat(session_id=session).send("pay")

    async def second():
        chat = await chatter().load_chat(session_id=session)
        [interrupt] = paused.interrupts
        return await chat.resume(respond=[interrupt.respond("Not today.")])

    paused = asyncio.run(first())
    assert paused.finish_reason == AgentFinishReason.INTERRUPTED
    assert GenkitSnapshot.objects.filter(thread=thread).count() == 1
    done = asyncio.run(second())
    assert done.text == "I heard: Not today."
    last = GenkitSnapshot.objects.get(parent_id=paused.snapshot_id)
    assert last.snapshot_id == done.snapshot_id


# Under the runner


@pytest.fixture
def say(thread, mia, monkeypatch):
    rules("banking", "lookup_balance")

    def build(gating):
        return GenkitAdapter(
            name="banking",
            instructions=banking.INSTRUCTIONS,
            tools=banking.tools(),
            model=genkit_models.scripted(say.script),
            gating=gating,
            store=DatabaseSessions(),
        )

    spec = replace(banking.SPEC, build=build)
    monkeypatch.setattr(registry.catalog, "get", lambda slug: spec)

    def say(text):
        return advance(conversations.send(thread.pk, text, author=mia))

    say.script = scripted_banking.reply
    return say


def test_m12_a_run_waits_and_goes_on_from_the_store(say, rita, thread):
    run = say(RENT)
    assert run.status == RunStatus.WAITING, run.error
    state = json.loads(Checkpoint.objects.get(run=run).state)
    assert state["session"] is None
    assert GenkitSnapshot.objects.get(pk=state["stored"]).thread == thread
    run = decide(run, rita, yes())
    assert run.status == RunStatus.FINISHED, run.error
    assert LedgerEntry.objects.count() == 1
    run = decide(say("and another 200 to 777"), rita, (Verdict.DENY, {"note": "No."}))
    assert run.status == RunStatus.FINISHED, run.error
    assert "I did not transfer 200 to 777" in said(run)
    run = say("What is my balance?")
    assert "4,500.00" in said(run)


def test_a_retry_begins_where_the_lost_attempt_did(say, rita, mia):
    failures = [ConnectionError("reset")]

    def script(history):
        if failures and any(type(item).__name__ == "Result" for item in history):
            raise failures.pop()
        return scripted_banking.reply(history)

    say.script = script
    run = decide(say(RENT), rita, yes())
    assert run.status == RunStatus.FAILED
    services.retry_run(run.pk, actor=mia)
    run = advance(run)
    assert run.status == RunStatus.FINISHED, run.error
    assert LedgerEntry.objects.count() == 1
    stored = json.loads(Checkpoint.objects.get(run=run).state)["stored"]
    data = json.loads(GenkitSnapshot.objects.get(pk=stored).data)
    roles = [message["role"] for message in data["state"]["messages"]]
    assert roles == ["user", "model", "tool", "model"]


def test_an_attempt_that_was_never_stored_is_not_gone_on_from(say, rita):
    """A process dies after the framework has saved, before the host has."""
    run = say(RENT)
    before = json.loads(Checkpoint.objects.get(run=run).state)["stored"]
    snapshot = GenkitSnapshot.objects.get(pk=before)
    GenkitSnapshot.objects.create(
        snapshot_id="lost", thread=snapshot.thread, parent_id=before, data=snapshot.data
    )
    run = decide(run, rita, yes())
    assert run.status == RunStatus.FINISHED, run.error
    stored = json.loads(Checkpoint.objects.get(run=run).state)["stored"]
    assert GenkitSnapshot.objects.get(pk=stored).parent_id == before


def test_a_session_that_is_gone_or_elsewhere_is_said_in_words(say, rita):
    run = say(RENT)
    state = json.loads(Checkpoint.objects.get(run=run).state)
    elsewhere = banking.build(
        Gating(allowed=frozenset()), model=genkit_models.scripted(heard)
    )
    start = Start(run_id=run.pk, thread_id=run.thread, message="x", state=state)
    with pytest.raises(CheckpointError, match="keeps its sessions elsewhere"):
        asyncio.run(elsewhere.start(start, FakeHost()))

    GenkitSnapshot.objects.all().delete()
    run = decide(run, rita, yes())
    assert run.status == RunStatus.FAILED
    assert "gone from its store" in run.error


# The store's own rules


def snapshot(thread, **fields) -> SessionSnapshot:
    fields = {"parent_id": "", "status": "completed", "created_at": ""} | fields
    session = str(thread.pk)
    state = SessionState(session_id=session, messages=[])
    return SessionSnapshot(snapshot_id="x", session_id=session, state=state, **fields)


def saved(id: str, change):
    return asyncio.run(DatabaseSessions().save_snapshot(id, change))


def found(**named):
    return asyncio.run(DatabaseSessions().get_snapshot(**named))


def test_the_store_keeps_its_rules(thread, mia):
    other = Thread.objects.create(agent="banking", owner=mia)
    assert saved("a", lambda _: None) is None
    assert found(snapshot_id="a") is None
    saved("a", lambda _: snapshot(thread, status="pending"))
    saved("a", lambda old: old.model_copy(update={"status": SnapshotStatus.FAILED}))
    assert found(snapshot_id="a").status == "failed"
    for change, told in (
        (
            lambda old: old.model_copy(update={"status": SnapshotStatus.COMPLETED}),
            "has ended",
        ),
        (lambda old: snapshot(other, status="failed"), "another session"),
    ):
        with pytest.raises(GenkitError, match=told):
            saved("a", change)
    with pytest.raises(GenkitError, match="no thread"):
        found(session_id="x")
    with pytest.raises(GenkitError, match="either"):
        found()
    with pytest.raises(GenkitError, match="either"):
        found(session_id="x", snapshot_id="y")


def test_the_newest_end_of_a_session_is_found(thread):
    assert found(session_id=str(thread.pk)) is None
    assert found(session_id=str(uuid.uuid4())) is None
    saved("a", lambda _: snapshot(thread))
    saved("c", lambda _: snapshot(thread, parent_id="a"))
    saved("b", lambda _: snapshot(thread, parent_id="a"))
    assert found(session_id=str(thread.pk)).snapshot_id == "b"
    thread.delete()
    assert not GenkitSnapshot.objects.exists()
