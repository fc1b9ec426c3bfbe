"""One unit of work: one run, one transaction, its audit entries last, its pings after.

Locks are always taken in this order: the run, then the head of the chain.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from django.db import transaction

from approvals import audit, clock, live, wake
from approvals.exceptions import LostLease, NotFound
from approvals.models import Interrupt, Run
from approvals.prepared import Prepared, Slot
from approvals.states import InterruptKind, RunStatus

if TYPE_CHECKING:
    from django.contrib.auth.models import User
    from django.db.models import QuerySet


@dataclass
class Work:
    """What a verb collects while it runs: entries to append, pages to tell."""

    now: datetime
    entries: list[audit.Pending] = field(default_factory=list)
    #: The run whose lock this transaction holds: every verb that joins works on one row.
    run: Run | None = None
    pings: dict[tuple[str, str], set[str]] = field(default_factory=dict)

    def record(
        self,
        action: str,
        *,
        actor: str,
        run: Run | None = None,
        interrupt: Interrupt | None = None,
        **payload: Any,
    ) -> None:
        """Put an entry at the end of this transaction."""
        self.entries.append(
            audit.Pending(
                action=action,
                actor=actor,
                time=self.now,
                run=run.pk if run else None,
                interrupt=interrupt.pk if interrupt else None,
                payload=payload,
            )
        )

    def tell(self, op: str, id: object, scopes: Iterable[str]) -> None:
        """Ping these scopes after the commit; repeated pings become one."""
        self.pings.setdefault((op, str(id)), set()).update(scopes)

    def tell_run(self, run: Run) -> None:
        scopes = {f"run.{run.pk}", "all"}
        if run.requester_id:
            scopes.add(f"user.{run.requester_id}")
        self.tell("run", run.pk, scopes)

    def tell_interrupt(self, interrupt: Interrupt, op: str = "interrupt") -> None:
        scopes = {f"run.{interrupt.run_id}"}
        if interrupt.kind != InterruptKind.CLIENT:
            groups = interrupt.policy.get("group_ids", ())
            scopes |= {"all", *(f"group.{pk}" for pk in groups)}
        self.tell(op, interrupt.pk, scopes)


_current: ContextVar[Work | None] = ContextVar("work", default=None)


@contextmanager
def unit_of_work() -> Iterator[Work]:
    """Join the unit of work that is open in this context, or make one.

    Only the outermost one opens the transaction, appends the entries and pings.
    """
    work = _current.get()
    if work is not None:
        yield work
        return
    with transaction.atomic():
        work = Work(now=clock.now())
        token = _current.set(work)
        try:
            yield work
        finally:
            _current.reset(token)
        audit.append(work.entries)
        for (op, id), scopes in work.pings.items():
            live.announce_on_commit(scopes, op, id)


def lock_run(run_id: UUID) -> Run:
    """Take the run's lock: every change of a run or of its interrupts begins here.

    ``no_key``, because the plain form would block inserts that refer to the run.
    Raises NotFound.
    """
    work = _current.get()
    if work is not None and work.run is not None and work.run.pk == run_id:
        return work.run
    return _locked(work, LOCKED_RUN.first(id=run_id))


def lock_run_of(interrupt_id: UUID) -> Run:
    """The same for the run of a request. Raises NotFound."""
    return _locked(_current.get(), LOCKED_RUN_OF.first(id=interrupt_id))


def _locked(work: Work | None, run: Run | None) -> Run:
    if run is None:
        raise NotFound("There is no such run.")
    if work is not None:
        work.run = run
    return run


def _locking() -> QuerySet[Run]:
    return Run.objects.select_for_update(no_key=True, of=("self",)).order_by()


LOCKED_RUN = Prepared(lambda: _locking().filter(pk=Slot(Run, "id")))
LOCKED_RUN_OF = Prepared(lambda: _locking().filter(interrupts=Slot(Interrupt, "id")))


def lock_leased(run_id: UUID, attempt: int) -> Run:
    """Take the lock as the worker of this attempt, or raise LostLease."""
    run = lock_run(run_id)
    if run.status != RunStatus.RUNNING or run.attempt != attempt:
        raise LostLease
    return run


def queue(work: Work, run: Run, due_at: datetime) -> None:
    """Set a run queued and wake its runner, in this transaction."""
    run.status = RunStatus.QUEUED
    run.due_at = due_at
    run.lease_owner, run.lease_until = "", None
    run.error, run.retryable, run.ended_at = "", False, None
    run.save(
        update_fields=[
            "status",
            "due_at",
            "lease_owner",
            "lease_until",
            "error",
            "retryable",
            "ended_at",
            "updated",
        ]
    )
    wake_runner(work, run)


def wake_runner(work: Work, run: Run) -> None:
    """Tell whoever works on a queued run, and its pages."""
    wake.run_queued(run.source, run.pk, run.due_at)
    work.tell_run(run)


def name_of(user: User) -> str:
    """How an actor stands in the audit: by the name they sign in with."""
    return user.get_username()


def agent_of(run: Run) -> str:
    return f"agent:{run.agent}"


SWEEPER = "system:sweeper"
WORKER = "system:worker"
