"""A person says what became of a tool call whose outcome was unknown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from approvals import permissions
from approvals.exceptions import (
    InvalidDecision,
    NotAllowed,
    NotFound,
    RunEnded,
    WorkerMayLive,
)
from approvals.models import Run, ToolExecution
from approvals.services.ending import deliver
from approvals.services.work import (
    Work,
    lock_run,
    name_of,
    unit_of_work,
)
from approvals.states import (
    Delivery,
    ExecutionStatus,
    Settlement,
)

if TYPE_CHECKING:
    from django.contrib.auth.models import User


from approvals.services.ending import go_on_after_doubt
from approvals.services.workers import worker_is_gone


def settle_execution(
    execution_id: int,
    *,
    settlement: Settlement,
    actor: User,
    note: str,
    result: str = "",
) -> Run:
    """A person says what became of a call whose outcome was unknown; the run goes on.

    ``ran``: the model is told ``result``, or that a person confirmed it. ``did_not_run``:
    the model is told so. ``run_again``: the body will be entered anew; refused with
    WorkerMayLive while the worker that entered it may still be at it.
    """
    with unit_of_work() as work:
        execution = (
            ToolExecution.objects.filter(pk=execution_id)
            .select_related("interrupt")
            .first()
        )
        if execution is None:
            raise NotFound("There is no such tool call.")
        if not permissions.sees_run(actor, execution.run_id):
            raise NotFound("There is no such tool call.")
        run = lock_run(execution.run_id)
        known = RunEnded("The outcome of this call is already known.")
        # Read again under the lock: somebody else may have settled it meanwhile.
        execution = run.executions.filter(pk=execution_id).first()
        if execution is None:
            raise known
        if not permissions.may_settle(actor, run):
            raise NotAllowed("You may not settle this.")
        if execution.status != ExecutionStatus.IN_DOUBT:
            raise known
        if not note.strip():
            raise InvalidDecision("Say how you found out.", field="note")
        _settle(work, run, execution, settlement, result)
        work.record(
            "execution.settled",
            actor=name_of(actor),
            run=run,
            interrupt=execution.interrupt,
            tool=execution.tool,
            call_id=execution.call_id,
            settlement=settlement,
            note=note,
        )
        if execution.interrupt is not None:
            deliver(execution.interrupt, Delivery.APPLIED)
            work.tell_interrupt(execution.interrupt)
        go_on_after_doubt(work, run)
        return run


def _settle(
    work: Work,
    run: Run,
    execution: ToolExecution,
    settlement: Settlement,
    result: str,
) -> None:
    if settlement == Settlement.RUN_AGAIN:
        if not worker_is_gone(execution.owner):
            raise WorkerMayLive
        execution.delete()
        return
    if settlement == Settlement.RAN:
        execution.status = ExecutionStatus.DONE
        told = "Executed. The result was lost; a person confirmed that it ran."
        execution.result = result.strip() or told
    else:
        execution.status = ExecutionStatus.FAILED
        execution.result = "Not executed: a person confirmed that it did not run."
    execution.ended_at = work.now
    execution.save(update_fields=["status", "result", "ended_at"])
