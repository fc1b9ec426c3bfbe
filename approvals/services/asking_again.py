"""Approvals that no longer satisfy the rules are asked anew, before the call runs."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from approvals.models import Decision, Run
from approvals.policies import Rulebook
from approvals.services.answers import of_run, run_decisions
from approvals.services.opening import apply_ruling
from approvals.services.outcomes import decide_by_system, reopen
from approvals.services.rulings import unsatisfied
from approvals.services.tools import misfit
from approvals.services.work import (
    Work,
    lock_leased,
    queue,
    unit_of_work,
)
from approvals.states import (
    Gate,
    Verdict,
)


def reopen_unsatisfied(
    work: Work, run: Run, decisions: Sequence[Decision], book: Rulebook
) -> bool:
    """Ask anew what was approved under rules that have become stricter since.

    Looks at every approval whose call has not been entered yet. Returns whether the
    (locked) run went back to waiting because of it.
    """
    approved = [each for each in decisions if each.verdict == Verdict.APPROVE]
    doubtful = {
        decision: why for decision in approved if (why := unsatisfied(decision, book))
    }
    if not doubtful:
        return False
    entered = set(run.executions.values_list("interrupt_id", flat=True))
    reopened = False
    for decision, why in doubtful.items():
        if decision.interrupt_id not in entered:
            _ask_again(work, run, decision, why, book)
            reopened = True
    return reopened


def ask_again(run_id: UUID, *, attempt: int, interrupt_id: UUID) -> Run:
    """The guard found an approval that no longer satisfies the rules: let the run wait."""
    with unit_of_work() as work:
        run = lock_leased(run_id, attempt)
        book = Rulebook(run.agent)
        # Of any pause: a call approved at one may stop to ask and be entered at a later.
        found = run_decisions(run).filter(interrupt_id=interrupt_id).first()
        decision = None if found is None else of_run(run, found)
        why = unsatisfied(decision, book) if decision else ""
        if decision and why:
            _ask_again(work, run, decision, why, book)
        else:
            queue(work, run, work.now)
        return run


def _ask_again(
    work: Work, run: Run, decision: Decision, why: str, book: Rulebook
) -> None:
    interrupt = decision.interrupt
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
        else misfit(tool.schema, interrupt.arguments, hiding=tool.hiding)
    )
    if ruling.gate == Gate.REFUSE or problem:
        decide_by_system(work, interrupt, Verdict.DENY, "policy", problem or why)
