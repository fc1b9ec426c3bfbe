"""Microsoft Agent Framework (agent-framework-core 1.23) behind the adapter contract.

The native API, not the framework's AG-UI adapter, which loses mixed answers. This module
holds what does not need the framework: how an agent is described and what its state looks
like. ``agent_framework_run`` drives the framework and is imported when a run starts.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import metadata
from typing import TYPE_CHECKING, Any, ClassVar

from approvals.schemas import ToolSpec
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
from hitlagents.adapters.stored import StoredCall, natural, plain, reading, stored_calls
from hitlagents.adapters.tool_specs import described

if TYPE_CHECKING:
    from agent_framework import FunctionTool

FRAMEWORK = "Microsoft Agent Framework"
METADATA_KEY = "agent_framework"
DISTRIBUTION = "agent-framework-core"
SCHEMA = 1

# The framework reads these once, when it is first imported: no name of its own and no
# list of the features in use to a model's provider.
os.environ.setdefault("AGENT_FRAMEWORK_USER_AGENT_DISABLED", "true")
os.environ.setdefault("AGENT_FRAMEWORK_FEATURE_MASK_DISABLED", "true")


class AgentFrameworkAdapter:
    """One agent made of instructions, ``@tool`` functions and a model.

    ``tools`` are the developer's own objects and stay as they are. ``cards`` say what the
    framework has no place for (risk, title, consequence…), by tool name; description and
    parameters are filled in from the tool. ``model`` connects to a chat client; its
    settings are chat options. Raises ValueError when tools and cards do not fit.
    """

    framework: ClassVar[str] = FRAMEWORK
    schema: ClassVar[int] = SCHEMA
    cancel: ClassVar[Verdict] = Verdict.CANCEL_RUN

    def __init__(
        self,
        *,
        name: str,
        instructions: str,
        tools: Sequence[FunctionTool],
        model: ChatModel,
        gating: Gating,
        cards: Sequence[ToolSpec] = (),
    ) -> None:
        self.name = name
        self.instructions = instructions
        self.functions = tuple(tools)
        self.model = model
        self.gating = gating
        self.version = metadata.version(DISTRIBUTION)
        self.model_label = model.label
        self._tools = described(
            (
                (function.name, function.description, closed_schema(function))
                for function in self.functions
            ),
            cards,
        )

    @property
    def tools(self) -> Sequence[ToolSpec]:
        return self._tools

    async def start(self, start: Start, host: Host) -> Outcome:
        from hitlagents.adapters.agent_framework_run import Advance

        return await Advance(self, host, start).start(start)

    async def resume(self, resume: Resume, host: Host) -> Outcome:
        from hitlagents.adapters.agent_framework_run import Advance

        return await Advance(self, host, resume).resume(resume)


def closed_schema(function: FunctionTool) -> dict[str, Any]:
    """The tool's JSON Schema, refusing arguments it does not name.

    The framework drops such arguments silently; what a reviewer sees must be what runs.
    """
    return {"additionalProperties": False, **function.parameters()}


# The state of a thread: the framework's session, and how the calls in it are keyed.


@dataclass(kw_only=True)
class Snapshot:
    """What is kept between two advances."""

    session: dict[str, Any]
    #: Model turns taken in the run so far.
    turn: int = 0
    #: What the framework still waits for. Nobody is asked about allowed siblings and tools
    #: that do not exist.
    calls: dict[str, StoredCall] = field(default_factory=dict)

    def to_state(self) -> State:
        """Plain JSON. Raises AgentRunError when the session holds something else."""
        state = {
            "schema": SCHEMA,
            "session": self.session,
            "turn": self.turn,
            "calls": stored_calls(self.calls),
        }
        return plain(state)

    @classmethod
    def from_state(cls, state: State) -> Snapshot:
        """Raises CheckpointError when the state is newer than this code, or damaged."""
        with reading(state, SCHEMA):
            return cls(
                session=dict(state["session"]),
                turn=natural(state["turn"]),
                calls=StoredCall.all_from(state["calls"]),
            )
