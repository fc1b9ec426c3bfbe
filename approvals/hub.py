"""The live line of this process: its sockets, who hears what, and who still may.

Whatever is published reaches the sockets of this process directly and those of other
processes through the relay. ``publish`` is called from any thread, many times a second
while an agent writes; it only appends. Everything else belongs to the web loop, which is
the one that ``attach`` was called on.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import threading
from collections import deque
from collections.abc import Collection, Iterable
from contextlib import suppress
from typing import Any, Protocol

from channels import DEFAULT_CHANNEL_LAYER
from channels.layers import InMemoryChannelLayer, channel_layers
from django.conf import settings

from approvals import admission, live
from approvals.admission import SIGNED_OUT, TRY_AGAIN_LATER, Claim, Verdict
from approvals.relay import Fields, Relay, Scopes
from approvals.sockets import HELLO, Message, Socket

logger = logging.getLogger(__name__)

#: More than this waiting for a busy web loop is given up for one hello.
MOST_WAITING = 10_000
#: After so many checks that failed, nobody knows who may listen: all sockets are closed.
MOST_FAILURES = 3


class Hearer(Protocol):
    """What hears a scope: a socket, or something inside this process."""

    @property
    def scopes(self) -> Collection[str]: ...

    def offer(self, message: Message) -> None: ...


class Hub:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._relay: Relay | None = None
        self._relay_known = False
        self._inbox: deque[tuple[Scopes, Message]] = deque()
        self._hello_due = False
        self._woken = False
        self._sockets: set[Socket] = set()
        #: Hear as sockets do, but answer for themselves who may.
        self._ears: set[Hearer] = set()
        self._listeners: dict[str, set[Hearer]] = {}
        self._asking: list[tuple[Claim, asyncio.Future[Verdict]]] = []
        self._asker: asyncio.Task[None] | None = None
        self._watcher: asyncio.Task[None] | None = None
        self._failures = 0

    # From any thread

    def publish(self, scopes: Scopes, fields: Fields) -> None:
        """Tell every socket that listens to one of the scopes, here and elsewhere."""
        self._deliver(scopes, fields)
        relay = self._get_relay()
        if relay is not None:
            relay.send(scopes, fields)

    def hello(self) -> None:
        """Let every page of this process fetch what it shows."""
        with self._lock:
            self._hello_due = True
        self._wake()

    def _deliver(self, scopes: Scopes, fields: Fields) -> None:
        # Read without a lock: who joins at this moment says hello after it anyway.
        if not any(scope in self._listeners for scope in scopes):
            return
        with self._lock:
            if len(self._inbox) >= MOST_WAITING:
                self._inbox.clear()
                self._hello_due = True
            self._inbox.append((scopes, Message(fields)))
        self._wake()

    def _wake(self) -> None:
        with self._lock:
            if self._woken or self._loop is None or self._loop.is_closed():
                return
            with suppress(RuntimeError):  # closed just now
                self._loop.call_soon_threadsafe(self._fan_out)
                self._woken = True

    def _get_relay(self) -> Relay | None:
        if not self._relay_known:
            with self._lock:
                if not self._relay_known:
                    self._relay = self._make_relay()
                    self._relay_known = True
        return self._relay

    def _make_relay(self) -> Relay | None:
        # A layer in memory reaches nobody whom the hub does not.
        if isinstance(make_layer(), InMemoryChannelLayer):
            return None
        relay = Relay(make_layer, deliver=self._deliver, lost=self.hello)
        atexit.register(relay.drain, 2)
        return relay

    # On the web loop

    def attach(self) -> None:
        """Make the running loop the web loop. Every consumer makes sure of it."""
        loop = asyncio.get_running_loop()
        if self._loop is loop:
            return
        with self._lock:
            self._loop = loop
            self._woken = False
            self._inbox.clear()
        self._sockets, self._ears, self._listeners = set(), set(), {}
        self._asking, self._asker = [], None
        self._failures = 0
        self._watcher = loop.create_task(self._watch())
        live.connect(self.publish)
        relay = self._get_relay()
        if relay is not None:
            relay.listen()

    async def admit(self, claim: Claim) -> Verdict:
        """Judge a socket that wants to open, together with all that want to now.

        After a restart everybody comes back at once.
        """
        future: asyncio.Future[Verdict] = asyncio.get_running_loop().create_future()
        self._asking.append((claim, future))
        if self._asker is None:
            self._asker = asyncio.create_task(self._ask())
        return await future

    def time(self) -> float:
        assert self._loop is not None
        return self._loop.time()

    def join(self, socket: Socket) -> None:
        self._sockets.add(socket)
        self._listen(socket, socket.scopes)

    def leave(self, socket: Socket) -> None:
        socket.forget()
        self._drop(socket)

    def hear(self, ear: Hearer) -> None:
        """Let something inside this process hear its scopes, from now on."""
        self._ears.add(ear)
        self._listen(ear, ear.scopes)

    def unhear(self, ear: Hearer) -> None:
        self._ears.discard(ear)
        self._ignore(ear, ear.scopes)

    def end(self, socket: Socket, code: int) -> None:
        """Close a socket that may not stay."""
        socket.end(code)
        self._drop(socket)

    def _drop(self, socket: Socket) -> None:
        self._sockets.discard(socket)
        self._ignore(socket, socket.scopes)

    def _listen(self, hearer: Hearer, scopes: Iterable[str]) -> None:
        for scope in scopes:
            self._listeners.setdefault(scope, set()).add(hearer)

    def _ignore(self, hearer: Hearer, scopes: Iterable[str]) -> None:
        for scope in scopes:
            others = self._listeners.get(scope, set())
            others.discard(hearer)
            if not others:
                self._listeners.pop(scope, None)

    def _fan_out(self) -> None:
        with self._lock:
            self._woken = False
            hello, self._hello_due = self._hello_due, False
            messages = list(self._inbox)
            self._inbox.clear()
        for scopes, message in messages:
            for hearer in self._hearing(scopes):
                hearer.offer(message)
        if hello:
            for hearer in (*self._sockets, *self._ears):
                hearer.offer(HELLO)

    def _hearing(self, scopes: Scopes) -> Collection[Hearer]:
        found = [self._listeners[scope] for scope in scopes if scope in self._listeners]
        return found[0] if len(found) == 1 else set().union(*found)

    async def _ask(self) -> None:
        while self._asking:
            asking, self._asking = self._asking, []
            try:
                verdicts = await admission.check({claim for claim, _ in asking})
            except Exception:
                logger.exception("live: Sockets could not be checked.")
                verdicts = {}
            closed = Verdict(TRY_AGAIN_LATER)
            for claim, future in asking:
                if not future.done():
                    future.set_result(verdicts.get(claim, closed))
        self._asker = None

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(settings.SAYSO_LIVE_CHECK_SECONDS)
            if self._sockets:
                await self._check_again()

    async def _check_again(self) -> None:
        checked = list(self._sockets)
        try:
            verdicts = await admission.check({socket.claim for socket in checked})
        except Exception:
            self._failures += 1
            logger.exception("live: Open sockets could not be checked again.")
            if self._failures < MOST_FAILURES:
                return
            verdicts = {}
        else:
            self._failures = 0
        for socket in checked:
            if not socket.ended:
                verdict = verdicts.get(socket.claim, Verdict(TRY_AGAIN_LATER))
                self._apply(socket, verdict)

    def _apply(self, socket: Socket, verdict: Verdict) -> None:
        if verdict.code:
            self.end(socket, verdict.code)
        elif verdict.user != socket.user:
            self.end(socket, SIGNED_OUT)
        elif verdict.scopes != socket.scopes:
            self._ignore(socket, socket.scopes - verdict.scopes)
            self._listen(socket, verdict.scopes - socket.scopes)
            socket.scopes = verdict.scopes
            socket.offer(HELLO)


def make_layer() -> Any:
    """The installation's channel layer, as an object of its own."""
    return channel_layers.make_backend(DEFAULT_CHANNEL_LAYER)


#: The one of this process.
hub = Hub()


def attach() -> None:
    """Serve sockets on the running loop. Call it where the server starts its loop."""
    hub.attach()


def connect() -> None:
    """Let this process publish. It starts nothing until something is published."""
    live.connect(hub.publish)


def publish(scopes: Iterable[str], fields: dict[str, Any]) -> None:
    hub.publish(frozenset(scopes), fields)
