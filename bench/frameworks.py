"""One agent with one gated tool on every hosted framework, once bare and once hosted.

Both play the same script with the same model and run the same tool. ``Bare`` does what the
framework's own documentation does to pause, to keep the state as JSON where the framework
can, and to go on.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from uuid import uuid4

from hitlagents.adapters.base import Adapter, Gating
from hitlagents.demo.scripted import Call, Item, Reply, Result

INSTRUCTIONS = "Write what you are asked to write."
#: What the tool has written, in this process.
written: list[str] = []


def write(text: str) -> str:
    """Write a text down."""
    written.append(text)
    return f"Wrote {text}."


def reply(history: Sequence[Item]) -> Reply:
    if isinstance(history[-1], Result):
        return Reply("I have written it down for you.")
    return Reply("I am going to write it.", [Call("c1", "write", '{"text": "a word"}')])


class Bare(Protocol):
    """A framework without Sayso."""

    async def pause(self) -> Any:
        """Start a run that pauses at the tool; gives what is kept of it."""

    async def resume(self, kept: Any) -> None:
        """Approve the call and go on to the end, from what was kept."""


class BareAgentFramework:
    def __init__(self) -> None:
        from agent_framework import Agent, InMemoryHistoryProvider, tool

        from hitlagents.adapters.agent_framework_scripted import ScriptedClient

        self._agent: Any = Agent(
            ScriptedClient(reply),
            INSTRUCTIONS,
            tools=[tool(approval_mode="always_require")(write)],
            context_providers=[InMemoryHistoryProvider()],
        )

    async def pause(self) -> str:
        from agent_framework import AgentSession

        session = AgentSession(session_id=str(uuid4()))
        await self._run("Please write", session)
        return json.dumps(session.to_dict())

    async def resume(self, kept: str) -> None:
        from agent_framework import AgentSession, Content, Message

        session = AgentSession.from_dict(json.loads(kept))
        (request,) = session.state["tool_approval"]["pending_approval_requests"]
        approval = Content.from_dict(request).to_function_approval_response(True)
        await self._run(Message("user", [approval]), session)
        json.dumps(session.to_dict())

    async def _run(self, message: Any, session: Any) -> None:
        async with self._agent.run(message, session=session, stream=True) as stream:
            async for _ in stream:
                pass
            await stream.get_final_response()


class BareOpenAIAgents:
    def __init__(self) -> None:
        from agents import Agent, RunConfig, function_tool

        from hitlagents.adapters.openai_agents_scripted import ScriptedModel

        tool = function_tool(write, needs_approval=True)
        self._agent = Agent[Any](name="bench", instructions=INSTRUCTIONS, tools=[tool])
        self._config = RunConfig(model=ScriptedModel(reply), tracing_disabled=True)

    async def pause(self) -> str:
        from agents import Runner

        result = await Runner.run(self._agent, "Please write", run_config=self._config)
        return json.dumps(result.to_state().to_json())

    async def resume(self, kept: str) -> None:
        from agents import Runner, RunState

        state = await RunState.from_json(self._agent, json.loads(kept))
        for item in state.get_interruptions():
            state.approve(item)
        result = await Runner.run(self._agent, state, run_config=self._config)
        json.dumps(result.to_state().to_json())


class BareLangGraph:
    """Its state stays in the framework's saver in memory, as it has no JSON of its own."""

    def __init__(self) -> None:
        from langchain.agents import create_agent
        from langchain.agents.middleware import HumanInTheLoopMiddleware
        from langchain_core.tools import StructuredTool
        from langgraph.checkpoint.memory import InMemorySaver

        from hitlagents.adapters.langgraph_scripted import ScriptedChatModel

        hold: Any = HumanInTheLoopMiddleware(
            {"write": {"allowed_decisions": ["approve"]}}, interrupt_mode="per_call"
        )
        self._graph: Any = create_agent(
            ScriptedChatModel(script=reply),
            [StructuredTool.from_function(write)],
            system_prompt=INSTRUCTIONS,
            middleware=[hold],
            checkpointer=InMemorySaver(),
        )

    async def pause(self) -> dict[str, Any]:
        kept = {"configurable": {"thread_id": str(uuid4())}}
        message = {"role": "user", "content": "Please write"}
        await self._graph.ainvoke({"messages": [message]}, kept)
        return kept

    async def resume(self, kept: dict[str, Any]) -> None:
        from langgraph.types import Command

        state = await self._graph.aget_state(kept)
        answers = {asked.id: {"type": "approve"} for asked in state.interrupts}
        await self._graph.ainvoke(Command(resume=answers), kept)


class BareGenkit:
    """The client keeps the session, as JSON."""

    def __init__(self) -> None:
        from genkit.exp import Genkit
        from genkit.model import ModelRequest
        from genkit_middleware import ToolApproval

        from hitlagents.adapters.genkit_scripted import ScriptedModel

        ai = Genkit()
        plays = ScriptedModel(reply)

        async def model(request: Any, context: Any) -> Any:
            answer = await plays(request, context)
            for part in answer.message.content:
                if part.tool_request is not None:
                    # Only our adapter takes arguments as the text a model writes.
                    part.tool_request.input = json.loads(part.tool_request.input)
            return answer

        model.__annotations__["request"] = ModelRequest[Any]
        ai.define_model("bench-model", model)
        ai.define_middleware(ToolApproval, name="tool-approval")
        self._agent: Any = ai.define_agent(
            "bench",
            model="bench-model",
            system=INSTRUCTIONS,
            tools=[genkit_write()],
            use=[ToolApproval(allowed_tools=[])],
        )

    async def pause(self) -> str:
        from genkit import Part, Role
        from genkit.exp.agent import AgentInit, AgentInput, SessionState
        from genkit.model import Message

        text = Message(role=Role.USER, content=[Part.from_text("Please write")])
        new = SessionState(session_id=str(uuid4()), messages=[])
        return await self._run(AgentInput(message=text), AgentInit(state=new))

    async def resume(self, kept: str) -> None:
        from genkit.exp.agent import (
            AgentInit,
            AgentInput,
            AgentInterrupt,
            SessionState,
        )

        session = SessionState.model_validate_json(kept)
        assert session.messages
        asked = (part.tool_request for part in session.messages[-1].interrupts)
        calls: list[Any] = [
            AgentInterrupt(each.name, each.ref, each.input) for each in asked if each
        ]
        approved = {"tool_approved": True}
        restart = [call.restart(resumed_metadata=approved) for call in calls]
        given = AgentInput.model_validate({"resume": {"restart": restart}})
        await self._run(given, AgentInit(state=session))

    async def _run(self, given: Any, init: Any) -> str:
        out = (await self._agent.run(given, init=init)).response
        kept: str = out.state.model_dump_json(by_alias=True, exclude_none=True)
        return kept


def genkit_write() -> Any:
    """The tool as Genkit wants it: asynchronous, and with one model of its input."""
    from genkit import tool
    from pydantic import create_model

    async def run(input: Any) -> str:
        return write(input.text)

    run.__annotations__["input"] = create_model("Write", text=str)
    return tool(run, name="write", description=write.__doc__)


def hosted_agent_framework(gating: Gating) -> Adapter:
    from agent_framework import tool

    from hitlagents.adapters.agent_framework import AgentFrameworkAdapter
    from hitlagents.adapters.agent_framework_models import scripted

    return AgentFrameworkAdapter(
        name="bench",
        instructions=INSTRUCTIONS,
        tools=[tool(approval_mode="always_require")(write)],
        model=scripted(reply),
        gating=gating,
    )


def hosted_openai_agents(gating: Gating) -> Adapter:
    from agents import Agent, function_tool

    from hitlagents.adapters.openai_agents import OpenAIAgentsAdapter
    from hitlagents.adapters.openai_agents_models import scripted

    tool = function_tool(write, needs_approval=True)
    return OpenAIAgentsAdapter(
        make=lambda: Agent[Any](name="bench", instructions=INSTRUCTIONS, tools=[tool]),
        model=scripted(reply),
        gating=gating,
    )


def hosted_langgraph(gating: Gating) -> Adapter:
    from langchain_core.tools import StructuredTool

    from hitlagents.adapters.langgraph import LangGraphAdapter
    from hitlagents.adapters.langgraph_models import scripted
    from hitlagents.adapters.langgraph_parts import agent

    tool = StructuredTool.from_function(write)
    return LangGraphAdapter(
        name="bench",
        build=lambda: agent(tools=[tool], instructions=INSTRUCTIONS),
        tools=[tool],
        model=scripted(reply),
        gating=gating,
    )


def hosted_genkit(gating: Gating) -> Adapter:
    from hitlagents.adapters.genkit import GenkitAdapter
    from hitlagents.adapters.genkit_models import scripted

    return GenkitAdapter(
        name="bench",
        instructions=INSTRUCTIONS,
        tools=[genkit_write()],
        model=scripted(reply),
        gating=gating,
    )


@dataclass(frozen=True, kw_only=True)
class Framework:
    """A framework as the benches compare it."""

    name: str
    slug: str
    distribution: str
    bare: Callable[[], Bare]
    hosted: Callable[[Gating], Adapter]


FRAMEWORKS = (
    Framework(
        name="Microsoft Agent Framework",
        slug="bench-agent-framework",
        distribution="agent-framework-core",
        bare=BareAgentFramework,
        hosted=hosted_agent_framework,
    ),
    Framework(
        name="OpenAI Agents SDK",
        slug="bench-openai-agents",
        distribution="openai-agents",
        bare=BareOpenAIAgents,
        hosted=hosted_openai_agents,
    ),
    Framework(
        name="LangGraph",
        slug="bench-langgraph",
        distribution="langgraph",
        bare=BareLangGraph,
        hosted=hosted_langgraph,
    ),
    Framework(
        name="Genkit",
        slug="bench-genkit",
        distribution="genkit",
        bare=BareGenkit,
        hosted=hosted_genkit,
    ),
)
