"""Which calls wait for a person, which run, which are refused, and who decides.

``rule_on`` is pure. Its order: first match wins, no match is held, a rule that cannot be
read is held, a tool nobody registered is never let through.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Any

from pydantic import ConfigDict, ValidationError

from approvals.models import Policy
from approvals.schemas import Frozen
from approvals.states import Gate, NoteRule, OnDeadline

#: Decides what no policy routes elsewhere. Made by a migration.
FALLBACK_GROUP = "Reviewers"


class Ruling(Frozen):
    """What applies to one call. Stored with the interrupt as it was when asked."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    gate: Gate = Gate.HOLD
    policy_id: int | None = None
    policy: str = "No policy matches"
    groups: tuple[str, ...] = (FALLBACK_GROUP,)
    approvals_required: int = 1
    requester_may_decide: bool = False
    note_rule: NoteRule = NoteRule.OPTIONAL
    deadline_seconds: int | None = None
    on_deadline: OnDeadline = OnDeadline.DENY
    undo_seconds: int = 0


class Rule(Frozen):
    """A policy row, read."""

    agent_pattern: str
    tool_pattern: str
    ruling: Ruling

    def matches(self, agent: str, tool: str) -> bool:
        return fnmatchcase(agent, self.agent_pattern) and fnmatchcase(
            tool, self.tool_pattern
        )


def rule_on(
    agent: str, tool: str, *, rules: Sequence[Rule], registered: bool = True
) -> Ruling:
    """The ruling for a call of ``tool`` by ``agent``. Never raises."""
    found = next((rule.ruling for rule in rules if rule.matches(agent, tool)), Ruling())
    if found.gate == Gate.ALLOW and not registered:
        return found.model_copy(
            update={"gate": Gate.HOLD, "policy": f"{found.policy} (tool unknown)"}
        )
    return found


def load_rules() -> list[Rule]:
    """All enabled policies, in order."""
    policies = Policy.objects.filter(enabled=True).prefetch_related("groups")
    return list(read(policies))


def read(policies: Iterable[Policy]) -> Iterable[Rule]:
    """Turn rows into rules; one that cannot be read holds whatever it would match."""
    for policy in policies:
        groups = tuple(sorted(group.name for group in policy.groups.all()))
        fields: dict[str, Any] = {
            "policy_id": policy.pk,
            "policy": policy.name,
            "groups": groups or (FALLBACK_GROUP,),
        }
        try:
            ruling = Ruling(
                gate=policy.gate,
                approvals_required=max(1, policy.approvals_required),
                requester_may_decide=policy.requester_may_decide,
                note_rule=policy.note_rule,
                deadline_seconds=policy.deadline_seconds,
                on_deadline=policy.on_deadline,
                undo_seconds=policy.undo_seconds,
                **fields,
            )
        except ValidationError:
            fields["policy"] = f"{policy.name} (cannot be read, so it holds)"
            ruling = Ruling(**fields)
        yield Rule(
            agent_pattern=policy.agent_pattern,
            tool_pattern=policy.tool_pattern,
            ruling=ruling,
        )


def strictest(asked: Ruling, current: Ruling) -> Ruling:
    """What a decision must satisfy: the case as it was asked, and any rule made stricter.

    A rule that became laxer changes nothing for a case that is open.
    """
    if current.gate == Gate.ALLOW:
        return asked
    if current.gate == Gate.REFUSE:
        return current
    return asked.model_copy(
        update={
            "approvals_required": max(
                asked.approvals_required, current.approvals_required
            ),
            "requester_may_decide": asked.requester_may_decide
            and current.requester_may_decide,
            "note_rule": max(
                asked.note_rule, current.note_rule, key=list(NoteRule).index
            ),
        }
    )
