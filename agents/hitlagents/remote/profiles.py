"""What is known of the kinds of AG-UI servers: how each wants to be answered.

Seen where they could be run, and held by tests/peers: the Python adapters of Agent
Framework 1.7 and LangGraph 0.0.47. Those of .NET and of the OpenAI Agents SDK are as their
documents and bug reports have them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from django.db.models import TextChoices


class Profile(TextChoices):
    """What kind of server an agent is served by."""

    AGENT_FRAMEWORK = "agent_framework", "Agent Framework (Python)"
    DOTNET = "dotnet", "Agent Framework (.NET)"
    OPENAI_AGENTS = "openai_agents", "OpenAI Agents SDK"
    LANGGRAPH = "langgraph", "LangGraph"
    OTHER = "other", "Other"


class Together(TextChoices):
    """Which answers a server takes in one resume, if several of its calls wait."""

    ANY = "any", "Any: each call has its own answer"
    ALIKE = "alike", "All approved, or none approved"
    SINGLE = "single", "One call only: several cannot be answered"


@dataclass(frozen=True, kw_only=True)
class Habits:
    """How one kind of server behaves."""

    together: Together = Together.ANY
    #: What it does with ``cancelled``: ends its run, or answers the call and goes on.
    cancel_ends_run: bool = True
    #: Whether ``cancelled`` may be sent at all.
    takes_cancelled: bool = True
    #: Whether an answer must repeat the call.
    echoes_call: bool = False
    #: Whether keys beside the ones it needs may be in an answer, if its schema names them.
    takes_extras: bool = True
    #: Calls it makes up for its own pages.
    phantom_tools: frozenset[str] = frozenset()
    #: How its interrupts' ids look where it takes its answers as a map of these ids, in a
    #: place of its own: then it takes several, each with its own answer.
    map_ids: re.Pattern[str] | None = None
    #: Codes of RUN_ERROR after which no tool has run.
    nothing_ran: frozenset[str] = frozenset()

    def by_map(self, ids: Iterable[str]) -> bool:
        """Whether the answers to these interrupts go as a map."""
        pattern = self.map_ids
        return pattern is not None and all(pattern.fullmatch(each) for each in ids)

    def together_for(self, ids: Iterable[str], ruled: Together | None) -> Together:
        """Which answers these interrupts may get; ``ruled``: what staff said of it."""
        if ruled is not None:
            return ruled
        return Together.ANY if self.by_map(ids) else self.together


HABITS: Mapping[str, Habits] = {
    # Refuses every key but the arguments' own names, and would take those as edits. An
    # approval beside a denial runs nothing and leaves both open.
    Profile.AGENT_FRAMEWORK: Habits(
        together=Together.ALIKE,
        takes_extras=False,
        phantom_tools=frozenset({"confirm_changes"}),
        # Not APPROVAL_RESUME_INVALID: that is also said of a call which runs or has run.
        nothing_ran=frozenset(
            {
                "APPROVAL_RESUME_INVALID_RESPONSE",
                "APPROVAL_RESUME_MISSING_INTERRUPT",
                "APPROVAL_RESUME_NOT_FOUND",
                "APPROVAL_RESUME_REQUIRED",
                "APPROVAL_TOOL_UNAVAILABLE",
            }
        ),
    ),
    # Without the call in the answer it cannot match the two, and its run dies.
    Profile.DOTNET: Habits(echoes_call=True),
    Profile.OPENAI_AGENTS: Habits(cancel_ends_run=False),
    # The protocol's own answers lose their ids there: several are an error, and one that
    # comes twice answers whatever waits by then. A map by LangGraph's ids does neither. A
    # cancelled one reaches the node as a value that counts as true, so that a careless
    # node takes it for a yes.
    Profile.LANGGRAPH: Habits(
        together=Together.SINGLE,
        takes_cancelled=False,
        map_ids=re.compile("[0-9a-f]{32}"),
    ),
    Profile.OTHER: Habits(),
}
