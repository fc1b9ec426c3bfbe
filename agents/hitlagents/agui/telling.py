"""Puts live text and stored events together into one stream, without a gap or a copy.

Text comes twice: at once and live, and a little later in stored events, in larger pieces
and with everything else. Both count what happens in the same numbers. Live text is told
only where it follows what was told before; the stored events fill every gap. Knows
neither a database nor a socket.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from hitlagents import wire
from hitlagents.agui.snapshot import Secrets, without_secrets
from hitlagents.events import utf16_length
from hitlagents.wire import Event

#: Live text that is kept until the events before it are there.
MOST_EARLY = 500


@dataclass(frozen=True, kw_only=True)
class Stored:
    """One stored event."""

    seq: int
    attempt: int
    type: str
    members: dict[str, Any]


class Telling:
    """What has been told of one run, and what comes next.

    ``seq`` and ``attempt``: the last event that the page knows already.
    ``open_calls``: calls it knows that have no result yet. ``answered``: those of them
    whose result it knows all the same.
    """

    def __init__(
        self,
        *,
        seq: int = 0,
        attempt: int = 0,
        open_calls: Collection[str] = (),
        answered: Collection[str] = (),
    ) -> None:
        #: Told up to here, and read from storage up to here.
        self.seq = self.read = seq
        #: An attempt was cut off: what was told of it does not count.
        self.cut_off = False
        self._attempt = attempt
        self._ended = True
        self._open_calls = set(open_calls)
        self._answered = set(answered)
        self._again: set[str] = set()
        self._tools: dict[str, str] = {}
        self._message = ""
        #: Of the open message: how much was told, and how much of it was read.
        self._told = self._stored = 0
        self._early: deque[dict[str, Any]] = deque(maxlen=MOST_EARLY)

    def live(self, delta: dict[str, Any]) -> list[Event]:
        """Text that was written just now; nothing if something before it is missing."""
        found = self._follow(delta)
        if not found and delta["seq"] > self.seq:
            self._early.append(delta)
        return found

    def stored(self, events: Iterable[Stored], secrets: Secrets) -> list[Event]:
        """The next stored events, in order; then live text that now follows."""
        found: list[Event] = []
        for event in events:
            found += self._take(event, secrets)
            self.read = event.seq
            self.seq = max(self.seq, event.seq)
        early = list(self._early)
        self._early.clear()
        for delta in early:
            found += self.live(delta)
        return found

    def close(self) -> list[Event]:
        """End the text that is open, because the stream ends here."""
        if not self._message:
            return []
        ended, self._message = self._message, ""
        return [wire.text_end(ended)]

    # Live

    def _follow(self, delta: dict[str, Any]) -> list[Event]:
        seq, attempt, text = delta["seq"], delta["attempt"], delta["text"]
        message = delta["message"]
        if not text:
            return []
        first = delta["size"] == utf16_length(text)
        if attempt == self._attempt and not self._ended:
            if message == self._message:
                return self._say(seq, text) if seq == self.seq + 1 else []
            # A message's first words stand behind its start, and that behind the end of
            # the message before.
            if first and seq == self.seq + (3 if self._message else 2):
                return [*self._open(message), *self._say(seq, text)]
        # The first words of an advance: behind its start, and the message's.
        next_one = attempt > self._attempt and self._ended
        if next_one and first and seq == self.seq + 3:
            self._attempt, self._ended = attempt, False
            return [*self._open(message), *self._say(seq, text)]
        return []

    def _open(self, message: str) -> list[Event]:
        found = self.close()
        self._message = message
        self._told = self._stored = 0
        return [*found, wire.text_start(message)]

    def _say(self, seq: int, text: str) -> list[Event]:
        self.seq = seq
        self._told += len(text)
        return [wire.text_content(self._message, text)]

    # Stored

    def _take(self, event: Stored, secrets: Secrets) -> list[Event]:
        found: list[Event] = []
        if event.attempt != self._attempt:
            found += self.close()
            self.cut_off = self.cut_off or not self._ended
            self._attempt, self._ended = event.attempt, False
        members = event.members
        id = str(members.get("messageId", ""))
        new = event.seq > self.seq
        match event.type:
            case "RUN_STARTED":
                self._ended = False
            case "RUN_FINISHED" | "RUN_ERROR":
                found += self.close()
                self._ended = True
            case "TEXT_MESSAGE_START" if new:
                found += self._open(id)
            case "TEXT_MESSAGE_CONTENT" if id == self._message:
                self._stored += len(members["delta"])
                missing = self._stored - self._told
                if missing > 0:
                    self._told = self._stored
                    found.append(wire.text_content(id, members["delta"][-missing:]))
            case "TEXT_MESSAGE_END" if new and id == self._message:
                found += self.close()
            case type if new and type.startswith("TOOL_CALL_"):
                found += self.close()
                found += self._call(type, members, secrets)
        return found

    def _call(
        self, type: str, members: dict[str, Any], secrets: Secrets
    ) -> list[Event]:
        call_id = str(members["toolCallId"])
        match type:
            case "TOOL_CALL_START":
                if call_id in self._open_calls:
                    self._again.add(call_id)
                    return []
                self._open_calls.add(call_id)
                self._tools[call_id] = str(members["toolCallName"])
            case "TOOL_CALL_ARGS" | "TOOL_CALL_END" if call_id in self._again:
                if type == "TOOL_CALL_END":
                    self._again.discard(call_id)
                return []
            case "TOOL_CALL_ARGS":
                hidden = secrets.get(self._tools.get(call_id, ""))
                shown = without_secrets(members["delta"], hidden)
                return [(type, {**members, "delta": shown})] if shown else []
            case "TOOL_CALL_RESULT":
                self._open_calls.discard(call_id)
                if call_id in self._answered:
                    self._answered.discard(call_id)
                    return []
        return [(type, members)]
