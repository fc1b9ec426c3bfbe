"""The tools of an agent and of its helpers, put behind the guard.

Imports the SDK, so import this module late.
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import replace
from functools import cached_property
from typing import Any, Protocol, cast

from agents import Agent, FunctionTool, Handoff
from agents.function_schema import FuncSchema, function_schema
from agents.tool_context import ToolContext
from pydantic import BaseModel, ValidationError

from approvals.schemas import ClientTool
from hitlagents.adapters.base import Gating
from hitlagents.adapters.calls import (
    at_page,
    misfit,
    refuse_rewrites,
    refuse_strangers,
)
from hitlagents.toolcall import on_tool_thread


class Invoker(Protocol):
    """Whoever runs the agent now: takes over a call the SDK wants to run."""

    async def invoke(
        self, tool: GuardedTool, context: ToolContext[Any], arguments: str
    ) -> str: ...


ADVANCE: ContextVar[Invoker] = ContextVar("ADVANCE")


class GuardedTool:
    """What stands in for a tool's body: every call goes to the host first.

    Without an advance under way it raises LookupError, so nothing can run by itself.
    """

    def __init__(self, tool: FunctionTool) -> None:
        # What the body raises must get out. By default the SDK turns it into a text for
        # the model, and an agent used as a tool would swallow a stop inside it.
        self.tool = replace(
            tool,
            timeout_seconds=None,
            _failure_error_function=None,
            _use_default_failure_error_function=False,
        )
        self.timeout = tool.timeout_seconds
        #: The agent behind an agent used as a tool.
        self.agent: Agent[Any] | None = getattr(tool, "_agent_instance", None)

    async def __call__(self, context: ToolContext[Any], arguments: str) -> str:
        return await ADVANCE.get().invoke(self, context, arguments)

    @property
    def name(self) -> str:
        return self.tool.name

    @property
    def description(self) -> str:
        return self.tool.description

    @property
    def parameters(self) -> dict[str, Any]:
        """The tool's JSON Schema, refusing arguments it does not name."""
        return {"additionalProperties": False, **self.tool.params_json_schema}

    async def run(self, context: ToolContext[Any], arguments: Mapping[str, Any]) -> Any:
        """Enter the body. Raises ArgumentsError, and whatever the body raises."""
        refuse_strangers(self.name, self.parameters, arguments)
        text = json.dumps(arguments, ensure_ascii=False)
        # The approved arguments, also for a tool that looks at its context.
        context.tool_arguments = text
        if self._signature is None:
            body: Awaitable[Any] = self.tool.on_invoke_tool(context, text)
        else:
            body = self._call(self._signature, context, arguments)
        limit = asyncio.timeout(self.timeout)
        try:
            async with limit:
                result = await body
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise TimeoutError(
                f"There was no result after {self.timeout:g} s; it may still be at work."
            ) from error
        return readable(result)

    async def _call(
        self,
        signature: FuncSchema,
        context: ToolContext[Any],
        arguments: Mapping[str, Any],
    ) -> Any:
        """Call the developer's function, a blocking one on the threads for tools.

        Left to the SDK it would take the default executor, which everything shares.
        """
        fitted = self._fitted(signature, arguments)
        refuse_rewrites(self.name, arguments, fitted)
        args, named = signature.to_call_args(fitted)
        function = cast("Callable[..., Any]", self.tool.__wrapped__)
        if signature.takes_context:
            args = [context, *args]
        if inspect.iscoroutinefunction(function):
            return await function(*args, **named)
        result = await on_tool_thread(lambda: function(*args, **named))
        return await result if inspect.isawaitable(result) else result

    @cached_property
    def _signature(self) -> FuncSchema | None:
        """How to call the decorated function; None for a tool that is not one."""
        function = getattr(self.tool, "__wrapped__", None)
        if not (inspect.isfunction(function) or inspect.ismethod(function)):
            return None
        return function_schema(
            function,
            name_override=self.tool.name,
            use_docstring_info=False,
            strict_json_schema=self.tool.strict_json_schema,
        )

    def _fitted(self, signature: FuncSchema, arguments: Mapping[str, Any]) -> BaseModel:
        """Raises ArgumentsError for arguments that do not fit."""
        try:
            return signature.params_pydantic_model.model_validate(dict(arguments))
        except ValidationError as error:
            raise misfit(self.name, error) from None

    @property
    def demands(self) -> bool:
        """Whether the developer's own rule says which calls a person must see."""
        return callable(self.tool.needs_approval)

    def needs_approval(self, gating: Gating) -> Any:
        """The SDK's setting: what no policy allows pauses, and a rule of the developer's
        may add pauses, which no policy takes away. A plain ``needs_approval=True`` only
        says that the tool matters, so a policy may allow it."""
        if gating.holds(self.name):
            return True
        rule: Any = self.tool.needs_approval
        if not callable(rule):
            return False

        async def asks(context: Any, arguments: dict[str, Any], call_id: str) -> bool:
            if self._would_change(arguments):
                return True
            asked = rule(context, arguments, call_id)
            return bool(await asked if inspect.isawaitable(asked) else asked)

        return asks

    def _would_change(self, arguments: Mapping[str, Any]) -> bool:
        """Whether the tool would get other arguments than a rule would look at: filled
        in, converted or refused. The SDK asks a person then, too."""
        if self._signature is None:
            return False
        try:
            fitted = self._fitted(self._signature, arguments)
            return fitted.model_dump(mode="json", warnings=False) != dict(arguments)
        except ValueError:
            return True


class Team:
    """The starting agent and every agent within its reach, with their tools guarded.

    ``brought``: tools of a page. Whoever may take over the conversation has them, and who
    had one of that name has the page's in its place.

    Raises ValueError for agents or tools of the same name, and for tools that run where
    nobody can hold them.
    """

    def __init__(
        self,
        starting: Agent[Any],
        gating: Gating,
        brought: Sequence[ClientTool] = (),
    ) -> None:
        self.starting = starting
        self.agents: dict[str, Agent[Any]] = {}
        self.tools: dict[str, GuardedTool] = {}
        self._guarded: dict[int, FunctionTool] = {}
        for agent in list(_reachable(starting)):
            if agent.name in self.agents:
                raise ValueError(f"Two agents have the same name: {agent.name}.")
            self.agents[agent.name] = agent
        _bring(brought, self.agents.values(), list(_talking(starting)))
        for agent in self.agents.values():
            self._guard(agent, gating)

    def _guard(self, agent: Agent[Any], gating: Gating) -> None:
        if agent.mcp_servers:
            raise ValueError(
                f"{agent.name} has MCP servers, whose calls cannot be held."
            )
        names = [tool.name for tool in agent.tools]
        if len(set(names)) != len(names):
            raise ValueError(
                f"Two tools have the same name: {', '.join(sorted(names))}."
            )
        agent.tools = [self._guarded_tool(tool, gating) for tool in agent.tools]

    def _guarded_tool(self, tool: Any, gating: Gating) -> FunctionTool:
        if not isinstance(tool, FunctionTool):
            raise ValueError(f"{tool.name} runs elsewhere, so it cannot be held.")
        if is_guarded(tool):
            raise ValueError(
                f"{tool.name} is guarded already; make new agents each time."
            )
        if id(tool) in self._guarded:
            return self._guarded[id(tool)]
        if tool.name in self.tools:
            raise ValueError(f"Two tools have the same name: {tool.name}.")
        guarded = GuardedTool(tool)
        self.tools[tool.name] = guarded
        self._guarded[id(tool)] = replace(
            guarded.tool,
            on_invoke_tool=guarded,
            needs_approval=guarded.needs_approval(gating),
        )
        return self._guarded[id(tool)]

    def demands(self, tool: str) -> bool:
        """Whether a call of the tool that paused may have paused by its own rule."""
        return self.tools[tool].demands

    def has(self, tool: str, agent: str) -> bool:
        """Whether that agent, or any if it has no name, has a tool of that name."""
        if not agent:
            return tool in self.tools
        return tool in {item.name for item in self.agents[agent].tools}


def is_guarded(tool: Any) -> bool:
    return isinstance(getattr(tool, "on_invoke_tool", None), GuardedTool)


def _bring(
    brought: Sequence[ClientTool],
    agents: Iterable[Agent[Any]],
    talking: Sequence[Agent[Any]],
) -> None:
    """Give the page's tools to the agents that talk to its person."""
    made = [_of_page(tool) for tool in brought]
    names = {tool.name for tool in made}
    has_all = {id(agent) for agent in talking}
    for agent in agents:
        given_over = {tool.name for tool in agent.tools} & names
        agent.tools = [
            *(tool for tool in agent.tools if tool.name not in given_over),
            *(t for t in made if id(agent) in has_all or t.name in given_over),
        ]


def _of_page(tool: ClientTool) -> FunctionTool:
    return FunctionTool(
        name=tool.name,
        description=tool.description,
        params_json_schema=dict(tool.parameters),
        on_invoke_tool=at_page,
        strict_json_schema=False,
        needs_approval=True,
    )


def _talking(starting: Agent[Any]) -> Iterator[Agent[Any]]:
    """The starting agent, and every one the conversation may be handed to."""
    return _found(starting, lambda agent: map(_target, agent.handoffs))


def _reachable(starting: Agent[Any]) -> Iterator[Agent[Any]]:
    """Every agent the starting one hands off to or uses as a tool, itself first.

    What this overlooks is refused later: no model is asked with an unguarded tool.
    """
    return _found(
        starting,
        lambda agent: [
            *map(_target, agent.handoffs),
            *(getattr(tool, "_agent_instance", None) for tool in agent.tools),
        ],
    )


def _found(
    starting: Agent[Any], targets_of: Callable[[Agent[Any]], Iterable[Any]]
) -> Iterator[Agent[Any]]:
    waiting, seen = [starting], {id(starting)}
    while waiting:
        agent = waiting.pop(0)
        yield agent
        for target in targets_of(agent):
            if isinstance(target, Agent) and id(target) not in seen:
                seen.add(id(target))
                waiting.append(target)


def _target(handoff: Any) -> Any:
    if not isinstance(handoff, Handoff):
        return handoff
    reference = getattr(handoff, "_agent_ref", None)
    return reference() if callable(reference) else None


def readable(result: Any) -> Any:
    """A result as plain values: the SDK's own output types and pydantic models opened."""
    if isinstance(result, list):
        return [readable(item) for item in result]
    if isinstance(result, BaseModel):
        plain = result.model_dump(mode="json", exclude_none=True)
        return (
            plain["text"] if plain.get("type") == "text" and "text" in plain else plain
        )
    return result
