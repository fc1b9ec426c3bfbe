"""What every AG-UI stream must keep to, whatever it is about.

ag-ui-validate holds it to the order of events; here is what that does not know: the types
of protocol 1.0, interrupts, snapshots, and what real clients fall over.
"""

from __future__ import annotations

import json
import re
from typing import Any

from ag_ui.core import Event
from ag_ui_validate.pytest_plugin import assert_valid_agui
from pydantic import TypeAdapter

EVENT: TypeAdapter[Any] = TypeAdapter(Event)
#: It takes every run for a conversation of its own, so that it misses the calls of earlier
#: ones, whose results a resumed run tells; and the start is looked at here.
OVERRIDES = {"AGUI207": "off", "AGUI001": "off"}
OUTCOMES = {"success": set(), "interrupt": {"interrupts"}, "cancelled": set()}
PENDING = "pendingToolCallIds"


def events_of(raw: str) -> list[dict[str, Any]]:
    """The events of a stream as it came over the line, and whether it is framed well."""
    assert "\r" not in raw
    assert raw.endswith("\n\n")
    events = []
    for block in raw.split("\n\n")[:-1]:
        if not block.startswith(":"):
            assert block.startswith("data: {"), block
            assert "\n" not in block
            events.append(json.loads(block.removeprefix("data: ")))
    return events


def check(events: list[dict[str, Any]], *, modern: bool) -> None:
    """Hold a whole stream to the rules."""
    in_order(events)
    for event in events:
        EVENT.validate_python(event)
        no_nulls(event)
    assert events[0]["type"] == "RUN_STARTED"
    assert ("protocolVersion" in events[0]) is modern
    Told().hear(events)
    if events[-1]["type"] == "RUN_FINISHED":
        finished(events, modern=modern)


def in_order(events: list[dict[str, Any]]) -> None:
    """Everything that begins ends, once, and nothing comes behind the end."""
    assert_valid_agui(events, severity_overrides=OVERRIDES, max_warnings=0)


def no_nulls(event: dict[str, Any]) -> None:
    for holder in (event, *event.get("messages", ()), *interrupts_of(event)):
        assert None not in holder.values(), holder


def interrupts_of(event: dict[str, Any]) -> list[dict[str, Any]]:
    outcome = event.get("outcome", {})
    found: list[dict[str, Any]] = outcome.get("interrupts", [])
    return found


def finished(events: list[dict[str, Any]], *, modern: bool) -> None:
    end = events[-1]
    outcome = end["outcome"]
    assert outcome.keys() - {"type", PENDING} == OUTCOMES[outcome["type"]]
    if PENDING in outcome:
        assert modern
        assert outcome["type"] == "success"
        left = unanswered(events)
        assert outcome[PENDING] == [id for id in left if id in outcome[PENDING]]
        assert outcome[PENDING]
    assert modern or outcome["type"] != "cancelled"
    interrupts = interrupts_of(end)
    assert (outcome["type"] == "interrupt") is bool(interrupts)
    assert len({each["id"] for each in interrupts}) == len(interrupts)
    calls = {id for event in events for id in calls_of(event)}
    for each in interrupts:
        assert each["id"]
        assert each["reason"]
        assert isinstance(each["responseSchema"], dict)
        assert modern or "expiresAt" not in each
        assert re.fullmatch(r"[0-9a-f]{64}", each["metadata"]["sayso"]["digest"])
        assert each["metadata"]["sayso"]["url"].startswith("http://127.0.0.1")
        assert each["toolCallId"] in calls


def calls_of(event: dict[str, Any]) -> list[str]:
    return [
        call["id"]
        for message in event.get("messages", ())
        for call in message.get("toolCalls", ())
    ]


def unanswered(events: list[dict[str, Any]]) -> list[str]:
    """Calls of the last snapshot that have no result there."""
    messages = [e for e in events if e["type"] == "MESSAGES_SNAPSHOT"][-1]["messages"]
    given = {message.get("toolCallId") for message in messages}
    return [id for id in calls_of({"messages": messages}) if id not in given]


class Told:
    """A client that believes what it is told, and complains."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self.arguments: dict[str, str] = {}
        self.results: dict[str, str] = {}
        #: The conversation of the last snapshot.
        self.messages: list[dict[str, Any]] | None = None

    def hear(self, events: list[dict[str, Any]]) -> None:
        for event in events:
            handle = getattr(self, event["type"].lower(), None)
            if handle is not None:
                handle(event)

    def text_message_start(self, event: dict[str, Any]) -> None:
        known = {m["id"] for m in self.messages or () if m.get("content")}
        assert event["messageId"] not in known, "a text comes twice"
        self.texts[event["messageId"]] = ""

    def text_message_content(self, event: dict[str, Any]) -> None:
        self.texts[event["messageId"]] += event["delta"]

    def tool_call_start(self, event: dict[str, Any]) -> None:
        known = calls_of({"messages": self.messages or ()})
        assert event["toolCallId"] not in known, "a call comes twice"
        self.arguments[event["toolCallId"]] = ""

    def tool_call_args(self, event: dict[str, Any]) -> None:
        self.arguments[event["toolCallId"]] += event["delta"]

    def tool_call_result(self, event: dict[str, Any]) -> None:
        known = {*self.arguments, *calls_of({"messages": self.messages or ()})}
        assert event["toolCallId"] in known
        assert event["messageId"] not in self.results, "a result comes twice"
        self.results[event["messageId"]] = event["content"]

    def messages_snapshot(self, event: dict[str, Any]) -> None:
        messages = event["messages"]
        ids = [message["id"] for message in messages]
        assert len(set(ids)) == len(ids)
        calls = calls_of(event)
        assert len(set(calls)) == len(calls)
        contents = {m["id"]: m.get("content") for m in messages}
        for id, text in (*self.texts.items(), *self.results.items()):
            assert contents[id] == text, "the snapshot says something else"
        answered: set[str] = set()
        for message in messages:
            if message["role"] == "tool":
                assert message["toolCallId"] in answered, "a result away from its call"
            else:
                answered = set(calls_of({"messages": [message]}))
        given = {
            call["id"]: call["function"]["arguments"]
            for message in messages
            for call in message.get("toolCalls", ())
        }
        for id, arguments in self.arguments.items():
            assert given[id] == arguments
        if self.messages is not None:
            before = [m["id"] for m in self.messages]
            assert [id for id in ids if id in before] == before, "order or loss"
        self.messages = messages
