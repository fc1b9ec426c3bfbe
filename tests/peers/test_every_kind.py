"""M21: what holds of every remote agent, whatever serves it.

Each is a process of its own. What its tool did, and what its model was told, is read from
files that it wrote.
"""

from __future__ import annotations

import pytest
from django.urls import reverse

from approvals import services
from approvals.exceptions import InvalidDecision
from approvals.models import Decision, ToolExecution
from approvals.states import (
    Delivery,
    ExecutionStatus,
    RunStatus,
    Settlement,
    Verdict,
)
from hitlagents.models import RemoteAgent
from hitlagents.remote.profiles import Profile
from tests.hitlagents.driving import advance, decide, results, yes
from tests.peers.conftest import KINDS, PATIENCE, meanwhile, no
from tests.plugins.cast import ballot

pytestmark = [pytest.mark.once, pytest.mark.django_db(transaction=True)]


#: What a model is told of a call that a person found out about.
TOLD = "Executed. The result was lost; a person confirmed that it ran."

#: Starting these anew takes a while, and shows nothing that the others do not.
ONE_OF_EACH = pytest.mark.parametrize(
    "kind", [name for name in KINDS if name != "langgraph-as-it-comes"], indirect=True
)


def test_m2_a_call_approved_in_the_inbox_runs_there_once(peer, say, rita, client):
    run = say("delete a.txt")
    [interrupt] = run.interrupts.open()
    assert interrupt.tool == "delete_file"
    assert interrupt.arguments == '{"filename":"a.txt"}'
    assert interrupt.consequence == ""
    assert peer.deleted == []
    client.force_login(rita)
    answered = client.post(
        reverse("decide", args=[interrupt.pk]),
        {"verdict": "approve", "shown": services.shown_digest(interrupt)},
    )
    assert answered.status_code == 302
    run = advance(advance(run))
    assert run.status == RunStatus.FINISHED
    assert peer.deleted == ["a.txt"]
    execution = ToolExecution.objects.get()
    assert execution.status == ExecutionStatus.DONE
    assert [execution.result] == results(run) == ["delete_file did a.txt."]
    assert Decision.objects.get().delivery == Delivery.APPLIED
    assert peer.told == ["delete a.txt", "", "delete_file did a.txt."]


def test_m3_a_denial_is_told(peer, kind, say, rita):
    run = decide(say("delete a.txt"), rita, no())
    assert run.status == RunStatus.FINISHED
    assert peer.deleted == []
    assert not ToolExecution.objects.exists()
    assert peer.told[-1] == kind.denied
    assert results(run) == [kind.denied]


def test_m3_after_a_cancelled_run_the_next_message_is_answered(peer, say, rita):
    run = say("delete a.txt delete b.txt")
    services.cancel_run(run.pk, actor=rita, note="Not now.")
    run.refresh_from_db()
    assert run.status == RunStatus.CANCELLED
    run = say("hello", after=run)
    assert run.status == RunStatus.FINISHED
    assert not run.interrupts.exists()
    assert peer.deleted == []
    assert peer.told[-1] == "hello"


def test_m3_two_approved_calls_run_once_each(peer, say, rita):
    run = decide(say("delete a.txt delete b.txt"), rita, yes(), yes())
    assert run.status == RunStatus.FINISHED
    assert sorted(peer.deleted) == ["a.txt", "b.txt"]
    assert results(run) == ["delete_file did a.txt.", "delete_file did b.txt."]


def test_m3_mixed_answers_are_given_or_refused_beforehand(peer, kind, say, rita):
    run = say("delete a.txt delete b.txt")
    first, second = run.interrupts.order_by("created", "call_id")
    services.decide(first.pk, ballot(first, Verdict.DENY, note="No."), reviewer=rita)
    if kind.mixed:
        services.decide(second.pk, ballot(second), reviewer=rita)
    else:
        assert "no approval beside a denial" in second.consequence
        with pytest.raises(InvalidDecision, match="no approval beside a denial"):
            services.decide(second.pk, ballot(second), reviewer=rita)
        services.decide(
            second.pk, ballot(second, Verdict.DENY, note="No."), reviewer=rita
        )
    run = advance(run)
    assert run.status == RunStatus.FINISHED
    assert len(peer.deleted) == (1 if kind.mixed else 0)
    # The conversation goes on.
    run = decide(say("delete c.txt", after=run), rita, yes())
    assert run.status == RunStatus.FINISHED
    assert peer.deleted[-1] == "c.txt"


def test_m4_other_arguments_run_where_they_may(peer, kind, say, rita):
    run = say("delete a.txt")
    [interrupt] = run.interrupts.open()
    assert interrupt.editable == kind.edits
    if not kind.edits:
        with pytest.raises(InvalidDecision):
            decide(run, rita, yes(arguments={"filename": "z.txt"}))
        assert peer.deleted == []
        return
    run = decide(run, rita, yes(arguments={"filename": "z.txt"}))
    assert run.status == RunStatus.FINISHED
    assert peer.deleted == ["z.txt"]
    assert results(run) == ["delete_file did z.txt."]


def test_m6_a_free_call_beside_a_held_one_shows_its_result(peer, say, rita):
    run = say("list delete a.txt")
    assert [each.tool for each in run.interrupts.open()] == ["delete_file"]
    run = decide(run, rita, yes())
    assert run.status == RunStatus.FINISHED
    assert sorted(results(run)) == [
        "delete_file did a.txt.",
        "list_files did everything.",
    ]


@ONE_OF_EACH
def test_m18_killed_while_it_works_leaves_doubt_for_a_person(peer, say, rita):
    run = say("delete a.txt")
    [interrupt] = run.interrupts.open()
    services.decide(interrupt.pk, ballot(interrupt), reviewer=rita)
    peer.hold()
    with meanwhile(lambda: advance(run)):
        peer.until_entered()
        peer.kill()
    run.refresh_from_db()
    assert run.status == RunStatus.IN_DOUBT
    execution = ToolExecution.objects.get()
    assert execution.status == ExecutionStatus.IN_DOUBT
    peer.release()
    peer.start()
    assert advance(run).status == RunStatus.IN_DOUBT
    services.settle_execution(
        execution.pk, settlement=Settlement.RAN, actor=rita, note="I looked there."
    )
    run = advance(run)
    assert run.status == RunStatus.FINISHED
    assert peer.deleted == ["a.txt"]
    # The conversation goes on, and its model learns what the person found out.
    run = decide(say("delete b.txt", after=run), rita, yes())
    assert run.status == RunStatus.FINISHED
    assert peer.deleted == ["a.txt", "b.txt"]
    assert TOLD in peer.told


@ONE_OF_EACH
def test_m18_started_anew_before_the_answer_it_leaves_a_clear_state(
    peer, kind, say, rita, mia
):
    run = say("delete a.txt")
    peer.kill()
    peer.start()
    run = decide(run, rita, yes())
    assert run.status == kind.forgotten
    ran = kind.forgotten == RunStatus.FINISHED
    assert peer.deleted == (["a.txt"] if ran else [])
    if run.status == RunStatus.FAILED:
        assert not ToolExecution.objects.exists()
        services.retry_run(run.pk, actor=mia)
        assert advance(run).status == RunStatus.FAILED
    if run.status == RunStatus.IN_DOUBT:
        services.settle_execution(
            ToolExecution.objects.get().pk,
            settlement=Settlement.DID_NOT_RUN,
            actor=rita,
            note="Their log begins after it.",
        )
        assert advance(run).status == RunStatus.FINISHED
    run = decide(say("delete b.txt", after=run), rita, yes())
    assert run.status == RunStatus.FINISHED
    assert peer.deleted[-1] == "b.txt"


def lost(peer, say, rita):
    """A run whose answer was given up while the tool was at work there."""
    run = say("delete a.txt")
    RemoteAgent.objects.update(idle_seconds=1)
    peer.hold()
    run = decide(run, rita, yes())
    assert run.status == RunStatus.IN_DOUBT
    assert peer.deleted == ["a.txt"]
    peer.release()
    RemoteAgent.objects.update(idle_seconds=PATIENCE)
    return run


@pytest.mark.parametrize("kind", ["agent-framework"], indirect=True)
def test_m18_a_refusal_of_what_ran_before_is_no_proof_of_the_contrary(peer, say, rita):
    run = lost(peer, say, rita)
    services.settle_execution(
        ToolExecution.objects.get().pk,
        settlement=Settlement.RUN_AGAIN,
        actor=rita,
        note="I did not look.",
    )
    run = advance(run)
    assert run.status == RunStatus.IN_DOUBT
    assert "outcome is indeterminate" in run.error
    assert ToolExecution.objects.get().status == ExecutionStatus.IN_DOUBT
    assert peer.deleted == ["a.txt"]


@ONE_OF_EACH
def test_m18_what_was_given_up_is_not_sent_again(peer, kind, say, rita):
    run = lost(peer, say, rita)
    services.settle_execution(
        ToolExecution.objects.get().pk,
        settlement=Settlement.RAN,
        actor=rita,
        note="I looked there.",
    )
    run = advance(run)
    assert run.status == RunStatus.FINISHED
    run = say("hello", after=run)
    if kind.profile == Profile.LANGGRAPH:
        # Its graph lost its place, so it asks once more and drops the message.
        [again] = run.interrupts.open()
        assert "An approval of exactly this was sent before" in again.consequence
    else:
        assert run.status == RunStatus.FINISHED
        assert peer.told[-2:] == [TOLD, "hello"]
    assert peer.deleted == ["a.txt"]
