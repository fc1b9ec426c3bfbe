"""A conversation as its page shows it, made from stored rows and nothing else.

``transcript`` is a pure function: the same rows give the same entries, whether they are
read while the agent writes, after a reload or a year later. What a page adds on its own
(the newest words, before they are stored) is laid over the last text of a running run.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar, Literal

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from approvals import display
from approvals.cases import Case
from approvals.hiding import BY_LOOKS, Hiding
from approvals.models import Run, ToolExecution
from approvals.states import ExecutionStatus, InterruptStatus, RunStatus, Source
from hitlagents.events import utf16_length
from hitlagents.models import QueuedMessage, RunEvent

type CallState = Literal[
    "proposed",
    "waiting",
    "at_page",
    "allowed",
    "running",
    "ran",
    "failed",
    "elsewhere",
    "answered",
    "not_run",
    "in_doubt",
]

#: How each state of a call is drawn: colour, icon and word; never one of them alone.
CALL_LOOKS: dict[CallState, tuple[str, str, Any]] = {
    "proposed": ("cancelled", "circle-dashed", gettext_lazy("Proposed")),
    "waiting": ("pending", "circle-dot", gettext_lazy("Pending")),
    "at_page": ("pending", "app-window", gettext_lazy("Waits for its page")),
    "allowed": ("claimed", "hourglass", gettext_lazy("Not run yet")),
    "running": ("claimed", "loader-circle", gettext_lazy("Running")),
    "ran": ("approved", "check", gettext_lazy("Ran")),
    "failed": ("denied", "x", gettext_lazy("Failed")),
    "elsewhere": ("answered", "globe", gettext_lazy("Told from there")),
    "answered": ("answered", "corner-down-right", gettext_lazy("Answered")),
    "not_run": ("cancelled", "circle-slash", gettext_lazy("Not run")),
    "in_doubt": ("failed", "triangle-alert", gettext_lazy("Outcome unknown")),
}

EXECUTED: dict[str, CallState] = {
    ExecutionStatus.INFLIGHT: "running",
    ExecutionStatus.DONE: "ran",
    ExecutionStatus.FAILED: "failed",
    ExecutionStatus.IN_DOUBT: "in_doubt",
}

# What goes in


@dataclass(frozen=True, kw_only=True)
class Story:
    """One run of a conversation, and every row that tells of it."""

    run: Run
    message: str
    events: Sequence[tuple[RunEvent, dict[str, Any]]] = ()
    cases: Sequence[Case] = ()
    executions: Sequence[ToolExecution] = ()
    #: What of its arguments is hidden, by tool.
    hiding: Mapping[str, Hiding] = field(default_factory=dict)
    #: Who ended the run, and what they noted.
    cancelled_by: str = ""
    cancel_note: str = ""


# What comes out


@dataclass(frozen=True, kw_only=True)
class UserMessage:
    kind: ClassVar[str] = "user"

    key: str
    text: str
    time: datetime
    #: Kept until the run before it has ended.
    queued: bool = False


@dataclass(frozen=True, kw_only=True)
class AgentText:
    kind: ClassVar[str] = "text"

    key: str
    message_id: str
    text: str
    #: More may come.
    streaming: bool

    @property
    def size(self) -> int:
        """Its length as a browser counts it."""
        return utf16_length(self.text)


@dataclass(frozen=True, kw_only=True)
class Call:
    """A tool call, and the request and the ledger row that belong to it. A call that a page
    answers is no request."""

    kind: ClassVar[str] = "call"

    key: str
    tool: str
    arguments: str
    state: CallState
    result: str = ""
    hiding: Hiding = BY_LOOKS
    case: Case | None = None
    #: It ran with other arguments than the agent proposed.
    edited: bool = False

    @property
    def look(self) -> str:
        return CALL_LOOKS[self.state][0]

    @property
    def icon(self) -> str:
        return CALL_LOOKS[self.state][1]

    @property
    def word(self) -> str:
        return str(CALL_LOOKS[self.state][2])

    @property
    def short(self) -> str:
        """The call in a few words, without the name of its tool."""
        words = display.effect("", self.arguments, hiding=self.hiding)
        return words.strip()

    @property
    def result_word(self) -> str:
        """A result is only called so if the tool gave it."""
        if self.state == "elsewhere":
            return _("The agent there said")
        return (
            _("Result") if self.state in {"ran", "failed"} else _("The agent was told")
        )


@dataclass(frozen=True, kw_only=True)
class AgentMessage:
    """What an agent said and did until it stopped or began to speak anew."""

    kind: ClassVar[str] = "agent"

    key: str
    time: datetime
    parts: Sequence[AgentText | Call]


@dataclass(frozen=True, kw_only=True)
class Notice:
    """How a run stands, where its messages do not say it."""

    kind: ClassVar[str] = "notice"

    key: str
    about: Literal["starting", "working", "failed", "cancelled", "in_doubt"]
    run: Run
    time: datetime
    who: str = ""
    detail: str = ""


type Entry = UserMessage | AgentMessage | Notice


def transcript(
    stories: Iterable[Story], queued: Iterable[QueuedMessage] = ()
) -> list[Entry]:
    """The entries of a conversation, oldest first."""
    entries: list[Entry] = []
    for story in stories:
        entries.extend(_told(story))
    entries.extend(
        UserMessage(
            key=f"queued-{message.pk}",
            text=message.text,
            time=message.created,
            queued=True,
        )
        for message in queued
    )
    return entries


def _told(story: Story) -> Iterator[Entry]:
    run = story.run
    yield UserMessage(key=f"user-{run.pk}", text=story.message, time=run.created)
    messages = _messages(story)
    yield from messages
    notice = _notice(story, messages)
    if notice is not None:
        yield notice


def _notice(story: Story, messages: Sequence[AgentMessage]) -> Notice | None:
    run = story.run
    key = f"notice-{run.pk}"
    match run.status:
        case RunStatus.QUEUED:
            return Notice(key=key, about="starting", run=run, time=run.updated)
        case RunStatus.RUNNING if not _is_speaking(messages):
            return Notice(key=key, about="working", run=run, time=run.updated)
        case RunStatus.FAILED:
            time = run.ended_at or run.updated
            return Notice(key=key, about="failed", run=run, time=time, detail=run.error)
        case RunStatus.CANCELLED:
            return Notice(
                key=key,
                about="cancelled",
                run=run,
                time=run.ended_at or run.updated,
                who=story.cancelled_by,
                detail=story.cancel_note,
            )
        case RunStatus.IN_DOUBT:
            return Notice(key=key, about="in_doubt", run=run, time=run.updated)
    return None


def _is_speaking(messages: Sequence[AgentMessage]) -> bool:
    last = messages[-1].parts[-1] if messages else None
    return isinstance(last, AgentText) and last.streaming


# From events to messages


@dataclass
class _Text:
    """A text as its events come in."""

    time: datetime
    message_id: str
    text: str = ""
    open: bool = True


@dataclass
class _Call:
    """A call as its events come in; ``nth`` counts calls of the same id in a run."""

    time: datetime
    call_id: str
    nth: int
    tool: str = ""
    arguments: str = ""
    result: str | None = None


def _messages(story: Story) -> list[AgentMessage]:
    texts_and_calls = _read(story.events)
    matched = _Rows(story)
    parts: list[tuple[datetime, AgentText | Call]] = []
    for number, found in enumerate(texts_and_calls):
        key = f"{story.run.pk}-{number}"
        if isinstance(found, _Call):
            parts.append((found.time, matched.call(key, found)))
        elif found.text or found.open:
            parts.append((found.time, _text(story.run, key, found)))
    for time, call in matched.rest():
        _insert(parts, time, call)
    return list(_grouped(story.run, parts))


def _read(events: Iterable[tuple[RunEvent, dict[str, Any]]]) -> list[_Text | _Call]:
    """Put the pieces of each text and call together, in the order of their beginnings."""
    found: list[_Text | _Call] = []
    texts: dict[str, _Text] = {}
    calls: dict[str, _Call] = {}
    for event, members in events:
        call_id = str(members.get("toolCallId", ""))
        message_id = str(members.get("messageId", ""))
        match event.type:
            case "TEXT_MESSAGE_START":
                texts[message_id] = _Text(event.created, message_id)
                found.append(texts[message_id])
            case "TEXT_MESSAGE_CONTENT" if message_id in texts:
                texts[message_id].text += str(members.get("delta", ""))
            case "TEXT_MESSAGE_END" if message_id in texts:
                texts[message_id].open = False
            case "TOOL_CALL_START":
                before = calls.get(call_id)
                if before is not None and before.result is None:
                    continue  # Named again at the next pause: still the same call.
                nth = before.nth + 1 if before else 0
                tool = str(members.get("toolCallName", ""))
                calls[call_id] = _Call(event.created, call_id, nth, tool)
                found.append(calls[call_id])
            case "TOOL_CALL_ARGS" if call_id in calls:
                calls[call_id].arguments = str(members.get("delta", ""))
            case "TOOL_CALL_RESULT" if call_id in calls:
                calls[call_id].result = str(members.get("content", ""))
    return found


def _text(run: Run, key: str, found: _Text) -> AgentText:
    return AgentText(
        key=f"text-{key}",
        message_id=found.message_id,
        text=found.text,
        streaming=found.open and run.status == RunStatus.RUNNING,
    )


class _Rows:
    """The requests and ledger rows of a run, taken by the calls they belong to.

    Rows know the turn of their call and events do not, but the same id comes again only
    in a later turn: the n-th call of an id belongs to the n-th turn that has rows of it.
    """

    def __init__(self, story: Story) -> None:
        self._story = story
        self._cases = {
            (case.interrupt.turn, case.interrupt.call_id): case for case in story.cases
        }
        self._executions = {(row.turn, row.call_id): row for row in story.executions}
        self._turns: defaultdict[str, list[int]] = defaultdict(list)
        for turn, call_id in sorted({*self._cases, *self._executions}):
            self._turns[call_id].append(turn)
        self._taken: set[tuple[int, str]] = set()

    def call(self, key: str, found: _Call) -> Call:
        turns = self._turns[found.call_id]
        place = (turns[found.nth] if found.nth < len(turns) else 0, found.call_id)
        self._taken.add(place)
        return self._made(key, place, found)

    def rest(self) -> Iterator[tuple[datetime, Call]]:
        """Rows without events: an attempt that was cut off, or an adapter said nothing."""
        for place in sorted({*self._cases, *self._executions} - self._taken):
            turn, call_id = place
            case, execution = self._cases.get(place), self._executions.get(place)
            time = case.interrupt.created if case else None
            if execution is not None:
                time = min(filter(None, (time, execution.started)))
            assert time is not None
            key = f"{self._story.run.pk}-{turn}-{call_id}"
            yield time, self._made(key, place, _Call(time, call_id, 0))

    def _made(self, key: str, place: tuple[int, str], found: _Call) -> Call:
        case, execution = self._cases.get(place), self._executions.get(place)
        tool, arguments = found.tool, found.arguments
        hiding = self._story.hiding.get(tool, BY_LOOKS)
        if case is not None:
            tool, arguments = case.interrupt.tool, case.interrupt.arguments
            hiding = self._story.hiding.get(tool, case.interrupt.hiding)
            hiding |= case.interrupt.hiding
        proposed = arguments
        if execution is not None:
            tool, arguments = execution.tool, execution.arguments
        result = execution.result if execution is not None else ""
        return Call(
            key=f"call-{key}",
            tool=tool,
            arguments=arguments,
            state=_state(self._story.run, case, execution, found.result),
            result=result or found.result or "",
            hiding=hiding,
            case=None if case is not None and case.is_at_page else case,
            edited=case is not None and arguments != proposed,
        )


def _state(
    run: Run, case: Case | None, execution: ToolExecution | None, result: str | None
) -> CallState:
    """What became of a call. Only the ledger says that it ran; where a tool runs elsewhere
    the ledger knows no more than what was told from there."""
    told = result is not None or (
        execution is not None and execution.status == ExecutionStatus.DONE
    )
    if run.source == Source.REMOTE and told:
        return "elsewhere"
    if execution is not None:
        return EXECUTED[execution.status]
    if case is not None:
        match case.interrupt.status:
            case InterruptStatus.OPEN:
                return "at_page" if case.is_at_page else "waiting"
            case InterruptStatus.APPROVED if not run.ended and result is None:
                return "allowed"
            case InterruptStatus.ANSWERED:
                return "answered"
        return "not_run"
    return "not_run" if run.ended or result is not None else "proposed"


def _insert(
    parts: list[tuple[datetime, AgentText | Call]], time: datetime, call: Call
) -> None:
    at = next((i for i, (other, _part) in enumerate(parts) if other > time), len(parts))
    parts.insert(at, (time, call))


def _grouped(
    run: Run, parts: Sequence[tuple[datetime, AgentText | Call]]
) -> Iterator[AgentMessage]:
    """Calls stand under the words that came before them; new words begin a new message."""
    group: list[AgentText | Call] = []
    began: datetime | None = None
    number = 0
    for time, part in parts:
        if group and isinstance(part, AgentText):
            assert began is not None
            yield AgentMessage(key=f"agent-{run.pk}-{number}", time=began, parts=group)
            group, number = [], number + 1
        if not group:
            began = time
        group.append(part)
    if group:
        assert began is not None
        yield AgentMessage(key=f"agent-{run.pk}-{number}", time=began, parts=group)
