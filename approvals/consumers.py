"""The one live endpoint. It only pushes: whatever changes something is a POST.

A refusal is told after the handshake, with a close code: browsers show a page nothing
of a handshake that was refused.
"""

from __future__ import annotations

import json
import logging
from typing import Any, ClassVar

from channels.consumer import AsyncConsumer, get_handler_name
from channels.exceptions import StopConsumer

from approvals import admission
from approvals.hub import hub
from approvals.sockets import PONG, Socket

logger = logging.getLogger(__name__)

TOO_BIG, NOT_TEXT, TOO_MANY = 4413, 4415, 4429

MOST_BYTES = 1000
#: Messages a client may send in a window of seconds.
MOST_MESSAGES, WINDOW = 30, 10.0


class Base(AsyncConsumer):
    """A consumer that neither subscribes to the channel layer nor visits the database."""

    channel_layer_alias: ClassVar[str] = ""

    async def dispatch(self, message: dict[str, Any]) -> None:
        # The parent first visits the thread all consumers share, to close connections
        # that this one never opens.
        await getattr(self, get_handler_name(message))(message)

    async def websocket_receive(self, message: dict[str, Any]) -> None:
        """Say nothing to whoever was not let in."""

    async def websocket_disconnect(self, message: dict[str, Any]) -> None:
        raise StopConsumer


class Refusal(Base):
    """Refuses the handshake."""

    async def websocket_connect(self, message: dict[str, Any]) -> None:
        await self.send({"type": "websocket.close"})


class LiveConsumer(Base):
    """Pushes what concerns the signed-in person, and on a run's page what that run does."""

    socket: Socket | None = None
    messages = 0
    window_ends = 0.0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            if self.socket is not None:
                hub.leave(self.socket)

    async def websocket_connect(self, message: dict[str, Any]) -> None:
        hub.attach()
        claim = admission.claim_of(self.scope)
        verdict = await hub.admit(claim)
        if verdict.code:
            await self.send({"type": "websocket.accept"})
            await self.close(verdict.code)
            return
        self.socket = Socket(claim, verdict, send=self.send_text, close=self.close)
        # Joined first, so that nothing falls between the hello and what comes after it.
        hub.join(self.socket)
        await self.send({"type": "websocket.accept"})
        self.socket.open()

    async def websocket_receive(self, message: dict[str, Any]) -> None:
        if self.socket is None or self.socket.ended:
            return
        code = self.misuse(message)
        if code:
            hub.end(self.socket, code)
        elif is_ping(message["text"]):
            self.socket.offer(PONG)

    def misuse(self, message: dict[str, Any]) -> int:
        """The code to close with, for what no page of ours sends."""
        text = message.get("text")
        if text is None:
            return NOT_TEXT
        if len(text.encode()) > MOST_BYTES:
            return TOO_BIG
        now = hub.time()
        if now > self.window_ends:
            self.messages, self.window_ends = 0, now + WINDOW
        self.messages += 1
        return TOO_MANY if self.messages > MOST_MESSAGES else 0

    async def send_text(self, text: str) -> None:
        await self.send({"type": "websocket.send", "text": text})

    async def close(self, code: int) -> None:
        await self.send({"type": "websocket.close", "code": code})


def is_ping(text: str) -> bool:
    """A page asks whether the line is alive; all else it may say means nothing here."""
    try:
        message = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(message, dict) and message.get("op") == "ping"


class SameOriginOnly:
    """Lets sockets through that pages of ours open, and those that no page opens."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if not admission.origin_fits(scope):
            headers = dict(scope["headers"])
            logger.warning(
                "live: Refused a socket from a page at %.200r for host %.200r.",
                headers.get(b"origin"),
                headers.get(b"host"),
            )
            await Refusal()(scope, receive, send)
            return
        await self.inner(scope, receive, send)
