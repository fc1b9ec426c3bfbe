"""What happens at the same moment happens in some order, and exactly once.

Real threads with connections of their own meet at a barrier. `SAYSO_RACE_ROUNDS` says how
often each race is run (see CONTRIBUTING.md for the long drill).
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from approvals import audit, services, wake
from approvals.exceptions import (
    AlreadyDecided,
    ApprovalsError,
    Expired,
    OutcomeUnknown,
    RunEnded,
)
from approvals.models import (
    AuditEntry,
    AuditHead,
    Decision,
    Interrupt,
    Policy,
    Run,
    ToolExecution,
    Vote,
)
from approvals.schemas import ClientTool, InterruptDraft, ToolCall
from approvals.states import InterruptStatus, RunStatus, Source, Verdict
from tests.plugins.cast import ballot, call
from tests.plugins.machine import on_postgresql
from tests.racing import Racer, race

pytestmark = pytest.mark.django_db(transaction=True)

# SQLite lets one writer in at a time, so its races are fewer; each round syncs to disk.
ROUNDS = int(os.environ.get("SAYSO_RACE_ROUNDS") or (12 if on_postgresql() else 5))
#: Races of many threads at once are heavier, so they are run less often.
CROWDS = max(1, ROUNDS // 10)


def failures(results: Sequence[Any]) -> list[Exception]:
    """What nobody may see: anything raised that is no refusal in words."""
    return [
        result
        for result in results
        if isinstance(result, Exception) and not isinstance(result, ApprovalsError)
    ]


def refusals(results: Sequence[Any]) -> list[Exception]:
    return [result for result in results if isinstance(result, ApprovalsError)]


@pytest.fixture(autouse=True)
def woken():
    """How often each run was handed to its worker."""
    counts: Counter[Any] = Counter()

    class Runner:
        def queued(self, run_id, due_at):
            counts[run_id] += 1

        def hold(self, thread):
            pass

        def ended(self, run_id):
            pass

    before = dict(wake._runners)
    wake.connect(Source.HOSTED, Runner())
    yield counts
    wake._runners.clear()
    wake._runners.update(before)


@pytest.fixture(autouse=True)
def whole_chain():
    """After every race: the chain verifies, without a gap."""
    yield
    report = audit.verify_stored()
    assert report.broken is None
    assert report.count == AuditHead.objects.get().number == AuditEntry.objects.count()


def decider(interrupt: Interrupt, verdict: Verdict, reviewer: Any) -> Racer:
    sent = ballot(interrupt, verdict, note="because")
    return lambda: services.decide(interrupt.pk, sent, reviewer=reviewer)


def actions(run_id: Any) -> Counter[str]:
    found = AuditEntry.objects.filter(run=run_id).values_list("action", flat=True)
    return Counter(found)


def test_i10_of_two_opposite_decisions_exactly_one_wins(
    make_interrupts, rita, ravi, woken
):
    for _ in range(ROUNDS):
        (asked,) = make_interrupts(1)
        woken.clear()
        results = race(
            [
                decider(asked, Verdict.APPROVE, rita),
                decider(asked, Verdict.DENY, ravi),
            ]
        )
        (refused,) = [each for each in results if isinstance(each, Exception)]
        assert isinstance(refused, AlreadyDecided)
        decision = Decision.objects.get(interrupt=asked)
        winner = rita if isinstance(results[1], Exception) else ravi
        assert decision.reviewer == winner
        assert refused.decision == decision
        assert Vote.objects.filter(interrupt=asked).count() == 1
        asked.refresh_from_db()
        wanted = {"approve": "approved", "deny": "denied"}[decision.verdict]
        assert asked.status == wanted
        assert woken == {asked.run_id: 1}
        counted = actions(asked.run_id)
        assert counted["interrupt.approved"] + counted["interrupt.denied"] == 1


def test_i11_the_last_two_requests_of_a_run_queue_it_once(
    make_interrupts, rita, ravi, woken
):
    for _ in range(ROUNDS):
        first, second = make_interrupts(2)
        woken.clear()
        results = race(
            [
                decider(first, Verdict.APPROVE, rita),
                decider(second, Verdict.DENY, ravi),
            ]
        )
        assert [each for each in results if isinstance(each, Exception)] == []
        assert woken == {first.run_id: 1}
        assert Run.objects.get(pk=first.run_id).status == RunStatus.QUEUED
        claim = services.claim_run(first.run_id, owner="w")
        assert claim is not None
        assert {answer.interrupt_id: answer.verdict for answer in claim.answers} == {
            first.pk: Verdict.APPROVE,
            second.pk: Verdict.DENY,
        }


def test_m10_of_two_answers_of_a_page_and_a_message_one_counts(make_run, mia, woken):
    """Two tabs and a word instead: whoever comes first, the agent hears one thing."""
    for _ in range(ROUNDS):
        (asked,) = at_page(make_run())
        woken.clear()
        results = race(
            [
                lambda pk=asked.pk: services.answer_client_call(pk, "red", actor=mia),
                lambda pk=asked.pk: services.answer_client_call(pk, "blue", actor=mia),
                lambda pk=asked.run_id: services.pass_over_client_calls(pk, actor=mia),
            ]
        )
        assert failures(results) == refusals(results) == []
        assert [bool(result) for result in results].count(True) == 1
        decision = Decision.objects.get(interrupt=asked)
        said = ['"red"', '"blue"', None][[bool(each) for each in results].index(True)]
        assert decision.answer == said
        assert woken == {asked.run_id: 1}


def test_m10_the_page_and_a_reviewer_queue_the_run_once(make_run, mia, rita, woken):
    for _ in range(ROUNDS):
        pick, held = at_page(make_run(), call(call_id="call-2"))
        woken.clear()
        results = race(
            [
                lambda pk=pick.pk: services.answer_client_call(pk, "red", actor=mia),
                decider(held, Verdict.APPROVE, rita),
            ]
        )
        assert failures(results) == refusals(results) == []
        assert woken == {held.run_id: 1}
        claim = services.claim_run(held.run_id, owner="w")
        assert claim is not None
        assert {answer.interrupt_id: answer.verdict for answer in claim.answers} == {
            pick.pk: Verdict.ANSWER,
            held.pk: Verdict.APPROVE,
        }


def at_page(run: Run, *beside: ToolCall) -> list[Interrupt]:
    """A call to the page of a run, and the requests of others beside it."""
    claim = services.claim_run(run.pk, owner="worker")
    assert claim is not None
    pick = call("pick_colour", shade="red")
    services.open_interrupts(
        run.pk,
        attempt=claim.attempt,
        drafts=[
            InterruptDraft(call=each, verdicts=tuple(Verdict))
            for each in (pick, *beside)
        ],
        client_tools=[ClientTool(name="pick_colour")],
    )
    return list(run.interrupts.order_by("created"))


def test_i12_of_many_workers_one_gets_the_run(make_run):
    for _ in range(ROUNDS):
        run = make_run()
        results = race(
            [
                lambda name=name, pk=run.pk: services.claim_run(pk, owner=name)
                for name in ("one", "two", "three", "four")
            ]
        )
        assert failures(results) == []
        (claim,) = [each for each in results if each is not None]
        run.refresh_from_db()
        assert (run.status, run.attempt) == (RunStatus.RUNNING, 1)
        assert run.lease_owner == claim.run.lease_owner
        assert actions(run.pk)["run.started"] == 1


def test_i12_a_tool_is_entered_once(make_interrupts, rita):
    for _ in range(ROUNDS):
        (asked,) = make_interrupts(1)
        services.decide(asked.pk, ballot(asked), reviewer=rita)
        claim = services.claim_run(asked.run_id, owner="w")
        assert claim is not None
        proposed = call(call_id="call-1", filename="file-1.txt")

        def enter(pk=asked.run_id, attempt=claim.attempt, proposed=proposed):
            return services.begin_execution(
                pk, attempt=attempt, call=proposed, owner="w"
            )

        results = race([enter, enter])
        (permit,) = [each for each in results if isinstance(each, services.Permit)]
        (refused,) = [each for each in results if isinstance(each, Exception)]
        assert isinstance(refused, OutcomeUnknown)
        execution = ToolExecution.objects.get(run=asked.run_id)
        assert execution.pk == permit.execution_id
        assert actions(asked.run_id)["execution.started"] == 1
        # The body that was entered comes back; only then is the outcome known again.
        services.finish_execution(permit, result="gone")
        run = Run.objects.get(pk=asked.run_id)
        assert run.status == RunStatus.QUEUED


def test_i13_a_decision_and_its_deadline(make_interrupts, rita, woken):
    won = Counter()
    for number in range(ROUNDS):
        (asked,) = make_interrupts(1)
        # Some rounds begin before the deadline, some behind it.
        deadline = timezone.now() + timedelta(milliseconds=15 * (number % 3))
        Interrupt.objects.filter(pk=asked.pk).update(expires_at=deadline)
        woken.clear()

        def sweep(deadline=deadline):
            while True:
                swept = services.expire_due(timezone.now())
                if swept or timezone.now() > deadline + timedelta(milliseconds=50):
                    return swept

        results = race([decider(asked, Verdict.APPROVE, rita), sweep])
        assert failures(results) == []
        asked.refresh_from_db()
        decision = Decision.objects.get(interrupt=asked)
        counted = actions(asked.run_id)
        if asked.status == InterruptStatus.APPROVED:
            assert decision.reviewer == rita
            assert results[1] == 0
        else:
            assert asked.status == InterruptStatus.EXPIRED
            assert decision.channel == "deadline"
            assert isinstance(results[0], Expired)
            entry = AuditEntry.objects.get(run=asked.run_id, action="interrupt.expired")
            assert entry.actor == "system:sweeper"
        assert counted["interrupt.approved"] + counted["interrupt.expired"] == 1
        assert woken == {asked.run_id: 1}
        won[asked.status] += 1
    assert sum(won.values()) == ROUNDS


def test_b01_of_ten_clients_of_two_people_one_is_accepted(
    make_interrupts, rita, ravi, woken
):
    for _ in range(CROWDS):
        (asked,) = make_interrupts(1)
        woken.clear()
        results = race(
            [
                decider(asked, Verdict.APPROVE, rita if at % 2 else ravi)
                for at in range(10)
            ]
        )
        assert failures(results) == []
        told = refusals(results)
        assert len(told) == 9
        assert {type(each) for each in told} == {AlreadyDecided}
        assert {each.http_status for each in told} == {409}
        assert Decision.objects.filter(interrupt=asked).count() == 1
        assert Vote.objects.filter(interrupt=asked).count() == 1
        assert actions(asked.run_id)["interrupt.approved"] == 1
        assert woken == {asked.run_id: 1}


def test_b01_ten_pages_say_it_over_http(make_interrupts, rita, ravi):
    """Nine of ten are told who was first, in a page; nobody gets a server's error."""
    clients = []
    for at in range(10):
        client = Client(raise_request_exception=False)
        client.force_login(rita if at % 2 else ravi)
        clients.append(client)
    for _ in range(CROWDS):
        (asked,) = make_interrupts(1)
        sent = {
            "confirmed": "approve",
            "shown": services.shown_digest(asked),
        }
        address = reverse("decide", args=[asked.pk])
        answers = race([partial(client.post, address, sent) for client in clients])
        assert failures(answers) == []
        codes = Counter(answer.status_code for answer in answers)
        assert codes == {302: 1, 409: 9}
        decision = Decision.objects.get(interrupt=asked)
        for answer in answers:
            if answer.status_code == 409:
                assert "Your approval was not sent." in answer.content.decode()
                assert decision.by in answer.content.decode()


def test_cancelling_a_run_against_approving_in_it(make_interrupts, rita, mia, woken):
    for _ in range(ROUNDS):
        (asked,) = make_interrupts(1)
        woken.clear()
        results = race(
            [
                decider(asked, Verdict.APPROVE, rita),
                lambda pk=asked.run_id: services.cancel_run(pk, actor=mia),
            ]
        )
        assert failures(results) == []
        run = Run.objects.get(pk=asked.run_id)
        # Cancelling always holds; the approval came before it or is told so.
        assert run.status == RunStatus.CANCELLED
        asked.refresh_from_db()
        if isinstance(results[0], Exception):
            assert isinstance(results[0], RunEnded)
            assert asked.status == InterruptStatus.CANCELLED
            assert woken == {}
        else:
            assert asked.status == InterruptStatus.APPROVED
        assert services.claim_run(run.pk, owner="w") is None
        assert not ToolExecution.objects.filter(run=run).exists()


def test_undoing_against_the_worker_that_takes_the_run(make_interrupts, rita):
    Policy.objects.filter(name="Destructive file tools").update(undo_seconds=1)
    for _ in range(max(1, ROUNDS // 5)):
        (asked,) = make_interrupts(1)
        services.decide(asked.pk, ballot(asked), reviewer=rita)
        decision = Decision.objects.get(interrupt=asked)

        def at_the_last_moment(act, due=decision.dispatch_at):
            time.sleep(max(0, (due - timezone.now()).total_seconds() - 0.002))
            for _ in range(20):
                result = act()
                if result is not None:
                    return result
            return None

        results = race(
            [
                lambda pk=asked.pk, go=at_the_last_moment: go(
                    lambda: services.undo(pk, actor=rita)
                ),
                lambda pk=asked.run_id, go=at_the_last_moment: go(
                    lambda: services.claim_run(pk, owner="w")
                ),
            ]
        )
        assert failures(results) == []
        undone = not isinstance(results[0], Exception)
        run = Run.objects.get(pk=asked.run_id)
        if undone:
            assert run.status == RunStatus.WAITING
            assert results[1] is None
        else:
            assert run.status in (RunStatus.RUNNING, RunStatus.QUEUED)


def test_k47_twenty_decisions_on_twenty_runs_while_a_writer_writes(
    make_interrupts, make_run, rita, woken
):
    """B107: no lock error reaches anybody."""
    for _ in range(CROWDS):
        asked = [make_interrupts(1)[0] for _ in range(20)]
        woken.clear()
        writing = threading.Event()
        writing.set()
        written: list[Any] = []
        left = threading.Semaphore(19)

        def write(writing=writing, written=written):
            while writing.is_set():
                written.append(make_run().pk)
            return len(written)

        def then_stop(racer: Racer, writing=writing, left=left) -> Any:
            try:
                return racer()
            finally:
                # The last one finds nothing left and ends the writing.
                if not left.acquire(blocking=False):
                    writing.clear()

        deciders = [
            partial(then_stop, decider(each, Verdict.APPROVE, rita)) for each in asked
        ]
        results = race([*deciders, write])
        assert [each for each in results if isinstance(each, Exception)] == []
        assert results[-1] == len(written) >= 1
        for each in asked:
            assert Decision.objects.get(interrupt=each).reviewer == rita
            assert woken[each.run_id] == 1
        approved = AuditEntry.objects.filter(
            action="interrupt.approved", interrupt__in=[each.pk for each in asked]
        )
        assert approved.count() == 20
        assert len({entry.interrupt for entry in approved}) == 20


def test_two_administrators_change_the_rules_at_once(desk, ada, make_person):
    other = make_person("adam", is_staff=True, is_superuser=True)
    policy = Policy.objects.get(name="Money out")

    def change(actor: Any, seconds: int) -> Racer:
        def act() -> None:
            with services.changing_policies(actor=actor):
                Policy.objects.filter(pk=policy.pk).update(undo_seconds=seconds)

        return act

    for number in range(1, CROWDS + 1):
        results = race([change(ada, number), change(other, number + 10)])
        assert failures(results) == []
    entries = AuditEntry.objects.filter(action="policy.changed").order_by("number")
    payloads = [json.loads(entry.payload) for entry in entries]
    # Each saw what the one before it left behind.
    for earlier, later in pairwise(payloads):
        assert later["before"] == earlier["after"]
    assert len(payloads) == 2 * CROWDS
