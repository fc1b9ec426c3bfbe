"""What an agent is made of, for the page that shows it. Reads rows; imports no framework.

Anybody who may talk to an agent may know its tools and what becomes of a call: their first
try would show it. What a rule is called and asks for is for those who may read that rule.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from django.utils import timezone
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from approvals import canonical, display, permissions, wording
from approvals.cases import rule_lines
from approvals.hiding import BY_LOOKS, Hiding
from approvals.models import Tool
from approvals.policies import Rulebook, Ruling
from approvals.schemas import ClientTool
from approvals.states import Gate, InterruptKind
from hitlagents import catalog, client_tools
from hitlagents.adapters.base import AgentSpec
from hitlagents.chat import model_label
from hitlagents.models import RunInput, ToolReading
from hitlagents.tool_reading import PATIENCE

if TYPE_CHECKING:
    from django.contrib.auth.models import User

#: How each gate is drawn: the state whose colours it has, and an icon.
GATES: Mapping[Gate, tuple[str, str]] = {
    Gate.HOLD: ("pending", "hand"),
    Gate.ALLOW: ("approved", "check"),
    Gate.REFUSE: ("denied", "ban"),
}


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """One parameter of a tool, as far as a line can say."""

    name: str
    kind: str
    required: bool
    secret: bool
    description: str = ""


@dataclass(frozen=True, kw_only=True)
class InspectedTool:
    """A registered tool, and what the rules of now make of a call of it."""

    tool: Tool
    ruling: Ruling
    #: Whether this person may know which rule it is.
    rule_shown: bool

    @property
    def name(self) -> str:
        return self.tool.name

    @cached_property
    def schema(self) -> Any:
        return canonical.loads(self.tool.schema)

    @property
    def schema_lines(self) -> SafeString:
        return display.show_json(self.schema).html

    @property
    def parameters(self) -> list[Parameter]:
        return parameters_of(self.schema, hiding=self.tool.hiding)

    @property
    def look(self) -> str:
        return GATES[self.ruling.gate][0]

    @property
    def icon(self) -> str:
        return GATES[self.ruling.gate][1]

    @property
    def word(self) -> str:
        return {
            Gate.HOLD: _("Held"),
            Gate.ALLOW: _("Runs by itself"),
            Gate.REFUSE: _("Refused"),
        }[self.ruling.gate]

    @property
    def sentence(self) -> str:
        """What becomes of a call now, and who decides."""
        if self.ruling.gate == Gate.ALLOW:
            return _("A call runs without asking anybody.")
        if self.ruling.gate == Gate.REFUSE:
            return _("A call is refused, and the agent is told so.")
        if self.tool.kind == InterruptKind.QUESTION:
            return _("A call is a question to %(who)s. Nothing runs for it.") % {
                "who": ", ".join(self._asked)
            }
        return _("A call waits for %(groups)s.") % {
            "groups": ", ".join(self.ruling.groups)
        }

    @property
    def _asked(self) -> list[str]:
        """Who a question goes to; groups only where the rule names some."""
        ruling = self.ruling
        if not ruling.asks_requester:
            return list(ruling.groups)
        return [
            _("whoever talks to the agent"),
            *ruling.groups[: len(ruling.group_ids)],
        ]

    @property
    def rule(self) -> str:
        """The rule that applies, for who may know it."""
        if self.ruling.policy_id is None:
            return _("No rule matches, so it is held.")
        return self.ruling.policy if self.rule_shown else ""

    @property
    def rule_lines(self) -> list[tuple[str, str]]:
        ruling = self.ruling
        if not self.rule_shown or ruling.gate != Gate.HOLD:
            return []
        lines = rule_lines(ruling, waits=ruling.deadline_seconds is not None)
        if ruling.deadline_seconds:
            time = wording.duration(ruling.deadline_seconds)
            lines.append((_("Time to decide"), time))
        return lines


@dataclass(frozen=True, kw_only=True)
class FrontEndTool:
    """A tool that a page brought for a run."""

    tool: ClientTool

    @property
    def name(self) -> str:
        return self.tool.name

    @property
    def description(self) -> str:
        return self.tool.description

    @property
    def parameters(self) -> list[Parameter]:
        return parameters_of(self.tool.parameters)

    @property
    def schema_lines(self) -> SafeString:
        return display.show_json(self.tool.parameters).html


class Inspected:
    """One agent for one person."""

    def __init__(self, spec: AgentSpec, person: User) -> None:
        self.spec = spec
        self.person = person

    @property
    def model(self) -> str:
        return model_label(self.spec)

    @cached_property
    def version(self) -> str | None:
        return catalog.version(self.spec)

    @property
    def installed(self) -> bool:
        return catalog.installed(self.spec)

    @cached_property
    def tools(self) -> list[InspectedTool]:
        book = Rulebook(self.spec.slug)
        found = []
        for name in sorted(book.tools):
            ruling = book.ruling(name)
            found.append(
                InspectedTool(
                    tool=book.tools[name],
                    ruling=ruling,
                    rule_shown=permissions.may_read_rule(self.person, ruling.groups),
                )
            )
        return found

    @cached_property
    def brought_by(self) -> RunInput | None:
        """This person's newest run with the agent whose page brought tools."""
        own = RunInput.objects.filter(
            thread__owner=self.person, thread__agent=self.spec.slug
        ).exclude(client_tools="")
        newest = own.order_by("-run__created", "-run_id")
        return newest.select_related("run", "thread").first()

    @cached_property
    def front_end_tools(self) -> list[FrontEndTool]:
        given = self.brought_by
        found = client_tools.stored(given.client_tools) if given else ()
        return [FrontEndTool(tool=tool) for tool in found]

    @cached_property
    def reading(self) -> ToolReading | None:
        return ToolReading.objects.filter(pk=self.spec.slug).first()

    @property
    def is_reading(self) -> bool:
        """A worker was asked for the tools a moment ago."""
        reading = self.reading
        return (
            reading is not None
            and reading.ended_at is None
            and timezone.now() - reading.asked_at < PATIENCE
        )

    @property
    def reading_problem(self) -> str:
        """Why the last reading came to nothing."""
        reading = self.reading
        if reading is None or self.is_reading:
            return ""
        if reading.ended_at is None:
            return _("No worker has answered. Is one running?")
        return reading.error

    @property
    def opens_rules(self) -> bool:
        """Whether the admin shows this person the rules."""
        return self.person.is_staff and self.person.has_perm("approvals.view_policy")


def parameters_of(schema: Any, *, hiding: Hiding = BY_LOOKS) -> list[Parameter]:
    """The properties of an object schema; nothing for a schema of another kind."""
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(properties, dict):
        return []
    required = schema.get("required")
    return [
        Parameter(
            name=name,
            kind=kind_of(part),
            required=isinstance(required, list) and name in required,
            secret=hiding.hides_name(name),
            description=_text(part, "description") or _text(part, "title"),
        )
        for name, part in properties.items()
    ]


def kind_of(part: Any) -> str:
    """A schema in a few words: "string", "list of number", "string or null"."""
    if not isinstance(part, dict):
        return _("anything")
    if "const" in part:
        return json.dumps(part["const"], ensure_ascii=False)[:80]
    choices = part.get("enum")
    if isinstance(choices, list):
        shown = [json.dumps(one, ensure_ascii=False)[:40] for one in choices[:6]]
        return _(" or ").join(shown) + ("…" if len(choices) > 6 else "")
    for word in ("anyOf", "oneOf"):
        if isinstance(part.get(word), list):
            kinds = [kind_of(one) for one in part[word][:6]]
            return _(" or ").join(dict.fromkeys(kinds))
    kind = part.get("type")
    if isinstance(kind, list):
        return _(" or ").join(str(one) for one in kind)
    if kind == "array" and "items" in part:
        return _("list of %s") % kind_of(part["items"])
    words = str(kind or _("anything"))
    form = part.get("format")
    return f"{words}, {form}" if isinstance(form, str) else words


def _text(part: Any, key: str) -> str:
    value = part.get(key) if isinstance(part, dict) else None
    return value if isinstance(value, str) else ""
