"""OpenAI Agents SDK (openai-agents 0.24) behind the adapter contract.

This module holds what does not need the SDK: how an agent is described and what its
state looks like. ``openai_agents_run`` drives the SDK and ``openai_agents_tools`` puts
its tools behind the guard; both import it, and are imported when an agent is built.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from typing import TYPE_CHECKING, Any, ClassVar

from approvals.schemas import ClientTool, ToolSpec
from approvals.states import Verdict
from hitlagents.adapters.base import (
    Gating,
    Host,
    Outcome,
    Resume,
    Start,
    State,
)
from hitlagents.adapters.chat_model import ChatModel
from hitlagents.adapters.stored import (
    StoredCall,
    natural,
    plain,
    reading,
    stored_calls,
)
from hitlagents.adapters.tool_specs import described

if TYPE_CHECKING:
    from agents import Agent

    from hitlagents.adapters.openai_agents_tools import Team

FRAMEWORK = "OpenAI Agents SDK"
METADATA_KEY = "openai_agents"
DISTRIBUTION = "openai-agents"
SCHEMA = 1

# Read once, when the SDK is first imported: it sends traces of every run, with what the
# tools were given and gave, to its vendor unless told otherwise.
os.environ.setdefault("OPENAI_AGENTS_DISABLE_TRACING", "true")


class OpenAIAgentsAdapter:
    """One agent of the SDK, with the agents it hands off to or uses as tools.

    ``make`` gives the starting agent. It must make new ``Agent`` objects each time, since
    theirs are the tools that are put behind the guard; the tools themselves may be shared
    and stay as they are. It is called once, and again for every advance of a run whose
    page brings tools. ``cards`` say what the SDK has no
    place for (risk, title, consequence, what is asked…), by tool name. ``model`` connects
    to a ``Model`` of the SDK; its settings are the SDK's ModelSettings.

    Raises ValueError for tools that cannot be held and for cards that fit no tool.
    """

    framework: ClassVar[str] = FRAMEWORK
    schema: ClassVar[int] = SCHEMA
    cancel: ClassVar[Verdict] = Verdict.CANCEL_CALL

    def __init__(
        self,
        *,
        make: Callable[[], Agent[Any]],
        model: ChatModel,
        gating: Gating,
        cards: Sequence[ToolSpec] = (),
    ) -> None:
        from hitlagents.adapters.openai_agents_tools import Team

        self._make = make
        self._gating = gating
        self.team = Team(make(), gating)
        self.model = model
        self.version = metadata.version(DISTRIBUTION)
        self.model_label = model.label
        self._tools = described(
            (
                (name, tool.description, tool.parameters)
                for name, tool in self.team.tools.items()
            ),
            cards,
        )

    @property
    def tools(self) -> Sequence[ToolSpec]:
        return self._tools

    def team_with(self, brought: Sequence[ClientTool]) -> Team:
        """The agents of one run, with the tools of its page."""
        from hitlagents.adapters.openai_agents_tools import Team

        if not brought:
            return self.team
        return Team(self._make(), self._gating.beside(brought), brought)

    async def start(self, start: Start, host: Host) -> Outcome:
        from hitlagents.adapters.openai_agents_run import Advance

        return await Advance(self, host, start).start(start)

    async def resume(self, resume: Resume, host: Host) -> Outcome:
        from hitlagents.adapters.openai_agents_run import Advance

        return await Advance(self, host, resume).resume(resume)


# The state of a thread: what was said, where the SDK stopped, and how calls are keyed.


@dataclass(kw_only=True)
class OpenCall(StoredCall):
    """Nobody is asked about an agent used as a tool, while a call inside it waits."""

    #: The agent that waits for it to be decided; empty for a call nobody decides.
    agent: str = ""
    #: Call of the agent-as-tool this was proposed inside of.
    parent: str = ""


@dataclass(kw_only=True)
class Snapshot:
    """What is kept between two advances."""

    #: The conversation as the SDK's input items. At a pause, what the next message would
    #: start from if the pause were abandoned.
    history: list[dict[str, Any]]
    #: The agent that would take the next message.
    agent: str
    #: The agent the run began with; the SDK finds the others from it.
    starting: str
    #: The SDK's RunState as JSON while the run is paused.
    run: dict[str, Any] | None = None
    #: Model turns taken in the run so far.
    turn: int = 0
    calls: dict[str, OpenCall] = field(default_factory=dict)

    def to_state(self) -> State:
        """Plain JSON. Raises AgentRunError when something in it is not."""
        state = {
            "schema": SCHEMA,
            "history": self.history,
            "agent": self.agent,
            "starting": self.starting,
            "run": self.run,
            "turn": self.turn,
            "calls": stored_calls(self.calls),
        }
        return plain(state)

    @classmethod
    def from_state(cls, state: State) -> Snapshot:
        """A copy. Raises CheckpointError for a state that is newer or damaged."""
        with reading(state, SCHEMA):
            copied = json.loads(json.dumps(state))
            history, run = copied["history"], copied["run"]
            if not isinstance(history, list) or not isinstance(run, dict | None):
                raise TypeError(history)
            if not all(isinstance(item, dict) for item in history):
                raise TypeError(history)
            return cls(
                history=history,
                agent=str(copied["agent"]),
                starting=str(copied["starting"]),
                run=run,
                turn=natural(copied["turn"]),
                calls=OpenCall.all_from(copied["calls"]),
            )
