"""What a run has told, as its page would show it."""

from __future__ import annotations

from approvals.models import Run
from hitlagents import events


def said(run: Run) -> str:
    """What the agent wrote in a run, message by message: branches write at once."""
    texts: dict[str, str] = {}
    for event, members in events.shown(run):
        if event.type == "TEXT_MESSAGE_CONTENT":
            id = members["messageId"]
            texts[id] = texts.get(id, "") + members["delta"]
    return "".join(texts.values())
