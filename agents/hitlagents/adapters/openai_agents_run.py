"""One advance of one run on the OpenAI Agents SDK: from a message or from answers to the
next pause or the end.

The SDK is told "approve" for every call a person decided, whatever the verdict: it has no
place for edited arguments, for an answer beside the approval or for an output. The guard
at the tool body decides what really happens, and its text becomes the result.

``Runner.run`` and not ``Runner.run_streamed``: the model in between tells every word as it
comes, in order with the calls, and waits for the host. The SDK's stream is a queue
without a bound that is filled by a task of its own.

Imports the SDK, so import this module late.
"""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, cast
from uuid import uuid4

from agents import (
    Agent,
    AgentsException,
    MaxTurnsExceeded,
    Model,
    ModelBehaviorError,
    ModelRefusalError,
    ModelResponse,
    ModelSettings,
    RunConfig,
    Runner,
    RunResult,
    RunState,
    ToolApprovalItem,
    ToolErrorFormatterArgs,
    Usage,
)
from agents.run_state import CURRENT_SCHEMA_VERSION
from agents.tool_context import ToolContext
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseFunctionToolCall,
    ResponseOutputItem,
    ResponseOutputMessage,
    ResponseStreamEvent,
)

from approvals.schemas import Answer, InterruptDraft, ToolCall
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
from hitlagents.adapters.openai_agents import OpenAIAgentsAdapter, OpenCall, Snapshot
from hitlagents.adapters.openai_agents_tools import ADVANCE, GuardedTool, is_guarded
from hitlagents.adapters.written import encodable

MAX_TURNS = 50
#: Call id of the agent-as-tool inside of which a nested agent is at work.
INSIDE: ContextVar[str] = ContextVar("INSIDE", default="")


class Halt(AgentsException):
    """Carries out what the host raised: the SDK wraps any other exception in its own."""


class Advance(HostedAdvance):
    """Everything that lives as long as one ``start`` or ``resume``."""

    halting = Halt

    def __init__(
        self, adapter: OpenAIAgentsAdapter, host: Host, work: Start | Resume
    ) -> None:
        super().__init__(host, work)
        self.adapter = adapter
        self.team = adapter.team_with(work.client_tools)
        self.starting = self.team.starting
        self.answers: dict[str, Answer] = {}
        #: Calls proposed or taken over, by call id, until they have a result.
        self.open: dict[str, OpenCall] = {}
        self.guarded: set[str] = set()
        self.turn = 0
        #: Why no further call of this advance may start.
        self.failure: BaseException | None = None
        #: One lock for the calls of an agent, by the call that agent is inside of.
        self.in_order: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    # From outside

    async def start(self, start: Start) -> Outcome:
        history: list[dict[str, Any]] = []
        if start.state is not None:
            snapshot = Snapshot.from_state(start.state)
            history = closed(snapshot.history)
            # Whoever was handed the conversation goes on with it.
            self.starting = self.team.agents.get(snapshot.agent, self.starting)
        message = {"role": "user", "content": start.message}
        return await self._advance([*history, message])

    async def resume(self, resume: Resume) -> Outcome:
        snapshot = Snapshot.from_state(resume.state)
        if snapshot.run is None:
            raise damaged()
        self.turn = snapshot.turn
        self.open = snapshot.calls
        self.answers = {answer.call.call_id: answer for answer in resume.answers}
        check_decided(self.open, self.answers)
        self._check_team(snapshot)
        state = await self._restored(snapshot.run)
        outcome = await self._advance(state)
        if ignored := self.answers.keys() - self.guarded:
            raise ignored_decisions(len(ignored))
        return outcome

    def _check_team(self, snapshot: Snapshot) -> None:
        """Whether this version of the agent can still take the answers."""
        for name in (snapshot.starting, snapshot.agent):
            self._check_agent(name)
        self.starting = self.team.agents[snapshot.starting]
        for call in self.open.values():
            if call.asked:
                self._check_agent(call.agent)
            if not self.team.has(call.tool, call.agent):
                raise missing_tool(call.tool)

    def _check_agent(self, name: str) -> None:
        if name not in self.team.agents:
            raise AgentRunError(
                f"The agent {name!r} was at work, but in this version there is none of "
                "that name.",
                retryable=False,
            )

    async def _restored(self, run: dict[str, Any]) -> RunState[Any, Agent[Any]]:
        """The SDK's state with every decided call approved, so that the guard is asked.
        Raises CheckpointError when the state cannot be read."""
        if _is_newer(run.get("$schemaVersion")):
            raise CheckpointError(
                "The stored state was written by a newer version of the OpenAI Agents "
                f"SDK (layout {run['$schemaVersion']}, this one reads up to "
                f"{CURRENT_SCHEMA_VERSION})."
            )
        if not isinstance(run.get("last_processed_response"), dict):
            raise damaged()
        try:
            state = await RunState.from_json(
                self.starting,
                run,
                context_override=self._context(),
                strict_context=True,
            )
            pending = state.get_interruptions()
            for item in pending:
                state.approve(item)
        except Exception as error:  # decoders of the SDK raise what they like
            raise damaged() from error
        if {_call_id(item) for item in pending} != self.answers.keys():
            raise damaged()
        return state

    # The drive

    async def _advance(
        self, given: list[dict[str, Any]] | RunState[Any, Agent[Any]]
    ) -> Outcome:
        token = ADVANCE.set(self)
        try:
            async with self.adapter.model.connect() as model:
                result = await Runner.run(
                    self.starting,
                    cast("Any", given),
                    context=None if isinstance(given, RunState) else self._context(),
                    max_turns=MAX_TURNS,
                    run_config=self._configuration(model),
                )
            self.raise_stop()
            return await self._outcome(result)
        except AgentRunError:
            self.raise_stop()
            raise
        except Exception as error:
            self.raise_stop()
            raise worded(error, self.adapter.model_label) from error
        finally:
            ADVANCE.reset(token)

    def _context(self) -> dict[str, str]:
        """What tools find as the run's context. It is stored, so it holds ids only."""
        return {"run_id": str(self.run_id), "thread_id": str(self.thread_id)}

    def _configuration(self, model: Model) -> RunConfig:
        # Left out where they say nothing: the SDK makes the configuration anew several
        # times a turn, and reads its own type hints for each part that is given.
        settings = self.adapter.model.settings
        return RunConfig(
            model=Telling(self, model),
            model_settings=ModelSettings(**settings) if settings else None,
            # No trace leaves this house, and none is made.
            tracing_disabled=True,
            trace_include_sensitive_data=False,
            tool_not_found_behavior="return_error_to_model",
            tool_error_formatter=self.not_found,
            tool_name_collision_policy="error",
        )

    async def _outcome(self, result: RunResult) -> Outcome:
        history = cast("list[dict[str, Any]]", result.to_input_list())
        await self.told_outputs(history)
        snapshot = Snapshot(
            history=history,
            agent=result.last_agent.name,
            starting=self.starting.name,
            turn=self.turn,
        )
        if not result.interruptions:
            return Finished(state=snapshot.to_state())
        waiting = {_call_id(item): item for item in result.interruptions}
        if strangers := waiting.keys() - self.open.keys():
            raise AgentRunError(
                f"The framework waits for {len(strangers)} calls nobody proposed.",
                retryable=False,
            )
        for key, call in self.open.items():
            call.asked = key in waiting
            call.agent = waiting[key].agent.name if call.asked else ""
        snapshot.calls = self.open
        snapshot.run = result.to_state().to_json(strict_context=True)
        drafts = [self._draft(key, waiting[key]) for key in self.open if key in waiting]
        return Interrupted(interrupts=drafts, state=snapshot.to_state())

    def _draft(self, key: str, item: ToolApprovalItem) -> InterruptDraft:
        call = self.call(key, _arguments(item))
        return InterruptDraft(
            call=call,
            reason="tool_approval",
            verdicts=VERDICTS,
            demanded=self.team.demands(call.tool),
        )

    # What the host is told

    def begin_turn(self) -> None:
        if self.stopped_by is not None:
            self.halt(self.stopped_by)
        if self.turn >= MAX_TURNS:
            # Counts nested agents too; the SDK counts each of them by itself.
            raise too_many_turns(MAX_TURNS)
        self.turn += 1

    async def propose(
        self, item: ResponseFunctionToolCall, *, reference: str, message: str
    ) -> None:
        """Tell of a call before it is guarded or held."""
        self.open[item.call_id] = OpenCall(
            turn=self.turn,
            call_id=item.call_id,
            tool=item.name,
            reference=reference,
            parent=INSIDE.get(),
        )
        call = self.call(item.call_id, item.arguments)
        await self.tell(ToolCallProposed(call=call, message_id=message))

    def call(self, call_id: str, arguments: str) -> ToolCall:
        known = self.open.get(call_id)
        if known is None:
            raise unproposed_call()
        return ToolCall(
            turn=known.turn,
            call_id=call_id,
            tool=known.tool,
            arguments=arguments,
            framework_ref=known.reference[:MAX_NAME],
        )

    async def finish(self, call_id: str, content: str) -> None:
        if self.open.pop(call_id, None) is not None:
            await self.tell(ToolCallResult(call_id=call_id, content=content))

    async def told_outputs(self, items: Iterable[Mapping[str, Any]]) -> None:
        """Tell results that did not come through the guard: the SDK's own refusals."""
        for item in items:
            if item.get("type") == "function_call_output":
                await self.finish(str(item["call_id"]), _output_text(item["output"]))

    async def not_found(self, given: ToolErrorFormatterArgs[Any]) -> str | None:
        """What a model is told that calls a tool which does not exist."""
        if given.kind != "tool_not_found":
            return None
        text = not_there(given.tool_name)
        await self.finish(given.call_id, text)
        return text

    # The tool body

    async def invoke(
        self, tool: GuardedTool, context: ToolContext[Any], arguments: str
    ) -> str:
        """Run the calls of a turn one after the other, so that none starts once the host
        has stopped the run or a call before it has failed."""
        async with self.in_order[INSIDE.get()]:
            if self.failure is not None:
                raise Halt("A call before this one failed.") from self.failure
            try:
                return await self._invoke(tool, context, arguments)
            except BaseException as error:
                self.failure = error
                raise

    async def _invoke(
        self, tool: GuardedTool, context: ToolContext[Any], arguments: str
    ) -> str:
        call = self.call(context.tool_call_id, arguments)
        self.guarded.add(call.call_id)
        if tool.agent is not None:
            return await self._delegate(tool, context, call)
        told = await self.ask(call, self._body(tool, context, call))
        await self.finish(call.call_id, told.result)
        return told.text

    def _body(
        self, tool: GuardedTool, context: ToolContext[Any], call: ToolCall
    ) -> Body:
        async def run(arguments: Mapping[str, Any]) -> Any:
            with self.serving(call.call_id):
                return await tool.run(context, arguments)

        return run

    async def _delegate(
        self, tool: GuardedTool, context: ToolContext[Any], call: ToolCall
    ) -> str:
        """Run an agent used as a tool.

        It has no effect but through its own tools, each guarded by itself, and it may
        pause inside. So the ledger keeps only that it was allowed to begin, and with what
        arguments; a resume finds that and goes on.
        """
        mark = f"Passed on to the agent {cast('Any', tool.agent).name}: "

        async def begin(arguments: Mapping[str, Any]) -> str:
            return mark + json.dumps(arguments, ensure_ascii=False)

        told = await self.ask(call, begin)
        if not told.result.startswith(mark):
            await self.finish(call.call_id, told.result)
            return told.text
        token = INSIDE.set(call.call_id)
        try:
            given = json.loads(told.result.removeprefix(mark))
            result = await tool.run(context, given)
        finally:
            INSIDE.reset(token)
        answer = result if isinstance(result, str) else json.dumps(result, default=str)
        if not any(inner.parent == call.call_id for inner in self.open.values()):
            await self.finish(call.call_id, answer)
        return replace(told, result=answer).text


class Telling(Model):
    """The model of one advance: tells the host of everything it says, as it says it."""

    def __init__(self, advance: Advance, model: Model) -> None:
        self.advance = advance
        self.model = model

    async def get_response(
        self,
        system_instructions: str | None,
        input: Any,
        model_settings: ModelSettings,
        tools: list[Any],
        output_schema: Any,
        handoffs: list[Any],
        tracing: Any,
        **how: Any,
    ) -> ModelResponse:
        _check_guarded(tools)
        if not isinstance(input, str):
            await self.advance.told_outputs(input)
        self.advance.begin_turn()
        turn = Turn(self.advance, {handoff.tool_name for handoff in handoffs})
        response = await turn.listen(
            self.model.stream_response(
                system_instructions,
                input,
                model_settings,
                tools,
                output_schema,
                handoffs,
                tracing,
                **how,
            )
        )
        output = await turn.tidied(response)
        usage = _usage(response)
        return ModelResponse(output=output, usage=usage, response_id=None)

    async def stream_response(self, *args: Any, **how: Any) -> AsyncIterator[Any]:
        """For a nested agent whose developer listens to it; whole turns are enough."""
        answer = await self.get_response(*args, **how)
        response = Response(
            id="",
            created_at=0,
            model="",
            object="response",
            output=answer.output,
            tool_choice="auto",
            tools=[],
            parallel_tool_calls=True,
        )
        yield ResponseCompletedEvent(
            response=response, sequence_number=0, type="response.completed"
        )


_TEXT = frozenset({"response.output_text.delta", "response.refusal.delta"})
_BROKEN = frozenset(
    {"response.incomplete", "response.failed", "response.error", "error"}
)


class Turn:
    """One answer of a model: tells its text and its calls, and tidies the calls."""

    def __init__(self, advance: Advance, handoffs: set[str]) -> None:
        self.advance = advance
        #: Names of calls that only say who goes on.
        self.handoffs = handoffs
        self.message_id = f"msg-{uuid4().hex}"
        self.text_told = False

    async def listen(self, events: AsyncIterator[ResponseStreamEvent]) -> Response:
        """Tell the text word by word and return the whole answer. Raises AgentRunError
        when it was cut off."""
        whole: Response | None = None
        async for event in events:
            if event.type in _TEXT:
                await self._tell_text(cast("Any", event).delta)
            elif event.type in _BROKEN:
                raise cut_off(self.advance.adapter.model_label)
            elif isinstance(event, ResponseCompletedEvent):
                whole = event.response
        if whole is None:
            raise cut_off(self.advance.adapter.model_label)
        return whole

    async def _tell_text(self, text: str) -> None:
        if text and not INSIDE.get():  # what helpers say among themselves is no answer
            self.text_told = True
            await self.advance.tell(TextDelta(message_id=self.message_id, delta=text))

    async def tidied(self, response: Response) -> list[ResponseOutputItem]:
        """The answer with calls as the SDK needs them, each told before any is run."""
        output: list[ResponseOutputItem] = []
        for item in response.output:
            if isinstance(item, ResponseFunctionToolCall):
                output.append(await self._call(item))
                continue
            if isinstance(item, ResponseOutputMessage) and not self.text_told:
                await self._tell_text(_message_text(item))
            output.append(item)
        return output

    async def _call(self, item: ResponseFunctionToolCall) -> ResponseFunctionToolCall:
        """Give a call an id of its own.

        Providers leave ids out, or number calls per answer, so that a turn that is asked
        again after a failure would find the result of another call in the ledger.
        """
        tidy = item.model_copy(
            update={
                "call_id": f"call_{uuid4().hex[:24]}",
                "name": named(item.name),
                "arguments": encodable(item.arguments)
                if item.arguments.strip()
                else "{}",
            }
        )
        if tidy.name not in self.handoffs:
            await self.advance.propose(
                tidy, reference=item.call_id or "", message=self.message_id
            )
        return tidy


def worded(error: Exception, model: str) -> AgentRunError:
    """A failure of the SDK or of the model in a sentence for people."""
    match error:
        case MaxTurnsExceeded():
            return too_many_turns(MAX_TURNS)
        case ModelRefusalError():
            return AgentRunError(
                f"The model ({model}) refused to answer.", retryable=False
            )
        case ModelBehaviorError():
            return AgentRunError(
                f"The model ({model}) gave an answer the framework cannot use.",
                retryable=True,
            )
        case _ if type(error).__name__.endswith("GuardrailTripwireTriggered"):
            return AgentRunError(
                "A guardrail of the agent ended the run.", retryable=False
            )
    return explained(error, model)


def _check_guarded(tools: Sequence[Any]) -> None:
    """No model is asked with a tool that would run past the guard."""
    for tool in tools:
        if not is_guarded(tool):
            raise AgentRunError(
                f"The tool {getattr(tool, 'name', '?')!r} is not behind the guard, so "
                "its calls could not be held.",
                retryable=False,
            )


def _usage(response: Response) -> Usage:
    used = response.usage
    if used is None:
        return Usage(requests=1)
    return Usage(
        requests=1,
        input_tokens=used.input_tokens,
        output_tokens=used.output_tokens,
        total_tokens=used.total_tokens,
    )


def _message_text(message: ResponseOutputMessage) -> str:
    return "".join(
        part.text if part.type == "output_text" else part.refusal
        for part in message.content
    )


# The SDK's items


def _call_id(item: ToolApprovalItem) -> str:
    return str(_raw(item, "call_id"))


def _arguments(item: ToolApprovalItem) -> str:
    """The arguments as the SDK kept them, which is what it would run."""
    return str(_raw(item, "arguments"))


def _raw(item: ToolApprovalItem, name: str) -> Any:
    raw = item.raw_item
    return raw.get(name) if isinstance(raw, Mapping) else getattr(raw, name, None)


def _output_text(output: Any) -> str:
    if isinstance(output, str):
        return output
    return json.dumps(output, ensure_ascii=False, default=str)


def _is_newer(version: Any) -> bool:
    """Whether a layout version such as "1.21" is beyond what this SDK reads."""
    try:
        return _numbers(str(version)) > _numbers(CURRENT_SCHEMA_VERSION)
    except ValueError:
        return False


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def closed(history: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The conversation with an answer for every call an ended run left open.

    Providers refuse a conversation with an unanswered call in it.
    """
    answered = {item.get("call_id") for item in history if _is_output(item)}
    items: list[dict[str, Any]] = []
    orphans: list[dict[str, Any]] = []
    for item in history:
        if orphans and not _is_call(item) and not _is_output(item):
            items += orphans
            orphans = []
        items.append(item)
        if _is_call(item) and item.get("call_id") not in answered:
            orphans.append(
                {
                    "type": "function_call_output",
                    "call_id": item.get("call_id"),
                    "output": ABANDONED,
                }
            )
    return items + orphans


def _is_call(item: Mapping[str, Any]) -> bool:
    return item.get("type") == "function_call"


def _is_output(item: Mapping[str, Any]) -> bool:
    return item.get("type") == "function_call_output"
