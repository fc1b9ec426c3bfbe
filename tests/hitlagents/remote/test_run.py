"""M21: a remote agent behind the desk, from the message to what came of the call."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest
from django.core.management import call_command
from django.db import connections
from django.urls import reverse

from approvals import services
from approvals.cases import Case
from approvals.exceptions import InvalidDecision
from approvals.models import AuditEntry, Decision, Interrupt, Tool, ToolExecution
from approvals.states import (
    Delivery,
    ExecutionStatus,
    InterruptStatus,
    RunStatus,
    Settlement,
    Source,
    Verdict,
)
from hitlagents import conversations, runner
from hitlagents.models import Checkpoint, RemoteAgent, RemotePost
from hitlagents.remote.profiles import Profile
from tests.hitlagents.driving import advance, results, rules
from tests.hitlagents.remote.conftest import (
    asks,
    calls,
    failed,
    finished,
    pauses,
    result,
    says,
    sse,
    started,
)
from tests.plugins.cast import ballot

pytestmark = pytest.mark.django_db(transaction=True)

SECRET = "sk-very-secret"


@pytest.fixture
def host_remote(serve, desk):
    """Put a stub behind the desk, with a rule that holds whatever it asks."""

    def make(*replies, **fields):
        stub = serve(*replies)
        agent = RemoteAgent(
            slug="far-away",
            name="Far away",
            url=stub.url,
            allow_private=True,
            connect_seconds=5,
            idle_seconds=10,
            **{"profile": Profile.OTHER, **fields},
        )
        agent.headers = {"Authorization": f"Bearer {SECRET}"}
        agent.save()
        rules("far-away")
        return stub

    return make


@pytest.fixture
def say(mia, desk):
    def send(text="Please delete it", thread=None):
        thread = thread or conversations.open_thread("far-away", owner=mia).pk
        return conversations.send(thread, text, author=mia)

    return send


def decide(run, reviewer, verdict=Verdict.APPROVE, **fields):
    for interrupt in run.interrupts.open():
        services.decide(
            interrupt.pk, ballot(interrupt, verdict, **fields), reviewer=reviewer
        )
    return advance(run)


DONE = sse(started(), result("Deleted 1.txt."), *says("It is gone."), finished())


def test_m21_approved_here_and_told_there_exactly_once(host_remote, say, rita):
    remote = host_remote(pauses(), DONE)
    run = advance(say())
    assert run.source == Source.REMOTE
    assert run.status == RunStatus.WAITING
    [interrupt] = run.interrupts.open()
    assert interrupt.tool == "delete_file"
    assert interrupt.title == "Delete file: 1.txt"
    assert "1.txt" in interrupt.arguments
    assert not interrupt.editable
    case = Case(interrupt, rita)
    assert case.note_rule == "(optional, the agent is not told)"
    assert Tool.objects.get(agent="far-away").name == "delete_file"

    run = decide(run, rita)
    assert run.status == RunStatus.FINISHED
    advance(run)
    assert [body.get("resume") for body in remote.bodies] == [
        None,
        [{"interruptId": "i1", "status": "resolved", "payload": {"approved": True}}],
    ]
    execution = ToolExecution.objects.get()
    assert (execution.status, execution.result) == (
        ExecutionStatus.DONE,
        "Deleted 1.txt.",
    )
    assert Decision.objects.get().delivery == Delivery.APPLIED
    assert results(run) == ["Deleted 1.txt."]


def test_m21_the_ledger_has_the_call_before_the_approval_leaves(host_remote, say, rita):
    remote = host_remote(
        pauses(), {"parts": [{"until": "go"}, *DONE["parts"]], "ends": True}
    )
    run = advance(say())
    [interrupt] = run.interrupts.open()
    services.decide(interrupt.pk, ballot(interrupt), reviewer=rita)
    seen = []

    async def scenario():
        work = asyncio.create_task(runner.advance(run.pk, owner="worker"))
        seen.append(await asyncio.to_thread(statuses_once, remote))
        remote.let("go")
        await work

    asyncio.run(scenario())
    assert seen == [[ExecutionStatus.INFLIGHT]]
    assert statuses() == [ExecutionStatus.DONE]


def statuses():
    return list(ToolExecution.objects.values_list("status", flat=True))


def statuses_once(remote):
    """What the ledger says once the second request has arrived there."""
    deadline = time.monotonic() + 20
    while len(remote.bodies) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    try:
        return statuses()
    finally:
        connections.close_all()


def test_m3_a_denial_is_told_and_nothing_runs(host_remote, say, rita):
    remote = host_remote(pauses(), sse(started(), *says("I leave it."), finished()))
    run = decide(advance(say()), rita, Verdict.DENY, note="Keep it.")
    assert run.status == RunStatus.FINISHED
    assert remote.bodies[1]["resume"][0]["payload"] == {"approved": False}
    assert not ToolExecution.objects.exists()
    assert Decision.objects.get().delivery == Delivery.APPLIED


def test_m3_a_cancelled_run_tells_the_agent_with_the_next_message(
    host_remote, say, rita
):
    remote = host_remote(
        pauses(),
        sse(started(), finished()),
        sse(started(), *says("Hello."), finished()),
    )
    run = advance(say())
    decide(run, rita, Verdict.CANCEL_RUN)
    run.refresh_from_db()
    assert run.status == RunStatus.CANCELLED
    assert len(remote.bodies) == 1
    again = advance(say("Something else", run.thread))
    assert again.status == RunStatus.FINISHED
    assert remote.bodies[1]["resume"] == [{"interruptId": "i1", "status": "cancelled"}]
    assert remote.bodies[2]["messages"][-1]["content"] == "Something else"


@pytest.mark.parametrize("settlement", [Settlement.RAN, Settlement.DID_NOT_RUN])
def test_m18_a_lost_answer_is_in_doubt_until_a_person_settles_it(
    host_remote, say, rita, settlement
):
    remote = host_remote(pauses(), sse(started(), ends=False), DONE)
    run = decide(advance(say()), rita)
    assert run.status == RunStatus.IN_DOUBT
    assert "broke off" in run.error
    execution = ToolExecution.objects.get()
    assert execution.status == ExecutionStatus.IN_DOUBT
    assert Decision.objects.get().delivery == Delivery.IN_DOUBT
    assert AuditEntry.objects.filter(action="execution.in_doubt").count() == 1
    advance(run)
    assert len(remote.bodies) == 2

    services.settle_execution(
        execution.pk, settlement=settlement, actor=rita, note="I looked there."
    )
    run = advance(run)
    assert run.status == RunStatus.FINISHED
    # Nobody sent it again.
    assert len(remote.bodies) == 2
    assert "confirmed" in results(run)[-1]


def test_m18_a_person_may_have_it_sent_again(host_remote, say, rita):
    remote = host_remote(pauses(), {"status": 502}, DONE)
    run = decide(advance(say()), rita)
    execution = ToolExecution.objects.get()
    services.settle_execution(
        execution.pk,
        settlement=Settlement.RUN_AGAIN,
        actor=rita,
        note="Their log has nothing.",
    )
    run = advance(run)
    assert run.status == RunStatus.FINISHED
    assert remote.bodies[1]["resume"] == remote.bodies[2]["resume"]
    assert ToolExecution.objects.get().result == "Deleted 1.txt."


def test_m18_two_lost_approvals_are_settled_one_by_one(host_remote, say, rita):
    remote = host_remote(pauses(2), {"status": 502})
    run = decide(advance(say()), rita)
    assert run.status == RunStatus.IN_DOUBT
    first, second = ToolExecution.objects.order_by("pk")
    for execution, settlement in (
        (first, Settlement.RAN),
        (second, Settlement.RUN_AGAIN),
    ):
        run.refresh_from_db()
        assert run.status == RunStatus.IN_DOUBT
        services.settle_execution(
            execution.pk, settlement=settlement, actor=rita, note="I looked."
        )
    run = advance(run)
    assert run.status == RunStatus.FINISHED
    assert len(remote.bodies) == 2
    again = ToolExecution.objects.get(call_id=second.call_id)
    assert again.status == ExecutionStatus.FAILED
    assert "was sent before" in again.result


def test_m18_a_worker_that_died_with_the_request_leaves_doubt(host_remote, say, rita):
    remote = host_remote(pauses(), DONE)
    run = advance(say())
    [interrupt] = run.interrupts.open()
    services.decide(interrupt.pk, ballot(interrupt), reviewer=rita)
    claim = services.claim_run(run.pk, owner="gone")
    services.begin_execution(
        run.pk, attempt=claim.attempt, call=claim.answers[0].call, owner="gone"
    )
    services.release_run(run.pk, attempt=claim.attempt)
    run = advance(run)
    assert run.status == RunStatus.IN_DOUBT
    assert len(remote.bodies) == 1


def test_m18_a_refused_approval_can_be_retried(host_remote, say, rita, mia):
    remote = host_remote(pauses(), {"status": 403}, DONE)
    run = decide(advance(say()), rita)
    assert run.status == RunStatus.FAILED
    assert "does not accept our headers (HTTP 403)" in run.error
    assert not ToolExecution.objects.exists()
    services.retry_run(run.pk, actor=mia)
    run = advance(run)
    assert run.status == RunStatus.FINISHED
    assert len(remote.bodies) == 3


def test_m14_a_lost_message_is_not_sent_again_by_a_worker(host_remote, say):
    remote = host_remote({"status": 502}, sse(started(), finished()))
    run = advance(say())
    assert run.status == RunStatus.FAILED
    assert not run.retryable
    assert RemotePost.objects.get().lost
    assert len(remote.bodies) == 1


def test_m14_a_worker_that_died_before_the_answer_sends_nothing_again(host_remote, say):
    remote = host_remote(sse(started(), finished()))
    run = say()
    RemotePost.objects.create(run=run, place="start")
    run = advance(run)
    assert run.status == RunStatus.FAILED
    assert "sent to the agent before" in run.error
    assert remote.bodies == []


def test_m18_a_retry_sends_again_where_it_may(host_remote, say, mia):
    remote = host_remote(
        {"status": 502}, sse(started(), *says("Hi"), finished()), may_repost=True
    )
    run = advance(say())
    assert run.retryable
    services.retry_run(run.pk, actor=mia)
    assert advance(run).status == RunStatus.FINISHED
    assert len(remote.bodies) == 2


def test_m21_the_second_request_of_a_run_waits_too(host_remote, say, rita):
    again = sse(
        started(),
        result("Deleted 1.txt."),
        *calls(call_id="call-1", filename="2.txt"),
        finished(asks("i1", "call-1")),
    )
    remote = host_remote(pauses(), again, DONE)
    run = decide(advance(say()), rita)
    assert run.status == RunStatus.WAITING
    [second] = run.interrupts.open()
    assert "2.txt" in second.arguments
    assert len(remote.bodies) == 2
    run = decide(run, rita)
    assert run.status == RunStatus.FINISHED
    assert run.interrupts.count() == 2
    assert len(remote.bodies) == 3


def test_m18_a_worker_that_stops_while_it_claims_leaves_no_doubt(
    host_remote, say, rita, monkeypatch
):
    remote = host_remote(pauses(2), DONE)
    run = advance(say())
    for interrupt in run.interrupts.open():
        services.decide(interrupt.pk, ballot(interrupt), reviewer=rita)
    begin, slow, stopped = services.begin_execution, [], threading.Event()

    def slowly(*args, **kwargs):
        slow.append(args)
        if len(slow) == 2:
            stopped.wait(60)
        return begin(*args, **kwargs)

    monkeypatch.setattr(services, "begin_execution", slowly)

    async def scenario():
        work = asyncio.create_task(runner.advance(run.pk, owner="worker"))
        while len(slow) < 2:  # noqa: ASYNC110 - set by a thread
            await asyncio.sleep(0.01)
        work.cancel()
        stopped.set()
        with pytest.raises(asyncio.CancelledError):
            await work
        others = asyncio.all_tasks() - {asyncio.current_task()}
        async with asyncio.timeout(60):
            await asyncio.gather(*others, return_exceptions=True)

    asyncio.run(scenario())
    assert not ToolExecution.objects.exists()
    assert len(remote.bodies) == 1
    run = advance(run)
    assert run.status == RunStatus.FINISHED
    assert len(remote.bodies) == 2


def test_m6_what_nobody_named_is_shown_in_the_agents_words(host_remote, say, rita):
    asked = {
        "id": "i1",
        "reason": "confirmation",
        "message": "Wipe the disk?\nAll of it.",
    }
    remote = host_remote(sse(started(), finished(asked)), sse(started(), finished()))
    run = advance(say())
    [interrupt] = run.interrupts.open()
    assert interrupt.title == "Wipe the disk?"
    assert "All of it." in interrupt.consequence
    assert interrupt.tool == "confirmation"
    assert decide(run, rita).status == RunStatus.FINISHED
    assert remote.bodies[1]["resume"][0]["payload"] == {"approved": True}


def test_k26_arguments_that_are_cut_short_are_denied_and_the_agent_is_told(
    host_remote, say
):
    cut = calls(filename="x")
    cut[1]["delta"] = '{"filename": "re'
    remote = host_remote(
        sse(started(), *cut, finished(asks())),
        sse(started(), *says("I see."), finished()),
        profile=Profile.DOTNET,
    )
    run = advance(advance(say()))
    assert run.status == RunStatus.FINISHED
    assert Decision.objects.get().channel == "intake"
    payload = remote.bodies[1]["resume"][0]["payload"]
    assert payload["approved"] is False
    assert payload["toolCall"]["arguments"] == '{"filename": "re'


# All or none


@pytest.fixture
def pair(host_remote, say):
    """Two requests that run together or not at all."""

    def make(*replies):
        stub = host_remote(pauses(2), *replies, profile=Profile.AGENT_FRAMEWORK)
        run = advance(say())
        first, second = run.interrupts.order_by("created")
        return stub, run, first, second

    return make


def test_m3_after_a_denial_the_other_cannot_be_approved(pair, rita):
    remote, run, first, second = pair(sse(started(), finished()))
    assert "no approval beside a denial" in first.consequence
    services.decide(first.pk, ballot(first, Verdict.DENY, note="No."), reviewer=rita)
    with pytest.raises(InvalidDecision, match="no approval beside a denial"):
        services.decide(second.pk, ballot(second), reviewer=rita)
    second.refresh_from_db()
    assert second.is_open
    services.decide(second.pk, ballot(second, Verdict.DENY, note="No."), reviewer=rita)
    assert advance(run).status == RunStatus.FINISHED
    assert [e["payload"] for e in remote.bodies[1]["resume"]] == [
        {"approved": False},
        {"approved": False},
    ]


def test_m3_a_denial_holds_an_earlier_approval_back(pair, rita):
    remote, run, first, second = pair(sse(started(), finished()))
    services.decide(first.pk, ballot(first), reviewer=rita)
    services.decide(second.pk, ballot(second, Verdict.DENY, note="No."), reviewer=rita)
    run = advance(run)
    assert run.status == RunStatus.FINISHED
    assert [e["payload"] for e in remote.bodies[1]["resume"]] == [
        {"approved": False},
        {"approved": False},
    ]
    assert not ToolExecution.objects.exists()
    first.refresh_from_db()
    assert first.status == InterruptStatus.APPROVED
    assert first.decision.delivery == Delivery.APPLIED
    assert Case(first, rita).delivery.startswith("It did not run: another call")
    assert any("approved, but another one was not" in told for told in results(run))
    entry = AuditEntry.objects.filter(
        action="execution.replaced", interrupt=first.pk
    ).get()
    assert entry.actor == "system:worker"


def test_m3_the_guard_holds_it_back_whatever_an_adapter_says(pair, rita):
    _remote, run, first, second = pair()
    services.decide(first.pk, ballot(first), reviewer=rita)
    services.decide(second.pk, ballot(second, Verdict.DENY, note="No."), reviewer=rita)
    claim = services.claim_run(run.pk, owner="w")
    [held] = [a for a in claim.answers if a.interrupt_id == first.pk]
    assert held.verdict == Verdict.DENY
    told = services.begin_execution(
        run.pk, attempt=claim.attempt, call=held.call, owner="w"
    )
    assert isinstance(told, services.Instead)
    assert "approved, but another one was not" in told.text


def test_m3_all_approved_go_in_one_request(pair, rita):
    remote, run, *_ = pair(
        sse(
            started(),
            result("One.", "call-1"),
            result("Two.", "call-2"),
            finished(),
        )
    )
    run = decide(run, rita)
    assert run.status == RunStatus.FINISHED
    assert len(remote.bodies) == 2
    assert sorted(ToolExecution.objects.values_list("result", flat=True)) == [
        "One.",
        "Two.",
    ]


def test_m3_a_page_that_can_only_cancel_offers_that(host_remote, say, rita, client):
    host_remote(pauses(2), profile=Profile.LANGGRAPH)
    run = advance(say())
    first, second = run.interrupts.order_by("created")
    client.force_login(rita)
    page = client.get(reverse("interrupt", args=[first.pk])).content.decode()
    assert "can only be cancelled" in page
    cancel = reverse("cancel-run", args=[run.pk])
    assert page.count("Cancel run…") == 2  # in the bar, and in the menu
    assert 'name="note" rows="1"' not in page
    assert 'value="approve"' not in page
    with pytest.raises(InvalidDecision, match="does not take"):
        services.decide(second.pk, ballot(second), reviewer=rita)
    client.post(cancel, {"note": "One at a time."})
    run.refresh_from_db()
    assert run.status == RunStatus.CANCELLED


# The row


def test_m21_an_agent_that_is_switched_off_is_not_there(host_remote, say, mia):
    remote = host_remote(DONE)
    run = say()
    RemoteAgent.objects.update(enabled=False)
    run = advance(run)
    assert run.status == RunStatus.FAILED
    assert run.retryable
    assert "far-away" in run.error
    RemoteAgent.objects.update(enabled=True)
    services.retry_run(run.pk, actor=mia)
    assert advance(run).status == RunStatus.FINISHED
    assert len(remote.bodies) == 1


def test_m21_a_new_address_counts_at_once(host_remote, say, serve):
    first = host_remote(DONE, DONE)
    second = serve(DONE)
    advance(say())
    RemoteAgent.objects.update(url=second.url)
    advance(say())
    assert (len(first.bodies), len(second.bodies)) == (1, 1)


def test_m21_secrets_are_in_no_row_but_sealed(host_remote, say, rita, settings):
    remote = host_remote(pauses(), sse(started(), failed(f"no, {SECRET}")))
    run = decide(advance(say()), rita)
    assert remote.requests[0]["headers"]["authorization"] == f"Bearer {SECRET}"
    agent = RemoteAgent.objects.get()
    assert SECRET not in agent.sealed_headers
    assert SECRET not in run.error
    assert SECRET not in Checkpoint.objects.get().state
    for entry in AuditEntry.objects.all():
        assert SECRET not in (entry.payload or "")
    settings.SECRET_KEY = "another" * 10
    failed_run = advance(say())
    assert failed_run.status == RunStatus.FAILED
    assert "Enter them again" in failed_run.error
    settings.SECRET_KEY_FALLBACKS = ["only-for-tests-" + "x" * 50]
    assert agent.headers == {"Authorization": f"Bearer {SECRET}"}


def test_m19_the_chain_holds_over_all_of_it(host_remote, say, rita):
    host_remote(pauses(), {"status": 502})
    run = decide(advance(say()), rita)
    services.settle_execution(
        ToolExecution.objects.get().pk,
        settlement=Settlement.RAN,
        actor=rita,
        note="I looked.",
    )
    advance(run)
    call_command("verify_audit")
    assert Interrupt.objects.get().status == InterruptStatus.APPROVED
