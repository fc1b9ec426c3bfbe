"""Approvals that no longer satisfy the rules are asked anew, before the call runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING
from uuid import UUID

from approvals.models import Decision, Interrupt, Run, Tool
from approvals.services.tools import misfit
from approvals.services.work import (
    Work,
    lock_leased,
    queue,
    unit_of_work,
)
from approvals.states import (
    Gate,
    InterruptStatus,
    Verdict,
)

if TYPE_CHECKING:
    pass
from approvals.services.opening import apply_ruling
from approvals.services.outcomes import decide_by_system, reopen
from approvals.services.rulings import WITH_DECISION, current_ruling, unsatisfied


def reopen_unsatisfied(work: Work, run: Run, decided: Sequence[Interrupt]) -> bool:
    """Ask anew what was approved under rules that have become stricter since.

    Looks at every approval whose call has not been entered yet. Returns whether the
    (locked) run went back to waiting because of it.
    """
    if not decided:
        return False
    entered = set(run.executions.values_list("interrupt_id", flat=True))
    reopened = False
    for interrupt in decided:
        decision = interrupt.decision
        if interrupt.status != InterruptStatus.APPROVED or interrupt.pk in entered:
            continue
        why = unsatisfied(interrupt)
        if why and decision:
            _ask_again(work, run, interrupt, decision, why)
            reopened = True
    return reopened


def ask_again(run_id: UUID, *, attempt: int, interrupt_id: UUID) -> Run:
    """The guard found an approval that no longer satisfies the rules: let the run wait."""
    with unit_of_work() as work:
        run = lock_leased(run_id, attempt)
        interrupt = run.interrupts.prefetch_related(*WITH_DECISION).get(pk=interrupt_id)
        interrupt.run = run
        why, decision = unsatisfied(interrupt), interrupt.decision
        if why and decision:
            _ask_again(work, run, interrupt, decision, why)
        else:
            queue(work, run, work.now)
        return run


def _ask_again(
    work: Work, run: Run, interrupt: Interrupt, decision: Decision, why: str
) -> None:
    tool = Tool.objects.filter(agent=run.agent, name=interrupt.tool).first()
    ruling = current_ruling(run.agent, interrupt.tool)
    if tool is not None:
        interrupt.tool_schema = tool.schema
        interrupt.schema_digest = tool.schema_digest
    reopen(work, run, interrupt, decision)
    apply_ruling(work, interrupt, ruling, asked_before=True)
    work.record(
        "interrupt.reopened",
        actor="system:policy",
        run=run,
        interrupt=interrupt,
        why=why,
        policy=interrupt.policy,
    )
    problem = (
        f"The agent no longer has the tool {interrupt.tool}."
        if tool is None
        else misfit(tool.schema, interrupt.arguments)
    )
    if ruling.gate == Gate.REFUSE or problem:
        decide_by_system(work, interrupt, Verdict.DENY, "policy", problem or why)
