"""What a decision says to a remote agent, in the shape its kind of server takes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from approvals.schemas import Answer
from approvals.states import InterruptKind, Verdict
from hitlagents.remote.interrupts import OURS, OpenInterrupt, may_edit, note_key
from hitlagents.remote.profiles import Habits


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One member of ``resume``."""

    shape: dict[str, Any]
    #: Whether the reviewer's words go with it.
    carries_note: bool = False


def entry(
    waiting: OpenInterrupt,
    answer: Answer,
    habits: Habits,
    *,
    arguments: Mapping[str, Any] | None = None,
) -> Entry:
    """The answer to one interrupt.

    ``arguments``: those the ledger has for an approved call.
    """
    if waiting.kind == InterruptKind.QUESTION:
        if answer.verdict != Verdict.ANSWER:
            return Entry(shape=_cancelled(waiting))
        return Entry(shape=_resolved(waiting, answer.answer))
    if answer.verdict == Verdict.CANCEL_CALL and habits.takes_cancelled:
        return Entry(shape=_cancelled(waiting))
    approved = answer.verdict == Verdict.APPROVE
    payload: dict[str, Any] = {_yes_key(waiting): approved}
    note, words = "", _words(waiting, answer)
    if approved:
        payload |= _beside(waiting, answer.answer) if habits.takes_extras else {}
        if answer.arguments is not None:
            payload["editedArgs"] = dict(arguments or answer.arguments)
    if habits.takes_extras and words:
        note = note_key(waiting.schema)
        if note:
            payload[note] = words
    if habits.echoes_call or "toolCall" in _properties(waiting):
        payload["toolCall"] = {
            "callId": waiting.tool_call_id,
            "name": waiting.tool,
            "arguments": _as_sent(waiting.arguments),
        }
    return Entry(shape=_resolved(waiting, payload), carries_note=bool(note))


def _words(waiting: OpenInterrupt, answer: Answer) -> str:
    """What the agent is told with a verdict, where it has a place for that.

    Another Sayso puts words of its own before a note, so it gets the note alone; its rules
    may want one of a denial.
    """
    if not waiting.of_desk:
        return answer.text
    if answer.note or answer.verdict == Verdict.APPROVE:
        return answer.note
    return "No reason was given."


def unfit(waiting: OpenInterrupt, answer: Answer, habits: Habits) -> str:
    """Why an answer cannot be given to this agent; empty if it can."""
    if (
        waiting.kind == InterruptKind.QUESTION
        and answer.verdict != Verdict.ANSWER
        and not habits.takes_cancelled
    ):
        return "Nobody answered the agent's question, and it cannot be told so."
    if answer.arguments is not None and not may_edit(waiting.schema):
        return f"The agent takes no other arguments for {waiting.tool}."
    return ""


def dropped(waiting: OpenInterrupt, habits: Habits) -> dict[str, Any] | None:
    """Tell the agent that nobody will answer this; None if it cannot be told."""
    if habits.takes_cancelled:
        return _cancelled(waiting)
    if waiting.kind == InterruptKind.QUESTION:
        return None
    return _resolved(waiting, {_yes_key(waiting): False})


def _as_sent(arguments: str) -> Any:
    """Arguments for an echo; as text where they are no JSON, which nobody approves."""
    try:
        return json.loads(arguments)
    except ValueError:
        return arguments


def _resolved(waiting: OpenInterrupt, payload: Any) -> dict[str, Any]:
    return {"interruptId": waiting.id, "status": "resolved", "payload": payload}


def _cancelled(waiting: OpenInterrupt) -> dict[str, Any]:
    return {"interruptId": waiting.id, "status": "cancelled"}


def _yes_key(waiting: OpenInterrupt) -> str:
    properties = _properties(waiting)
    if "accepted" in properties and "approved" not in properties:
        return "accepted"
    return "approved"


def _beside(waiting: OpenInterrupt, given: Any) -> dict[str, Any]:
    """What a reviewer gave beside the approval, as far as the agent asked for it."""
    if not isinstance(given, Mapping):
        return {}
    asked = _properties(waiting).keys() - OURS
    return {name: value for name, value in given.items() if name in asked}


def _properties(waiting: OpenInterrupt) -> Mapping[str, Any]:
    found = waiting.schema.get("properties")
    return found if isinstance(found, Mapping) else {}
