"""What the contract tests need of an adapter: how to make one from a script and tools.

To put another adapter under contract, add its harness to ``HARNESSES``.
"""

from __future__ import annotations

import inspect
import os
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, get_type_hints

from pydantic import create_model

from hitlagents.adapters import (
    agent_framework_models,
    genkit_models,
    langgraph_models,
    openai_agents_models,
)
from hitlagents.adapters.agent_framework import AgentFrameworkAdapter
from hitlagents.adapters.base import Adapter, Gating
from hitlagents.adapters.chat_model import ChatModel, Models
from hitlagents.adapters.genkit import GenkitAdapter
from hitlagents.adapters.langgraph import LangGraphAdapter
from hitlagents.adapters.openai_agents import OpenAIAgentsAdapter
from hitlagents.demo.scripted import Script
from hitlagents.toolcall import on_tool_thread
from tests.hitlagents.fakes import FREE, Tools


class Harness(ABC):
    name: ClassVar[str]
    models: ClassVar[Models]
    #: Whether allowed siblings of a held call wait until the pause is decided.
    siblings_wait: ClassVar[bool] = False

    def build(
        self, script: Script, tools: Tools, allowed: Sequence[str] = FREE
    ) -> Adapter:
        return self.around(self.models.scripted(script), tools, allowed)

    @abstractmethod
    def around(
        self, model: ChatModel, tools: Tools, allowed: Sequence[str] = FREE
    ) -> Adapter:
        """An agent with that model of the framework."""


class AgentFrameworkHarness(Harness):
    name: ClassVar[str] = "agent_framework"
    models: ClassVar[Models] = agent_framework_models.MODELS
    siblings_wait: ClassVar[bool] = True

    def around(
        self, model: ChatModel, tools: Tools, allowed: Sequence[str] = FREE
    ) -> AgentFrameworkAdapter:
        from agent_framework import tool

        return AgentFrameworkAdapter(
            name="tester",
            instructions="Do as you are told.",
            tools=[
                tool(approval_mode="always_require")(function)
                if function.__name__ in tools.gated
                else tool(function)
                for function in tools.functions()
            ],
            model=model,
            gating=Gating(allowed=frozenset(allowed)),
        )


class OpenAIAgentsHarness(Harness):
    name: ClassVar[str] = "openai_agents"
    models: ClassVar[Models] = openai_agents_models.MODELS

    def around(
        self, model: ChatModel, tools: Tools, allowed: Sequence[str] = FREE
    ) -> Adapter:
        from agents import Agent, function_tool

        return OpenAIAgentsAdapter(
            make=lambda: Agent(
                name="tester",
                instructions="Do as you are told.",
                tools=[
                    function_tool(
                        function,
                        needs_approval=function.__name__ in tools.gated,
                        # Strict mode wants every argument, also those with a default.
                        strict_mode=False,
                    )
                    for function in tools.functions()
                ],
            ),
            model=model,
            gating=Gating(allowed=frozenset(allowed)),
        )


class LangGraphHarness(Harness):
    name: ClassVar[str] = "langgraph"
    models: ClassVar[Models] = langgraph_models.MODELS

    def around(
        self, model: ChatModel, tools: Tools, allowed: Sequence[str] = FREE
    ) -> LangGraphAdapter:
        from langchain_core.tools import StructuredTool

        from hitlagents.adapters.langgraph_parts import agent

        made = [
            StructuredTool.from_function(coroutine=function)
            if inspect.iscoroutinefunction(function)
            else StructuredTool.from_function(function)
            for function in tools.functions()
        ]
        return LangGraphAdapter(
            name="tester",
            build=lambda: agent(tools=made, instructions="Do as you are told."),
            tools=made,
            model=model,
            gating=Gating(allowed=frozenset(allowed)),
        )


class GenkitHarness(Harness):
    name: ClassVar[str] = "genkit"
    models: ClassVar[Models] = genkit_models.MODELS

    def around(
        self, model: ChatModel, tools: Tools, allowed: Sequence[str] = FREE
    ) -> GenkitAdapter:
        return GenkitAdapter(
            name="tester",
            instructions="Do as you are told.",
            tools=[genkit_tool(function) for function in tools.functions()],
            model=model,
            gating=Gating(allowed=frozenset(allowed)),
            store=self.store(),
        )

    def store(self) -> Any:
        return None


class GenkitStoreHarness(GenkitHarness):
    """The sessions in a store. A folder, which the other process can see, too."""

    name: ClassVar[str] = "genkit_store"

    def store(self) -> Any:
        from genkit.exp.agent import FileSessionStore

        return FileSessionStore(os.environ[SESSIONS])


#: Names the folder of the sessions, also to the processes the tests start.
SESSIONS = "SAYSO_TEST_GENKIT_SESSIONS"
if SESSIONS not in os.environ:
    _sessions = tempfile.TemporaryDirectory(prefix="sayso-genkit-")
    os.environ[SESSIONS] = _sessions.name


def genkit_tool(function: Callable[..., Any]) -> Any:
    """As its developer would write it: asynchronous, and with one model of its input."""
    from genkit import tool

    kinds = get_type_hints(function, include_extras=True)
    fields: dict[str, Any] = {
        name: (
            kinds[name],
            ... if parameter.default is parameter.empty else parameter.default,
        )
        for name, parameter in inspect.signature(function).parameters.items()
    }
    model = create_model(f"{function.__name__}_input", **fields)

    async def run(input: Any) -> Any:
        named = {name: getattr(input, name) for name in fields}
        if inspect.iscoroutinefunction(function):
            return await function(**named)
        return await on_tool_thread(lambda: function(**named))

    run.__annotations__["input"] = model
    return tool(run, name=function.__name__, description=function.__doc__)


HARNESSES: dict[str, Harness] = {
    harness.name: harness
    for harness in (
        AgentFrameworkHarness(),
        GenkitHarness(),
        GenkitStoreHarness(),
        LangGraphHarness(),
        OpenAIAgentsHarness(),
    )
}
