"""One advance of one run on Microsoft Agent Framework: from a message or from answers to
the next pause or the end.

The framework is told "approve" for every call a person decided, whatever the verdict: it
has no place for a note, for edited arguments or for an output. The guard at the tool body
decides what really happens, and its text becomes the result. Only tools that do not exist
are denied natively, since approving one leaves a call without a result.

Imports the framework, so import this module late.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from copy import copy
from typing import Any, cast
from uuid import uuid4

from agent_framework import (
    Agent,
    AgentResponseUpdate,
    AgentSession,
    ChatContext,
    ChatMiddleware,
    ChatResponse,
    ChatResponseUpdate,
    Content,
    FunctionInvocationConfiguration,
    FunctionInvocationContext,
    FunctionInvocationLayer,
    FunctionMiddleware,
    FunctionTool,
    InMemoryHistoryProvider,
    Message,
    MiddlewareFailure,
    SupportsChatGetResponse,
)
from agent_framework.observability import disable_instrumentation
from pydantic import ValidationError

from approvals.schemas import Answer, ClientTool, InterruptDraft, ToolCall
from hitlagents.adapters.advance import HostedAdvance, check_decided
from hitlagents.adapters.agent_framework import (
    AgentFrameworkAdapter,
    Snapshot,
    closed_schema,
)
from hitlagents.adapters.base import (
    AgentRunError,
    Body,
    Finished,
    Host,
    Interrupted,
    Outcome,
    Resume,
    Start,
    TextDelta,
    ToolCallProposed,
    ToolCallResult,
)
from hitlagents.adapters.calls import (
    ABANDONED,
    VERDICTS,
    at_page,
    misfit,
    named,
    not_there,
    refuse_rewrites,
    refuse_strangers,
)
from hitlagents.adapters.failures import (
    cut_off,
    damaged,
    explained,
    ignored_decisions,
    missing_tool,
    too_many_turns,
)
from hitlagents.adapters.stored import StoredCall
from hitlagents.adapters.written import is_whole
from hitlagents.toolcall import on_tool_thread

disable_instrumentation()

MAX_TURNS_PER_ADVANCE = 20
#: The framework counts per advance only; a model that proposes the same call after every
#: answer would go on for ever.
MAX_TURNS_PER_RUN = 100

CONFIGURATION: FunctionInvocationConfiguration = {
    "enabled": True,
    "max_iterations": MAX_TURNS_PER_ADVANCE,
    # In order, so that nothing starts after the host has stopped the run.
    "allow_concurrent_invocation": False,
    "include_detailed_errors": False,
    "disable_approval_response_binding": False,
}


class Halt(MiddlewareFailure):
    """Carries out what the host raised: every other exception inside a tool becomes the
    text "Error: Function failed." and the run goes on as if nothing were wrong."""


class Advance(HostedAdvance):
    """Everything that lives as long as one ``start`` or ``resume``."""

    halting = Halt

    def __init__(
        self, adapter: AgentFrameworkAdapter, host: Host, work: Start | Resume
    ) -> None:
        super().__init__(host, work)
        self.adapter = adapter
        self.gating = adapter.gating.beside(work.client_tools)
        brought = [_of_page(tool) for tool in work.client_tools]
        self.specs = {tool.name: tool for tool in (*adapter.functions, *brought)}
        self.answers: dict[str, Answer] = {}
        #: Calls proposed or taken over, by call id, until they have a result.
        self.open: dict[str, StoredCall] = {}
        self.arguments: dict[str, str] = {}
        self.guarded: set[str] = set()
        self.turn = 0
        self.message_id = ""

    # From outside

    async def start(self, start: Start) -> Outcome:
        session = AgentSession(session_id=str(start.thread_id))
        if start.state is not None:
            session = _session(Snapshot.from_state(start.state))
            _close_open_calls(session)
        # With an id of its own, since the framework takes the same text said twice for
        # a replay and forgets the second.
        message = Message("user", [start.message], message_id=f"user-{start.run_id}")
        return await self._advance(session, message)

    async def resume(self, resume: Resume) -> Outcome:
        snapshot = Snapshot.from_state(resume.state)
        session = _session(snapshot)
        self.turn = snapshot.turn
        self.open = snapshot.calls
        self.answers = {answer.call.call_id: answer for answer in resume.answers}
        requests = _requests(session)
        self._check_answers(requests)
        message = Message(
            "user",
            [
                request.to_function_approval_response(request.id in self.answers)
                for request in requests
            ],
        )
        outcome = await self._advance(session, message)
        if ignored := self.answers.keys() - self.guarded:
            raise ignored_decisions(len(ignored))
        return outcome

    def _check_answers(self, requests: Sequence[Content]) -> None:
        pending = {request.id for request in requests}
        asked = {key for key, call in self.open.items() if call.asked}
        if asked - pending or pending - self.open.keys():
            raise damaged()
        check_decided(self.open, self.answers)
        for call in self.open.values():
            existed = call.asked or call.call_id not in pending
            if existed and call.tool not in self.specs:
                raise missing_tool(call.tool)

    # The drive

    async def _advance(self, session: AgentSession, message: Message) -> Outcome:
        try:
            async with self._agent() as agent:
                await self._drive(agent, session, message)
        except AgentRunError:
            self.raise_stop()
            raise
        except Exception as error:
            self.raise_stop()
            raise explained(error, self.adapter.model_label) from error
        self.raise_stop()
        return self._outcome(session)

    @asynccontextmanager
    async def _agent(self) -> AsyncIterator[Agent[Any]]:
        async with self.adapter.model.connect() as client:
            if not isinstance(client, FunctionInvocationLayer):
                # Such a client proposes calls, but the guard would never be asked.
                raise AgentRunError(
                    f"{type(client).__name__} does not run tools through the framework, "
                    "so calls could not be held.",
                    retryable=False,
                )
            client.function_invocation_configuration.update(CONFIGURATION)
            yield Agent(
                cast("SupportsChatGetResponse[Any]", client),
                self.adapter.instructions,
                name=self.adapter.name,
                tools=[self._gated(function) for function in self.specs.values()],
                default_options=dict(self.adapter.model.settings),
                context_providers=[InMemoryHistoryProvider()],
                middleware=[Guard(self), Turns(self)],
            )

    def _gated(self, function: FunctionTool) -> FunctionTool:
        """A copy of the developer's tool, gated as the policies say now."""
        gated = copy(function)
        held = self.gating.holds(function.name)
        gated.approval_mode = "always_require" if held else "never_require"
        return gated

    async def _drive(
        self, agent: Agent[Any], session: AgentSession, message: Message
    ) -> None:
        """Run to the end or to a pause. An abandoned stream leaves the session as it was,
        so the stream is always drained before the session is read."""
        async with agent.run(message, session=session, stream=True) as stream:
            async for update in stream:
                await self._tell_update(update)
            await stream.get_final_response()
        if session.service_session_id is not None:
            raise AgentRunError(
                "The model's provider keeps the conversation itself, so it cannot be "
                "stored here. Turn that off (store: false).",
                retryable=False,
            )

    def _outcome(self, session: AgentSession) -> Outcome:
        requests = _requests(session)
        waiting = _waiting(session)
        self.open = {key: call for key, call in self.open.items() if key in waiting}
        snapshot = Snapshot(session=session.to_dict(), turn=self.turn, calls=self.open)
        drafts = [
            self._draft(request)
            for request in requests
            if request.function_call is not None
            and request.function_call.name in self.specs
        ]
        state = snapshot.to_state()
        _session(Snapshot.from_state(state))  # what cannot be read must not be written
        if drafts:
            return Interrupted(interrupts=drafts, state=state)
        if requests:
            raise AgentRunError(
                "The framework waits for an answer that nobody can give.",
                retryable=False,
            )
        return Finished(state=state)

    def _draft(self, request: Content) -> InterruptDraft:
        assert request.id is not None
        assert request.function_call is not None
        return InterruptDraft(
            call=self.call(request.id, _text(request.function_call.arguments)),
            verdicts=VERDICTS,
        )

    # What the host is told

    async def _tell_update(self, update: AgentResponseUpdate) -> None:
        for content in update.contents:
            if content.type == "text" and content.text and update.role != "tool":
                await self.tell(
                    TextDelta(message_id=self.message_id, delta=content.text)
                )
            elif content.type == "function_result":
                await self._tell_native_result(content)

    async def _tell_native_result(self, content: Content) -> None:
        """A result that did not come through the guard: the tool does not exist."""
        call = self._open_call(content)
        if call is None:
            return
        text = not_there(call.tool)
        told = Content.from_function_result(call_id=call.reference, result=text)
        # The framework says "rejected by user". The same object goes to the model and
        # into the history.
        content.items, content.result = told.items, told.result
        await self.finish(call.call_id, text)

    def _open_call(self, content: Content) -> StoredCall | None:
        if content.id is not None:
            return self.open.get(content.id)
        return next(
            (c for c in self.open.values() if c.reference == content.call_id), None
        )

    async def begin_turn(self) -> None:
        if self.turn >= MAX_TURNS_PER_RUN:
            raise too_many_turns(MAX_TURNS_PER_RUN)
        self.turn += 1
        self.message_id = f"msg-{uuid4().hex}"

    async def propose(self, response: ChatResponse[Any]) -> None:
        """Tell of the finished turn's calls, before any of them is guarded or held."""
        calls = [
            content
            for message in response.messages
            for content in message.contents
            if content.type == "function_call" and not content.informational_only
        ]
        if response.finish_reason is None:
            # The framework takes a stream that merely ends for a whole answer.
            raise cut_off(self.adapter.model_label)
        for content in calls:
            await self._propose(content)

    async def _propose(self, content: Content) -> None:
        assert content.id is not None
        name = named(content.name)
        self.open[content.id] = StoredCall(
            turn=self.turn,
            call_id=content.id,
            tool=name,
            reference=content.call_id or content.id,
            asked=name in self.specs and self.gating.holds(name),
        )
        self.arguments[content.id] = _text(content.arguments)
        call = self.call(content.id, self.arguments[content.id])
        await self.tell(ToolCallProposed(call=call, message_id=self.message_id))

    def call(self, call_id: str, arguments: str) -> ToolCall:
        known = self.open[call_id]
        reference = known.reference if known.reference != call_id else ""
        return ToolCall(
            turn=known.turn,
            call_id=call_id,
            tool=known.tool,
            arguments=arguments,
            framework_ref=reference,
        )

    async def finish(self, call_id: str, content: str) -> None:
        del self.open[call_id]
        await self.tell(ToolCallResult(call_id=call_id, content=content))

    # The tool body

    async def guard(self, context: FunctionInvocationContext) -> str:
        key: str = context.metadata["function_call_occurrence_id"]
        # The request as the framework kept it, which is what it would run; the host
        # compares it with what was shown.
        response: Content | None = context.metadata.get("approval_response")
        if response is None:
            arguments = self.arguments[key]
        else:
            assert response.function_call is not None
            arguments = _text(response.function_call.arguments)
        call = self.call(key, arguments)
        self.guarded.add(key)
        told = await self.host.guard(call, self.body(call))
        await self.finish(key, told.result)
        return told.text

    def body(self, call: ToolCall) -> Body:
        function = self.specs[call.tool]

        async def run(arguments: Mapping[str, Any]) -> str:
            _check_arguments(function, arguments)
            with self.serving(call.call_id):
                contents = await _off_loop(function).invoke(
                    arguments=dict(arguments), tool_call_id=call.call_id
                )
            return "\n".join(_readable(content) for content in contents)

        return run


class Guard(FunctionMiddleware):
    """Asks the host before every tool body: gated or not, first pass or resume."""

    def __init__(self, advance: Advance) -> None:
        self.advance = advance

    async def process(
        self,
        context: FunctionInvocationContext,
        call_next: Callable[[], Awaitable[None]],
    ) -> None:
        """Sets the result and never calls on: the host runs the body itself.

        ``context.arguments`` stays as it is; the framework answers a change with a new
        request for approval.
        """
        try:
            context.result = await self.advance.guard(context)
        except Halt:
            raise
        except Exception as error:  # noqa: BLE001 (whatever it is, it passes unchanged)
            self.advance.halt(error)


class Turns(ChatMiddleware):
    """Sees every request to the model: counts turns and tells what each one proposed."""

    def __init__(self, advance: Advance) -> None:
        self.advance = advance

    async def process(
        self, context: ChatContext, call_next: Callable[[], Awaitable[None]]
    ) -> None:
        await self.advance.begin_turn()
        context.stream_transform_hooks.append(CallIds())
        context.stream_result_hooks.append(self.advance.propose)
        await call_next()


class CallIds:
    """Gives every call of one model turn a provider id of its own, and its arguments as
    text.

    Providers leave ids out or repeat them. The framework joins chunks by that id, so two
    calls with one id would become one with unreadable arguments. And arguments kept as an
    object can make a session unreadable: a key ``type`` with the value ``message`` in
    them is taken for a message when it is read back.
    """

    def __init__(self) -> None:
        #: Arguments so far, by the id in use.
        self.texts: dict[str, str] = {}
        #: The id in use for a chunk, by what the provider calls it.
        self.in_use: dict[str, str] = {}

    def __call__(self, update: ChatResponseUpdate) -> ChatResponseUpdate:
        for content in update.contents:
            if content.type == "function_call":
                self._tidy(content)
        return update

    def _tidy(self, content: Content) -> None:
        if isinstance(content.arguments, Mapping):
            content.arguments = _text(content.arguments)
        # Clients that number their chunks set an occurrence id; others only a call id.
        name = content.id or content.call_id or ""
        if not name and not content.name:
            return  # goes on with the call before it
        mine = self.in_use.get(name) if name else None
        if mine is None or (content.id is None and self._is_new(mine, content)):
            mine = self._free(content.call_id or "")
            self.in_use[name] = mine
            self.texts[mine] = ""
        content.call_id = mine
        self.texts[mine] += _raw(content.arguments)

    def _is_new(self, mine: str, content: Content) -> bool:
        """Whether this chunk starts another call with an id that is already taken:
        nothing can follow arguments that are complete."""
        more = _raw(content.arguments).strip()
        return bool(content.name and more) and is_whole(self.texts[mine])

    def _free(self, wanted: str) -> str:
        if wanted and wanted not in self.texts:
            return wanted
        return f"call_{uuid4().hex[:24]}"


def _raw(arguments: Any) -> str:
    return arguments if isinstance(arguments, str) else ""


def _text(arguments: Any) -> str:
    """Arguments as JSON text. The framework reads none, and an empty text, as ``{}``."""
    if isinstance(arguments, str):
        return arguments if arguments.strip() else "{}"
    if arguments is None:
        return "{}"
    return json.dumps(arguments, ensure_ascii=False, default=str)


# Tools


def _of_page(tool: ClientTool) -> FunctionTool:
    """With a body, though it is never entered: a tool without one pauses in another way than
    held ones do."""
    return FunctionTool(
        name=tool.name,
        description=tool.description,
        input_model=tool.parameters,
        func=at_page,
    )


def _check_arguments(function: FunctionTool, arguments: Mapping[str, Any]) -> None:
    """Raises ArgumentsError for arguments that do not fit."""
    refuse_strangers(function.name, closed_schema(function), arguments)
    if function.input_model is None:
        return
    try:
        fitted = function.input_model.model_validate(dict(arguments))
    except ValidationError as error:
        raise misfit(function.name, error) from None
    refuse_rewrites(function.name, arguments, fitted)


def _off_loop(function: FunctionTool) -> FunctionTool:
    """A copy whose plain function runs on the threads for tools.

    The framework would take the default executor.
    """
    plain = function.func
    if plain is None or inspect.iscoroutinefunction(plain):
        return function

    async def run(*args: Any, **kwargs: Any) -> Any:
        result = await on_tool_thread(lambda: plain(*args, **kwargs))
        return await result if inspect.isawaitable(result) else result

    moved = copy(function)
    moved.func = run
    return moved


def _readable(content: Content) -> str:
    if content.type == "text":
        return content.text or ""
    return f"[{content.type}]"


# The session


def _session(snapshot: Snapshot) -> AgentSession:
    try:
        session = AgentSession.from_dict(snapshot.session)
        _messages(session)
        _requests(session)
    except Exception as error:  # decoders of the framework raise what they like
        raise damaged() from error
    return session


def _messages(session: AgentSession) -> list[Message]:
    kept = session.state.get(InMemoryHistoryProvider.DEFAULT_SOURCE_ID, {})
    messages = kept.get("messages", [])
    if not all(isinstance(message, Message) for message in messages):
        raise damaged()
    return list(messages)


def _requests(session: AgentSession) -> list[Content]:
    """The calls the framework wants a person's word on, in the model's order."""
    approval = session.state.get("tool_approval", {})
    return [
        request if isinstance(request, Content) else Content.from_dict(request)
        for request in approval.get("pending_approval_requests", [])
    ]


def _waiting(session: AgentSession) -> set[str]:
    """Ids of all calls without a result: those asked about, and siblings held back."""
    groups = session.state.get("tool_approval", {}).get(
        "already_approved_approval_request_groups", []
    )
    hidden = [
        request if isinstance(request, Content) else Content.from_dict(request)
        for group in groups
        for request in group.get("approval_requests", [])
    ]
    return {request.id or "" for request in [*_requests(session), *hidden]}


def _close_open_calls(session: AgentSession) -> None:
    """Answer the calls an ended run left open, so that the history is valid again.

    Left alone, the framework hides them from the model, but a late answer to one would
    come back between later messages.
    """
    session.state.pop("tool_approval", None)
    messages: list[Message] = []
    history = _messages(session)
    answered = [
        content.call_id
        for message in history
        for content in message.contents
        if content.type == "function_result"
    ]
    for message in history:
        message.contents = [
            content
            for content in message.contents
            if content.type
            not in {"function_approval_request", "function_approval_response"}
        ]
        if not message.contents:
            continue
        messages.append(message)
        orphans = []
        for content in message.contents:
            if content.type != "function_call":
                continue
            if content.call_id in answered:
                answered.remove(content.call_id)
            else:
                orphans.append(content)
        if orphans:
            messages.append(Message("tool", [_abandoned(call) for call in orphans]))
    if messages:
        session.state[InMemoryHistoryProvider.DEFAULT_SOURCE_ID]["messages"] = messages


def _abandoned(call: Content) -> Content:
    return Content.from_function_result(
        call_id=call.call_id or "", id=call.id, result=ABANDONED
    )
