"""AG-UI events as bytes of an event stream."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from hitlagents import wire
from hitlagents.wire import Event

#: A comment, so that nobody on the way takes a quiet stream for a dead one.
KEEP_ALIVE = b": keep-alive\n\n"


@dataclass(frozen=True, kw_only=True)
class Notice:
    """Something a person should know about their request, which is no error."""

    code: str
    message: str
    interrupt: str = ""
    #: Also as words in the conversation: pages show those, and mostly no CUSTOM events.
    spoken: bool = True


def encode(events: Iterable[Event]) -> bytes:
    """Frames that end in LF LF: a client we know cannot read any other."""
    return b"".join(
        b"data: %s\n\n"
        % json.dumps({"type": type, **members}, ensure_ascii=False).encode(
            "utf-8", "replace"
        )
        for type, members in events
    )


def custom(name: str, value: Any) -> Event:
    return "CUSTOM", {"name": name, "value": value}


def snapshot(messages: list[dict[str, Any]]) -> Event:
    return "MESSAGES_SNAPSHOT", {"messages": messages}


def told(notices: Iterable[Notice]) -> list[Event]:
    """Notices for programs."""
    return [
        custom(
            "sayso.notice",
            {"code": notice.code, "message": notice.message}
            | ({"interruptId": notice.interrupt} if notice.interrupt else {}),
        )
        for notice in notices
    ]


def spoken(notices: Iterable[Notice], message_id: str) -> list[Event]:
    """Notices for the person, as one message. It is part of no later snapshot."""
    text = "\n\n".join(dict.fromkeys(n.message for n in notices if n.spoken))
    if not text:
        return []
    return [
        wire.text_start(message_id),
        wire.text_content(message_id, text),
        wire.text_end(message_id),
    ]
