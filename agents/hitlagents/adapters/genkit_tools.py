"""A Genkit agent whose tools are behind the guard.

Imports the framework, so import this module late.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, Protocol

import genkit
from genkit import Tool
from genkit.exp import Genkit
from genkit.exp.agent import Agent, SessionStore
from genkit.middleware import (
    BaseMiddleware,
    GenerateHookParams,
    GenerateMiddlewareContext,
    ModelHookParams,
    MultipartToolResponse,
    ToolHookParams,
)
from genkit.model import ModelRequest, ModelResponse
from genkit.plugin_api import Action, ActionRunContext
from genkit_middleware import ToolApproval
from pydantic import ValidationError

from approvals.schemas import ClientTool
from hitlagents.adapters.base import Gating
from hitlagents.adapters.calls import (
    at_page,
    misfit,
    refuse_rewrites,
    refuse_strangers,
)

type Next[P, R] = Callable[[P, GenerateMiddlewareContext], Awaitable[R]]

#: Counted by whoever drives the agent, over all advances of a run.
UNLIMITED = 10_000

MODEL = "model"

#: Stands for every tool that does not exist: the framework would end the whole turn.
#: No model is told of it, and no page can bring one of that name.
MISSING = "no.such.tool"


class Driver(Protocol):
    """Whoever runs the agent now, at every place where the framework can be met."""

    async def model(
        self, request: ModelRequest[Any], context: ActionRunContext[Any]
    ) -> ModelResponse: ...

    async def around_round(
        self,
        params: GenerateHookParams,
        context: GenerateMiddlewareContext,
        go_on: Next[GenerateHookParams, ModelResponse],
    ) -> ModelResponse: ...

    async def around_model(
        self,
        params: ModelHookParams,
        context: GenerateMiddlewareContext,
        go_on: Next[ModelHookParams, ModelResponse],
    ) -> ModelResponse: ...

    async def around_tool(
        self,
        params: ToolHookParams,
        context: GenerateMiddlewareContext,
        go_on: Next[ToolHookParams, MultipartToolResponse],
    ) -> MultipartToolResponse: ...


ADVANCE: ContextVar[Driver] = ContextVar("ADVANCE")


class Guard(BaseMiddleware):  # type: ignore[type-arg]  # its parameter is its settings
    """Hands everything to the advance under way; without one nothing can run.

    The framework makes a new object of the class for every turn, so it holds nothing.
    """

    async def wrap_generate(
        self,
        params: GenerateHookParams,
        ctx: GenerateMiddlewareContext,
        next_fn: Next[GenerateHookParams, ModelResponse],
    ) -> ModelResponse:
        return await ADVANCE.get().around_round(params, ctx, next_fn)

    async def wrap_model(
        self,
        params: ModelHookParams,
        ctx: GenerateMiddlewareContext,
        next_fn: Next[ModelHookParams, ModelResponse],
    ) -> ModelResponse:
        return await ADVANCE.get().around_model(params, ctx, next_fn)

    async def wrap_tool(
        self,
        params: ToolHookParams,
        ctx: GenerateMiddlewareContext,
        next_fn: Next[ToolHookParams, MultipartToolResponse],
    ) -> MultipartToolResponse:
        return await ADVANCE.get().around_tool(params, ctx, next_fn)


class GuardedTool:
    """What is known of a tool. Raises ValueError when it does not take an object."""

    def __init__(self, action: Action) -> None:
        schema = dict(action.input_schema or {})
        if action.input_type is None and not schema.get("properties"):
            schema = {"type": "object", "properties": {}}
        if schema.get("type") != "object":
            raise ValueError(f"{action.name} must take one object, or nothing.")
        self.name = action.name
        self.description = action.description or ""
        #: Refusing arguments it does not name.
        self.parameters: dict[str, Any] = {"additionalProperties": False, **schema}
        self._type = action.input_type

    def check(self, arguments: Mapping[str, Any]) -> None:
        """Raises ArgumentsError for arguments that do not fit."""
        refuse_strangers(self.name, self.parameters, arguments)
        if self._type is None:
            return
        try:
            fitted = self._type.validate_python(dict(arguments))
        except ValidationError as error:
            raise misfit(self.name, error) from None
        refuse_rewrites(self.name, arguments, fitted)


class Kit:
    """An agent as Genkit runs it: ``ToolApproval`` pauses, then the guard is asked, then
    the developer's own middleware and the tool.

    ``brought``: tools of a page, in the place of the agent's own of those names.

    Raises ValueError for tools that cannot be held.
    """

    def __init__(
        self,
        *,
        name: str,
        instructions: str,
        tools: Sequence[Tool],
        use: Sequence[BaseMiddleware[Any]],
        gating: Gating,
        store: SessionStore | None,
        brought: Sequence[ClientTool] = (),
    ) -> None:
        names = {tool.name for tool in brought}
        tools = [
            *(tool for tool in tools if tool.name not in names),
            *(_of_page(tool) for tool in brought),
        ]
        self.ai = ai = Genkit()
        ai.define_model(MODEL, _model)
        ai.tool(MISSING)(_missing)
        # Registered, or the framework would add each of them again at every turn.
        for number, kind in enumerate(dict.fromkeys(type(each) for each in use)):
            ai.define_middleware(kind, name=f"mounted-{number}")
        ai.define_middleware(ToolApproval, name="tool-approval")
        ai.define_middleware(Guard, name="guard")
        self.tools = self._guarded(ai, tools, use)
        allowed = sorted(tool for tool in self.tools if not gating.holds(tool))
        self.agent: Agent[Any] = ai.define_agent(
            name,
            model=MODEL,
            system=instructions,
            tools=[*tools, MISSING],
            use=[ToolApproval(allowed_tools=[*allowed, MISSING]), Guard(), *use],
            max_turns=UNLIMITED,
            store=store,
        )

    def _guarded(
        self,
        ai: Genkit,
        tools: Sequence[Tool],
        use: Sequence[BaseMiddleware[Any]],
    ) -> dict[str, GuardedTool]:
        context = GenerateMiddlewareContext(ai=ai)
        mounted = [action for each in use for action in each.tools(context)]
        found: dict[str, GuardedTool] = {}
        for action in [*(tool.action() for tool in tools), *mounted]:
            if action.name in found or action.name == MISSING:
                raise ValueError(f"Two tools have the same name: {action.name}.")
            found[action.name] = GuardedTool(action)
        return found


def _of_page(brought: ClientTool) -> Tool:
    async def answered(given: dict[str, Any]) -> str:
        return await at_page(given)

    return genkit.tool(
        answered,
        name=brought.name,
        description=brought.description,
        input_schema=dict(brought.parameters),
    )


async def _model(
    request: ModelRequest[Any], context: ActionRunContext[Any]
) -> ModelResponse:
    return await ADVANCE.get().model(request, context)


async def _missing() -> str:
    """Never entered: the guard answers in its place."""
    raise NotImplementedError
