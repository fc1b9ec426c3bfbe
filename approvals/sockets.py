"""One browser's socket as the hub sees it: what it hears, and what is still to be sent."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from approvals.admission import Claim, Verdict

logger = logging.getLogger(__name__)

#: A socket that is this far behind is told to fetch everything anew instead.
MOST_PENDING = 100
MOST_TEXT = 100_000

#: Token deltas of one socket are gathered for this long, in seconds.
DELTA_PAUSE = 0.03


class Message:
    """A message for many sockets; all but its number is encoded once."""

    __slots__ = ("body", "fields")

    def __init__(self, fields: dict[str, Any]) -> None:
        self.fields = fields
        self.body = json.dumps(fields, ensure_ascii=False)[1:]

    @property
    def is_delta(self) -> bool:
        return bool(self.fields["op"] == "delta")

    def numbered(self, v: int) -> str:
        return f'{{"v": {v}, {self.body}'

    def joined(self, after: Message) -> Message | None:
        """This delta and the next one of the same text as one, or None.

        As in the stored events, the number of what is gathered is that of its last part;
        ``first`` is that of its first.
        """
        mine, theirs = self.fields, after.fields
        same = all(mine.get(k) == theirs.get(k) for k in ("id", "attempt", "message"))
        if not same or theirs["seq"] != mine["seq"] + 1:
            return None
        first = mine.get("first", mine["seq"])
        return Message(
            {**theirs, "first": first, "text": mine["text"] + theirs["text"]}
        )


HELLO = Message({"op": "hello"})
PONG = Message({"op": "pong"})


class Socket:
    """Belongs to the web loop: none of this may be called from another thread."""

    def __init__(
        self,
        claim: Claim,
        verdict: Verdict,
        *,
        send: Callable[[str], Awaitable[None]],
        close: Callable[[int], Awaitable[None]],
    ) -> None:
        self.claim = claim
        self.user = verdict.user
        self.scopes = verdict.scopes
        self.ended = False
        self._send = send
        self._close = close
        self._open = False
        self._v = 0
        self._pending: list[Message] = []
        self._writer: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._written_at = 0.0

    def open(self) -> None:
        """The handshake is over: say hello, upon which the page fetches what it shows."""
        self._open = True
        self.offer(HELLO)

    def offer(self, message: Message) -> None:
        """Send soon, in order. What comes before the hello is covered by it."""
        if self.ended or not self._open:
            return
        if message is HELLO or self._is_behind():
            self._pending = [HELLO]
        elif not self._join(message):
            self._pending.append(message)
        self._schedule(message)

    def end(self, code: int) -> None:
        """Close, and send nothing any more."""
        if self.ended:
            return
        self.ended = True
        self._pending.clear()
        self._cancel_timer()
        self._writer = asyncio.create_task(self._finish(code, self._writer))

    def forget(self) -> None:
        """The other side is gone."""
        self.ended = True
        self._pending.clear()
        self._cancel_timer()

    def _is_behind(self) -> bool:
        if len(self._pending) >= MOST_PENDING:
            return True
        text = sum(len(one.body) for one in self._pending if one.is_delta)
        return text > MOST_TEXT

    def _join(self, message: Message) -> bool:
        """Put a delta into the one that waits before it."""
        if not (message.is_delta and self._pending and self._pending[-1].is_delta):
            return False
        joined = self._pending[-1].joined(message)
        if joined is None:
            return False
        self._pending[-1] = joined
        return True

    def _schedule(self, message: Message) -> None:
        if self._writer is not None:
            return
        loop = asyncio.get_running_loop()
        wait = self._written_at + DELTA_PAUSE - loop.time()
        if message.is_delta and wait > 0:
            self._timer = self._timer or loop.call_later(wait, self._start)
        else:
            self._start()

    def _start(self) -> None:
        self._cancel_timer()
        self._writer = asyncio.create_task(self._write())

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def _write(self) -> None:
        try:
            while self._pending and not self.ended:
                self._v += 1
                await self._send(self._pending.pop(0).numbered(self._v))
        except Exception as error:  # noqa: BLE001 - whatever a server raises, one socket
            logger.debug("live: A socket could not be written: %s.", error)
            self.forget()
        finally:
            self._written_at = asyncio.get_running_loop().time()
            if not self.ended:
                self._writer = None

    async def _finish(self, code: int, writer: asyncio.Task[None] | None) -> None:
        try:
            if writer is not None:
                await asyncio.wait([writer], timeout=1)
            await self._close(code)
        except Exception as error:  # noqa: BLE001 - whatever a server raises, one socket
            logger.warning("live: A socket could not be closed: %s.", error)
