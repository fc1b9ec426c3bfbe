"""What a word takes with nothing between: an ASGI application that streams the time."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

WORDS = 100
EVERY_SECONDS = 0.02


async def stamps() -> AsyncIterator[str]:
    for _ in range(WORDS):
        await asyncio.sleep(EVERY_SECONDS)
        yield f"{time.time():.6f} "


async def application(
    scope: Any, receive: object, send: Callable[[Any], Awaitable[None]]
) -> None:
    assert scope["type"] == "http"
    headers = [(b"content-type", b"text/event-stream")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    async for word in stamps():
        event = json.dumps({"type": "TEXT_MESSAGE_CONTENT", "delta": word})
        frame = f"data: {event}\n\n".encode()
        await send({"type": "http.response.body", "body": frame, "more_body": True})
    await send({"type": "http.response.body", "body": b""})
