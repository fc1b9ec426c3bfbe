"""Carries live messages between the processes of an installation, through Redis.

It has a thread and a loop of its own, so that publishing costs its caller an append, no
matter from where, and a slow or dead Redis holds up nothing. A process without sockets
(a worker, a management command) has one that only sends; one with sockets subscribes
once, for all of them.

A channel layer drops messages without a word, and its connection is renewed without a
word. So each sender numbers its batches and repeats its newest number every few seconds.
Who finds a number missing lets its pages fetch everything anew. A listener also hears
itself: when it does not, the line is dead, and it is built again from nothing.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

logger = logging.getLogger(__name__)

GROUP = "live"

#: All in seconds.
BEAT = 5.0
SILENCE = 3 * BEAT
RETRY = 1.0
PATIENCE = 5.0
#: Memberships of a channel layer end after a day.
RENEWAL = 3600.0

MOST_WAITING = 10_000
BATCH = 200

type Scopes = frozenset[str]
type Fields = dict[str, Any]


class Relay:
    """``deliver`` and ``lost`` are called on the relay's thread and must not block."""

    def __init__(
        self,
        make_layer: Callable[[], Any],
        *,
        deliver: Callable[[Scopes, Fields], None],
        lost: Callable[[], None],
    ) -> None:
        self._make_layer = make_layer
        self._layer: Any = None
        self._deliver = deliver
        self._lost = lost
        self._name = secrets.token_hex(8)
        self._seq = 0
        self._heard: dict[str, int] = {}
        self._echo_at = 0.0
        self._outbox: deque[tuple[Scopes, Fields]] = deque(maxlen=MOST_WAITING)
        self._overflowed = False
        self._sending = False
        self._in_trouble = False
        self._wants_to_listen = False
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake = asyncio.Event()
        self._listen = asyncio.Event()
        self._main: asyncio.Task[None] | None = None

    # From any thread

    def send(self, scopes: Scopes, fields: Fields) -> None:
        """Tell the other processes, soon."""
        if len(self._outbox) == MOST_WAITING:
            self._overflowed = True
        self._outbox.append((scopes, fields))
        self._nudge(self._wake)

    def listen(self) -> None:
        """Hear the other processes from now on."""
        self._wants_to_listen = True
        self._nudge(self._listen)

    def drain(self, seconds: float) -> None:
        """Wait until everything is sent, for a process that is about to end."""
        until = time.monotonic() + seconds
        while (self._outbox or self._sending) and time.monotonic() < until:
            time.sleep(0.01)

    def stop(self) -> None:
        if self._thread is None or self._loop is None or self._main is None:
            return
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._main.cancel)
        self._thread.join(PATIENCE)

    def _nudge(self, event: asyncio.Event) -> None:
        with self._lock:
            if self._thread is None:
                started = threading.Event()
                self._thread = threading.Thread(
                    target=self._work, args=[started], name="live-relay", daemon=True
                )
                self._thread.start()
                started.wait()
        assert self._loop is not None
        if not event.is_set():
            with suppress(RuntimeError):  # stopped
                self._loop.call_soon_threadsafe(event.set)

    # On the relay's own thread

    def _work(self, started: threading.Event) -> None:
        with suppress(asyncio.CancelledError):
            asyncio.run(self._run(started))

    async def _run(self, started: threading.Event) -> None:
        self._loop = asyncio.get_running_loop()
        self._main = asyncio.current_task()
        started.set()
        while True:
            # A new one each time: after a hung connection the old one is in no state
            # that can be relied on.
            self._layer = self._make_layer()
            try:
                await self._run_until_trouble()
            finally:
                await self._forget_connections()
            await asyncio.sleep(RETRY)

    async def _run_until_trouble(self) -> None:
        """Whatever goes wrong, all connections are dropped and made again."""
        self._echo_at = 0.0
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._send_all())
                tasks.create_task(self._beat())
                tasks.create_task(self._hear_all())
        except* Exception as trouble:  # noqa: BLE001 - layers raise what they like
            if not self._in_trouble:
                cause = str(trouble.exceptions[0]) or repr(trouble.exceptions[0])
                logger.warning(
                    "live: Other processes cannot be reached for now (%s).", cause
                )
            self._in_trouble = True

    async def _forget_connections(self) -> None:
        if hasattr(self._layer, "flush"):
            with suppress(Exception):
                await asyncio.wait_for(self._layer.flush(), PATIENCE)

    async def _send_all(self) -> None:
        while True:
            while self._outbox:
                self._sending = True
                try:
                    await self._send_batch()
                finally:
                    self._sending = False
            await self._wake.wait()
            self._wake.clear()

    async def _send_batch(self) -> None:
        if self._overflowed:
            self._overflowed = False
            self._seq += 1  # A number nobody gets is how they learn of it.
        count = min(BATCH, len(self._outbox))
        batch = [self._outbox.popleft() for _ in range(count)]
        self._seq += 1
        await self._put([[sorted(scopes), fields] for scopes, fields in batch])

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(BEAT)
            if self._wants_to_listen or self._seq:
                await self._put([])
            if self._echo_at and self._silence() > SILENCE:
                raise ConnectionError("what is sent does not come back")

    async def _put(self, items: list[Any]) -> None:
        message = {"type": "live", "by": self._name, "seq": self._seq, "items": items}
        await asyncio.wait_for(self._layer.group_send(GROUP, message), PATIENCE)
        self._recovered()

    def _silence(self) -> float:
        return time.monotonic() - self._echo_at

    def _recovered(self) -> None:
        if self._in_trouble:
            self._in_trouble = False
            logger.info("live: Other processes can be reached again.")

    async def _hear_all(self) -> None:
        await self._listen.wait()
        async with asyncio.timeout(PATIENCE):
            channel = await self._layer.new_channel()
            await self._layer.group_add(GROUP, channel)
        self._echo_at = time.monotonic()
        self._heard.clear()
        self._lost()  # Nobody knows what was said before.
        renewal = asyncio.create_task(self._renew(channel))
        try:
            while True:
                self._hear(await self._layer.receive(channel))
        finally:
            renewal.cancel()

    async def _renew(self, channel: str) -> None:
        while True:
            await asyncio.sleep(RENEWAL)
            await self._layer.group_add(GROUP, channel)

    def _hear(self, message: dict[str, Any]) -> None:
        by, seq, items = message["by"], message["seq"], message["items"]
        if by == self._name:
            self._echo_at = time.monotonic()
            return
        expected = self._heard.get(by, 0) + bool(items)
        self._heard[by] = seq
        for scopes, fields in items:
            self._deliver(frozenset(scopes), fields)
        if seq != expected:
            self._lost()
