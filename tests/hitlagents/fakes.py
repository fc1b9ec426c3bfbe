"""Stand-ins for what surrounds an adapter: the host, the model's script, the tools."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

from approvals import canonical
from approvals.exceptions import InvalidArguments
from approvals.schemas import Answer, ClientTool, InterruptDraft, ToolCall
from approvals.states import Verdict
from hitlagents.adapters.base import (
    ANSWER,
    Body,
    Happening,
    Interrupted,
    NoResult,
    Outcome,
    OutcomeLost,
    Paused,
    Resume,
    Start,
    State,
    StopRun,
    TextDelta,
    Told,
    ToolCallProposed,
    ToolCallResult,
)
from hitlagents.demo.scripted import Call, Item, Reply, Result, Said, Script
from hitlagents.toolcall import TOOL_CONTEXT, ToolError

type Key = tuple[int, str]


class FakeHost:
    """A host in memory: the ledger, the decisions and everything it was told, in order."""

    def __init__(self, *, allowed: Iterable[str] = (), run_id: UUID | None = None):
        self.run_id = run_id or uuid4()
        self.allowed = set(allowed)
        self.happenings: list[Happening] = []
        self.guarded: list[ToolCall] = []
        self.entered: list[tuple[str, Mapping[str, Any]]] = []
        self.decisions: dict[Key, Answer] = {}
        self.ledger: dict[Key, str] = {}
        #: Calls whose outcome was lost.
        self.in_doubt: list[Key] = []
        #: Raise this in emit() once a happening of this type comes by.
        self.refuses: tuple[type[Any], Exception] | None = None
        #: Stop the run at the guard of this tool.
        self.stops: dict[str, Exception] = {}

    async def emit(self, happening: Happening) -> None:
        if self.refuses and isinstance(happening, self.refuses[0]):
            raise self.refuses[1]
        self.happenings.append(happening)

    async def guard(self, call: ToolCall, body: Body) -> Told:
        self.guarded.append(call)
        if call.tool in self.stops:
            raise self.stops[call.tool]
        key = (call.turn, call.call_id)
        if key not in self.ledger:
            try:
                self.ledger[key] = await asyncio.create_task(self._decide(call, body))
            except OutcomeLost as lost:
                self.in_doubt.append(key)
                raise StopRun(str(lost)) from lost
        decision = self.decisions.get(key)
        approved = decision is not None and decision.verdict == Verdict.APPROVE
        note = decision.text if decision is not None and approved else ""
        return Told(result=self.ledger[key], note=note)

    async def _decide(self, call: ToolCall, body: Body) -> str:
        decision = self.decisions.get((call.turn, call.call_id))
        if decision is None and call.tool not in self.allowed:
            raise StopRun(f"No decision allows {call.tool}.")
        try:
            arguments = canonical.loads(call.arguments)
        except InvalidArguments as error:
            return f"Not executed: {error}"
        if decision is not None:
            if decision.call.arguments != call.arguments:
                raise StopRun("Other arguments than were shown.")
            if decision.verdict == Verdict.RESPOND:
                return str(decision.output)
            if decision.verdict == Verdict.ANSWER:
                given = decision.answer
                return given if isinstance(given, str) else canonical.dumps(given)
            if decision.verdict in {Verdict.DENY, Verdict.CANCEL_CALL}:
                return decision.text
            ANSWER.set(decision.answer)
            arguments = decision.arguments or arguments
        self.entered.append((call.tool, arguments))
        try:
            return str(await body(arguments))
        except (Paused, OutcomeLost):
            raise
        except ToolError as error:
            return f"Error: {error}"
        except NoResult as why:
            return str(why)
        except Exception as error:  # noqa: BLE001 (as the real host does)
            return f"Error: {call.tool} failed. {type(error).__name__}: {error}"

    # What was told

    @property
    def text(self) -> str:
        return "".join(h.delta for h in self.happenings if isinstance(h, TextDelta))

    @property
    def proposed(self) -> list[ToolCall]:
        return [h.call for h in self.happenings if isinstance(h, ToolCallProposed)]

    @property
    def results(self) -> dict[str, str]:
        """Results by call id; a second one for a call is an error."""
        found: dict[str, str] = {}
        for happening in self.happenings:
            if isinstance(happening, ToolCallResult):
                assert happening.call_id not in found
                found[happening.call_id] = happening.content
        return found

    def kinds(self) -> str:
        """The order of happenings, deltas of one message as one: ``text call result``."""
        names = {TextDelta: "text", ToolCallProposed: "call", ToolCallResult: "result"}
        found: list[str] = []
        for happening in self.happenings:
            name = names[type(happening)]
            if name != "text" or found[-1:] != ["text"]:
                found.append(name)
        return " ".join(found)

    # Deciding

    def decide(self, draft: InterruptDraft, verdict: Verdict, **how: Any) -> Answer:
        answer = Answer(interrupt_id=uuid4(), call=draft.call, verdict=verdict, **how)
        self.decisions[draft.call.turn, draft.call.call_id] = answer
        return answer


def approve(host: FakeHost, outcome: Outcome) -> list[Answer]:
    assert isinstance(outcome, Interrupted)
    return [host.decide(draft, Verdict.APPROVE) for draft in outcome.interrupts]


def deny(host: FakeHost, draft: InterruptDraft, note: str = "") -> Answer:
    text = f"Not executed: a reviewer denied this call. {note}".strip()
    return host.decide(draft, Verdict.DENY, text=text)


# The model's script


type Turn = Reply | Exception | Script


def plays(*turns: Turn) -> Script:
    """A pure script: turn by turn after each user message, the last one again and again.

    Strict like a real provider: it refuses a history whose calls and results do not match.
    """

    def script(history: Sequence[Item]) -> Reply:
        check_history(history)
        turn = turns[min(_turns_taken(history), len(turns) - 1)]
        if isinstance(turn, Exception):
            raise turn
        return turn if isinstance(turn, Reply) else turn(history)

    return script


def heard(history: Sequence[Item]) -> Reply:
    """Says back the results since the last user message."""
    texts = [item.text for item in _since_user(history) if isinstance(item, Result)]
    return Reply("I heard: " + " | ".join(texts))


def check_history(history: Sequence[Item]) -> None:
    """Every call has exactly one result, right behind the calls of its turn."""
    open_calls: list[str] = []
    for item in history:
        if isinstance(item, Call):
            json.loads(json.dumps(item.arguments))
            open_calls.append(item.call_id)
        elif isinstance(item, Result):
            assert item.call_id in open_calls, f"a result without a call: {item}"
            open_calls.remove(item.call_id)
        else:
            assert not open_calls, f"calls without a result: {open_calls}"
    assert not open_calls, f"calls without a result: {open_calls}"


def _since_user(history: Sequence[Item]) -> Sequence[Item]:
    users = [n for n, item in enumerate(history) if _is_user(item)]
    return history[users[-1] + 1 :] if users else history


def _is_user(item: Item) -> bool:
    return isinstance(item, Said) and item.role == "user"


def _turns_taken(history: Sequence[Item]) -> int:
    since = _since_user(history)
    return sum(
        isinstance(item, Result) and not isinstance(before, Result)
        for before, item in zip([None, *since], since, strict=False)
    )


def call(tool: str, call_id: str = "c1", **arguments: Any) -> Call:
    return Call(call_id, tool, json.dumps(arguments, ensure_ascii=False))


# Tools, as plain functions; each adapter's harness decorates them its framework's way


@dataclass
class Tools:
    """Tools that note their effects. ``gated`` ones are marked so for the framework."""

    effects: list[str] = field(default_factory=list)
    meeting: threading.Barrier = field(default_factory=lambda: threading.Barrier(10))
    gated: frozenset[str] = frozenset({"delete", "transfer", "book", "archive"})

    def functions(self) -> list[Callable[..., Any]]:
        return [
            self.lookup,
            self.where,
            self.broken,
            self.meet,
            self.delete,
            self.transfer,
            self.book,
            self.archive,
        ]

    def lookup(self, name: str) -> str:
        """Look something up."""
        self.effects.append(f"lookup {name}")
        return f"{name} is known"

    def where(self) -> str:
        """Say which thread this is."""
        context = TOOL_CONTEXT.get()
        return f"{context.thread_id} on {threading.current_thread().name}"

    def broken(self, name: str) -> str:
        """Fail."""
        raise RuntimeError(f"no {name} today")

    def meet(self) -> str:
        """Block a thread until ten are here."""
        self.meeting.wait(20)
        return "met"

    def delete(self, filename: str) -> str:
        """Delete a file."""
        self.effects.append(f"delete {filename}")
        return f"Deleted {filename}."

    def transfer(self, amount: int, to: str = "bob") -> str:
        """Send money."""
        self.effects.append(f"transfer {amount} to {to}")
        return f"Sent {amount} to {to}."

    def book(self, day: str) -> str:
        """Book a meeting at the time the reviewer chose."""
        self.effects.append(f"book {day} {ANSWER.get()}")
        return f"Booked {day} {ANSWER.get()}."

    async def archive(self, filename: str) -> str:
        """Archive a file."""
        await asyncio.sleep(0)
        self.effects.append(f"archive {filename}")
        return f"Archived {filename}."


ALL_TOOLS = (
    "lookup",
    "where",
    "broken",
    "meet",
    "delete",
    "transfer",
    "book",
    "archive",
)
FREE = ("lookup", "where", "broken", "meet")


def start(
    host: FakeHost,
    message: str = "go",
    *,
    thread_id: UUID | None = None,
    state: State | None = None,
    client_tools: Sequence[ClientTool] = (),
) -> Start:
    return Start(
        run_id=host.run_id,
        thread_id=thread_id or uuid4(),
        message=message,
        state=through_json(state),
        client_tools=client_tools,
    )


def resume(
    host: FakeHost,
    state: State,
    answers: Sequence[Answer],
    client_tools: Sequence[ClientTool] = (),
) -> Resume:
    stored = through_json(state)
    assert stored is not None
    return Resume(
        run_id=host.run_id,
        thread_id=uuid4(),
        state=stored,
        answers=list(answers),
        client_tools=client_tools,
    )


def through_json[T](value: T) -> T:
    """As it comes back from the database."""
    stored: T = json.loads(json.dumps(value, allow_nan=False))
    assert stored == value
    return stored


async def until(holds: Callable[[], bool], seconds: float = 60) -> None:
    """Let the loop run until it holds. Raises TimeoutError if it never does."""
    async with asyncio.timeout(seconds):
        while not holds():  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0.01)
