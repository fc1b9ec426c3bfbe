"""The life of a run: queued, claimed, ended, retried, cancelled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING
from uuid import UUID

from django.db.models import Q

from approvals import clock, permissions, wake
from approvals.exceptions import NotAllowed, NotFound, RunEnded
from approvals.models import Run
from approvals.policies import Rulebook
from approvals.schemas import Answer
from approvals.services.answers import answers_for, run_decisions, standing_decisions
from approvals.services.asking_again import reopen_unsatisfied
from approvals.services.ending import (
    end_cancelled,
    end_run,
    put_in_doubt,
)
from approvals.services.executions import INSIDE
from approvals.services.work import (
    WORKER,
    Work,
    agent_of,
    lock_leased,
    lock_run,
    name_of,
    queue,
    unit_of_work,
    wake_runner,
)
from approvals.states import Delivery, RunStatus, Source

if TYPE_CHECKING:
    from django.contrib.auth.models import User

LEASE = timedelta(seconds=30)


@dataclass(frozen=True, kw_only=True)
class Claim:
    """The right to work on a run until the lease lapses, and what to tell the agent."""

    run: Run
    attempt: int
    answers: Sequence[Answer]
    #: The agent's registered tools that the policies let run without asking.
    allowed: frozenset[str]


def queue_run(
    *,
    agent: str,
    framework: str,
    thread: UUID,
    requester: User | None,
    title: str,
    source: Source = Source.HOSTED,
    on_behalf_of: str = "",
) -> Run:
    """Make a run that a worker should start."""
    with unit_of_work() as work:
        run = Run.objects.create(
            agent=agent,
            framework=framework,
            thread=thread,
            requester=requester,
            title=title[:200],
            source=source,
            on_behalf_of=on_behalf_of[:200],
            status=RunStatus.QUEUED,
            due_at=work.now,
            created=work.now,
        )
        actor = name_of(requester) if requester else agent_of(run)
        work.record(
            "run.queued", actor=actor, run=run, agent=agent, framework=framework
        )
        wake_runner(work, run)
        return run


def claim_run(run_id: UUID, *, owner: str) -> Claim | None:
    """Take a queued or abandoned run for one worker; None if there is nothing to do.

    Raises NotFound. A run whose worker died inside a tool is not taken: it becomes in_doubt. A run whose
    approvals no longer satisfy the policies goes back to waiting.
    """
    with unit_of_work() as work:
        run = lock_run(run_id)
        if not _is_free(run, work.now):
            return None
        after_lapse = run.status == RunStatus.RUNNING
        if _stopped_inside_a_tool(work, run):
            return None
        book = Rulebook(run.agent)
        decisions = standing_decisions(run) if run.saved_attempt else []
        if reopen_unsatisfied(work, run, decisions, book):
            return None
        run.status = RunStatus.RUNNING
        run.attempt += 1
        run.lease_owner, run.lease_until = owner, work.now + LEASE
        run.save(
            update_fields=["status", "attempt", "lease_owner", "lease_until", "updated"]
        )
        answers = answers_for(decisions)
        work.record(
            "run.resumed" if answers else "run.started",
            actor=WORKER,
            run=run,
            attempt=run.attempt,
            owner=owner,
            after_lapse=after_lapse,
            decided=[str(answer.interrupt_id) for answer in answers],
        )
        work.tell_run(run)
        return Claim(
            run=run, attempt=run.attempt, answers=answers, allowed=book.allowed()
        )


def renew_lease(run_id: UUID, *, attempt: int) -> bool:
    """Extend the lease; False when the run is no longer this worker's."""
    changed = Run.objects.filter(
        pk=run_id, attempt=attempt, status=RunStatus.RUNNING
    ).update(lease_until=clock.now() + LEASE)
    return changed == 1


def release_run(run_id: UUID, *, attempt: int) -> None:
    """Let the lease lapse now, because this worker is going away."""
    Run.objects.filter(pk=run_id, attempt=attempt, status=RunStatus.RUNNING).update(
        lease_until=clock.now()
    )


def finish_run(run_id: UUID, *, attempt: int) -> Run:
    """The agent came to its end."""
    with unit_of_work() as work:
        run = lock_leased(run_id, attempt)
        end_run(work, run, RunStatus.FINISHED, "run.finished", WORKER)
        return run


def fail_run(run_id: UUID, *, attempt: int, error: str, retryable: bool) -> Run:
    """The agent or its model failed. Results of tools that ran stay in the ledger."""
    with unit_of_work() as work:
        run = lock_leased(run_id, attempt)
        run.error, run.retryable = error, retryable
        run.save(update_fields=["error", "retryable"])
        end_run(work, run, RunStatus.FAILED, "run.failed", WORKER, error=error)
        run_decisions(run).filter(delivery=Delivery.SENT).update(
            delivery=Delivery.FAILED
        )
        return run


def retry_run(run_id: UUID, *, actor: User) -> Run:
    """Put a failed run back in the queue. Tools that ran are not run again."""
    with unit_of_work() as work:
        run = _lock_seen(actor, run_id)
        if not permissions.may_retry(actor, run):
            raise NotAllowed("You may not retry this run.")
        if run.status != RunStatus.FAILED:
            raise RunEnded("Only a failed run can be retried.")
        wake.hold_thread(run.source, run.thread)
        newer = Run.objects.filter(thread=run.thread, created__gt=run.created)
        if newer.exists():
            raise RunEnded("The thread has gone on since; this run can stay as it is.")
        work.record("run.retried", actor=name_of(actor), run=run, error=run.error)
        queue(work, run, work.now)
        return run


def cancel_run(run_id: UUID, *, actor: User, note: str = "") -> Run:
    """End a run at once: open requests are withdrawn, its worker's writes refused."""
    with unit_of_work() as work:
        run = _lock_seen(actor, run_id)
        if not permissions.may_cancel(actor, run):
            raise NotAllowed("You may not cancel this run.")
        if run.ended:
            raise RunEnded(f"The run has already ended: {run.get_status_display()}.")
        end_cancelled(work, run, name_of(actor), note)
        return run


def runs_to_wake(now: datetime) -> list[Run]:
    """Runs that are due or abandoned and should have a worker: the sweeper's query."""
    due = Q(status=RunStatus.QUEUED, due_at__lte=now)
    lapsed = Q(status=RunStatus.RUNNING, lease_until__lte=now)
    return list(Run.objects.filter(due | lapsed).order_by("due_at")[:500])


def _lock_seen(user: User, run_id: UUID) -> Run:
    """Lock a run as somebody who may see it; for others it does not exist."""
    if not permissions.sees_run(user, run_id):
        raise NotFound("There is no such run.")
    return lock_run(run_id)


def _is_free(run: Run, now: datetime) -> bool:
    if run.status == RunStatus.QUEUED:
        return run.due_at <= now
    lapsed = run.lease_until is None or run.lease_until <= now
    return run.status == RunStatus.RUNNING and lapsed


def _stopped_inside_a_tool(work: Work, run: Run) -> bool:
    """Whether an earlier attempt entered a tool body that has not come back.

    A body that changes nothing may simply be entered again; for any other a person has
    to find out what happened.
    """
    if not run.attempt:
        return False
    entered = INSIDE.all(run=run.pk)
    for execution in entered:
        if execution.read_only:
            execution.delete()
    doubtful = [execution for execution in entered if not execution.read_only]
    if doubtful:
        put_in_doubt(work, run, doubtful)
    return bool(doubtful)
