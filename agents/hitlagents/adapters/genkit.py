"""Genkit (0.12, with genkit-middleware) behind the adapter contract.

Agents are those of ``genkit.exp``. This module holds what does not need the framework: how
an agent is described and what its state looks like. ``genkit_run`` drives the framework
and ``genkit_tools`` puts its tools behind the guard; both import it, and are imported when
an agent is built.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import metadata
from typing import TYPE_CHECKING, Any, ClassVar

from approvals.schemas import ClientTool, ToolSpec
from approvals.states import Verdict
from hitlagents.adapters.base import (
    AgentRunError,
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
from hitlagents.adapters.tool_specs import described, refuse_unknown

if TYPE_CHECKING:
    from genkit import Tool
    from genkit.exp.agent import SessionStore
    from genkit.middleware import BaseMiddleware

    from hitlagents.adapters.genkit_tools import Kit

FRAMEWORK = "Genkit"
METADATA_KEY = "genkit"
#: Brings genkit itself along.
DISTRIBUTION = "genkit-middleware"
INSTALL = "pip install genkit genkit-middleware genkit-openai"
SCHEMA = 1

# Read when the framework is first imported. Its log goes to standard output, and at level
# "info" with what models and tools said.
os.environ.setdefault("GENKIT_LOG", "error")


class GenkitAdapter:
    """One prompt-backed agent: instructions, tools, middleware and a model.

    ``tools`` are made with ``genkit.tool``. ``use`` is middleware to mount; the tools it
    contributes are held like any other. ``ToolApproval`` is mounted in front of it, allowing
    what ``gating`` allows. ``in_session`` names tools whose only effect is on the agent's
    own session, such as ``write_artifact``. ``cards`` say what the framework has no place
    for (risk, title, consequence…), by tool name.

    ``model`` connects to a function from a ``ModelRequest`` and an ``ActionRunContext`` to
    a ``ModelResponse``, which may give the arguments of a call as their JSON text.

    With a ``store`` the framework keeps sessions there and the run's state only names a
    snapshot of it; without one the run's state is the whole session.

    Raises ValueError for tools that cannot be held and for cards that fit no tool, and
    AgentRunError in Genkit's developer mode.
    """

    framework: ClassVar[str] = FRAMEWORK
    schema: ClassVar[int] = SCHEMA
    #: Genkit has no answer that means "cancelled": a turn nobody resumes is left as it is.
    cancel: ClassVar[Verdict] = Verdict.CANCEL_RUN

    def __init__(
        self,
        *,
        name: str,
        instructions: str,
        model: ChatModel,
        gating: Gating,
        tools: Sequence[Tool] = (),
        use: Sequence[BaseMiddleware[Any]] = (),
        in_session: Collection[str] = (),
        cards: Sequence[ToolSpec] = (),
        store: SessionStore | None = None,
    ) -> None:
        if os.environ.get("GENKIT_ENV") == "dev":
            raise AgentRunError(
                "GENKIT_ENV=dev opens a server through which tools run past the guard. "
                "Start without it.",
                retryable=True,
            )
        from hitlagents.adapters.genkit_tools import Kit

        self._kit = partial(
            Kit,
            name=name,
            instructions=instructions,
            tools=tools,
            use=use,
            store=store,
        )
        self._gating = gating
        self.kit = self._kit(gating=gating)
        self.model = model
        self.store = store
        self.in_session = frozenset(in_session)
        self.version = metadata.version("genkit")
        self.model_label = model.label
        self._tools = described(
            (
                (name, tool.description, tool.parameters)
                for name, tool in self.kit.tools.items()
            ),
            cards,
        )
        refuse_unknown(self.in_session, self.kit.tools)

    @property
    def tools(self) -> Sequence[ToolSpec]:
        return self._tools

    def kit_with(self, brought: Sequence[ClientTool]) -> Kit:
        """The agent of one run, with the tools of its page."""
        if not brought:
            return self.kit
        return self._kit(gating=self._gating.beside(brought), brought=brought)

    async def start(self, start: Start, host: Host) -> Outcome:
        from hitlagents.adapters.genkit_run import Advance

        return await Advance(self, host, start).start(start)

    async def resume(self, resume: Resume, host: Host) -> Outcome:
        from hitlagents.adapters.genkit_run import Advance

        return await Advance(self, host, resume).resume(resume)


# The state of a thread: the session, or where it is, and how the calls in it are keyed.


@dataclass(kw_only=True)
class OpenCall(StoredCall):
    #: As the model wrote them, which the session does not keep: it holds them parsed.
    arguments: str


@dataclass(kw_only=True)
class Snapshot:
    """What is kept between two advances: the session, or its snapshot in a store."""

    session: dict[str, Any] | None = None
    stored: str = ""
    #: Model turns taken in the run so far.
    turn: int = 0
    calls: dict[str, OpenCall] = field(default_factory=dict)

    def to_state(self) -> State:
        """Plain JSON. Raises AgentRunError when something in it is not."""
        state = {
            "schema": SCHEMA,
            "session": self.session,
            "stored": self.stored,
            "turn": self.turn,
            "calls": stored_calls(self.calls),
        }
        return plain(state)

    @classmethod
    def from_state(cls, state: State) -> Snapshot:
        """A copy. Raises CheckpointError for a state that is newer or damaged."""
        with reading(state, SCHEMA):
            copied = json.loads(json.dumps(state))
            session, stored = copied["session"], copied["stored"]
            if not isinstance(session, dict | None) or not isinstance(stored, str):
                raise TypeError(session)
            if (session is None) is not bool(stored):
                raise ValueError(stored)
            return cls(
                session=session,
                stored=stored,
                turn=natural(copied["turn"]),
                calls=OpenCall.all_from(copied["calls"]),
            )
