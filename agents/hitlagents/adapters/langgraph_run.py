"""One advance of one run on LangGraph: from a message or from answers to the next pause or
the end.

The framework is told "approve" for every held call a person decided, whatever the verdict;
the guard at the tool body decides what really happens, and its text becomes the result.
What a node asks for by itself gets the decision as its value, after the guard has
confirmed it. Interrupts are answered by their ids, never by their order.

Imports the framework, so import this module late.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import hashlib
import json
from collections.abc import (
    Awaitable,
    Callable,
    Coroutine,
    Iterator,
    Mapping,
    Sequence,
)
from contextvars import Context, ContextVar
from typing import Any, NoReturn
from uuid import uuid4

from langchain.agents.middleware import ToolCallRequest
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    RemoveMessage,
    ToolMessage,
)
from langchain_core.messages import ToolCall as LangChainCall
from langchain_core.runnables import RunnableConfig
from langgraph.config import get_config
from langgraph.errors import GraphBubbleUp, GraphRecursionError
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from langgraph.pregel import Pregel
from langgraph.types import Command, Interrupt, StateSnapshot, interrupt
from langsmith import set_runtime_overrides
from pydantic_core import PydanticSerializationError, to_jsonable_python

from approvals import canonical
from approvals.exceptions import InvalidArguments
from approvals.schemas import Answer, InterruptDraft, ToolCall
from approvals.states import InterruptKind, Verdict
from hitlagents.adapters.advance import HostedAdvance
from hitlagents.adapters.base import (
    ANSWER,
    AgentRunError,
    Body,
    Finished,
    Happening,
    Host,
    Interrupted,
    Outcome,
    Paused,
    Resume,
    Start,
    TextDelta,
    Told,
    ToolCallProposed,
    ToolCallResult,
)
from hitlagents.adapters.calls import (
    ABANDONED,
    MAX_NAME,
    VERDICTS,
    at_page,
    named,
    not_there,
)
from hitlagents.adapters.failures import (
    cut_off,
    damaged,
    explained,
    foreign_decisions,
    ignored_decisions,
    missing_tool,
    too_many_turns,
)
from hitlagents.adapters.langgraph import Call, LangGraphAdapter, Snapshot
from hitlagents.adapters.langgraph_happenings import Happenings, Piece, Turn
from hitlagents.adapters.langgraph_parts import (
    ADVANCE,
    APPROVE,
    check_arguments,
    of_page,
    told_by,
)
from hitlagents.adapters.langgraph_review import (
    Review,
    question_schema,
    question_verdicts,
    takes_no_answer,
    wording,
)
from hitlagents.adapters.langgraph_saver import StateSaver, Unreadable, Unwritable

MAX_TURNS_PER_ADVANCE = 20
#: A model that proposes the same call after every answer would go on for ever.
MAX_TURNS_PER_RUN = 100
#: Supersteps of one graph in one advance.
MAX_STEPS = 100

#: Verdicts by which a question gets no answer.
REFUSALS = frozenset({Verdict.DENY, Verdict.CANCEL_CALL})


async def _in_place(
    default: Callable[..., Awaitable[Any]],
    context: Context,
    work: Callable[..., Any],
    /,
    *args: Any,
    **kwargs: Any,
) -> Any:
    """Where traces would be begun and ended around our hooks, also when none are kept.

    By default each time on a thread of the executor that everything shares: bodies would
    wait for strangers, and calls would come to the guard in another order than proposed.
    """
    if ADVANCE.get(None) is None:
        return await default(context, work, *args, **kwargs)
    return context.run(work, *args, **kwargs)


set_runtime_overrides(aio_to_thread=_in_place)

_inside: ContextVar[bool] = ContextVar("inside a body", default=False)


class Halt(GraphBubbleUp):
    """Carries out what the host raised: nothing in the framework swallows or retries it."""


class Advance(HostedAdvance):
    """Everything that lives as long as one ``start`` or ``resume``."""

    halting = Halt

    def __init__(
        self, adapter: LangGraphAdapter, host: Host, work: Start | Resume
    ) -> None:
        super().__init__(host, work)
        self.adapter = adapter
        #: Tools of the run's page, by name.
        self.brought = {tool.name: of_page(tool) for tool in work.client_tools}
        self.names = adapter.names | self.brought.keys()
        self.saver = StateSaver()
        self.kept = Snapshot(saver={})
        self.guarded: set[tuple[int, str]] = set()
        self.model: Callable[[Any], Any] = _no_model
        self.happenings = Happenings(self)
        #: Id of the message whose text was told last, empty after anything else.
        self.last_text = ""
        self._turns = 0
        #: Bodies run one after the other, in the order of the calls, so that none starts
        #: after the host has stopped the run.
        self._order = asyncio.Lock()
        self._loop = asyncio.get_running_loop()

    # From outside

    async def start(self, start: Start) -> Outcome:
        given = self.adapter.intake(start.message, f"user-{start.run_id}")
        graph = self._graph()
        if start.state is not None:
            before = Snapshot.from_state(start.state)
            self.saver = _saver(before.saver)
            graph = self._graph()
            if any(not call.done for call in before.calls):
                given = _after_abandoned(await self._state(graph), given)
        return await self._advance(graph, given)

    async def resume(self, resume: Resume) -> Outcome:
        self.kept = Snapshot.from_state(resume.state)
        self.saver = _saver(self.kept.saver)
        graph = self._graph()
        answered = self._matched(resume.answers)
        self._check_tools()
        state = await self._state(graph)
        places = {each.id: path for path, each in _interrupts(state)}
        if any(places.get(call.interrupt) != call.place for call, _ in answered):
            raise AgentRunError(
                "The agent's graph was changed while the run waited, and no longer has "
                "the place that waits for an answer.",
                retryable=False,
            )
        values = {}
        for call, answer in answered:
            values[call.interrupt] = await self._value(call, answer)
            self.kept.settled.append(call.key)
            call.interrupt = ""
        outcome = await self._advance(graph, Command(resume=values))
        ignored = [
            call
            for call, _ in answered
            if call.kind in {"tool", "step"} and call.key not in self.guarded
        ]
        if ignored:
            raise ignored_decisions(len(ignored))
        return outcome

    def _matched(self, answers: Sequence[Answer]) -> list[tuple[Call, Answer]]:
        """Every open call with its answer. One to a call that was decided at an earlier
        pause of the run changes nothing."""
        asked = {
            call.key: call
            for call in self.kept.calls
            if call.interrupt and not call.done
        }
        given = {(answer.call.turn, answer.call.call_id): answer for answer in answers}
        if not asked:
            raise damaged()
        strangers = given.keys() - asked.keys() - set(self.kept.settled)
        if strangers or asked.keys() - given.keys():
            raise foreign_decisions()
        return [(call, given[key]) for key, call in asked.items()]

    def _check_tools(self) -> None:
        for call in self.kept.calls:
            known = call.kind == "question" or call.tool in self.names
            if not known and not call.done:
                raise missing_tool(call.tool)

    # The drive

    def _graph(self) -> Pregel[Any, Any, Any, Any]:
        graph = copy.copy(self.adapter.graph)
        graph.checkpointer = self.saver
        return graph

    @property
    def _config(self) -> RunnableConfig:
        return {"configurable": {"thread_id": str(self.thread_id)}}

    async def _state(self, graph: Pregel[Any, Any, Any, Any]) -> StateSnapshot:
        """What the loaded state says. Raises CheckpointError."""
        try:
            return await graph.aget_state(self._config, subgraphs=True)
        except Exception as error:  # decoders of the framework raise what they like
            raise damaged() from error

    async def _advance(self, graph: Pregel[Any, Any, Any, Any], given: Any) -> Outcome:
        token = ADVANCE.set(self)
        try:
            async with self.adapter.model.connect() as self.model:
                await self._drive(graph, given)
            self.raise_stop()
            return await self._outcome(graph)
        except AgentRunError:
            self.raise_stop()
            raise
        except (Unreadable, Unwritable) as error:
            self.raise_stop()
            raise AgentRunError(
                f"The graph keeps what cannot be stored safely: {error}.",
                retryable=False,
            ) from error
        except Exception as error:
            self.raise_stop()
            raise explained(error, self.adapter.model_label) from error
        finally:
            ADVANCE.reset(token)

    async def _drive(self, graph: Pregel[Any, Any, Any, Any], given: Any) -> None:
        config: RunnableConfig = {
            **self._config,
            "callbacks": [self.happenings],
            "recursion_limit": MAX_STEPS,
        }
        try:
            await graph.ainvoke(given, config, durability="sync")
        except GraphRecursionError as error:
            raise AgentRunError(
                f"The agent was stopped after {MAX_STEPS} steps.", retryable=False
            ) from error

    async def _outcome(self, graph: Pregel[Any, Any, Any, Any]) -> Outcome:
        state = await graph.aget_state(self._config, subgraphs=True)
        found = list(_interrupts(state))
        if state.next and not found:
            raise AgentRunError(
                "The graph stopped where nobody can answer it.", retryable=False
            )
        drafts = [await self._draft(path, each) for path, each in found]
        self._forget(paused=bool(drafts))
        self.kept.saver = self.saver.dump([task.id for task in state.tasks])
        stored = self.kept.to_state()
        if not drafts:
            return Finished(state=stored)
        order = {call.key: place for place, call in enumerate(self.kept.calls)}
        drafts.sort(key=lambda draft: order[draft.call.turn, draft.call.call_id])
        return Interrupted(interrupts=drafts, state=stored)

    def _forget(self, *, paused: bool) -> None:
        """Drop what cannot come by again. Steps can, since nodes start over, and so can
        finished calls of a turn that is not over, if one node runs them all."""
        if not paused:
            self.kept = Snapshot(saver={})
            return
        open_turns = {call.turn for call in self.kept.calls if not call.done}
        self.kept.calls = [
            call
            for call in self.kept.calls
            if call.kind in {"step", "review"} or call.turn in open_turns
        ]

    # Asking people

    async def _draft(self, path: str, asked: Interrupt) -> InterruptDraft:
        value = _plain(asked.value)
        if isinstance(value, dict) and value.get("type") == "tool_approval":
            return await self._draft_call(path, value, asked.id)
        review = Review.of(value)
        if review is not None and review.tool in self.adapter.names:
            return await self._draft_review(path, review, asked.id)
        return await self._draft_question(path, value, review, asked)

    async def _draft_call(
        self, path: str, value: Mapping[str, Any], interrupt_id: str
    ) -> InterruptDraft:
        call = self._open_call(
            {
                "id": str(value.get("tool_call_id")),
                "name": str(value.get("name")),
                "args": value.get("args", {}),
            }
        )
        call.interrupt, call.place = interrupt_id, path
        await self._tell_call(call)
        return InterruptDraft(call=_named(call), verdicts=VERDICTS)

    async def _draft_review(
        self, path: str, review: Review, interrupt_id: str
    ) -> InterruptDraft:
        call = self._asked("review", review.tool, review.arguments, interrupt_id)
        call.place = path
        call.listed = review.listed
        await self._tell_call(call)
        return InterruptDraft(
            call=_named(call),
            message=review.message,
            verdicts=review.verdicts,
            editable=review.allows("edit"),
            demanded=True,
        )

    async def _draft_question(
        self, path: str, value: Any, review: Review | None, asked: Interrupt
    ) -> InterruptDraft:
        node = path.rpartition("|")[2]
        # A node may be named like a tool, but a policy on that tool is not meant for it.
        name = f"{node} (question)" if node in self.adapter.names else node
        call = self._asked("question", name[:MAX_NAME], value, asked.id)
        call.place = path
        call.listed = review is not None and review.listed
        call.refusable = takes_no_answer(asked.response_schema, review)
        await self._tell_call(call)
        return InterruptDraft(
            call=_named(call),
            kind=InterruptKind.QUESTION,
            reason="input_required",
            message=review.message if review else wording(value),
            response_schema=question_schema(asked.response_schema, review),
            verdicts=question_verdicts(refusable=call.refusable),
            # Only what LangChain's agent inbox says has a place for one.
            takes_note=review is not None,
        )

    def _asked(self, kind: str, tool: str, value: Any, interrupt_id: str) -> Call:
        call = Call(
            kind=kind,
            turn=max(self.kept.turn, 1),
            call_id=f"ask-{interrupt_id}",
            tool=tool,
            arguments=json.dumps(value, ensure_ascii=False),
            held=True,
            interrupt=interrupt_id,
        )
        self.kept.calls.append(call)
        return call

    # Telling the graph

    async def _value(self, call: Call, answer: Answer) -> Any:
        """What the interrupt gives to the node that asked."""
        if call.kind in {"tool", "step"}:
            return dict(APPROVE)
        if call.kind == "question":
            return await self._answer(call, answer)
        return await self._reviewed_value(call, answer)

    async def _answer(self, call: Call, answer: Answer) -> Any:
        if answer.verdict != Verdict.ANSWER:
            return await self._no_answer(call, answer)
        given = answer.answer
        expected = given if isinstance(given, str) else canonical.dumps(given)
        told = await self._confirmed(call)
        if told != expected:
            raise AgentRunError(
                f"The answer to {call.tool} is not the one that was decided.",
                retryable=False,
            )
        return [given] if call.listed else given

    async def _no_answer(self, call: Call, answer: Answer) -> Any:
        """What a question gives that nobody answers: null, or what the agent inbox says."""
        if not call.refusable or answer.verdict not in REFUSALS:
            raise AgentRunError(
                f"The question of {call.tool} was not answered, and the graph cannot go "
                f"on without an answer. {answer.text}".strip(),
                retryable=False,
            )
        told = await self._confirmed(call)
        if Review.of(json.loads(call.arguments)) is None:
            return None
        value = {"type": "ignore", "args": told}
        return [value] if call.listed else value

    async def _reviewed_value(self, call: Call, answer: Answer) -> Any:
        """In the shape of LangChain's agent inbox, which such nodes were written for."""
        value: dict[str, Any]
        if answer.verdict == Verdict.APPROVE:
            proposed = json.loads(call.arguments)
            arguments = answer.arguments if answer.arguments is not None else proposed
            call.effective = canonical.dumps(arguments)
            edited = arguments != proposed
            value = {
                "type": "edit" if edited else "accept",
                "args": {"action": call.tool, "args": arguments},
            }
        elif answer.verdict == Verdict.RESPOND:
            value = {"type": "response", "args": await self._confirmed(call)}
        else:
            value = {"type": "ignore", "args": await self._confirmed(call)}
        return [value] if call.listed else value

    async def _confirmed(self, call: Call) -> str:
        """What the host says to a call that is not to run."""

        async def body(arguments: Mapping[str, Any]) -> str:
            given = ANSWER.get()
            return given if isinstance(given, str) else canonical.dumps(given)

        self.guarded.add(call.key)
        told = await self.host.guard(_named(call), body)
        if not call.done:
            call.done = True
            await self.host.emit(
                ToolCallResult(call_id=call.call_id, content=told.result)
            )
        # The node gets its value as it was given: there is no place beside it.
        return told.result

    # What the host is told

    async def tell(self, happening: Happening) -> None:
        self.last_text = (
            happening.message_id if isinstance(happening, TextDelta) else ""
        )
        try:
            await self._on_loop(self.host.emit(happening))
        except Exception as error:  # noqa: BLE001 (whatever it is, it passes unchanged)
            self.halt(error)

    async def _on_loop[T](self, work: Coroutine[Any, Any, T]) -> T:
        """A plain node runs on a thread, and its models call back on loops of their own."""
        if asyncio.get_running_loop() is self._loop:
            return await work
        return await asyncio.wrap_future(
            asyncio.run_coroutine_threadsafe(work, self._loop)
        )

    def _check_going(self) -> None:
        if self.stopped_by is not None:
            raise Halt from self.stopped_by

    async def _tell_call(self, call: Call, message_id: str = "") -> None:
        if not call.told:
            call.told = True
            proposed = ToolCallProposed(call=_named(call), message_id=message_id)
            await self.tell(proposed)

    # Model turns

    def begin_turn(self) -> int:
        """Number of the turn that begins. Stops a model that finds no end."""
        self._check_going()
        for taken, most in (
            (self._turns, MAX_TURNS_PER_ADVANCE),
            (self.kept.turn, MAX_TURNS_PER_RUN),
        ):
            if taken >= most:
                self.halt(too_many_turns(most))
        self._turns += 1
        self.kept.turn += 1
        return self.kept.turn

    async def propose(self, message: Any) -> None:
        """Tell of the finished turn's calls, before any of them is guarded or held.

        The message is made storable on the way: every call gets an id of its own and
        arguments that are an object, and what was unreadable is kept as it was written.
        """
        if not isinstance(message, AIMessage):
            return
        turn = self.happenings.answered.pop(message.id or "", None)
        turn = turn or Turn(number=max(self.kept.turn, 1), silent=False)
        pieces = turn.pieces.calls if turn.streamed else _pieces(message)
        if turn.streamed and _was_cut_off(message):
            raise cut_off(self.adapter.model_label)
        message.id = turn.message_id
        message.tool_calls, message.invalid_tool_calls = [], []
        message.additional_kwargs.pop("tool_calls", None)
        calls = [self._proposed(turn, piece) for piece in pieces]
        message.tool_calls = [
            LangChainCall(
                name=call.tool,
                args=_readable(call.arguments),
                id=call.reference,
                type="tool_call",
            )
            for call in calls
        ]
        for call in calls:
            await self._tell_call(call, turn.message_id)

    def _proposed(self, turn: Turn, piece: Piece) -> Call:
        tool = named(piece.name)
        taken = {call.reference for call in self.kept.calls if not call.done}
        minted = f"call_{uuid4().hex[:24]}"
        known = piece.call_id and piece.call_id not in taken
        call = Call(
            kind="tool",
            turn=turn.number,
            call_id=f"call-{uuid4().hex}",
            tool=tool,
            arguments=piece.arguments if piece.arguments.strip() else "{}",
            reference=piece.call_id if known else minted,
            held=tool in self.names and self.adapter.gating.holds(tool),
        )
        self.kept.calls.append(call)
        return call

    # Bodies

    def is_held(self, proposed: Mapping[str, Any]) -> bool:
        call = self._open_call(proposed)
        return call.held and call.tool not in self.brought

    def offered(self, own: Sequence[Any]) -> list[Any]:
        """The tools of an agent with those of the page."""
        kept = [t for t in own if getattr(t, "name", "") not in self.brought]
        return [*kept, *self.brought.values()]

    def _open_call(self, proposed: Mapping[str, Any]) -> Call:
        """The call behind a call of the framework's: the open one of that id, or one of
        this turn that is done and comes by again. A new one for a call that some node
        made without the agent's model."""
        reference, name = str(proposed["id"]), str(proposed["name"])
        arguments = json.dumps(proposed["args"], ensure_ascii=False, default=str)
        known = [call for call in self.kept.calls if call.reference == reference]
        for call in known:
            if not call.done:
                return call
        for call in known:
            same = call.tool == name and _readable(call.arguments) == proposed["args"]
            if same and call.turn == self.kept.turn:
                return call
        piece = Piece(call_id=reference, name=name, arguments=arguments)
        return self._proposed(Turn(number=max(self.kept.turn, 1), silent=False), piece)

    async def run_tool(
        self,
        request: ToolCallRequest,
        execute: Callable[[ToolCallRequest], Awaitable[ToolMessage | Command[Any]]],
    ) -> ToolMessage:
        call = self._open_call(request.tool_call)
        await self._tell_call(call)
        tool = request.tool
        if call.tool in self.brought:
            # The framework's own hold knows only the tools a graph was built with.
            interrupt(_held_call(call, request.tool_call["args"]))
            text = (await self._guard(call, at_page)).text
        elif tool is None or call.tool not in self.names:
            text = not_there(call.tool)
            await self._finish(call, text)
        else:

            async def body(arguments: Mapping[str, Any]) -> str:
                check_arguments(tool, arguments)
                changed: LangChainCall = {**request.tool_call, "args": dict(arguments)}
                return told_by(await execute(request.override(tool_call=changed)))

            text = (await self._guard(call, body)).text
        return ToolMessage(content=text, name=call.tool, tool_call_id=call.reference)

    async def step(
        self, tool: str, arguments: Mapping[str, Any], body: Body, key: str
    ) -> str:
        if tool not in self.adapter.names:
            raise AgentRunError(
                f"The graph called {tool}, which the agent does not name among its steps.",
                retryable=False,
            )
        text = canonical.dumps(dict(arguments))
        call = self._reviewed(tool, text) or self._step(tool, text, key)
        await self._tell_call(call)
        if call.kind == "step" and call.held:
            interrupt(_held_call(call, arguments))
        return (await self._guard(call, body)).text

    def _reviewed(self, tool: str, arguments: str) -> Call | None:
        """The call a node had reviewed, by the arguments it showed or was told."""
        found = [
            call
            for call in self.kept.calls
            if call.kind == "review"
            and call.tool == tool
            and arguments
            in {canonical.dumps(json.loads(call.arguments)), call.effective}
        ]
        return next(
            (call for call in found if not call.done), found[-1] if found else None
        )

    def _step(self, tool: str, arguments: str, key: str) -> Call:
        """The step under its key, which is the same in every process and every attempt."""
        place = [key] if key else [*self._place(), arguments]
        digest = hashlib.sha256("\0".join([tool, *place]).encode()).hexdigest()
        call_id = f"step-{digest[:32]}"
        for call in self.kept.calls:
            if call.call_id == call_id:
                return call
        call = Call(
            kind="step",
            turn=1,
            call_id=call_id,
            tool=tool,
            arguments=arguments,
            reference=call_id,
            held=self.adapter.gating.holds(tool),
        )
        self.kept.calls.append(call)
        return call

    def _place(self) -> list[str]:
        """Which node this is, and the how manieth time it is come to."""
        task = str(get_config()["configurable"].get("checkpoint_ns", ""))
        path = "|".join(part.partition(":")[0] for part in task.split("|"))
        visits = self.kept.places.setdefault(path, [])
        if task not in visits:
            visits.append(task)
        return [path, str(visits.index(task))]

    async def _guard(self, call: Call, body: Body) -> Told:
        """Ask the host, in the order of the calls. A body may call others: those do not
        wait for it."""
        async with contextlib.AsyncExitStack() as stack:
            if not _inside.get():
                await stack.enter_async_context(self._order)
                token = _inside.set(True)
                stack.callback(_inside.reset, token)
            self._check_going()
            return await self._ask(call, body)

    async def _ask(self, call: Call, body: Body) -> Told:
        bubbles: list[GraphBubbleUp] = []

        async def entered(arguments: Mapping[str, Any]) -> Any:
            with self.serving(call.call_id):
                try:
                    return await body(arguments)
                except GraphBubbleUp as bubble:
                    # A question or a stop inside the body. It will be entered again.
                    bubbles.append(bubble)
                    raise Paused from bubble

        self.guarded.add(call.key)
        try:
            told = await self.host.guard(_named(call), entered)
        except Paused:
            raise bubbles[0] from None
        except Exception as error:  # noqa: BLE001 (whatever it is, it passes unchanged)
            self.halt(error)
        await self._finish(call, told.result)
        return told

    async def _finish(self, call: Call, text: str) -> None:
        if not call.done:
            call.done = True
            await self.tell(ToolCallResult(call_id=call.call_id, content=text))


def _held_call(call: Call, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """What the framework's own hold on a call gives to ``interrupt``."""
    return {
        "type": "tool_approval",
        "tool_call_id": call.reference,
        "name": call.tool,
        "args": dict(arguments),
    }


def _no_model(script: Any) -> NoReturn:
    raise LookupError("There is no model outside an advance.")


def _named(call: Call) -> ToolCall:
    return ToolCall(
        turn=call.turn,
        call_id=call.call_id,
        tool=call.tool,
        arguments=call.arguments,
        framework_ref=call.reference if call.reference != call.call_id else "",
    )


# What the framework holds


def _saver(content: dict[str, Any]) -> StateSaver:
    try:
        return StateSaver.load(content)
    except Unreadable as error:
        raise damaged() from error


def _interrupts(
    state: StateSnapshot, above: Sequence[str] = ()
) -> Iterator[tuple[str, Interrupt]]:
    """Open interrupts, each with the path of nodes down to the one that asks."""
    for task in state.tasks:
        path = [*above, task.name]
        inner = task.state
        found = (
            list(_interrupts(inner, path)) if isinstance(inner, StateSnapshot) else []
        )
        yield from found or [("|".join(path), each) for each in task.interrupts]


def _plain(value: Any) -> Any:
    """A payload as JSON. Raises AgentRunError."""
    try:
        return to_jsonable_python(value, bytes_mode="base64")
    except PydanticSerializationError as error:
        raise AgentRunError(
            "The graph asked with a value that JSON cannot hold.", retryable=False
        ) from error


def _after_abandoned(state: StateSnapshot, given: Any) -> Any:
    """The input of a new run, after an earlier one that ended while calls were open.

    Their results are put where providers want them, right behind the calls.
    """
    history = state.values.get("messages") if isinstance(state.values, dict) else None
    if not isinstance(history, list) or not isinstance(given, dict):
        return given
    if "messages" not in given:
        return given
    # Ids may be used again in a later turn, so results belong to the calls before them.
    turns: list[tuple[BaseMessage, dict[str, ToolMessage]]] = []
    for message in [*history, *_unapplied(state)]:
        if isinstance(message, ToolMessage):
            if turns:
                turns[-1][1][message.tool_call_id] = message
        else:
            turns.append((message, {}))
    closed: list[BaseMessage] = []
    for message, results in turns:
        closed.append(message)
        for call in getattr(message, "tool_calls", ()):
            missing = ToolMessage(ABANDONED, tool_call_id=call["id"])
            closed.append(results.get(call["id"], missing))
    clear = RemoveMessage(id=REMOVE_ALL_MESSAGES)
    return {**given, "messages": [clear, *closed, *given["messages"]]}


def _unapplied(state: StateSnapshot) -> Iterator[ToolMessage]:
    """Results of calls that were done while their siblings still waited."""
    for task in state.tasks:
        given = task.result.get("messages") if isinstance(task.result, dict) else None
        for message in given if isinstance(given, list) else ():
            if isinstance(message, ToolMessage):
                yield message


# What models write


def _pieces(message: AIMessage) -> list[Piece]:
    """Calls of a model that did not stream."""
    return [
        *(
            Piece(
                call_id=call["id"] or "",
                name=call["name"],
                arguments=json.dumps(call["args"], ensure_ascii=False),
            )
            for call in message.tool_calls
        ),
        *(
            Piece(
                call_id=call["id"] or "",
                name=call["name"] or "",
                arguments=call["args"] or "",
            )
            for call in message.invalid_tool_calls
        ),
    ]


def _was_cut_off(message: AIMessage) -> bool:
    """Whether a stream merely ended: its provider says other things, but not why it
    stopped. LangChain takes that for a whole answer, and repairs the arguments."""
    said = message.response_metadata
    reasons = {"finish_reason", "stop_reason", "done_reason", "stopReason", "status"}
    return bool(said) and reasons.isdisjoint(said)


def _readable(arguments: str) -> dict[str, Any]:
    """Arguments as the history keeps them; the guard goes by the text."""
    try:
        loaded = canonical.loads(arguments)
        canonical.dumps(loaded)
    except InvalidArguments:
        loaded = None
    if not isinstance(loaded, dict):
        shown = arguments.encode("utf-8", "backslashreplace").decode()
        return {"unreadable": shown}
    kept: dict[str, Any] = _small(loaded)
    return kept


def _small(value: Any) -> Any:
    """Integers that msgpack cannot hold as text."""
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return str(value)
    if isinstance(value, dict):
        return {key: _small(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_small(item) for item in value]
    return value
