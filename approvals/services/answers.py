"""What decided requests say to the agent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from approvals import canonical
from approvals.models import Decision, Interrupt, Run
from approvals.schemas import Answer, ToolCall
from approvals.services.ending import set_delivery
from approvals.services.rulings import WITH_DECISION
from approvals.states import (
    Delivery,
    InterruptStatus,
    Verdict,
)


def decided_interrupts(run: Run) -> list[Interrupt]:
    """The run's decided requests in the order they were asked, with their decisions."""
    decided = run.interrupts.decided().prefetch_related(WITH_DECISION)
    found = list(decided.order_by("turn", "created", "id"))
    for interrupt in found:
        interrupt.run = run
    return found


def answers_for(decided: Sequence[Interrupt]) -> list[Answer]:
    """What the decided interrupts say to the agent, and note them as sent."""
    answers = []
    for interrupt in decided:
        decision = interrupt.decision
        if decision is None:
            continue
        if decision.delivery == Delivery.PENDING:
            set_delivery(interrupt, Delivery.SENT)
        answers.append(_answer(interrupt, decision))
    return answers


def _answer(interrupt: Interrupt, decision: Decision) -> Answer:
    return Answer(
        interrupt_id=interrupt.pk,
        call=ToolCall(
            turn=interrupt.turn,
            call_id=interrupt.call_id,
            tool=interrupt.tool,
            arguments=interrupt.arguments,
            framework_ref=interrupt.framework_ref,
        ),
        verdict=Verdict(decision.verdict),
        text=refusal_text(interrupt, decision),
        arguments=_loaded(decision.arguments),
        answer=_loaded(decision.answer),
        output=_loaded(decision.output),
    )


def _loaded(text: str | None) -> Any:
    return None if text is None else canonical.loads(text)


def refusal_text(interrupt: Interrupt, decision: Decision) -> str:
    """What the model is told about a call that does not run; empty if it does."""
    if decision.verdict in (Verdict.APPROVE, Verdict.ANSWER, Verdict.RESPOND):
        return ""
    if decision.verdict == Verdict.CANCEL_CALL:
        told = "Not executed: the call was cancelled."
    elif interrupt.status == InterruptStatus.EXPIRED:
        told = "Not executed: nobody decided before the deadline."
    elif decision.reviewer is None:
        told = "Not executed: the call was refused."
    else:
        told = "Not executed: a reviewer denied this call."
    note = "" if interrupt.status == InterruptStatus.EXPIRED else decision.note.strip()
    return f"{told} {note}" if note else told
