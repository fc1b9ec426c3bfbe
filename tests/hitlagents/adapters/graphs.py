"""Graphs of one's own for the tests, and a bench for them."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, TypedDict

from langgraph.graph import START, StateGraph
from langgraph.types import interrupt

from approvals.schemas import Answer, InterruptDraft, ToolSpec
from approvals.states import Verdict
from hitlagents.adapters.base import Gating
from hitlagents.adapters.langgraph import LangGraphAdapter
from hitlagents.adapters.langgraph_models import scripted
from hitlagents.demo.scripted import Script
from tests.hitlagents.adapters.bench import Bench
from tests.hitlagents.fakes import FakeHost, heard, plays


class Log(TypedDict, total=False):
    """State of the small graphs: what was said to them, and what they noted."""

    message: str
    log: Annotated[list[Any], operator.add]


ECHO = plays(heard)


def spec(name: str) -> ToolSpec:
    return ToolSpec(name=name, parameters={"type": "object"})


@dataclass
class Own(Bench):
    """An agent made of a graph of one's own, built anew for every advance."""

    build: Callable[[], Any]
    steps: Sequence[str] = ()
    allowed: Sequence[str] = ()
    tools: Sequence[Any] = ()
    script: Script = ECHO
    intake: Callable[[str, str], Any] | None = lambda message, _: {"message": message}
    host: FakeHost = field(default_factory=FakeHost)

    def __post_init__(self) -> None:
        self.host.allowed = set(self.allowed)

    @property
    def adapter(self) -> LangGraphAdapter:
        how: dict[str, Any] = {} if self.intake is None else {"intake": self.intake}
        return LangGraphAdapter(
            name="own",
            build=self.build,
            model=scripted(self.script),
            gating=Gating(allowed=frozenset(self.allowed)),
            steps=[spec(name) for name in self.steps],
            tools=self.tools,
            **how,
        )

    def answer(self, draft: InterruptDraft, value: Any) -> Answer:
        return self.host.decide(draft, Verdict.ANSWER, answer=value)


def noted(host: FakeHost) -> Sequence[Mapping[str, Any]]:
    return [arguments for _, arguments in host.entered]


def asks(value: Any, got: list[Any], **schema: Any) -> Callable[[], Any]:
    """One node that asks ``value`` and appends what it is answered to ``got``."""

    def ask(state: Log) -> Log:
        got.append(interrupt(value, **schema))
        return {"log": [got[-1]]}

    def build() -> Any:
        graph = StateGraph(Log)
        graph.add_node("ask", ask)
        graph.add_edge(START, "ask")
        return graph.compile()

    return build
