"""What graphs are built from: agents whose tools are held and guarded, steps of nodes that
go through the guard, and the model of the moment.

Imports the framework, so import this module late.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from langchain.agents import create_agent
from langchain.agents.middleware import (
    AgentMiddleware,
    HumanInTheLoopMiddleware,
    InterruptOnConfig,
    ModelRequest,
    ModelResponse,
    ToolCallRequest,
)
from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import BaseMessage, ToolMessage
from langchain_core.outputs import ChatResult
from langchain_core.tools import BaseTool
from langgraph.channels.delta import DeltaChannel
from langgraph.prebuilt import ToolNode
from langgraph.pregel import Pregel
from langgraph.types import Command
from pydantic import BaseModel, ValidationError

from approvals.schemas import ClientTool
from hitlagents.adapters.base import Body
from hitlagents.adapters.calls import misfit, refuse_rewrites, refuse_strangers
from hitlagents.toolcall import on_tool_thread

if TYPE_CHECKING:
    from langgraph.graph.state import CompiledStateGraph

    from hitlagents.adapters.langgraph_run import Advance

ADVANCE: ContextVar[Advance] = ContextVar("ADVANCE")
"""The advance that is under way. Without one nothing of this module runs (LookupError)."""

APPROVE: Mapping[str, Any] = {"type": "approve"}
"""What the framework is told of every held call that was decided, whatever the verdict:
the guard at the tool body knows what was said, and its text is what the model hears."""


# For those who build graphs


def agent(
    *,
    tools: Sequence[BaseTool],
    instructions: str = "",
    name: str | None = None,
    script: Any = None,
    middleware: Sequence[AgentMiddleware[Any, Any, Any]] = (),
    **options: Any,
) -> CompiledStateGraph[Any, Any, Any, Any]:
    """LangChain's agent, each held call an interrupt of its own, each body guarded.

    Its model is the one of the advance; ``script`` is what a scripted one plays here.
    ``middleware`` comes before ours; ``options`` go to ``create_agent``.
    """
    hold = HumanInTheLoopMiddleware[Any, Any, Any](
        {
            tool.name: InterruptOnConfig(
                allowed_decisions=["approve"],
                description=f"Approve running {tool.name}?",
                when=_is_held,
            )
            for tool in tools
        },
        interrupt_mode="per_call",
    )
    return create_agent(
        _NoModel(),
        [_off_loop(tool) for tool in tools],
        system_prompt=instructions or None,
        middleware=[*middleware, hold, Guard(script)],
        name=name,
        **options,
    )


def chat_model(script: Any = None) -> BaseChatModel:
    """The model of this advance, for a node that asks one. Tag a request ``nostream``
    when what it says is not meant for the chat."""
    model: BaseChatModel = ADVANCE.get().model(script)
    return model


async def call_tool(
    tool: str, arguments: Mapping[str, Any], body: Body, *, key: str = ""
) -> str:
    """What a node does to the world: held if the policies say so, run once, and through
    the guard. ``tool`` is one of the adapter's ``steps``.

    Nodes run again from their start after an interrupt, and from the last pause after a
    crash. The same step with the same arguments is the same effect then, and gives the
    result it gave. ``key`` makes two of one, or one of two whose arguments differ: it
    names the effect within the run. A call that the node had reviewed before (an interrupt
    with an ``action_request``) is that call, with the reviewer's arguments.

    Returns what the model would read of it: the result, and below it that a reviewer
    changed the arguments, and what they noted.
    """
    return await ADVANCE.get().step(tool, arguments, body, key)


async def guard_tool_call(
    request: ToolCallRequest,
    execute: Callable[[ToolCallRequest], Awaitable[ToolMessage | Command[Any]]],
) -> ToolMessage:
    """The guard of a tool body, for a ``ToolNode(tools, awrap_tool_call=…)``."""
    return await ADVANCE.get().run_tool(request, execute)


# Inside agents


def _is_held(request: ToolCallRequest) -> bool:
    return ADVANCE.get().is_held(request.tool_call)


class Guard(AgentMiddleware[Any, Any, Any]):
    """Innermost: gives the model, tells what it proposed, asks the host at every body."""

    def __init__(self, script: Any = None) -> None:
        super().__init__()
        self.script = script

    async def awrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]],
    ) -> ModelResponse[Any]:
        advance = ADVANCE.get()
        model, tools = advance.model(self.script), advance.offered(request.tools)
        response = await handler(request.override(model=model, tools=tools))
        for message in response.result:
            await advance.propose(message)
        return response

    async def awrap_tool_call(
        self,
        request: ToolCallRequest,
        handler: Callable[[ToolCallRequest], Awaitable[ToolMessage | Command[Any]]],
    ) -> ToolMessage:
        return await guard_tool_call(request, handler)


class _NoModel(BaseChatModel):
    """Stands where the framework wants a model when an agent is built."""

    @property
    def _llm_type(self) -> str:
        return "none"

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        raise NotImplementedError("The model comes from the advance.")


# Tools


def of_page(tool: ClientTool) -> dict[str, Any]:
    """A tool that a page brought, for the model to know, in the form every chat model of the
    framework takes as it is. Of a tool object it would resolve the references in its
    schema, and a stranger's can grow without end."""
    function = {
        "name": tool.name,
        "description": tool.description,
        "parameters": dict(tool.parameters),
    }
    return {"type": "function", "function": function}


def closed_schema(tool: BaseTool) -> dict[str, Any]:
    """The tool's JSON Schema, refusing arguments it does not name.

    The framework drops such arguments silently; what a reviewer sees must be what runs.
    """
    schema: Any = tool.tool_call_schema
    shape = schema if isinstance(schema, dict) else schema.model_json_schema()
    kept = {key: value for key, value in shape.items() if key != "description"}
    return {"additionalProperties": False, **kept}


def check_arguments(tool: BaseTool, arguments: Mapping[str, Any]) -> None:
    """Raises ArgumentsError for arguments that do not fit."""
    refuse_strangers(tool.name, closed_schema(tool), arguments)
    model = tool.tool_call_schema
    if not (isinstance(model, type) and issubclass(model, BaseModel)):
        return
    try:
        fitted = model.model_validate(dict(arguments))
    except ValidationError as error:
        raise misfit(tool.name, error) from None
    refuse_rewrites(tool.name, arguments, fitted)


def told_by(result: ToolMessage | Command[Any] | list[Any]) -> str:
    """What a tool gave, as text. Raises TypeError for what cannot be kept as one."""
    if not isinstance(result, ToolMessage):
        raise TypeError(
            "The tool gave a command to its graph. Only a result can be kept, so that "
            "the call is not run twice."
        )
    return str(result.text) if result.content else ""


def _off_loop(tool: BaseTool) -> BaseTool:
    """A copy whose plain function runs on the threads for tools.

    The framework would take the default executor.
    """
    plain = getattr(tool, "func", None)
    if plain is None or getattr(tool, "coroutine", None) is not None:
        return tool

    @functools.wraps(plain)
    async def run(*args: Any, **kwargs: Any) -> Any:
        result = await on_tool_thread(lambda: plain(*args, **kwargs))
        return await result if inspect.isawaitable(result) else result

    return tool.model_copy(update={"coroutine": run})


# Graphs


def checked(graph: Any) -> Pregel[Any, Any, Any, Any]:
    """The graph, if it can be hosted. Raises ValueError."""
    if not isinstance(graph, Pregel):
        raise ValueError("The graph is not compiled.")
    if graph.checkpointer:
        raise ValueError("Compile the graph without a checkpointer; it gets ours.")
    _check_nodes(graph)
    for name, inner in graph.get_subgraphs(recurse=True):
        if getattr(inner, "checkpointer", None) not in (None, True, False):
            raise ValueError(f"Compile the subgraph {name} without a checkpointer.")
        _check_nodes(inner)
    return graph


def _check_nodes(graph: Any) -> None:
    for name, channel in graph.channels.items():
        if isinstance(channel, DeltaChannel):
            raise ValueError(f"The channel {name} keeps differences, not its value.")
    for name, node in graph.nodes.items():
        bound = node.bound
        if isinstance(bound, ToolNode) and bound._awrap_tool_call is None:
            raise ValueError(
                f"The node {name} runs tools without the guard. Give its ToolNode "
                "awrap_tool_call=guard_tool_call."
            )
