"""Approvals that no longer satisfy the rules are asked anew, before the call runs."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from approvals.models import Decision, Interrupt, Run
from approvals.policies import Rulebook
from approvals.services.opening import apply_ruling
from approvals.services.outcomes import decide_by_system, reopen
from approvals.services.rulings import WITH_DECISION, unsatisfied
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


def reopen_unsatisfied(work: Work, run: Run, decided: Sequence[Interrupt]) -> bool:
    """Ask anew what was approved under rules that have become stricter since.

    Looks at every approval whose call has not been entered yet. Returns whether the
    (locked) run went back to waiting because of it.
    """
    if not decided:
        return False
    book = Rulebook(run.agent)
    entered = set(run.executions.values_list("interrupt_id", flat=True))
    reopened = False
    for interrupt in decided:
        decision = interrupt.decision
        approved = interrupt.status == InterruptStatus.APPROVED
        if decision is None or not approved or interrupt.pk in entered:
            continue
        if why := unsatisfied(interrupt, decision, book):
            _ask_again(work, run, interrupt, decision, why, book)
            reopened = True
    return reopened


def ask_again(run_id: UUID, *, attempt: int, interrupt_id: UUID) -> Run:
    """The guard found an approval that no longer satisfies the rules: let the run wait."""
    with unit_of_work() as work:
        run = lock_leased(run_id, attempt)
        interrupt = run.interrupts.prefetch_related(WITH_DECISION).get(pk=interrupt_id)
        interrupt.run = run
        book, decision = Rulebook(run.agent), interrupt.decision
        why = unsatisfied(interrupt, decision, book) if decision else ""
        if decision and why:
            _ask_again(work, run, interrupt, decision, why, book)
        else:
            queue(work, run, work.now)
        return run


def _ask_again(
    work: Work,
    run: Run,
    interrupt: Interrupt,
    decision: Decision,
    why: str,
    book: Rulebook,
) -> None:
    tool = book.tools.get(interrupt.tool)
    ruling = book.ruling(interrupt.tool)
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
