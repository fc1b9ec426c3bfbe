"""M21: what is particular to one kind of remote agent."""

from __future__ import annotations

import httpx
import pytest

from approvals.models import ToolExecution
from approvals.states import InterruptKind, RunStatus, Verdict
from hitlagents.models import RemoteAgent
from tests.hitlagents.driving import decide, results, yes

pytestmark = [pytest.mark.once, pytest.mark.django_db(transaction=True)]


def only(kind):
    return pytest.mark.parametrize("kind", [kind], indirect=True)


@only("agent-framework")
def test_m21_a_made_up_call_is_not_told_to_the_model(peer, say, rita):
    """The server makes one up for its own pages, and calls it skipped when it comes back."""
    run = decide(say("delete a.txt delete b.txt"), rita, yes(), yes())
    assert peer.told[-1] == " ".join(results(run))
    assert len(peer.told) == 3
    RemoteAgent.objects.update(url=peer.url("bare"))
    run = decide(say("delete c.txt", after=run), rita, yes())
    assert peer.told[-1] == "delete_file did c.txt."


@only("langgraph")
def test_m10_a_question_of_a_graph_is_answered_in_words(peer, say, rita):
    RemoteAgent.objects.update(url=peer.url("question"))
    run = say("Please delete it")
    [interrupt] = run.interrupts.open()
    assert interrupt.kind == InterruptKind.QUESTION
    assert "Which file do you mean?" in interrupt.message
    run = decide(run, rita, (Verdict.ANSWER, {"answer": "a.txt"}))
    assert run.status == RunStatus.FINISHED
    assert peer.noted("answers") == ["a.txt"]
    assert peer.deleted == ["a.txt"]


@only("langgraph")
def test_m18_an_answer_that_comes_twice_answers_nothing_else(peer, say, rita):
    """By the protocol's own resume it would: the adapter does not look at the id."""
    run = say("delete a.txt")
    [interrupt] = run.interrupts.open()
    run = decide(run, rita, yes())
    again = say("delete b.txt", after=run)
    assert again.status == RunStatus.WAITING
    answer = {interrupt.framework_ref: {"approved": True}}
    body = {
        "threadId": str(run.thread),
        "runId": "again",
        "messages": [],
        "tools": [],
        "context": [],
        "state": {},
        "forwardedProps": {"command": {"resume": answer}},
    }
    assert httpx.post(peer.url("calls"), json=body, timeout=60).status_code == 200
    assert peer.deleted == ["a.txt"]
    assert decide(again, rita, yes()).status == RunStatus.FINISHED
    assert peer.deleted == ["a.txt", "b.txt"]


@only("dotnet")
def test_m21_no_tool_is_declared_since_that_opens_the_gate(peer, say):
    assert say("delete a.txt").status == RunStatus.WAITING
    assert peer.deleted == []
    body = {
        "threadId": "t",
        "runId": "r",
        "messages": [{"id": "m", "role": "user", "content": "delete b.txt"}],
        "tools": [{"name": "show", "description": "", "parameters": {}}],
    }
    httpx.post(peer.url("dotnet"), json=body, timeout=60)
    assert peer.deleted == ["b.txt"]


@only("openai-agents")
def test_m3_a_cancelled_call_is_answered_and_the_run_goes_on(peer, say, rita):
    run = decide(
        say("delete a.txt delete b.txt"), rita, (Verdict.CANCEL_CALL, {}), yes()
    )
    assert run.status == RunStatus.FINISHED
    assert peer.deleted == ["b.txt"]
    assert peer.told[2] == "Tool call cancelled."
    assert ToolExecution.objects.count() == 1
