"""What holds in every framework, on the real runner, rows and desk.

The model is strict (``fakes.check_history``): it takes no history in which calls and results
do not match. Each advance has an adapter of its own, so that only rows go on.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from approvals import services
from approvals.exceptions import AlreadyDecided, StalePage
from approvals.models import AuditEntry, Interrupt, Run, ToolExecution
from approvals.states import InterruptStatus, RunStatus, Verdict
from hitlagents import conversations, registry
from hitlagents.demo.scripted import Item, Reply
from hitlagents.models import Thread
from tests.hitlagents.adapters.harness import HARNESSES
from tests.hitlagents.driving import advance, decide, results, rules, yes
from tests.hitlagents.fakes import FREE, Tools, call, heard, plays
from tests.hitlagents.reading import said
from tests.plugins.cast import ballot

pytestmark = pytest.mark.django_db(transaction=True)

AGENT = "tester"
#: Harmless once stored, and easily broken on the way.
NOTE = 'Not "this" one.\nKeep it \N{CARD INDEX DIVIDERS}'


class Hosted:
    """An agent of one framework, and a conversation with it."""

    def __init__(self, harness: Any, thread: Thread) -> None:
        self.harness = harness
        self.thread = thread
        self.tools = Tools()
        self.script: Any = plays(Reply("Hello."))

    def adapter(self, slug: str, allowed: frozenset[str]) -> Any:
        return self.harness.build(self.script, self.tools, tuple(allowed))

    def play(self, *turns: Any) -> None:
        self.script = plays(*turns)

    def say(self, text: str = "go") -> Run:
        run = conversations.send(self.thread.pk, text, author=self.thread.owner)
        assert isinstance(run, Run)
        return advance(run)

    def ran(self, run: Run, tool: str) -> int:
        """How often its body ran, as the ledger and the tool itself have it."""
        effects = [e for e in self.tools.effects if e.startswith(tool)]
        rows = ToolExecution.objects.filter(run=run, tool=tool, status="done")
        assert rows.count() == len(effects)
        return len(effects)


@pytest.fixture(params=sorted(HARNESSES))
def hosted(request, desk, mia, monkeypatch) -> Hosted:
    rules(AGENT, *FREE)
    it = Hosted(HARNESSES[request.param], Thread.objects.create(agent=AGENT, owner=mia))
    monkeypatch.setattr(registry, "adapter_for", it.adapter)
    services.register_tools(AGENT, it.adapter(AGENT, frozenset(FREE)).tools)
    return it


def delete(name: str, call_id: str = "c1") -> Any:
    return call("delete", call_id, filename=name)


def no(note: str = "No.") -> tuple[Verdict, dict[str, Any]]:
    return Verdict.DENY, {"note": note}


def open_calls(run: Run) -> list[dict[str, Any]]:
    return [json.loads(one.arguments) for one in run.interrupts.open()]


def test_b05_an_approved_call_does_not_run_again_in_a_later_turn(hosted, rita):
    hosted.play(Reply("", [delete("a.txt")]), heard)
    run = decide(hosted.say(), rita, yes())
    assert run.status == RunStatus.FINISHED, run.error
    hosted.play(Reply("Fine, thank you."))
    later = hosted.say("How are you?")
    assert later.status == RunStatus.FINISHED, later.error
    assert said(later) == "Fine, thank you."
    assert hosted.tools.effects == ["delete a.txt"]
    assert ToolExecution.objects.count() == 1
    assert Interrupt.objects.count() == 1
    assert (results(run), results(later)) == (["Deleted a.txt."], [])


@pytest.mark.parametrize("first", ["lookup", "delete"])
def test_b15_b137_beside_an_ungated_call_only_the_gated_one_is_asked_about(
    hosted, rita, first
):
    calls = [call("lookup", "c1", name="x"), delete("a.txt", "c2")]
    told = ["x is known", "Deleted a.txt."]
    if first == "delete":
        calls.reverse()
        told.reverse()
    hosted.play(Reply("", calls), heard)
    run = hosted.say()
    assert open_calls(run) == [{"filename": "a.txt"}]
    run = decide(run, rita, yes())
    assert run.status == RunStatus.FINISHED, run.error
    assert said(run) == "I heard: " + " | ".join(told)
    assert Interrupt.objects.count() == 1
    assert ToolExecution.objects.get(tool="lookup").interrupt is None
    assert sorted(hosted.tools.effects) == ["delete a.txt", "lookup x"]


def test_b22_one_approval_does_not_open_two_calls_of_one_id(hosted, rita):
    hosted.play(Reply("", [delete("a.txt", "same"), delete("b.txt", "same")]), heard)
    run = hosted.say()
    first, second = run.interrupts.order_by("arguments")
    services.decide(first.pk, ballot(first), reviewer=rita)
    run = advance(run)
    assert run.status == RunStatus.WAITING, run.error
    assert hosted.tools.effects == []
    services.decide(second.pk, ballot(second, Verdict.DENY, note="No."), reviewer=rita)
    run = advance(run)
    assert run.status == RunStatus.FINISHED, run.error
    assert hosted.tools.effects == ["delete a.txt"]


def test_b23_a_decision_of_an_old_request_opens_no_newer_one(hosted, rita, ravi):
    hosted.play(Reply("", [delete("a.txt")]), Reply("", [delete("b.txt")]), heard)
    run = hosted.say()
    old = run.interrupts.get()
    page = ballot(old)
    run = decide(run, ravi, no())
    newer = run.interrupts.open().get()
    with pytest.raises(AlreadyDecided):
        services.decide(old.pk, page, reviewer=rita)
    with pytest.raises(StalePage):
        services.decide(newer.pk, page, reviewer=rita)
    run = advance(run)
    assert run.status == RunStatus.WAITING
    assert run.interrupts.open().get() == newer
    assert hosted.tools.effects == []


def test_b26_nothing_in_a_form_makes_an_approval_last(hosted, rita):
    """No approval covers the next call, whatever else the form says."""
    hosted.play(Reply("", [delete("a.txt")]), Reply("", [delete("b.txt")]), heard)
    run = hosted.say()
    first = run.interrupts.get()
    client = Client()
    client.force_login(rita)
    sticky = dict.fromkeys(("remember", "always", "for_run", "all"), "true")
    sent = {"confirmed": "approve", "shown": services.shown_digest(first), **sticky}
    assert client.post(reverse("decide", args=[first.pk]), sent).status_code == 302
    run = advance(run)
    assert open_calls(run) == [{"filename": "b.txt"}]
    run = decide(run, rita, no())
    assert run.status == RunStatus.FINISHED, run.error
    assert hosted.tools.effects == ["delete a.txt"]


def test_b30_a_cancelled_run_ends_at_once_and_a_denied_call_is_answered(hosted, rita):
    turns: list[int] = []

    def model(history: list[Item]) -> Reply:
        turns.append(len(history))
        return plays(Reply("", [delete("a.txt")]), heard)(history)

    hosted.script = model
    cancelled = hosted.say("one")
    (asked,) = cancelled.interrupts.open()
    turns.clear()
    services.decide(asked.pk, ballot(asked, Verdict.CANCEL_RUN), reviewer=rita)
    cancelled = advance(cancelled)
    assert cancelled.status == RunStatus.CANCELLED
    assert turns == []
    denied = decide(hosted.say("two"), rita, no())
    assert denied.status == RunStatus.FINISHED, denied.error
    assert said(denied).endswith("a reviewer denied this call. No.")
    assert hosted.tools.effects == []
    found = dict(Interrupt.objects.values_list("run", "status"))
    assert found == {
        cancelled.pk: InterruptStatus.CANCELLED,
        denied.pk: InterruptStatus.DENIED,
    }
    decided = AuditEntry.objects.filter(interrupt__isnull=False).order_by("number")
    verbs = {
        run.pk: [
            entry.action
            for entry in decided.filter(run=run.pk)
            if entry.action in ("interrupt.cancelled", "interrupt.denied")
        ]
        for run in (cancelled, denied)
    }
    assert verbs == {
        cancelled.pk: ["interrupt.cancelled"],
        denied.pk: ["interrupt.denied"],
    }


def test_b31_what_a_reviewer_says_reaches_the_model_unchanged(hosted, rita):
    hosted.play(Reply("", [delete("a.txt")]), heard)
    run = decide(hosted.say(), rita, no(NOTE))
    assert run.status == RunStatus.FINISHED, run.error
    told = f"Not executed: a reviewer denied this call. {NOTE}"
    assert said(run) == f"I heard: {told}"
    assert results(run) == [told]
    entry = AuditEntry.objects.get(action="interrupt.denied")
    assert json.loads(entry.payload)["note"] == NOTE


def test_b141_of_two_parallel_calls_each_gets_exactly_one_result(hosted, rita):
    hosted.play(Reply("", [delete("a.txt", "c1"), delete("b.txt", "c2")]), heard)
    run = decide(hosted.say(), rita, no(), yes())
    assert run.status == RunStatus.FINISHED, run.error
    denied = "Not executed: a reviewer denied this call. No."
    assert sorted(results(run)) == ["Deleted b.txt.", denied]
    assert said(run) == f"I heard: {denied} | Deleted b.txt."
    hosted.play(Reply("Still here."))
    later = hosted.say("and now?")
    assert (later.status, said(later)) == (RunStatus.FINISHED, "Still here.")


def test_b155_steps_before_the_gate_happen_once(hosted, rita):
    steps = [Reply("", [call("lookup", f"c{n}", name=f"step {n}")]) for n in range(3)]
    hosted.play(*steps, Reply("", [delete("a.txt", "c9")]), heard)
    run = hosted.say()
    before = ["lookup step 0", "lookup step 1", "lookup step 2"]
    assert (run.status, hosted.tools.effects) == (RunStatus.WAITING, before)
    run = decide(run, rita, yes())
    assert run.status == RunStatus.FINISHED, run.error
    assert hosted.tools.effects == [*before, "delete a.txt"]
    assert hosted.ran(run, "lookup") == 3


def test_b166_a_doubled_decision_is_not_kept_for_the_next_pause(hosted, rita):
    hosted.play(Reply("", [delete("a.txt")]), Reply("", [delete("a.txt")]), heard)
    run = hosted.say()
    first = run.interrupts.get()
    page = ballot(first)
    services.decide(first.pk, page, reviewer=rita)
    with pytest.raises(AlreadyDecided):
        services.decide(first.pk, page, reviewer=rita)
    run = advance(run)
    assert run.status == RunStatus.WAITING, run.error
    assert run.interrupts.open().get() != first
    assert hosted.ran(run, "delete") == 1
    run = decide(run, rita, yes())
    assert run.status == RunStatus.FINISHED, run.error
    assert hosted.ran(run, "delete") == 2
