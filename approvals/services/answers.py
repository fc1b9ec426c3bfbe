"""What decided requests say to the agent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db.models import QuerySet

from approvals import canonical
from approvals.models import Decision, Interrupt, InterruptQuerySet, Run
from approvals.prepared import Prepared, Slot
from approvals.schemas import Answer, ToolCall
from approvals.states import (
    Delivery,
    InterruptKind,
    InterruptStatus,
    Verdict,
)

#: So many changed arguments are named to the model, and so much of each value.
MAX_CHANGES = 20
MAX_VALUE = 200

#: Verdicts that give something to the run, and not only a no.
GIVING = (Verdict.APPROVE, Verdict.ANSWER, Verdict.RESPOND)

#: What the model is told of a call to the page that the person left behind.
PASSED_OVER = (
    "Not answered: the person went on without answering. Their next message says what "
    "they want now."
)


def standing_decisions(run: Run) -> list[Decision]:
    """The decisions that stand on the run's last pause, each with its request.

    Those of earlier pauses are in the agent's own state already.
    """
    decisions = OF_PAUSE.all(run=run.pk, attempt=run.saved_attempt)
    return [of_run(run, decision) for decision in decisions]


def standing_decision(run: Run, call: ToolCall) -> Decision | None:
    """The decision that stands for one call of the run, with its request."""
    decision = OF_CALL.first(run=run.pk, turn=call.turn, call_id=call.call_id)
    return None if decision is None else of_run(run, decision)


def run_decisions(run: Run | Slot) -> QuerySet[Decision]:
    return Decision.objects.filter(interrupt__run=run, undone_at=None).select_related(
        "interrupt", "reviewer"
    )


OF_PAUSE = Prepared(
    lambda: (
        run_decisions(Slot(Interrupt, "run"))
        .filter(interrupt__attempt=Slot(Interrupt, "attempt"))
        .order_by("interrupt__turn", "interrupt__created", "interrupt_id")
    )
)
OF_CALL = Prepared(
    lambda: (
        run_decisions(Slot(Interrupt, "run"))
        .filter(
            interrupt__turn=Slot(Interrupt, "turn"),
            interrupt__call_id=Slot(Interrupt, "call_id"),
        )
        .order_by()
    )
)


def denials(run: Run, tool: str, arguments: str) -> QuerySet[Decision]:
    """The decisions of people that told the run no to this tool with these canonical
    arguments. A passed deadline, a policy and the intake say nothing about the call."""
    return run_decisions(run).filter(
        interrupt__tool=tool,
        interrupt__arguments=arguments,
        verdict__in=(Verdict.DENY, Verdict.CANCEL_CALL),
        reviewer__isnull=False,
    )


def denials_before(interrupt: Interrupt) -> QuerySet[Decision]:
    """The decisions that had said no to the same call when it was asked, oldest first."""
    same = denials(interrupt.run, interrupt.tool, interrupt.arguments)
    before = same.filter(created__lte=interrupt.created)
    return before.exclude(interrupt=interrupt.pk).order_by("created", "pk")


def of_run(run: Run, decision: Decision) -> Decision:
    """The same decision, its request pointing at the run that is locked."""
    decision.interrupt.run = run
    return decision


def held_back(decision: Decision) -> str:
    """What the model is told instead of an approved call whose companions were not all
    approved; empty if nothing holds it back."""
    interrupt = decision.interrupt
    if decision.verdict != Verdict.APPROVE or not interrupt.together:
        return ""
    if not companions(interrupt).exclude(status=InterruptStatus.APPROVED).exists():
        return ""
    return (
        "Not executed: this call was approved, but another one was not, and this agent "
        "takes no approval beside a denial."
    )


def companions(interrupt: Interrupt) -> InterruptQuerySet:
    """The other requests of its pause that run together with it or not at all."""
    return Interrupt.objects.filter(
        run=interrupt.run_id, attempt=interrupt.attempt, together=interrupt.together
    ).exclude(pk=interrupt.pk)


def answers_for(decisions: Sequence[Decision]) -> list[Answer]:
    """What the decisions say to the agent; those not sent yet are noted as sent."""
    new = [each.pk for each in decisions if each.delivery == Delivery.PENDING]
    if new:
        Decision.objects.filter(pk__in=new).update(delivery=Delivery.SENT)
    return [_answer(decision.interrupt, decision) for decision in decisions]


def _answer(interrupt: Interrupt, decision: Decision) -> Answer:
    instead = held_back(decision)
    text = instead or refusal_text(interrupt, decision) or beside_text(decision)
    by_person = decision.reviewer is not None and not instead
    plain = by_person and decision.verdict in (*GIVING, Verdict.DENY)
    return Answer(
        interrupt_id=interrupt.pk,
        call=ToolCall(
            turn=interrupt.turn,
            call_id=interrupt.call_id,
            tool=interrupt.tool,
            arguments=interrupt.arguments,
            framework_ref=interrupt.framework_ref,
        ),
        verdict=Verdict.DENY if instead else Verdict(decision.verdict),
        text=text,
        note=decision.note.strip() if plain else _reason(text),
        arguments=None if instead else _loaded(decision.arguments),
        answer=_loaded(decision.answer),
        output=_loaded(decision.output),
    )


def _reason(text: str) -> str:
    """What the model is told of a call that does not run, without how that begins."""
    reason = text.removeprefix("Not executed: ")
    return reason[:1].upper() + reason[1:]


def _loaded(text: str | None) -> Any:
    return None if text is None else canonical.loads(text)


def told_instead(decision: Decision) -> str:
    """What the model is told where no body runs: the answer, the output or the refusal."""
    refusal = refusal_text(decision.interrupt, decision)
    if refusal:
        return refusal
    value = canonical.loads(decision.output or decision.answer or '""')
    return value if isinstance(value, str) else canonical.dumps(value)


def refusal_text(interrupt: Interrupt, decision: Decision) -> str:
    """What the model is told about a call that does not run; empty if it does."""
    if decision.verdict in GIVING:
        return ""
    if interrupt.kind == InterruptKind.CLIENT and decision.reviewer is not None:
        return PASSED_OVER
    if interrupt.kind == InterruptKind.QUESTION:
        told = _unanswered(interrupt, decision)
    elif decision.verdict == Verdict.CANCEL_CALL:
        told = "Not executed: the call was cancelled."
    elif interrupt.status == InterruptStatus.EXPIRED:
        told = "Not executed: nobody decided before the deadline."
    elif decision.reviewer is None:
        told = "Not executed: the call was refused."
    else:
        told = "Not executed: a reviewer denied this call."
    note = "" if interrupt.status == InterruptStatus.EXPIRED else decision.note.strip()
    return f"{told} {note}" if note else told


def beside_text(decision: Decision) -> str:
    """What the model is told beside the result of a call, or an answer that stands for one:
    that a reviewer changed its arguments, and what they noted. Empty if neither.

    Without it a model finds a result of another call than it made, and tends to make its
    own once more.
    """
    interrupt = decision.interrupt
    if decision.verdict not in GIVING or decision.reviewer is None:
        return ""
    told = []
    changed = _changed(interrupt, decision.arguments or interrupt.arguments)
    if changed:
        told.append(
            "A reviewer changed the arguments of this call before approving it: "
            f"{changed}. Only the changed call was approved; do not propose it again as "
            "it was."
        )
    note = decision.note.strip()
    if note and interrupt.takes_note:
        told.append(f"Whoever decided this noted: {note}")
    return " ".join(told)


def _changed(interrupt: Interrupt, arguments: str) -> str:
    """What differs between the proposed and these canonical arguments, in words."""
    if arguments == interrupt.arguments:
        return ""
    before, after = canonical.loads(interrupt.arguments), canonical.loads(arguments)
    if not isinstance(before, dict) or not isinstance(after, dict):
        before, after = {"arguments": before}, {"arguments": after}
    names = [
        name
        for name in sorted({*before, *after})
        if _in_words(before, name) != _in_words(after, name)
    ]
    told = []
    for name in names[:MAX_CHANGES]:
        if any(
            name in each and interrupt.hiding.changes(each, name)
            for each in (before, after)
        ):
            told.append(f"{_cut(name)} (changed, not shown)")
        else:
            was, now = (_cut(_in_words(each, name)) for each in (before, after))
            told.append(f"{_cut(name)} (was {was}, now {now})")
    if len(names) > MAX_CHANGES:
        told.append(f"and {len(names) - MAX_CHANGES} more")
    return ", ".join(told)


def _in_words(arguments: dict[str, Any], name: str) -> str:
    return canonical.dumps(arguments[name]) if name in arguments else "left out"


def _cut(text: str) -> str:
    return text if len(text) <= MAX_VALUE else f"{text[: MAX_VALUE - 1]}…"


def _unanswered(interrupt: Interrupt, decision: Decision) -> str:
    if decision.verdict == Verdict.CANCEL_CALL:
        return "Not answered: the question was cancelled."
    if interrupt.status == InterruptStatus.EXPIRED:
        return "Not answered: nobody answered before the deadline."
    if decision.reviewer is None:
        return "Not answered: the question was refused."
    return "Not answered: the person who was asked declined to answer."
