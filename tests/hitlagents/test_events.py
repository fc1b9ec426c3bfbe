"""What open pages hear while an agent writes."""

from __future__ import annotations

import asyncio
import uuid

from approvals import live
from hitlagents.adapters.base import TextDelta
from hitlagents.events import EventLog


def test_live_text_says_where_it_ends_in_its_message(monkeypatch):
    """Counted as browsers count: they cut by these numbers."""
    heard = []
    monkeypatch.setattr(
        live, "publish", lambda scopes, message: heard.append((scopes, message))
    )
    run_id = uuid.uuid4()

    async def speak() -> None:
        log = EventLog(run_id, attempt=2, seq=5)
        for name, text in (("a", "Hé😀"), ("a", " you"), ("b", "New")):
            await log.happened(TextDelta(message_id=name, delta=text))
        await log.drain()

    asyncio.run(speak())
    assert [scopes for scopes, _message in heard] == [{f"run.{run_id}"}] * 3
    assert [(m["message"], m["text"], m["size"]) for _scopes, m in heard] == [
        ("a", "Hé😀", 4),
        ("a", " you", 8),
        ("b", "New", 3),
    ]
