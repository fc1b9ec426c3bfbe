"""M21: an Agent Framework agent behind its own AG-UI server, and the desk in front of it."""

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
from tests.peers.conftest import PATIENCE, meanwhile
from tests.plugins.cast import ballot

pytestmark = [pytest.mark.once, pytest.mark.django_db(transaction=True)]


@pytest.fixture(scope="module")
def process(peers_python, start_peer):
    return start_peer(str(peers_python), "agent_framework_server")


@pytest.fixture
def peer(process, behind_desk):
    process.clear()
    behind_desk(process.url("plain"), Profile.AGENT_FRAMEWORK)
    return process


def no(note="Keep it."):
    return Verdict.DENY, {"note": note}


def test_m2_a_call_approved_in_the_inbox_runs_there_once(peer, say, rita, client):
    run = say("delete a.txt")
    [interrupt] = run.interrupts.open()
    assert (interrupt.tool, interrupt.arguments) == (
        "delete_file",
        '{"filename":"a.txt"}',
    )
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
    # Nothing of the call that the server makes up for its own pages.
    assert peer.told == ["delete a.txt", "", "delete_file did a.txt."]


def test_m3_a_denial_is_told_without_its_note(peer, say, rita):
    run = decide(say("delete a.txt"), rita, no())
    assert run.status == RunStatus.FINISHED
    assert peer.deleted == []
    assert "rejected by user" in peer.told[-1]
    assert "Keep it." not in " ".join(peer.told)
    [told] = results(run)
    assert "Keep it. The agent itself was only told no." in told


def test_m3_after_a_cancelled_run_the_next_message_is_answered(peer, say, rita):
    run = decide(say("delete a.txt"), rita, (Verdict.CANCEL_RUN, {"note": "Not now."}))
    assert run.status == RunStatus.CANCELLED
    run = say("hello", after=run)
    assert run.status == RunStatus.FINISHED
    assert not run.interrupts.exists()
    assert peer.deleted == []
    assert peer.told[-1] == "hello"


@pytest.mark.parametrize("path", ["plain", "bare"])
def test_m3_two_approved_calls_run_once_each(peer, say, rita, path):
    RemoteAgent.objects.update(url=peer.url(path))
    run = decide(say("delete a.txt delete b.txt"), rita, yes(), yes())
    assert run.status == RunStatus.FINISHED
    assert sorted(peer.deleted) == ["a.txt", "b.txt"]
    assert results(run) == ["delete_file did a.txt.", "delete_file did b.txt."]
    assert peer.told[-1] == " ".join(results(run))
    assert len(peer.told) == 3


def test_m3_mixed_answers_are_refused_before_they_would_stick(peer, say, rita):
    run = say("delete a.txt delete b.txt")
    first, second = run.interrupts.order_by("created", "call_id")
    assert "no approval beside a denial" in first.consequence
    services.decide(first.pk, ballot(first, Verdict.DENY, note="No."), reviewer=rita)
    with pytest.raises(InvalidDecision, match="no approval beside a denial"):
        services.decide(second.pk, ballot(second), reviewer=rita)
    services.decide(second.pk, ballot(second, Verdict.DENY, note="No."), reviewer=rita)
    run = advance(run)
    assert run.status == RunStatus.FINISHED
    assert peer.deleted == []
    run = decide(say("delete c.txt", after=run), rita, yes())
    assert peer.deleted == ["c.txt"]


def test_m3_an_approval_before_a_denial_is_held_back(peer, say, rita):
    run = decide(say("delete a.txt delete b.txt"), rita, yes(), no())
    assert run.status == RunStatus.FINISHED
    assert peer.deleted == []
    assert not ToolExecution.objects.exists()


def test_m4_edited_arguments_are_what_runs(peer, say, rita):
    run = decide(say("delete a.txt"), rita, yes(arguments={"filename": "z.txt"}))
    assert run.status == RunStatus.FINISHED
    assert peer.deleted == ["z.txt"]
    assert results(run) == ["delete_file did z.txt."]


def test_m6_a_free_call_beside_a_held_one_shows_its_result(peer, say, rita):
    run = say("list delete a.txt")
    assert peer.noted("ran") == []
    assert [each.tool for each in run.interrupts.open()] == ["delete_file"]
    run = decide(run, rita, yes())
    assert run.status == RunStatus.FINISHED
    assert sorted(results(run)) == [
        "delete_file did a.txt.",
        "list_files did everything.",
    ]


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
    # The conversation goes on, although the server knows nothing of it any more.
    run = decide(say("delete b.txt", after=run), rita, yes())
    assert run.status == RunStatus.FINISHED
    assert peer.deleted == ["a.txt", "b.txt"]
    assert "confirmed" in " ".join(peer.told)


def test_m18_restarted_before_the_answer_it_says_that_nothing_ran(peer, say, rita, mia):
    run = say("delete a.txt")
    peer.kill()
    peer.start()
    run = decide(run, rita, yes())
    assert run.status == RunStatus.FAILED
    assert run.retryable
    assert not ToolExecution.objects.exists()
    services.retry_run(run.pk, actor=mia)
    assert advance(run).status == RunStatus.FAILED
    assert peer.deleted == []
    # What it does not know, it need not be told to drop.
    run = decide(say("delete b.txt", after=run), rita, yes())
    assert run.status == RunStatus.FINISHED
    assert peer.deleted == ["b.txt"]


def test_m18_an_approval_that_is_sent_again_runs_no_second_time(peer, say, rita):
    run = say("delete a.txt")
    RemoteAgent.objects.update(idle_seconds=1)
    peer.hold()
    run = decide(run, rita, yes())
    assert run.status == RunStatus.IN_DOUBT
    assert peer.deleted == ["a.txt"]
    peer.release()
    RemoteAgent.objects.update(idle_seconds=PATIENCE)
    services.settle_execution(
        ToolExecution.objects.get().pk,
        settlement=Settlement.RUN_AGAIN,
        actor=rita,
        note="I did not look.",
    )
    run = advance(run)
    # The server does not know itself, so nobody here may take it for not executed.
    assert run.status == RunStatus.IN_DOUBT
    assert "outcome is indeterminate" in run.error
    assert ToolExecution.objects.get().status == ExecutionStatus.IN_DOUBT
    assert peer.deleted == ["a.txt"]
