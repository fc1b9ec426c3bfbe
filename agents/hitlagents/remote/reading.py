"""Reads the events of one answer: what happened, what was said, and how it ended."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from approvals.schemas import ToolCall
from hitlagents.adapters.base import (
    Happening,
    TextDelta,
    ToolCallProposed,
    ToolCallResult,
)
from hitlagents.remote.client import Event, Lost
from hitlagents.remote.interrupts import LIFTED, MAX_NAME, StreamedCall, own_id

type Message = dict[str, Any]

#: Of AG-UI, and nothing here is made of them.
_SKIPPED = ("STATE_", "STEP_", "ACTIVITY_", "REASONING_", "THINKING_", "META_")


@dataclass(frozen=True, kw_only=True)
class Ending:
    """The event that ended the run there."""

    interrupts: Sequence[Mapping[str, Any]] = ()
    #: What RUN_ERROR said; None after RUN_FINISHED.
    error: str | None = None
    code: str = ""


@dataclass
class _Call:
    """A call as its events come in."""

    remote_id: str
    tool: str
    parent: str
    arguments: str = ""


@dataclass
class _Text:
    number: int
    text: str = ""
    role: str = "assistant"
    #: It has its place among the messages.
    kept: bool = False


@dataclass(kw_only=True)
class Reader:
    """``messages``: what was sent, and in the end what the conversation is. ``known``:
    calls of earlier answers that may get their results now, by the remote's ids.
    ``phantoms``: tools whose calls are none."""

    turn: int
    messages: list[Message]
    #: Begins the ids of messages here.
    label: str
    known: Mapping[str, str] = field(default_factory=dict)
    phantoms: frozenset[str] = frozenset()
    #: Events that mean nothing here, or lack what theirs must have.
    dropped: int = 0
    protocol_version: str = ""
    ending: Ending | None = None
    #: Calls that got their result, by our ids.
    results: set[str] = field(default_factory=set)
    #: The calls of this answer that are complete, by the remote's ids.
    calls: dict[str, StreamedCall] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._begun = False
        self._texts: dict[str, _Text] = {}
        self._open_calls: dict[str, _Call] = {}
        self._chunk = ""
        self._text_chunk = ""
        self._asked: list[Mapping[str, Any]] = []
        #: Calls of this answer that began with the same id there.
        self._named = Counter[str]()
        self._sent_ids = set(map(_message_id, self.messages))
        self._index()
        self._told = _said_since_user(self.messages)

    def take(self, event: Event) -> Iterator[Happening]:
        """What an event means for the page. Raises Lost when it breaks the protocol."""
        kind = event["type"]
        if not self._begun and kind not in {"RUN_STARTED", "RUN_ERROR"}:
            raise Lost(f"The agent's answer begins with {kind[:40]}, not RUN_STARTED.")
        self._begun = True
        if kind != "TOOL_CALL_CHUNK" and self._chunk:
            yield from self._end_call(self._chunk)
            self._chunk = ""
        yield from self._taken(kind, event)

    def check_ended(self) -> None:
        """Raises Lost when the answer has no end."""
        if self.ending is None:
            what = "broke off" if self._begun else "is empty"
            raise Lost(f"The agent's answer {what}: nothing says how its run ended.")

    # Events

    def _taken(self, kind: str, event: Event) -> Iterator[Happening]:
        match kind:
            case "RUN_STARTED":
                self.protocol_version = _text(event.get("protocolVersion"))[:20]
            case "TEXT_MESSAGE_CONTENT":
                yield from self._say(event)
            case "TEXT_MESSAGE_START":
                self._begin_text(event)
            case "TEXT_MESSAGE_CHUNK":
                self._text_chunk = _text(event.get("messageId")) or self._text_chunk
                yield from self._say({**event, "messageId": self._text_chunk})
            case "TEXT_MESSAGE_END":
                self._keep_text(_text(event.get("messageId")))
            case "TOOL_CALL_START":
                self._begin_call(event)
            case "TOOL_CALL_ARGS":
                self._add_arguments(event)
            case "TOOL_CALL_END":
                yield from self._end_call(_text(event.get("toolCallId")))
            case "TOOL_CALL_CHUNK":
                yield from self._take_chunk(event)
            case "TOOL_CALL_RESULT":
                yield from self._take_result(event)
            case "MESSAGES_SNAPSHOT":
                self._take_snapshot(event.get("messages"))
            case "CUSTOM":
                self._take_custom(event)
            case "RUN_FINISHED":
                yield from self._finish(event)
            case "RUN_ERROR":
                self.ending = Ending(
                    error=_text(event.get("message")) or "It gave no reason.",
                    code=_text(event.get("code"))[:100],
                )
            case _ if not kind.startswith(_SKIPPED) and kind != "RAW":
                self.dropped += 1

    def _begin_text(self, event: Event) -> None:
        text = self._text_of(_text(event.get("messageId")))
        text.role = _text(event.get("role")) or "assistant"

    def _text_of(self, remote_id: str) -> _Text:
        return self._texts.setdefault(remote_id, _Text(len(self._texts) + 1))

    def _say(self, event: Event) -> Iterator[Happening]:
        delta = _text(event.get("delta"))
        text = self._text_of(_text(event.get("messageId")))
        if delta and text.role == "assistant":
            text.text += delta
            yield TextDelta(message_id=f"{self.label}-{text.number}", delta=delta)

    def _keep_text(self, remote_id: str) -> None:
        text = self._texts.get(remote_id)
        if text is not None and text.text and not text.kept:
            text.kept = True
            own = f"{self.label}-{text.number}"
            self._put(
                {"id": remote_id or own, "role": "assistant", "content": text.text}
            )

    def _begin_call(self, event: Event) -> None:
        remote_id = _text(event.get("toolCallId"))
        tool = _text(event.get("toolCallName"))[:MAX_NAME]
        if not remote_id or not tool or remote_id in self._open_calls:
            self.dropped += 1
            return
        parent = _text(event.get("parentMessageId"))
        self._open_calls[remote_id] = _Call(remote_id, tool, parent)

    def _add_arguments(self, event: Event) -> None:
        call = self._open_calls.get(_text(event.get("toolCallId")))
        if call is None:
            self.dropped += 1
        else:
            call.arguments += _text(event.get("delta"))

    def _take_chunk(self, event: Event) -> Iterator[Happening]:
        remote_id = _text(event.get("toolCallId")) or self._chunk
        if self._chunk and remote_id != self._chunk:
            yield from self._end_call(self._chunk)
        if remote_id not in self._open_calls:
            self._begin_call({**event, "toolCallId": remote_id})
        self._chunk = remote_id
        self._add_arguments({**event, "toolCallId": remote_id})

    def _end_call(self, remote_id: str) -> Iterator[Happening]:
        call = self._open_calls.pop(remote_id, None)
        if call is None:
            # Also where a server only ends, once more, a call of an earlier answer.
            self.dropped += 1
            return
        if call.tool in self.phantoms:
            return
        again = self._named[remote_id]
        name = f"{remote_id}~{again + 1}" if again else remote_id
        self._put_call(call)
        yield self._propose(name, call.tool, call.arguments)

    def _propose(self, name: str, tool: str, arguments: str) -> Happening:
        call = StreamedCall(
            call_id=own_id(self.turn, name), tool=tool, arguments=arguments or "{}"
        )
        if name not in self.calls:
            self._named[name.partition("~")[0]] += 1
        self.calls[name] = call
        return ToolCallProposed(
            call=ToolCall(
                turn=self.turn,
                call_id=call.call_id,
                tool=call.tool,
                arguments=call.arguments,
            )
        )

    def _take_result(self, event: Event) -> Iterator[Happening]:
        remote_id = _text(event.get("toolCallId"))
        content = _content(event.get("content"))
        streamed = self.calls.get(remote_id)
        call_id = streamed.call_id if streamed else self.known.get(remote_id)
        self._put(
            {
                "id": _text(event.get("messageId")) or f"{self.label}-{remote_id}",
                "role": "tool",
                "toolCallId": remote_id,
                "content": content,
            }
        )
        if call_id is None:
            self.dropped += 1
        else:
            yield self._result(call_id, content)

    def _result(self, call_id: str, content: str) -> Happening:
        self.results.add(call_id)
        return ToolCallResult(call_id=call_id, content=content)

    def _take_snapshot(self, messages: Any) -> None:
        if not isinstance(messages, list):
            self.dropped += 1
            return
        self.messages = [
            self._without_phantoms(message)
            for message in messages
            if isinstance(message, dict)
        ]
        self._index()

    def _without_phantoms(self, message: Message) -> Message:
        """Sent back, a call that nobody answers would be told to the model as skipped."""
        if not self.phantoms or not isinstance(message.get("toolCalls"), list):
            return message
        calls = [
            call
            for call in message["toolCalls"]
            if _function(call).get("name") not in self.phantoms
        ]
        return {**message, "toolCalls": calls}

    def _take_custom(self, event: Event) -> None:
        if event.get("name") == "on_interrupt":
            self._asked.append(_custom_interrupt(event, len(self._asked)))

    def _finish(self, event: Event) -> Iterator[Happening]:
        for remote_id in list(self._open_calls):
            yield from self._end_call(remote_id)
        for remote_id in self._texts:
            self._keep_text(remote_id)
        outcome = event.get("outcome") or {"type": "success"}
        kind = outcome.get("type") if isinstance(outcome, Mapping) else None
        if kind == "interrupt":
            listed = outcome.get("interrupts")
            items = listed if isinstance(listed, list) else ()
            found = [each for each in items if isinstance(each, Mapping)]
            if not found:
                raise Lost("The agent stopped to ask, and did not say what.")
            self.ending = Ending(interrupts=found)
        elif kind in ("success", "cancelled"):  # whatever it is, also what has no hash
            self.ending = Ending(interrupts=self._asked)
        else:
            raise Lost("The agent's run ended in a way that is not known here.")
        yield from self._unheard()

    # The conversation

    def _unheard(self) -> Iterator[Happening]:
        """What only the snapshot tells: some servers stream nothing of what a graph does."""
        told = self._told | {text.text for text in self._texts.values()}
        for message in self.messages:
            id = _message_id(message)
            if id in self._sent_ids:
                continue
            content = message.get("content")
            match message.get("role"):
                case "assistant":
                    said = isinstance(content, str) and content and content not in told
                    if said and id not in self._texts:
                        yield self._unheard_text(str(content))
                    yield from self._unheard_calls(message.get("toolCalls"))
                case "tool":
                    yield from self._unheard_result(message)

    def _unheard_text(self, content: str) -> Happening:
        number = len(self._texts) + 1
        self._texts[f"unheard-{number}"] = _Text(number, content)
        return TextDelta(message_id=f"{self.label}-{number}", delta=content)

    def _unheard_calls(self, calls: Any) -> Iterator[Happening]:
        for call in calls if isinstance(calls, list) else []:
            remote_id = _text(call.get("id")) if isinstance(call, Mapping) else ""
            function = _function(call)
            tool = _text(function.get("name"))[:MAX_NAME]
            heard = remote_id in self.calls or remote_id in self.known
            if remote_id and tool and not heard and tool not in self.phantoms:
                arguments = _text(function.get("arguments"))
                yield self._propose(remote_id, tool, arguments)

    def _unheard_result(self, message: Message) -> Iterator[Happening]:
        remote_id = _text(message.get("toolCallId"))
        streamed = self.calls.get(remote_id)
        call_id = streamed.call_id if streamed else self.known.get(remote_id)
        if call_id is not None and call_id not in self.results:
            yield self._result(call_id, _content(message.get("content")))

    def _put(self, message: Message) -> None:
        """Add a message, or put what is said now in place of what it was."""
        place = self._places.get(message["id"])
        if place is None:
            self._append(message)
        else:
            self.messages[place] = {**self.messages[place], **message}

    def _put_call(self, call: _Call) -> None:
        shape = {
            "id": call.remote_id,
            "type": "function",
            "function": {"name": call.tool, "arguments": call.arguments or "{}"},
        }
        parent = call.parent or f"{self.label}-calls"
        place = self._places.get(parent)
        if place is None or self.messages[place].get("role") != "assistant":
            self._append({"id": parent, "role": "assistant", "toolCalls": [shape]})
            return
        calls = self.messages[place].get("toolCalls")
        if isinstance(calls, list):
            calls.append(shape)
        else:
            self.messages[place]["toolCalls"] = [shape]

    def _append(self, message: Message) -> None:
        self._places.setdefault(message["id"], len(self.messages))
        self.messages.append(message)

    def _index(self) -> None:
        """Where each message is, by its id: looking through all of them for each event
        would let an agent with a great many hold up all others for hours."""
        self._places: dict[str, int] = {}
        for place, message in enumerate(self.messages):
            self._places.setdefault(_message_id(message), place)


def _message_id(message: Message) -> str:
    return _text(message.get("id"))


def _said_since_user(messages: Sequence[Message]) -> set[str]:
    said: set[str] = set()
    for message in messages:
        if message.get("role") == "user":
            said.clear()
        elif isinstance(message.get("content"), str):
            said.add(message["content"])
    return said


def _custom_interrupt(event: Event, number: int) -> Mapping[str, Any]:
    """What a server asks by an event of its own, which has no place for an id.

    It may be with the event that the server made this of. Without it any id answers.
    """
    value, source = event.get("value"), event.get("rawEvent")
    remote_id = _text(source.get("id")) if isinstance(source, Mapping) else ""
    if isinstance(value, str):
        with contextlib.suppress(ValueError):
            value = json.loads(value)
    shape: dict[str, Any] = {
        "id": remote_id or f"on-interrupt-{number + 1}",
        "reason": "langgraph:interrupt",
        "metadata": {"langgraph": {"raw": value}},
    }
    if isinstance(value, str):
        return shape | {"message": value}
    if isinstance(value, Mapping):
        for name, other in LIFTED.items():
            found = value.get(name, value.get(other))
            if found is not None:
                shape[name] = found
    return shape


def _function(call: Any) -> Mapping[str, Any]:
    """What a call of a message says of its function."""
    function = call.get("function") if isinstance(call, Mapping) else None
    return function if isinstance(function, Mapping) else {}


def _content(content: Any) -> str:
    """A result as text: some are lists of parts."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        texts = [part.get("text") for part in content if isinstance(part, Mapping)]
        if texts and all(isinstance(text, str) for text in texts):
            return "\n".join(str(text) for text in texts)
    return json.dumps(content, ensure_ascii=False)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
