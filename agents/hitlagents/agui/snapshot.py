"""A conversation as AG-UI messages, and where a stream goes on from it. Reads only.

Messages keep their ids for ever, and have the ones they were streamed with, so that a
page which has seen the stream finds its own messages in the snapshot.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any
from uuid import UUID

from approvals import canonical, services
from approvals.exceptions import InvalidArguments
from approvals.hiding import Hiding
from approvals.models import Decision, Interrupt, Run, Tool
from approvals.states import InterruptKind, RunStatus
from hitlagents import events
from hitlagents.models import RunInput, Thread

#: Runs of a thread that a snapshot holds, counted from the newest.
MOST_RUNS = 100

type Message = dict[str, Any]
type Secrets = Mapping[str, Hiding]


@dataclass(frozen=True, kw_only=True)
class History:
    """A thread at one moment."""

    messages: list[Message]
    #: The run it ends with (the one that is marked, else the newest), and what that
    #: waits for: requests, and calls that the page answers, by their ids.
    run: Run | None = None
    waiting: Sequence[Interrupt] = ()
    at_page: Sequence[str] = ()
    #: Messages that wait for the run to end.
    queued: int = 0
    #: The last event of that run that the messages tell, and its attempt.
    seq: int = 0
    attempt: int = 0
    #: Calls without a result so far.
    open_calls: frozenset[str] = frozenset()
    #: Those of them that the page has answered: the messages have their results already.
    answered: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True)
class Mark:
    """A place in a thread: a run, and the last of its attempts that had been saved."""

    run: UUID
    attempt: int = 0


def history(thread: Thread, *, whole: bool, mark: Mark | None = None) -> History:
    """The thread as it is now.

    Without ``whole``, what was told behind the mark is left out (without one, what a run
    under way has told since its state was saved): a stream tells it from there on.
    """
    newest = thread.inputs.order_by("-run__created", "-run_id").select_related("run")
    inputs = list(newest.prefetch_related("run__events")[:MOST_RUNS])[::-1]
    if mark is None and inputs and not whole:
        mark = _saved(inputs[-1].run)
    story = _Story(secrets_of(thread.agent), _answers_of_pages(inputs))
    reached = False
    told = _Told()
    for given in inputs:
        at_mark = mark is not None and given.run_id == mark.run
        if not reached:
            story.tell(given, upto=mark.attempt if mark and at_mark else None)
            told = _Told(
                given.run,
                story.seq,
                story.told_attempt,
                frozenset(story.calls),
                frozenset(story.answered),
            )
        else:
            story.tell(given, upto=0)
        reached = reached or at_mark
    waiting = _waiting(told.run)
    queued = list(thread.queued.all())
    for message in queued:
        story.messages.append(
            _user(message.message_id or f"queued-{message.pk}", message.text)
        )
    return History(
        messages=[message for message in story.messages if _says_something(message)],
        run=told.run,
        waiting=[each for each in waiting if each.kind != InterruptKind.CLIENT],
        at_page=[each.call_id for each in waiting if each.kind == InterruptKind.CLIENT],
        queued=len(queued),
        seq=told.seq,
        attempt=told.attempt,
        open_calls=told.calls,
        answered=told.answered,
    )


@dataclass(frozen=True)
class _Told:
    """Where a story stood behind one run."""

    run: Run | None = None
    seq: int = 0
    attempt: int = 0
    calls: frozenset[str] = frozenset()
    answered: frozenset[str] = frozenset()


def _saved(run: Run) -> Mark | None:
    under_way = run.status in (RunStatus.QUEUED, RunStatus.RUNNING)
    return Mark(run=run.pk, attempt=run.saved_attempt) if under_way else None


def _answers_of_pages(inputs: Iterable[RunInput]) -> dict[tuple[UUID, str], str]:
    """What became of the calls that pages answer, where any were brought."""
    runs = [given.run_id for given in inputs if given.client_tools]
    if not runs:
        return {}
    decided = Decision.objects.filter(
        interrupt__kind=InterruptKind.CLIENT, interrupt__run__in=runs, undone_at=None
    )
    return {
        (each.interrupt.run_id, each.interrupt.call_id): services.told_instead(each)
        for each in decided.select_related("interrupt")
    }


def _waiting(run: Run | None) -> list[Interrupt]:
    if run is None or run.status != RunStatus.WAITING:
        return []
    waiting = list(run.interrupts.open())
    for interrupt in waiting:
        interrupt.run = run
    return waiting


def secrets_of(agent: str) -> Secrets:
    """What of the arguments of each tool is shown to nobody. A tool of the page is none of
    these: it runs there and needs all of them."""
    return {tool.name: tool.hiding for tool in Tool.objects.filter(agent=agent)}


def without_secrets(arguments: str, hiding: Hiding | None) -> str:
    """Arguments of a call with what is secret replaced."""
    if hiding is None:
        return arguments
    try:
        given = canonical.loads(arguments or "{}")
    except InvalidArguments:
        return json.dumps({"hidden": "These arguments could not be read."})
    if not hiding.found(given):
        return arguments
    return json.dumps(hiding.masked(given), ensure_ascii=False)


@dataclass
class _Story:
    """Messages as they come together, run by run."""

    secrets: Secrets
    #: What pages answered, by run and call.
    answers: Mapping[tuple[UUID, str], str]
    messages: list[Message] = field(default_factory=list)
    #: Calls of the last run that no event gives a result of.
    calls: dict[str, str] = field(default_factory=dict)
    #: Those of them whose result is told all the same.
    answered: set[str] = field(default_factory=set)
    results: dict[str, Message] = field(default_factory=dict)
    #: The last event that was told of the last run.
    seq: int = 0
    told_attempt: int = 0

    def tell(self, given: RunInput, *, upto: int | None) -> None:
        """A run, all of it or only the attempts up to that one."""
        run = given.run
        self.seq = self.told_attempt = 0
        self.calls.clear()
        self.answered.clear()
        self.results.clear()
        self.messages.append(_user(given.message_id or f"user-{run.pk}", given.message))
        told = events.shown(run)
        if upto is not None:
            told = [each for each in told if each[0].attempt <= upto]
        for event, _members in told:
            self.seq, self.told_attempt = event.seq, event.attempt
        for _attempt, events_of in groupby(told, key=lambda each: each[0].attempt):
            self._read((event.type, members) for event, members in events_of)
            self._add_answers(run)
        if upto is None and run.ended:
            left = [call for call in self.calls if call not in self.answered]
            for result in _never_answered(run, left):
                self._answer(result)
            self.calls.clear()

    def _add_answers(self, run: Run) -> None:
        """What a page answered stands there at once, behind the attempt that asked. The
        agent may get it much later, with what else it waits for, and pages offer a call
        without a result again."""
        for call_id in self.calls:
            text = self.answers.get((run.pk, call_id))
            if text is not None and call_id not in self.answered:
                self.answered.add(call_id)
                self._put(f"{call_id}-result", call_id, text)

    def _read(self, told: Iterable[tuple[str, dict[str, Any]]]) -> None:
        texts: dict[str, Message] = {}
        again: set[str] = set()
        for type, members in told:
            call_id = str(members.get("toolCallId", ""))
            id = str(members.get("messageId", ""))
            match type:
                case "TEXT_MESSAGE_START":
                    self._assistant(texts, id).setdefault("content", "")
                case "TEXT_MESSAGE_CONTENT" if id in texts:
                    texts[id]["content"] += members["delta"]
                case "TOOL_CALL_START" if call_id in self.calls:
                    again.add(call_id)  # Named again at the next pause.
                case "TOOL_CALL_START":
                    tool = str(members["toolCallName"])
                    parent = str(members.get("parentMessageId") or call_id)
                    self.calls[call_id] = tool
                    again.discard(call_id)
                    self._assistant(texts, parent).setdefault("toolCalls", []).append(
                        {
                            "id": call_id,
                            "type": "function",
                            "function": {"name": tool, "arguments": ""},
                        }
                    )
                case "TOOL_CALL_ARGS" if call_id not in again:
                    self._fill(call_id, members["delta"])
                case "TOOL_CALL_RESULT":
                    self.calls.pop(call_id, None)
                    self._put(id, call_id, members["content"])

    def _assistant(self, texts: dict[str, Message], id: str) -> Message:
        if id not in texts:
            texts[id] = {"id": id, "role": "assistant"}
            self.messages.append(texts[id])
        return texts[id]

    def _put(self, id: str, call_id: str, content: str) -> None:
        """A result, or what it says instead of before."""
        if id in self.results:
            self.results[id]["content"] = content
            return
        self.results[id] = _result(id, call_id, content)
        self._answer(self.results[id])

    def _answer(self, result: Message) -> None:
        """Put a result where clients put it: behind its call and what was answered there
        before. They keep the places of what they know, whatever a snapshot says."""
        place = len(self.messages)
        for before in range(place - 1, -1, -1):
            calls = self.messages[before].get("toolCalls", ())
            if any(call["id"] == result["toolCallId"] for call in calls):
                place = before + 1
                break
        while place < len(self.messages) and self.messages[place]["role"] == "tool":
            place += 1
        self.messages.insert(place, result)

    def _fill(self, call_id: str, arguments: str) -> None:
        for message in reversed(self.messages):
            for call in message.get("toolCalls", ()):
                if call["id"] == call_id:
                    hidden = self.secrets.get(call["function"]["name"])
                    call["function"]["arguments"] = without_secrets(arguments, hidden)
                    return


def _user(id: str, text: str) -> Message:
    return {"id": id, "role": "user", "content": text}


def _result(id: str, call_id: str, content: str) -> Message:
    return {"id": id, "role": "tool", "toolCallId": call_id, "content": content}


def _never_answered(run: Run, calls: Iterable[str]) -> Iterator[Message]:
    """Pages show a call without a result as one that runs."""
    told = (
        "Not executed: the run was cancelled."
        if run.status == RunStatus.CANCELLED
        else "There is no result: the run ended before."
    )
    for call_id in calls:
        yield _result(f"{call_id}-result", call_id, told)


def _says_something(message: Message) -> bool:
    return bool(message.get("content") or message.get("toolCalls")) or (
        message["role"] != "assistant"
    )
