"""How runs stop, shared by the verbs that can stop one."""

from __future__ import annotations

from typing import Any

from approvals import wake
from approvals.models import Decision, Interrupt, Run, ToolExecution
from approvals.services.work import WORKER, Work, queue
from approvals.states import (
    Delivery,
    ExecutionStatus,
    InterruptStatus,
    RunStatus,
)


def end_run(
    work: Work, run: Run, status: RunStatus, action: str, actor: str, **payload: Any
) -> None:
    """Set one of the end states and free the lease."""
    run.status = status
    run.ended_at = work.now
    run.lease_owner, run.lease_until = "", None
    run.save(
        update_fields=["status", "ended_at", "lease_owner", "lease_until", "updated"]
    )
    work.record(action, actor=actor, run=run, **payload)
    work.tell_run(run)
    wake.run_ended(run.source, run.pk)


def end_cancelled(work: Work, run: Run, actor: str, note: str) -> None:
    """Cancel a locked run: what is still open in it is withdrawn.

    A tool body that is being run goes on. Until it comes back its outcome is unknown, and
    if it never does, a person can still say what happened.
    """
    for interrupt in run.interrupts.open():
        close_interrupt(work, interrupt, InterruptStatus.CANCELLED)
        work.record("interrupt.withdrawn", actor=actor, run=run, interrupt=interrupt)
    entered = run.executions.filter(status=ExecutionStatus.INFLIGHT, read_only=False)
    note_doubt(work, run, list(entered.select_related("interrupt")))
    end_run(work, run, RunStatus.CANCELLED, "run.cancelled", actor, note=note)


def close_interrupt(work: Work, interrupt: Interrupt, status: InterruptStatus) -> None:
    interrupt.status = status
    interrupt.decided_at = work.now
    interrupt.save(update_fields=["status", "decided_at"])
    work.tell_interrupt(interrupt)


def set_delivery(decision: Decision, delivery: Delivery) -> None:
    """Note how far a decision has come."""
    if decision.delivery != delivery:
        decision.delivery = delivery
        decision.save(update_fields=["delivery"])


def deliver(interrupt: Interrupt, delivery: Delivery) -> None:
    """Note how far the decision that stands for a request has come."""
    interrupt.decisions.filter(undone_at=None).update(delivery=delivery)


def put_in_doubt(
    work: Work, run: Run, executions: list[ToolExecution], *, why: str = ""
) -> None:
    """Stop a locked run: these calls were entered and nobody knows what came of them.

    ``why``: a sentence; without one their worker has stopped.
    """
    note_doubt(work, run, executions)
    names = ", ".join(sorted({execution.tool for execution in executions}))
    stopped = f"The worker stopped while {names} ran."
    run.status = RunStatus.IN_DOUBT
    run.error = f"{why or stopped} It may have taken effect."
    run.lease_until = None
    run.save(update_fields=["status", "error", "lease_until", "updated"])
    work.record("run.in_doubt", actor=WORKER, run=run, why=run.error)
    work.tell_run(run)


def go_on_after_doubt(work: Work, run: Run) -> None:
    """Queue a run that was in doubt, once nothing in it is."""
    doubtful = run.executions.filter(status=ExecutionStatus.IN_DOUBT)
    if run.status == RunStatus.IN_DOUBT and not doubtful.exists():
        queue(work, run, work.now)


def note_doubt(work: Work, run: Run, executions: list[ToolExecution]) -> None:
    """What came of these calls is not known, however their run goes on."""
    for execution in executions:
        execution.status = ExecutionStatus.IN_DOUBT
        execution.save(update_fields=["status"])
        if execution.interrupt is not None:
            deliver(execution.interrupt, Delivery.IN_DOUBT)
            work.tell_interrupt(execution.interrupt)
        work.record(
            "execution.in_doubt",
            actor=WORKER,
            run=run,
            interrupt=execution.interrupt,
            tool=execution.tool,
            call_id=execution.call_id,
            attempt=execution.attempt,
            owner=execution.owner,
        )
