"""The guard's side of the ledger: may this body be entered, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db.models import QuerySet

from approvals import canonical
from approvals.exceptions import (
    ApprovalsError,
    AskAgain,
    InvalidArguments,
    NotDecided,
    OutcomeUnknown,
)
from approvals.models import Decision, Run, ToolExecution
from approvals.policies import Rulebook
from approvals.prepared import Prepared, Slot
from approvals.schemas import ToolCall
from approvals.services.answers import (
    GIVING,
    beside_text,
    held_back,
    standing_decision,
    told_instead,
)
from approvals.services.ending import (
    deliver,
    go_on_after_doubt,
    note_doubt,
    put_in_doubt,
    set_delivery,
)
from approvals.services.outcomes import fits_record
from approvals.services.rulings import unsatisfied
from approvals.services.tools import misfit
from approvals.services.work import (
    WORKER,
    Work,
    lock_leased,
    lock_run,
    unit_of_work,
)
from approvals.states import (
    Delivery,
    ExecutionStatus,
    Gate,
    InterruptKind,
    RunStatus,
    Verdict,
)

#: A body was entered, and nobody knows yet what came of it.
UNSETTLED = (ExecutionStatus.INFLIGHT, ExecutionStatus.IN_DOUBT)


def _with_request() -> QuerySet[ToolExecution]:
    return ToolExecution.objects.order_by().select_related("interrupt")


OF_CALL = Prepared(
    lambda: _with_request().filter(
        run=Slot(ToolExecution, "run"),
        turn=Slot(ToolExecution, "turn"),
        call_id=Slot(ToolExecution, "call_id"),
    )
)
#: Bodies of a run that were entered and have not come back.
INSIDE = Prepared(
    lambda: _with_request().filter(
        run=Slot(ToolExecution, "run"), status=ExecutionStatus.INFLIGHT
    )
)
BY_ID = Prepared(lambda: _with_request().filter(pk=Slot(ToolExecution, "id")))


@dataclass(frozen=True, kw_only=True)
class Permit:
    """The body may be entered, once, with exactly these arguments."""

    run_id: UUID
    execution_id: int
    arguments: dict[str, Any]
    #: What the reviewer answered beside approving, if anything.
    answer: Any = None
    #: What the model is told beside the result.
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Instead:
    """The body must not be entered; this is what the model is told."""

    text: str
    #: And beside it.
    note: str = ""


def begin_execution(
    run_id: UUID, *, attempt: int, call: ToolCall, owner: str
) -> Permit | Instead:
    """Decide at the tool body whether it may be entered, and claim it in the ledger.

    The rows are the authority, not what the framework was told. Raises LostLease,
    NotDecided (no decision allows the call), AskAgain (the approval no longer satisfies
    the rules), OutcomeUnknown (an earlier attempt entered the body and never came back;
    the run is then in_doubt), InvalidArguments (other arguments than were shown).
    """
    refusal: ApprovalsError | None = None
    with unit_of_work() as work:
        run = lock_leased(run_id, attempt)
        execution = OF_CALL.first(run=run.pk, turn=call.turn, call_id=call.call_id)
        if execution is not None and execution.status in UNSETTLED:
            put_in_doubt(work, run, [execution])
            refusal = OutcomeUnknown()
        elif execution is not None:
            decision = standing_decision(run, call) if execution.interrupt else None
            note = beside_text(decision) if decision else ""
            return Instead(text=execution.result, note=note)
        else:
            try:
                return _enter(work, run, call, owner)
            except (NotDecided, InvalidArguments) as error:
                refusal = error
                work.record(
                    "execution.refused",
                    actor=WORKER,
                    run=run,
                    tool=call.tool,
                    call_id=call.call_id,
                    why=str(error),
                )
    # Raised after the commit, so that what was found stays recorded.
    raise refusal


def _enter(work: Work, run: Run, call: ToolCall, owner: str) -> Permit | Instead:
    decision = standing_decision(run, call)
    if decision is None:
        asked = run.interrupts.filter(turn=call.turn, call_id=call.call_id)
        if asked.exists():
            raise NotDecided(f"{call.tool} was asked and is not decided.")
        return _enter_ungated(work, run, call, owner)
    approved = decision.verdict == Verdict.APPROVE
    if approved and decision.interrupt.kind != InterruptKind.APPROVAL:
        raise NotDecided(f"Nothing runs for {call.tool}: it waits for an answer.")
    if decision.verdict in GIVING and not fits_record(decision):
        raise InvalidArguments("The decision is not the one that was recorded.")
    text = held_back(decision)
    if approved and not text:
        return _enter_approved(work, run, call, owner, decision)
    set_delivery(decision, Delivery.APPLIED)
    instead = Instead(
        text=text or told_instead(decision), note="" if text else beside_text(decision)
    )
    work.record(
        "execution.replaced",
        actor=WORKER,
        run=run,
        interrupt=decision.interrupt,
        tool=call.tool,
        verdict=decision.verdict,
    )
    return instead


def _enter_approved(
    work: Work, run: Run, call: ToolCall, owner: str, decision: Decision
) -> Permit:
    interrupt = decision.interrupt
    text = canonical.dumps(canonical.loads(call.arguments or "{}"))
    proposed = interrupt.digest_of(text)
    if call.tool != interrupt.tool or proposed != interrupt.arguments_digest:
        raise InvalidArguments(
            f"{call.tool} was called with other arguments than were approved."
        )
    if unsatisfied(decision, Rulebook(run.agent)):
        raise AskAgain(str(interrupt.pk))
    arguments = decision.arguments or interrupt.arguments
    if interrupt.digest_of(arguments) != decision.effective_digest:
        raise InvalidArguments("The decision does not fit its own arguments.")
    problem = misfit(
        interrupt.tool_schema,
        arguments,
        typed=decision.arguments is not None,
        hiding=interrupt.hiding,
    )
    if problem:
        raise InvalidArguments(problem)
    return _claim(work, run, call, owner, arguments, decision)


def _enter_ungated(
    work: Work, run: Run, call: ToolCall, owner: str
) -> Permit | Instead:
    book = Rulebook(run.agent)
    ruling = book.ruling(call.tool)
    if ruling.gate == Gate.HOLD:
        raise NotDecided(f"{call.tool} needs a decision and was not asked.")
    if ruling.gate == Gate.REFUSE:
        work.record(
            "execution.replaced",
            actor=WORKER,
            run=run,
            tool=call.tool,
            by=ruling.policy,
        )
        return Instead(
            text=f"Not executed: the policy “{ruling.policy}” refuses this call."
        )
    try:
        arguments = canonical.dumps(canonical.loads(call.arguments or "{}"))
    except InvalidArguments as error:
        return Instead(text=f"Not executed: {error}")
    tool = book.tools[call.tool]
    problem = misfit(tool.schema, arguments, hiding=tool.hiding)
    if problem:
        return Instead(text=f"Not executed: {problem}")
    earlier = _ran_before(run, call, arguments, read_only=tool.read_only)
    if earlier is not None:
        _adopt(work, run, call, earlier)
        return Instead(text=earlier.result)
    return _claim(work, run, call, owner, arguments, None, read_only=tool.read_only)


def _ran_before(
    run: Run, call: ToolCall, arguments: str, *, read_only: bool
) -> ToolExecution | None:
    """The same ungated call of an attempt whose state was never saved.

    When a model turn is run again after a crash or a failure, the framework gives its
    calls new ids. Without this, a call that took effect would take effect again.
    """
    if read_only:
        return None
    return run.executions.filter(
        interrupt=None,
        status=ExecutionStatus.DONE,
        tool=call.tool,
        arguments=arguments,
        attempt__gt=run.saved_attempt,
        attempt__lt=run.attempt,
    ).first()


def _adopt(work: Work, run: Run, call: ToolCall, earlier: ToolExecution) -> None:
    was = earlier.call_id
    earlier.turn, earlier.call_id, earlier.attempt = (
        call.turn,
        call.call_id,
        run.attempt,
    )
    earlier.save(update_fields=["turn", "call_id", "attempt"])
    work.record(
        "execution.replaced",
        actor=WORKER,
        run=run,
        tool=call.tool,
        call_id=call.call_id,
        ran_as=was,
    )


def _claim(
    work: Work,
    run: Run,
    call: ToolCall,
    owner: str,
    arguments: str,
    decision: Decision | None,
    *,
    read_only: bool = False,
) -> Permit:
    interrupt = decision.interrupt if decision else None
    salt = interrupt.salt if interrupt else canonical.new_salt()
    digest = canonical.keyed_digest(salt, "sayso.arguments.v1", arguments)
    execution = ToolExecution.objects.create(
        run=run,
        turn=call.turn,
        call_id=call.call_id,
        tool=call.tool,
        interrupt=interrupt,
        read_only=read_only,
        arguments=arguments,
        salt=salt,
        arguments_digest=digest,
        attempt=run.attempt,
        owner=owner,
        started=work.now,
    )
    work.record(
        "execution.started",
        actor=WORKER,
        run=run,
        interrupt=interrupt,
        tool=call.tool,
        call_id=call.call_id,
        attempt=run.attempt,
        owner=owner,
        arguments_digest=digest,
    )
    if interrupt is not None:
        work.tell_interrupt(interrupt)
    answer = decision.answer if decision else None
    return Permit(
        run_id=run.pk,
        execution_id=execution.pk,
        arguments=canonical.loads(arguments),
        answer=None if answer is None else canonical.loads(answer),
        note=beside_text(decision) if decision else "",
    )


def finish_execution(permit: Permit, *, result: str, failed: bool = False) -> None:
    """Store what a body gave. Kept also when the run was taken away meanwhile.

    A body that came back is a fact: only a row a person has already settled is left as
    it is.
    """
    with unit_of_work() as work:
        run = lock_run(permit.run_id)
        execution = BY_ID.first(id=permit.execution_id)
        if execution is None or execution.status not in UNSETTLED:
            return
        was_in_doubt = execution.status == ExecutionStatus.IN_DOUBT
        execution.status = ExecutionStatus.FAILED if failed else ExecutionStatus.DONE
        execution.result = result
        execution.ended_at = work.now
        execution.save(update_fields=["status", "result", "ended_at"])
        work.record(
            "execution.failed" if failed else "execution.done",
            actor=WORKER,
            run=run,
            interrupt=execution.interrupt,
            tool=execution.tool,
            call_id=execution.call_id,
            attempt=execution.attempt,
            result_digest=canonical.keyed_digest(
                execution.salt, "sayso.result.v1", result
            ),
        )
        if execution.interrupt is not None:
            deliver(execution.interrupt, Delivery.APPLIED)
            work.tell_interrupt(execution.interrupt)
        work.tell_run(run)
        if was_in_doubt:
            go_on_after_doubt(work, run)


def doubt_execution(permit: Permit, *, why: str) -> None:
    """A body will never hear what came of what it began: a person has to settle it.

    Its worker has let go of it, so that a person may also have it run again. Only while
    nobody has settled it.
    """
    with unit_of_work() as work:
        run = lock_run(permit.run_id)
        execution = BY_ID.first(id=permit.execution_id)
        if execution is None or execution.status not in UNSETTLED:
            return
        execution.owner = ""
        execution.save(update_fields=["owner"])
        if run.status in (RunStatus.RUNNING, RunStatus.IN_DOUBT):
            put_in_doubt(work, run, [execution], why=why)
        elif execution.status == ExecutionStatus.INFLIGHT:
            note_doubt(work, run, [execution])


def withdraw_execution(permit: Permit) -> None:
    """Forget that a body was entered: it stopped to ask a person and will be entered anew.

    Only while nobody has settled it.
    """
    with unit_of_work() as work:
        run = lock_run(permit.run_id)
        execution = BY_ID.first(id=permit.execution_id)
        if execution is None or execution.status not in UNSETTLED:
            return
        was_in_doubt = execution.status == ExecutionStatus.IN_DOUBT
        execution.delete()
        work.record(
            "execution.paused",
            actor=WORKER,
            run=run,
            interrupt=execution.interrupt,
            tool=execution.tool,
            call_id=execution.call_id,
            attempt=execution.attempt,
        )
        if execution.interrupt is not None:
            work.tell_interrupt(execution.interrupt)
        work.tell_run(run)
        if was_in_doubt:
            go_on_after_doubt(work, run)
