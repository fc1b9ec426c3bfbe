"""What the rules say of a request, now and as it was asked, and what a page shows."""

from __future__ import annotations

from collections import Counter
from typing import Any

from approvals import canonical, permissions, policies
from approvals.models import Decision, Interrupt
from approvals.policies import Rulebook, Ruling
from approvals.states import (
    Gate,
    InterruptKind,
    Verdict,
)


def asked_ruling(interrupt: Interrupt) -> Ruling:
    """The ruling as it was when the call was asked."""
    return Ruling.model_validate(interrupt.policy)


def ruling_for(interrupt: Interrupt) -> Ruling:
    """What a decision of now must satisfy."""
    if interrupt.kind == InterruptKind.CLIENT:
        return asked_ruling(interrupt)
    current = Rulebook(interrupt.run.agent).ruling(interrupt.tool)
    return policies.strictest(asked_ruling(interrupt), current)


def shown_digest(interrupt: Interrupt, ruling: Ruling | None = None) -> str:
    """Keyed digest of everything a page shows that a decision is about.

    Goes into every decision form; a form with another one is refused. It changes with
    the call, the tool's schema and the rules. ``ruling``: that of now, if known.
    """
    shown = {
        "interrupt": str(interrupt.pk),
        "run": str(interrupt.run_id),
        "agent": interrupt.run.agent,
        "turn": interrupt.turn,
        "call_id": interrupt.call_id,
        "kind": interrupt.kind,
        "reason": interrupt.reason,
        "message": interrupt.message,
        "said": interrupt.said,
        "title": interrupt.title,
        "tool": interrupt.tool,
        "arguments": interrupt.arguments,
        "secrets": interrupt.secrets,
        "plain": interrupt.plain,
        "tool_schema": interrupt.schema_digest,
        "response_schema": interrupt.response_schema,
        "verdicts": interrupt.verdicts,
        "editable": interrupt.editable,
        "denied_before": interrupt.denied_before,
        "card": interrupt.card,
        "risk": interrupt.risk,
        "consequence": interrupt.consequence,
        "approve_label": interrupt.approve_label,
        "policy": (ruling or ruling_for(interrupt)).model_dump(mode="json"),
    }
    return canonical.keyed_digest(
        interrupt.salt, "sayso.shown.v1", canonical.dumps(shown)
    )


def redacted(interrupt: Interrupt) -> Any:
    """The arguments for pages of others and for records that outlive the row: what is
    secret replaced by its length."""
    return interrupt.hiding.masked(canonical.loads(interrupt.arguments))


def unsatisfied(decision: Decision, book: Rulebook) -> str:
    """Why an approval is not enough under the rules and the schema of now; else empty."""
    interrupt = decision.interrupt
    tool = book.tools.get(interrupt.tool)
    ruling = book.ruling(interrupt.tool)
    asked = asked_ruling(interrupt)
    if tool is None:
        return "The agent no longer has this tool."
    if tool.schema_digest != interrupt.schema_digest:
        return "The tool's parameters were changed after it was approved."
    if ruling.same_as(asked):
        return ""
    if ruling.gate == Gate.REFUSE:
        return f"The policy “{ruling.policy}” now refuses this call."
    if ruling.gate == Gate.ALLOW:
        return ""
    if decision.channel == "policy":
        return f"The policy “{ruling.policy}” now holds this call for a person."
    needed = policies.strictest(asked, ruling)
    arguments = decision.arguments or interrupt.arguments
    voted = interrupt.vote_digest(arguments, decision.answer)
    have = approvals_of(interrupt, needed)[voted]
    if have < needed.approvals_required:
        return (
            f"The policy “{ruling.policy}” now wants {needed.approvals_required} "
            f"approvals; {have} of those given still count."
        )
    return ""


def approvals_of(interrupt: Interrupt, ruling: Ruling) -> Counter[str]:
    """Standing approvals per vote digest, of people who may still give one."""
    count: Counter[str] = Counter()
    votes = interrupt.votes.filter(verdict=Verdict.APPROVE, void_at=None)
    for vote in votes.select_related("voter"):
        own = interrupt.run.requester_id == vote.voter_id
        if permissions.may_decide(vote.voter, interrupt) and (
            ruling.requester_may_decide or not own
        ):
            count[vote.effective_digest] += 1
    return count
