"""One advance of one run on Genkit: from a message or from answers to the next pause or the
end.

A pause is the framework's own: ``ToolApproval`` interrupts the turn. Its answers are, too:
an approved call is restarted, one that was denied or answered instead is responded to, all
in one resume. What is told to a model comes from the guard in either case. The framework
refuses edited arguments; the guard hands them to the tool.

The middleware ``Guard`` is where this module meets the framework: it hears the model word
by word and waits for the host with each. The framework's own stream is a queue without a
bound.

Imports the framework, so import this module late.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NoReturn, cast
from uuid import uuid4

from genkit import FinishReason, GenkitError, Interrupt, Part, Role
from genkit.exp.agent import (
    AgentFinishReason,
    AgentInit,
    AgentInput,
    AgentInterrupt,
    AgentOutput,
    SessionSnapshot,
    SessionState,
    SnapshotStatus,
)
from genkit.middleware import (
    GenerateHookParams,
    GenerateMiddlewareContext,
    ModelHookParams,
    MultipartToolResponse,
    ToolHookParams,
)
from genkit.model import Message, ModelRequest, ModelResponse, ModelResponseChunk
from genkit.plugin_api import ActionRunContext
from pydantic_core import PydanticSerializationError

from approvals.schemas import Answer, InterruptDraft, ToolCall
from approvals.states import Verdict
from hitlagents.adapters.advance import HostedAdvance, check_decided
from hitlagents.adapters.base import (
    AgentRunError,
    Body,
    CheckpointError,
    Finished,
    Host,
    Interrupted,
    Outcome,
    Resume,
    Start,
    TextDelta,
    Told,
    ToolCallProposed,
    ToolCallResult,
)
from hitlagents.adapters.calls import ABANDONED, MAX_NAME, VERDICTS, named, not_there
from hitlagents.adapters.failures import (
    cut_off,
    damaged,
    explained,
    ignored_decisions,
    missing_tool,
    too_many_turns,
    unproposed_call,
)
from hitlagents.adapters.genkit import GenkitAdapter, OpenCall, Snapshot
from hitlagents.adapters.genkit_tools import ADVANCE, MISSING, Next
from hitlagents.adapters.written import encodable

MAX_TURNS = 50

#: Member of a call's metadata: the name of a tool that does not exist.
WANTED = "wanted"

#: Verdicts after which the tool is not entered.
INSTEAD = frozenset(
    {Verdict.DENY, Verdict.ANSWER, Verdict.RESPOND, Verdict.CANCEL_CALL}
)

#: How the ledger says that a tool of the session may begin, and with what.
IN_SESSION = "Into the session: "

#: A model that ends for one of these has not said all.
_BROKEN = frozenset({FinishReason.LENGTH, FinishReason.UNKNOWN, FinishReason.OTHER})


class Halt(Exception):
    """Ends the framework's turn once the host has stopped the run or a call failed."""


class Advance(HostedAdvance):
    """Everything that lives as long as one ``start`` or ``resume``."""

    halting = Halt

    def __init__(
        self, adapter: GenkitAdapter, host: Host, work: Start | Resume
    ) -> None:
        super().__init__(host, work)
        self.adapter = adapter
        self.kit = adapter.kit_with(work.client_tools)
        self.answers: dict[str, Answer] = {}
        #: Calls proposed or taken over, by call id, until they have a result.
        self.open: dict[str, OpenCall] = {}
        self.guarded: set[str] = set()
        self.turn = 0
        self.connection: Any = None
        #: What went wrong first, before the framework wrapped or worded it.
        self.failure: BaseException | None = None
        #: The framework's own task, which it does not end when its caller is cancelled.
        self.at_work: set[asyncio.Task[Any]] = set()
        self.over = False
        self.in_order = asyncio.Lock()

    # From outside

    async def start(self, start: Start) -> Outcome:
        session = SessionState(session_id=str(self.thread_id), messages=[])
        stored = ""
        if start.state is not None:
            snapshot = Snapshot.from_state(start.state)
            session, stored = await self._session(snapshot), snapshot.stored
        if start.state is None or _is_open(session):
            session.messages = closed(session.messages or [])
            stored = await self._put(session, parent=stored)
        message = Message(role=Role.USER, content=[Part.from_text(start.message)])
        return await self._advance(AgentInput(message=message), session, stored)

    async def resume(self, resume: Resume) -> Outcome:
        snapshot = Snapshot.from_state(resume.state)
        session = await self._session(snapshot)
        self.turn = snapshot.turn
        self.open = snapshot.calls
        self.answers = {answer.call.call_id: answer for answer in resume.answers}
        waiting = _waiting(session.messages[-1] if session.messages else None)
        self._check_answers(waiting)
        given = await self._given(list(waiting.values()))
        outcome = await self._advance(given, session, snapshot.stored)
        if ignored := self.answers.keys() - self.guarded:
            raise ignored_decisions(len(ignored))
        return outcome

    def _check_answers(self, waiting: Mapping[str, AgentInterrupt[Any, Any]]) -> None:
        asked = {key for key, call in self.open.items() if call.asked}
        if asked != waiting.keys() or asked != self.open.keys():
            raise damaged()
        check_decided(self.open, self.answers)
        for call in self.open.values():
            if call.tool not in self.kit.tools:
                raise missing_tool(call.tool)

    async def _given(self, waiting: Sequence[AgentInterrupt[Any, Any]]) -> AgentInput:
        """The framework's own resume. What is told instead of running is asked for first,
        so that no tool has run when the guard stops the run there."""
        respond: list[Part] = []
        restart: list[Part] = []
        for interrupt in waiting:
            key = interrupt.ref or ""
            if self.answers[key].verdict in INSTEAD:
                told = await self.host.guard(self._guarded(key), _not_entered)
                await self.host.emit(self._finished(key, told.result))
                respond.append(interrupt.respond(told.text))
            else:
                approved = {"tool_approved": True}
                restart.append(interrupt.restart(resumed_metadata=approved))
        resume = {"respond": respond or None, "restart": restart or None}
        return AgentInput.model_validate({"resume": resume})

    # The session: in the run's own state, or in a store

    async def _session(self, snapshot: Snapshot) -> SessionState:
        """Raises CheckpointError when it is gone or cannot be read."""
        if bool(snapshot.stored) is not (self.adapter.store is not None):
            raise CheckpointError(
                "The stored state was written by an agent that keeps its sessions "
                "elsewhere."
            )
        try:
            if self.adapter.store is None:
                return SessionState.model_validate(snapshot.session)
            found = await self.adapter.store.get_snapshot(snapshot_id=snapshot.stored)
        except ValueError as error:
            raise damaged() from error
        if found is None or found.state is None:
            raise CheckpointError("The agent's session is gone from its store.")
        return found.state

    async def _put(self, session: SessionState, *, parent: str) -> str:
        """Keep a session the framework did not write itself, where there is a store.

        An advance always begins from a named snapshot. The framework's own "latest of the
        session" may be one whose advance was lost before the host had stored it.
        """
        if self.adapter.store is None:
            return ""
        snapshot = SessionSnapshot(
            snapshot_id=str(uuid4()),
            session_id=session.session_id,
            parent_id=parent,
            status=SnapshotStatus.COMPLETED,
            state=session,
            created_at="",
        )
        await self.adapter.store.save_snapshot(
            snapshot.snapshot_id, lambda existing: snapshot
        )
        return snapshot.snapshot_id

    # The drive

    async def _advance(
        self, given: AgentInput, session: SessionState, stored: str
    ) -> Outcome:
        init = AgentInit(snapshot_id=stored) if stored else AgentInit(state=session)
        token = ADVANCE.set(self)
        try:
            async with self.adapter.model.connect() as self.connection:
                out = (await self.kit.agent.run(given, init=init)).response
        except Exception as error:
            self._raise_failure()
            raise explained(error, self.adapter.model_label) from error
        finally:
            ADVANCE.reset(token)
            self.over = True
            for task in self.at_work:
                task.cancel()
        self._raise_failure()
        return self._outcome(out)

    def _raise_failure(self) -> None:
        """What the host raised, or else what failed first, worded by what it was."""
        self.raise_stop()
        if isinstance(self.failure, Exception):
            raise worded(self.failure, self.adapter.model_label) from self.failure

    def _outcome(self, out: AgentOutput) -> Outcome:
        paused = out.finish_reason == AgentFinishReason.INTERRUPTED
        if out.error is not None or out.finish_reason == AgentFinishReason.FAILED:
            what = out.error.status if out.error is not None else "no reason given"
            raise AgentRunError(
                f"The agent or its model ({self.adapter.model_label}) failed: {what}.",
                retryable=True,
            )
        waiting = _waiting(out.message) if paused else {}
        if waiting.keys() != self.open.keys():
            raise AgentRunError(
                "The framework does not wait for the calls that are open.",
                retryable=False,
            )
        for call in self.open.values():
            call.asked = True
        snapshot = Snapshot(turn=self.turn, calls=self.open)
        if self.adapter.store is not None:
            snapshot.stored = out.snapshot_id or ""
        else:
            snapshot.session = _plain(out.state)
        state = snapshot.to_state()
        if not waiting:
            return Finished(state=state)
        drafts = [
            InterruptDraft(call=self.call(key), verdicts=VERDICTS) for key in self.open
        ]
        return Interrupted(interrupts=drafts, state=state)

    # What the host is told

    def call(self, key: str) -> ToolCall:
        known = self.open.get(key)
        if known is None:
            raise unproposed_call()
        return ToolCall(
            turn=known.turn,
            call_id=key,
            tool=known.tool,
            arguments=known.arguments,
            framework_ref=known.reference[:MAX_NAME],
        )

    def _guarded(self, key: str) -> ToolCall:
        self.guarded.add(key)
        return self.call(key)

    def _finished(self, key: str, text: str) -> ToolCallResult:
        del self.open[key]
        return ToolCallResult(call_id=key, content=text)

    # Around a round: a model's answer and the calls in it

    async def around_round(
        self,
        params: GenerateHookParams,
        context: GenerateMiddlewareContext,
        go_on: Next[GenerateHookParams, ModelResponse],
    ) -> ModelResponse:
        if self.over:
            raise asyncio.CancelledError
        self.at_work.add(cast("asyncio.Task[Any]", asyncio.current_task()))
        response = await go_on(params, context)
        if response.request is not None:
            # The framework tells its instructions from the conversation by a mark, which
            # the Artifacts middleware loses; they would be stored again at every turn.
            said = [m for m in response.request.messages if m.role != Role.SYSTEM]
            response.request = response.request.model_copy(update={"messages": said})
        return response

    # Around the model

    async def model(
        self, request: ModelRequest[Any], context: ActionRunContext[Any]
    ) -> ModelResponse:
        response: ModelResponse = await self.connection(request, context)
        for part in response.message.content if response.message is not None else ():
            if part.tool_request is not None:
                # The framework writes it as JSON before anything else is asked.
                part.tool_request.name = named(part.tool_request.name)
        return response

    async def around_model(
        self,
        params: ModelHookParams,
        context: GenerateMiddlewareContext,
        go_on: Next[ModelHookParams, ModelResponse],
    ) -> ModelResponse:
        try:
            if self.failure is not None:
                raise Halt("A call before this failed.") from self.failure
            self._begin_turn()
            asked = ModelHookParams(request=_as_it_was(params.request))
            turn = Turn(self)
            response = await turn.listen(asked, context, go_on)
            self._check_ending(response)
            return await turn.tidied(response)
        except Exception as error:
            self.failure = self.failure or error
            raise

    def _begin_turn(self) -> None:
        if self.turn >= MAX_TURNS:
            raise too_many_turns(MAX_TURNS)
        self.turn += 1

    def _check_ending(self, response: ModelResponse) -> None:
        label = self.adapter.model_label
        if response.finish_reason == FinishReason.BLOCKED:
            raise AgentRunError(
                f"The model ({label}) refused to answer.", retryable=False
            )
        if response.finish_reason in _BROKEN:
            raise cut_off(label)

    # Around a tool

    async def around_tool(
        self,
        params: ToolHookParams,
        context: GenerateMiddlewareContext,
        go_on: Next[ToolHookParams, MultipartToolResponse[Any]],
    ) -> MultipartToolResponse[Any]:
        """Run the calls of a turn one after the other, so that none starts once the host
        has stopped the run or a call before it has failed."""
        request = params.tool_request_part.tool_request
        assert request is not None
        key = request.ref or ""

        async def enter(arguments: Mapping[str, Any]) -> Any:
            moved = Part.from_tool_request(
                name=request.name,
                ref=request.ref,
                input=dict(arguments),
                metadata=params.tool_request_part.metadata,
            )
            changed = params.model_copy(update={"tool_request_part": moved})
            return _readable(await go_on(changed, context))

        async with self.in_order:
            if self.failure is not None:
                raise Halt("A call before this one failed.") from self.failure
            try:
                told = await self._result(key, request.name, enter)
                await self.tell(self._finished(key, told.result))
            except BaseException as error:
                self.failure = error
                raise
        return MultipartToolResponse(output=told.text)

    async def _result(self, key: str, tool: str, enter: Body) -> Told:
        if tool == MISSING:
            return Told(result=not_there(self.call(key).tool))
        call = self._guarded(key)
        if tool in self.adapter.in_session:
            return await self._in_session(call, enter)
        return await self.ask(call, self._body(call, enter))

    def _body(self, call: ToolCall, enter: Body) -> Body:
        tool = self.kit.tools[call.tool]

        async def run(arguments: Mapping[str, Any]) -> Any:
            tool.check(arguments)
            with self.serving(call.call_id):
                try:
                    return await enter(arguments)
                except (GenkitError, Interrupt) as error:
                    raise _original(error) from error

        return run

    async def _in_session(self, call: ToolCall, enter: Body) -> Told:
        """Run a tool that has no effect but on the session.

        The session of an attempt that fails is lost, and with it the effect. So the ledger
        keeps only that the tool was allowed to begin, and with what arguments; a retry
        finds that and does it again.
        """
        tool = self.kit.tools[call.tool]

        async def begin(arguments: Mapping[str, Any]) -> str:
            tool.check(arguments)
            return IN_SESSION + json.dumps(arguments, ensure_ascii=False)

        told = await self.ask(call, begin)
        if not told.result.startswith(IN_SESSION):
            return told
        done = await enter(json.loads(told.result.removeprefix(IN_SESSION)))
        given = done if isinstance(done, str) else json.dumps(done, ensure_ascii=False)
        return replace(told, result=given)


class Turn:
    """One answer of the model: tells its text and its calls, and tidies the calls."""

    def __init__(self, advance: Advance) -> None:
        self.advance = advance
        self.message_id = f"msg-{uuid4().hex}"
        self.text_told = False

    async def listen(
        self,
        params: ModelHookParams,
        context: GenerateMiddlewareContext,
        go_on: Next[ModelHookParams, ModelResponse],
    ) -> ModelResponse:
        """Tell the text word by word and return the whole answer."""
        heard: asyncio.Queue[ModelResponseChunk[Any] | None] = asyncio.Queue()
        before = context.replace_on_chunk(heard.put_nowait)
        answer = asyncio.ensure_future(go_on(params, context))

        def end(done: asyncio.Future[ModelResponse]) -> None:
            if not done.cancelled():
                done.exception()  # looked at here, also if nobody waits any more
            heard.put_nowait(None)

        answer.add_done_callback(end)
        try:
            while (chunk := await heard.get()) is not None:
                await self._tell_text("".join(p.text or "" for p in chunk.content))
            return await answer
        finally:
            answer.cancel()
            await asyncio.wait({answer})
            context.replace_on_chunk(before)

    async def _tell_text(self, text: str) -> None:
        if text:
            self.text_told = True
            await self.advance.tell(TextDelta(message_id=self.message_id, delta=text))

    async def tidied(self, response: ModelResponse) -> ModelResponse:
        """The answer with calls as the framework needs them, each told before any is run."""
        message = response.message
        if message is None:
            return response
        if not self.text_told:
            await self._tell_text(message.text)
        parts = [
            await self._call(part) if part.tool_request is not None else part
            for part in message.content
        ]
        response.message = Message(
            role=message.role, content=parts, metadata=message.metadata
        )
        return response

    async def _call(self, part: Part) -> Part:
        """Give a call an id of its own.

        Providers leave ids out or repeat them, and the framework then runs one call twice
        and the other never. A turn that is asked again after a failure would also find the
        result of another call in the ledger.
        """
        request = part.tool_request
        assert request is not None
        key = f"call_{uuid4().hex[:24]}"
        name = request.name
        advance = self.advance
        advance.open[key] = OpenCall(
            turn=advance.turn,
            call_id=key,
            tool=name,
            arguments=_text(request.input),
            reference=request.ref or "",
        )
        told = ToolCallProposed(call=advance.call(key), message_id=self.message_id)
        await advance.tell(told)
        known = name in advance.kit.tools
        return Part.from_tool_request(
            name=name if known else MISSING,
            ref=key,
            input=_parsed(advance.open[key].arguments),
            metadata=part.metadata if known else {WANTED: name},
        )


def worded(error: Exception, model: str) -> AgentRunError:
    """A failure of the framework or of the model in a sentence for people."""
    if isinstance(_original(error), json.JSONDecodeError):
        return AgentRunError(
            f"The model ({model}) gave a call whose arguments cannot be read.",
            retryable=True,
        )
    return explained(error, model)


# Arguments and results


def _text(arguments: Any) -> str:
    """Arguments as JSON text that can be stored; none at all are ``{}``."""
    if not isinstance(arguments, str):
        arguments = "{}" if arguments is None else json.dumps(arguments, default=str)
    return encodable(arguments) if arguments.strip() else "{}"


def _parsed(text: str) -> Any:
    """What the session keeps of the arguments: the object, or the text of what is none."""
    try:
        loaded = json.loads(text)
        json.dumps(loaded, allow_nan=False)
    except ValueError:
        return text
    return loaded if isinstance(loaded, dict) else text


def _readable(response: MultipartToolResponse[Any]) -> Any:
    """A result as plain values. Of anything but text it is only said that it was there."""
    if not response.content:
        return response.output
    parts = [
        part.text if part.text is not None else "[not text]"
        for part in response.content
    ]
    output = response.output
    if output is None:
        return "\n".join(parts)
    first = output if isinstance(output, str) else json.dumps(output)
    return "\n".join([first, *parts])


def _original(error: Exception) -> Exception:
    """What a tool raised, out of the framework's wrappers."""
    cause = error
    while isinstance(cause, GenkitError) and cause.cause is not None:
        cause = cause.cause
    if isinstance(cause, Interrupt):
        return TypeError("It asks a person itself, which is not taken up here.")
    if isinstance(cause, PydanticSerializationError):
        return TypeError("It ran, but what it returned cannot be written as JSON.")
    return cause


async def _not_entered(arguments: Mapping[str, Any]) -> NoReturn:
    """The body of a call that was decided not to run."""
    raise RuntimeError("The call was decided not to run.")


# The session


def _plain(session: SessionState | None) -> dict[str, Any]:
    if session is None:
        raise AgentRunError("The framework gave no session back.", retryable=False)
    return session.model_dump(mode="json", by_alias=True, exclude_none=True)


def _waiting(message: Message | None) -> dict[str, AgentInterrupt[Any, Any]]:
    """The calls a turn was interrupted at, in the model's order."""
    found: dict[str, AgentInterrupt[Any, Any]] = {}
    for part in message.interrupts if message is not None else []:
        request = part.tool_request
        assert request is not None
        found[request.ref or ""] = AgentInterrupt(
            request.name, request.ref, request.input
        )
    return found


def _is_open(session: SessionState) -> bool:
    """Whether the last turn was interrupted, and left so."""
    messages = session.messages or []
    return bool(
        messages and messages[-1].role == Role.MODEL and messages[-1].interrupts
    )


def closed(messages: Sequence[Message]) -> list[Message]:
    """The conversation with an answer for every call an abandoned pause left open.

    Providers refuse a conversation with an unanswered call in it. Siblings that ran keep
    their results, which the framework holds back in the metadata of the calls.
    """
    if not messages:
        return []
    *before, last = messages
    results = [
        Part.from_tool_response(
            name=request.name,
            ref=request.ref,
            output=(part.metadata or {}).get("pendingOutput", ABANDONED),
        )
        for part in last.tool_requests
        if (request := part.tool_request) is not None
    ]
    plain = [_without_pause(part) for part in last.content]
    return [
        *before,
        Message(role=last.role, content=plain, metadata=last.metadata),
        Message(role=Role.TOOL, content=results),
    ]


def _without_pause(part: Part) -> Part:
    held = {"interrupt", "pendingOutput", "pendingContent", "pendingMetadata"}
    left = {k: v for k, v in (part.metadata or {}).items() if k not in held}
    return part.model_copy(update={"metadata": left or None})


def _as_it_was(request: ModelRequest[Any]) -> ModelRequest[Any]:
    """The request without the tool that stands for missing ones; calls of such bear the
    names the model gave them."""
    tools = [tool for tool in request.tools or [] if tool.name != MISSING]
    messages = [
        message.model_copy(update={"content": [_renamed(p) for p in message.content]})
        for message in request.messages
    ]
    return request.model_copy(update={"tools": tools, "messages": messages})


def _renamed(part: Part) -> Part:
    request = part.tool_request
    wanted = (part.metadata or {}).get(WANTED)
    if request is None or request.name != MISSING or wanted is None:
        return part
    named = request.model_copy(update={"name": str(wanted)})
    return part.model_copy(update={"tool_request": named})
