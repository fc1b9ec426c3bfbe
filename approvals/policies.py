"""Which calls wait for a person, which run, which are refused, and who decides.

``rule_on`` is pure. Its order: first match wins, no match is held, a rule that cannot be
read is held, a tool nobody registered is never let through.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cached_property, lru_cache
from itertools import groupby
from typing import Any

from pydantic import ConfigDict, ValidationError

from approvals.models import Policy, Tool
from approvals.prepared import Prepared, Slot
from approvals.schemas import Frozen
from approvals.states import Gate, InterruptKind, NoteRule, OnDeadline

#: Decides what no policy routes elsewhere. Made by a migration.
FALLBACK_GROUP = "Reviewers"


class Ruling(Frozen):
    """What applies to one call. Stored with the interrupt as it was when asked."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    gate: Gate = Gate.HOLD
    policy_id: int | None = None
    policy: str = "No policy matches"
    groups: tuple[str, ...] = (FALLBACK_GROUP,)
    #: The same groups by primary key; empty: look them up by name.
    group_ids: tuple[int, ...] = ()
    approvals_required: int = 1
    requester_may_decide: bool = False
    #: Questions go to whoever asked for the run (and to the groups a policy names).
    asks_requester: bool = False
    note_rule: NoteRule = NoteRule.OPTIONAL
    deadline_seconds: int | None = None
    on_deadline: OnDeadline = OnDeadline.DENY
    undo_seconds: int = 0

    def same_as(self, other: Ruling) -> bool:
        """Whether both say the same; keys of groups that have the same names aside."""
        return self == other.model_copy(update={"group_ids": self.group_ids})


#: Of a call of a tool that a page brought: nothing runs here, so no rule is about it, and
#: no group hears of it.
AT_PAGE = Ruling(policy="The page that brought the tool answers", groups=())


class Rule(Frozen):
    """A policy row, read."""

    agent_pattern: str
    tool_pattern: str
    ruling: Ruling
    #: The row holds values that mean nothing, so the rule holds whatever it matches.
    unreadable: bool = False

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


def load_rules() -> Sequence[Rule]:
    """All enabled policies, in order, in one query."""
    return _read(tuple(_ROWS.all()))


@lru_cache(maxsize=4)
def _read(rows: tuple[tuple[Any, ...], ...]) -> Sequence[Rule]:
    """Rules are asked for at every step of every run, and hardly ever change."""
    return tuple(read(dict(zip(COLUMNS, row, strict=True)) for row in rows))


_TOOLS = Prepared(lambda: Tool.objects.filter(agent=Slot(Tool, "agent")))


class Rulebook:
    """The rules and one agent's tools at one moment: read once, asked for many calls."""

    def __init__(self, agent: str) -> None:
        self.agent = agent
        self.rules = load_rules()

    @cached_property
    def tools(self) -> dict[str, Tool]:
        """The agent's registered tools by name."""
        return {tool.name: tool for tool in _TOOLS.all(agent=self.agent)}

    def ruling(self, tool: str) -> Ruling:
        ruling = rule_on(self.agent, tool, rules=self.rules)
        if ruling.gate != Gate.ALLOW:
            return ruling
        known = self.tools.get(tool)
        if known is None:
            return rule_on(self.agent, tool, rules=self.rules, registered=False)
        if known.kind == InterruptKind.QUESTION:
            # There is nothing that could run instead of an answer.
            name = f"{ruling.policy} (a question waits for its answer)"
            return ruling.model_copy(update={"gate": Gate.HOLD, "policy": name})
        return ruling

    def gives_over(self, tool: str) -> bool:
        """Whether a page may bring a tool in the place of this registered one: only in that
        of a question to whoever the agent works for, who is at that page."""
        ruling = self.ruling(tool)
        asks = ruling.gate == Gate.HOLD and ruling.asks_requester
        return asks and self.tools[tool].kind == InterruptKind.QUESTION

    def keeps(self, tool: str) -> bool:
        """Whether this is a question that no page may answer in its place."""
        known = self.tools.get(tool)
        question = known is not None and known.kind == InterruptKind.QUESTION
        return question and not self.gives_over(tool)

    def allowed(self) -> frozenset[str]:
        """The registered tools that run without asking."""
        return frozenset(
            name for name in self.tools if self.ruling(name).gate == Gate.ALLOW
        )


COLUMNS = (
    "pk",
    "name",
    "agent_pattern",
    "tool_pattern",
    "gate",
    "approvals_required",
    "requester_may_decide",
    "asks_requester",
    "note_rule",
    "deadline_seconds",
    "on_deadline",
    "undo_seconds",
    "groups__pk",
    "groups__name",
)


_ROWS = Prepared(
    lambda: (
        Policy.objects.filter(enabled=True)
        .order_by("position", "pk", "groups__name")
        .values_list(*COLUMNS)
    )
)


def read(rows: Iterable[Mapping[str, Any]]) -> Iterator[Rule]:
    """Turn rows (one per policy and group) into rules.

    A policy that cannot be read holds whatever it would match.
    """
    for _, same in groupby(rows, key=lambda row: row["pk"]):
        of_policy = list(same)
        row = of_policy[0]
        grouped = [each for each in of_policy if each["groups__pk"] is not None]
        fields: dict[str, Any] = {"policy_id": row["pk"], "policy": row["name"]}
        if grouped:
            fields["groups"] = tuple(each["groups__name"] for each in grouped)
            fields["group_ids"] = tuple(each["groups__pk"] for each in grouped)
        ruling = _ruling(row, fields)
        yield Rule(
            agent_pattern=row["agent_pattern"],
            tool_pattern=row["tool_pattern"],
            ruling=ruling or _holding(row, fields),
            unreadable=ruling is None,
        )


def _holding(row: Mapping[str, Any], fields: dict[str, Any]) -> Ruling:
    name = f"{row['name']} (cannot be read, so it holds)"
    return Ruling(**(fields | {"policy": name}))


def _ruling(row: Mapping[str, Any], fields: dict[str, Any]) -> Ruling | None:
    try:
        return Ruling(
            gate=row["gate"],
            approvals_required=max(1, row["approvals_required"]),
            requester_may_decide=row["requester_may_decide"],
            asks_requester=row["asks_requester"],
            note_rule=row["note_rule"],
            deadline_seconds=row["deadline_seconds"],
            on_deadline=row["on_deadline"],
            undo_seconds=row["undo_seconds"],
            **fields,
        )
    except ValidationError:
        return None


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
