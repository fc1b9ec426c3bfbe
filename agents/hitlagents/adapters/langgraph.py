"""LangGraph (langgraph 1.2, langchain 1.5) behind the adapter contract.

The native API: every pause is the framework's own ``interrupt()``, every resume names the
interrupts it answers. This module holds what does not need the framework: how an agent is
described and what its state looks like. ``langgraph_run`` drives the framework,
``langgraph_parts`` is what graphs are built from; both are imported when an agent is built
or run.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib import metadata
from typing import TYPE_CHECKING, Any, ClassVar

from approvals.schemas import ToolSpec
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
from hitlagents.adapters.stored import natural, reading
from hitlagents.adapters.tool_specs import described, refuse_repeated

if TYPE_CHECKING:
    from langchain_core.tools import BaseTool
    from langgraph.pregel import Pregel

FRAMEWORK = "LangGraph"
METADATA_KEY = "langgraph"
DISTRIBUTION = "langgraph"
SCHEMA = 1

#: Bytes of stored state. More is a graph that keeps what it should not.
MAX_STATE = 16_000_000


def message_input(message: str, message_id: str) -> dict[str, Any]:
    """What a new message is for a graph whose state has ``messages``."""
    from langchain_core.messages import HumanMessage

    return {"messages": [HumanMessage(message, id=message_id)]}


class LangGraphAdapter:
    """One compiled graph and a model.

    ``build`` makes the graph; it is called once, when the first run starts, and compiles
    it without a checkpointer. ``tools`` are what its agents (``langgraph_parts.agent``)
    have, ``steps`` what its nodes do by ``langgraph_parts.call_tool``. ``cards`` say what
    the framework has no place for (risk, title, consequence…), by tool name; description
    and parameters are filled in from the tool. ``intake`` turns a message and an id for it
    into the graph's input. ``model`` connects to a function that makes the chat model; its
    argument is the script a scripted model is to play, or None for its own.

    Raises ValueError when tools, steps and cards do not fit together.
    """

    framework: ClassVar[str] = FRAMEWORK
    schema: ClassVar[int] = SCHEMA
    cancel: ClassVar[Verdict] = Verdict.CANCEL_CALL

    def __init__(
        self,
        *,
        name: str,
        build: Callable[[], Pregel[Any, Any, Any, Any]],
        model: ChatModel,
        gating: Gating,
        tools: Sequence[BaseTool] = (),
        steps: Sequence[ToolSpec] = (),
        cards: Sequence[ToolSpec] = (),
        intake: Callable[[str, str], Any] = message_input,
    ) -> None:
        self.name = name
        self.model = model
        self.gating = gating
        self.intake = intake
        self.version = metadata.version(DISTRIBUTION)
        self.model_label = model.label
        self._build = build
        self._graph: Pregel[Any, Any, Any, Any] | None = None
        self._building = threading.Lock()
        self._tools = (*_described(tools, cards), *steps)
        self.names = frozenset(spec.name for spec in self._tools)
        refuse_repeated([spec.name for spec in self._tools])

    @property
    def tools(self) -> Sequence[ToolSpec]:
        return self._tools

    @property
    def graph(self) -> Pregel[Any, Any, Any, Any]:
        """The compiled graph. Raises ValueError for one that cannot be hosted."""
        from hitlagents.adapters.langgraph_parts import checked

        with self._building:
            if self._graph is None:
                self._graph = checked(self._build())
            return self._graph

    async def start(self, start: Start, host: Host) -> Outcome:
        from hitlagents.adapters.langgraph_run import Advance

        return await Advance(self, host, start).start(start)

    async def resume(self, resume: Resume, host: Host) -> Outcome:
        from hitlagents.adapters.langgraph_run import Advance

        return await Advance(self, host, resume).resume(resume)


def _described(
    tools: Sequence[BaseTool], cards: Sequence[ToolSpec]
) -> Sequence[ToolSpec]:
    from hitlagents.adapters.langgraph_parts import closed_schema

    found = ((tool.name, tool.description, closed_schema(tool)) for tool in tools)
    return described(found, cards)


# The state of a thread: the saver's content, and how the calls in it are keyed.


@dataclass(kw_only=True)
class Call:
    """A call that has no result yet, or a step that may come by again.

    A node that was interrupted runs again from its start, so what it did before is asked
    for a second time and must be found under the same key.
    """

    #: ``tool``: a model's call. ``step``: what a node does. ``review``: a call a node shows
    #: for review. ``question``: anything else a node asks.
    kind: str
    turn: int
    call_id: str
    tool: str
    arguments: str
    #: What the framework calls it: the provider's id of a call.
    reference: str = ""
    #: Fixed when first seen: a decision that is there must be met again on resume, and one
    #: that is not must not appear, since interrupts of one node are answered in order.
    held: bool = False
    #: The interrupt that waits for its decision.
    interrupt: str = ""
    #: Path of nodes down to the one that asks.
    place: str = ""
    #: The node asked with a list of one request and expects a list of one answer.
    listed: bool = False
    #: A question that can be told that there is no answer.
    refusable: bool = False
    #: Arguments as the node was told them after its review.
    effective: str = ""
    #: The host has been told of it; of its result.
    told: bool = False
    done: bool = False

    @property
    def key(self) -> tuple[int, str]:
        return self.turn, self.call_id

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Call:
        call = cls(**state)
        texts = (call.kind, call.call_id, call.tool, call.arguments, call.reference)
        flags = (call.held, call.listed, call.refusable, call.told, call.done)
        if not all(
            isinstance(text, str) for text in (*texts, call.interrupt, call.place)
        ):
            raise TypeError(call)
        if not all(isinstance(flag, bool) for flag in flags):
            raise TypeError(call)
        natural(call.turn)
        return call


@dataclass(kw_only=True)
class Snapshot:
    """What is kept between two advances."""

    #: Content of the checkpoint saver.
    saver: dict[str, Any]
    #: Model turns taken in the run so far.
    turn: int = 0
    calls: list[Call] = field(default_factory=list)
    #: Keys of calls that were decided at earlier pauses of the run.
    settled: list[tuple[int, str]] = field(default_factory=list)
    #: Tasks that did something, by the path of their node, in order of appearance.
    places: dict[str, list[str]] = field(default_factory=dict)

    def to_state(self) -> State:
        """Plain JSON. Raises AgentRunError when it is too large."""
        state: State = {
            "schema": SCHEMA,
            "saver": self.saver,
            "turn": self.turn,
            "calls": [asdict(call) for call in self.calls],
            "settled": [list(key) for key in self.settled],
            "places": self.places,
        }
        size = len(json.dumps(state, ensure_ascii=False, allow_nan=False))
        if size > MAX_STATE:
            raise AgentRunError(
                f"The agent's state is too large to be stored ({size:,} bytes).",
                retryable=False,
            )
        return state

    @classmethod
    def from_state(cls, state: State) -> Snapshot:
        """Raises CheckpointError when the state is newer than this code, or damaged."""
        with reading(state, SCHEMA):
            return cls(
                saver=dict(state["saver"]),
                turn=natural(state["turn"]),
                calls=[Call.from_state(call) for call in state["calls"]],
                settled=[(natural(turn), str(key)) for turn, key in state["settled"]],
                places={
                    path: [str(task) for task in tasks]
                    for path, tasks in state["places"].items()
                },
            )
