"""From the commit of a decision to the task, and whatever must not come between."""

from __future__ import annotations

import asyncio
import threading
import time
from datetime import timedelta

import pytest
from django.db import transaction
from django.utils import timezone
from django_tasks_db.models import DBTaskResult

from approvals import services
from approvals.models import AuditEntry, Interrupt, Policy, Run
from approvals.schemas import InterruptDraft
from approvals.states import ExecutionStatus, InterruptStatus, RunStatus
from hitlagents import conversations, registry
from hitlagents.engine import queue, sweeper
from hitlagents.engine.threads import in_database, in_lease
from hitlagents.engine.worker import WorkerThread
from hitlagents.models import Thread
from tests.hitlagents.engine.conftest import eventually
from tests.hitlagents.play import Play
from tests.plugins.cast import AGENT, ballot, call
from tests.racing import race

pytestmark = pytest.mark.django_db(transaction=True)

ENDED_WORKER = "elsewhere"


def queued() -> int:
    return DBTaskResult.objects.count()


@pytest.fixture
def ready(interrupt):
    """A request whose run waits, and nothing in the queue."""
    DBTaskResult.objects.all().delete()
    return interrupt


def test_the_commit_of_a_decision_starts_the_task(ready, rita, advances, start_worker):
    start_worker()
    services.decide(ready.pk, ballot(ready), reviewer=rita)
    committed = time.monotonic()
    advances.wait_for(ready.run_id)
    assert advances.entered[ready.run_id] - committed < 10
    assert eventually(lambda: queued() == 0), "A task that is done leaves no row."


def test_a_decision_that_is_rolled_back_starts_nothing(
    ready, make_run, rita, advances, start_worker
):
    start_worker()
    with transaction.atomic():
        services.decide(ready.pk, ballot(ready), reviewer=rita)
        assert queued() == 1
        transaction.set_rollback(True)
    assert queued() == 0
    # A later run has come through, so the earlier one would have, too.
    advances.wait_for(make_run().pk)
    assert ready.run_id not in advances.entered


def test_a_run_that_is_due_later_starts_then_and_not_before(
    desk, make_interrupts, rita, advances, start_worker
):
    Policy.objects.update(undo_seconds=1)
    (request,) = make_interrupts(1)
    DBTaskResult.objects.all().delete()
    start_worker()
    before = time.monotonic()
    services.decide(request.pk, ballot(request), reviewer=rita)
    advances.wait_for(request.run_id)
    assert 1 <= advances.entered[request.run_id] - before < 10


def test_a_row_of_another_process_is_found_by_looking(ready, advances, start_worker):
    start_worker(poll=0.05)
    # As another process would: the row, and no bell that rings here.
    from hitlagents.tasks import advance_run

    advance_run.enqueue(str(ready.run_id))
    advances.wait_for(ready.run_id)


def test_many_run_at_once_but_no_more_than_allowed(make_run, advances, start_worker):
    at_once, most = 0, 0
    together = asyncio.Event()

    async def work(run_id):
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        if at_once == 2:
            together.set()
        await together.wait()
        # Time for one too many to come.
        await asyncio.sleep(0.05)
        at_once -= 1

    advances.doing = work
    runs = [make_run() for _ in range(5)]
    start_worker(concurrency=2)
    advances.wait_for(*[run.pk for run in runs])
    assert most == 2


def test_slow_tools_and_a_busy_database_delay_neither_a_start_nor_a_lease(
    make_run, advances, start_worker
):
    release = threading.Event()
    renewed: list[float] = []
    claim = services.claim_run(make_run().pk, owner="worker")
    assert claim is not None
    slow = [make_run().pk for _ in range(6)]

    async def block(run_id):
        if run_id in slow:
            # Six tools fill the loop's own threads, six calls those of the database.
            tool = asyncio.to_thread(release.wait, 60)
            await asyncio.gather(tool, in_database(release.wait, 60))
            return
        begun = time.monotonic()
        assert await in_lease(services.renew_lease, claim.run.pk, attempt=claim.attempt)
        renewed.append(time.monotonic() - begun)

    advances.doing = block
    try:
        start_worker()
        advances.wait_for(*slow)
        late = make_run()
        queued_at = time.monotonic()
        advances.wait_for(late.pk)
        assert advances.entered[late.pk] - queued_at < 10
        assert eventually(lambda: bool(renewed))
        assert renewed[0] < 10
    finally:
        release.set()


def test_a_task_that_fails_keeps_its_traceback_and_the_worker_goes_on(
    make_run, advances, start_worker, caplog
):
    first = make_run()

    async def work(run_id):
        if run_id == first.pk:
            raise SystemExit("a tool called exit()")

    advances.doing = work
    start_worker()
    advances.wait_for(first.pk)
    advances.wait_for(make_run().pk)
    assert eventually(lambda: DBTaskResult.objects.failed().exists())
    assert "a tool called exit()" in DBTaskResult.objects.failed().get().traceback
    assert "failed" in caplog.text


def test_a_worker_that_stops_gives_back_what_it_ran(make_run, advances, start_worker):
    stopped = threading.Event()

    async def work(run_id):
        try:
            await asyncio.sleep(60)
        finally:
            stopped.set()

    advances.doing = work
    run = make_run()
    worker = start_worker()
    advances.wait_for(run.pk)
    assert worker.stop(timeout=60)
    assert stopped.is_set()
    assert DBTaskResult.objects.ready().count() == 1
    # The next one takes it up at once.
    advances.entered.clear()
    start_worker()
    advances.wait_for(run.pk)


def test_a_new_worker_takes_up_what_an_ended_one_held(
    make_run, advances, start_worker, monkeypatch
):
    monkeypatch.setattr(services, "worker_is_gone", ENDED_WORKER.__eq__)
    run = make_run()
    assert len(queue.take(limit=1).rows) == 1
    claim = services.claim_run(run.pk, owner=ENDED_WORKER)
    assert claim is not None
    start_worker()
    advances.wait_for(run.pk)
    assert services.claim_run(run.pk, owner="next") is not None, "The lease is free."


def test_the_sweeper_wakes_a_run_whose_wake_up_was_lost(
    make_run, advances, start_worker
):
    run = make_run()
    DBTaskResult.objects.all().delete()
    start_worker()
    advances.wait_for(run.pk)


def test_the_sweeper_wakes_a_run_whose_lease_has_lapsed_once(make_run):
    run = make_run()
    claim = services.claim_run(run.pk, owner="another host's worker")
    assert claim is not None
    DBTaskResult.objects.all().delete()
    sweeper.sweep()
    assert queued() == 0, "The lease has not lapsed."
    services.release_run(run.pk, attempt=claim.attempt)
    sweeper.sweep()
    sweeper.sweep()
    assert queued() == 1


def test_b146_a_run_that_waits_is_neither_retried_nor_failed(ready, make_run, rita):
    """However much later it is looked for work: a pause is no failure and no lost run."""
    failed = make_run()
    claim = services.claim_run(failed.pk, owner="w")
    services.fail_run(failed.pk, attempt=claim.attempt, error="down", retryable=True)
    services.retry_run(failed.pk, actor=failed.requester)
    claim = services.claim_run(failed.pk, owner="w")
    retried = ready
    draft = InterruptDraft(call=call(filename="b.txt"))
    services.open_interrupts(failed.pk, attempt=claim.attempt, drafts=[draft])
    DBTaskResult.objects.all().delete()
    long_ago = timezone.now() - timedelta(hours=3)
    Run.objects.update(updated=long_ago, due_at=long_ago)
    for _ in range(3):
        sweeper.sweep()
    assert queued() == 0
    for run in (failed, retried.run):
        run.refresh_from_db()
        assert run.status == RunStatus.WAITING
        assert services.claim_run(run.pk, owner="w") is None
        assert run.interrupts.count() == 1


def test_the_sweeper_goes_on_after_a_step_that_fails(make_run, monkeypatch, caplog):
    make_run()
    DBTaskResult.objects.all().delete()
    monkeypatch.setattr(services, "expire_due", lambda now: 1 / 0)
    sweeper.sweep()
    assert queued() == 1
    assert "A step failed" in caplog.text


def test_rows_are_pruned_when_nobody_will_look_at_them(make_run):
    for _ in range(2):
        make_run()
    failed, kept = queue.take(limit=3).rows
    assert not DBTaskResult.objects.exists()
    queue.fail(failed, ValueError("long ago"))
    queue.fail(kept, ValueError("today"))
    long_ago = timezone.now() - timedelta(days=8)
    DBTaskResult.objects.filter(pk=failed.pk).update(finished_at=long_ago)
    assert queue.prune() == 1
    assert [row.pk for row in DBTaskResult.objects.all()] == [kept.pk]
    assert "today" in kept.traceback


def test_a_row_is_had_by_whoever_is_first(make_run, monkeypatch):
    make_run()
    found = list(queue.due(timezone.now()))
    monkeypatch.setattr(queue, "due", lambda now: found)
    assert len(queue.take(limit=5).rows) == 1
    assert queue.take(limit=5).rows == []


def expiries() -> list[AuditEntry]:
    return list(AuditEntry.objects.filter(action="interrupt.expired"))


def test_k06_what_expired_while_no_worker_ran_expires_once_at_the_start(
    ready, advances, start_worker
):
    """B14: however often workers start."""
    past = timezone.now() - timedelta(minutes=2)
    Interrupt.objects.filter(pk=ready.pk).update(expires_at=past)
    for _ in range(2):
        worker: WorkerThread = start_worker()
        advances.wait_for(ready.run_id)
        assert worker.stop(timeout=60)
    ready.refresh_from_db()
    assert ready.status == InterruptStatus.EXPIRED
    assert ready.decisions.count() == 1
    assert [entry.actor for entry in expiries()] == ["system:sweeper"]
    assert Run.objects.get(pk=ready.run_id).status == RunStatus.QUEUED


def test_a_deadline_between_two_sweeps_is_kept(ready, advances, start_worker):
    start_worker()
    soon = timezone.now() + timedelta(seconds=0.2)
    Interrupt.objects.filter(pk=ready.pk).update(expires_at=soon)
    advances.wait_for(ready.run_id, seconds=20)
    assert len(expiries()) == 1


@pytest.mark.parametrize("where", ["body", "model"])
@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt])
def test_a_tool_or_a_model_that_exits_ends_its_run_and_not_the_worker(
    mia, monkeypatch, start_worker, where, kind
):
    def leave(*_):
        raise kind("as the test wants it")

    adapter = Play([[("post_note", {"text": "x"})]], **{where: leave})
    monkeypatch.setattr(registry, "adapter_for", lambda slug, allowed: adapter)
    worker = start_worker(poll=0.5)
    thread = Thread.objects.create(agent=AGENT, owner=mia)
    run = conversations.send(thread.pk, "Go.", author=mia)
    ended = (RunStatus.FAILED, RunStatus.FINISHED)
    assert eventually(
        lambda: Run.objects.filter(pk=run.pk, status__in=ended).exists(), 10
    )
    assert worker.stop(timeout=60)
    assert not run.executions.filter(status=ExecutionStatus.INFLIGHT).exists()


def test_a_failed_row_is_never_seen_as_one_that_waits(make_run, monkeypatch):
    make_run()
    [row] = queue.take(limit=1).rows
    waiting = []
    save = DBTaskResult.save

    def seen_between(self, *args, **kwargs):
        save(self, *args, **kwargs)
        waiting.extend(race([lambda: queue.due(timezone.now()).count()]))

    monkeypatch.setattr(DBTaskResult, "save", seen_between)
    queue.fail(row, ValueError("as the test wants it"))
    assert set(waiting) == {0}
    assert DBTaskResult.objects.failed().count() == 1
