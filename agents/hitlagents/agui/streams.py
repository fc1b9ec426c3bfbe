"""Follows a thread for one reader, as AG-UI events.

A stream is an asynchronous iterator on the web loop. While nothing happens it holds a
timer and a place among the hub's listeners, and no thread; its reads are short and have
threads of their own. It keeps a bounded number of live messages, sends a bounded number
of bytes (nothing on the way says how far the reader is behind), and ends when the reader
leaves or loses the right to listen.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

from ag_ui.core import PROTOCOL_VERSION
from django.conf import settings
from django.http import StreamingHttpResponse

from approvals.callers import Caller
from approvals.hub import hub
from approvals.models import Run
from approvals.states import RunStatus
from hitlagents import wire
from hitlagents.agui import frames
from hitlagents.agui.frames import Notice
from hitlagents.agui.hearing import Ear, glance, is_still, lets_go_on, stands
from hitlagents.agui.places import Place
from hitlagents.agui.shapes import interrupt_for
from hitlagents.agui.snapshot import History, Mark, history
from hitlagents.agui.telling import Telling
from hitlagents.engine.threads import in_streams
from hitlagents.models import Thread
from hitlagents.wire import Event

logger = logging.getLogger(__name__)

#: All in seconds.
KEEP_ALIVE = 15.0
#: How often a run is looked at when nothing is heard of it.
LOOK_RUNNING, LOOK_WAITING, LOOK_ENDING = 2.0, 5.0, 0.1
#: How long the next message of a run that ended may take to start its run.
NEXT_RUN = 10.0

MOST_BYTES = 32_000_000


class EventStream(StreamingHttpResponse):
    """A stream of AG-UI events. Keeps a place of its reader until it is closed."""

    def __init__(self, stream: Stream, place: Place) -> None:
        self._place = place
        super().__init__(_begun(stream, place), content_type="text/event-stream")
        self["Cache-Control"] = "no-store"
        # nginx would otherwise gather it.
        self["X-Accel-Buffering"] = "no"

    def close(self) -> None:
        super().close()
        self._place.release()


async def _begun(stream: Stream, place: Place) -> AsyncIterator[bytes]:
    place.begun = True
    async with aclosing(stream.chunks()) as chunks:
        async for chunk in chunks:
            yield chunk


@dataclass(kw_only=True)
class Stream:
    """One answer to one request.

    ``thread`` is None for a conversation that has not begun. ``expects``: the request
    itself set something going, so that it wants to hear how that ended. ``resumes``: it
    answered interrupts, which clients count as open until a run finishes.
    """

    thread: Thread | None
    caller: Caller
    thread_key: str
    run_key: str
    modern: bool
    site: str
    notices: list[Notice] = field(default_factory=list)
    hold: bool = False
    expects: bool = False
    resumes: bool = False
    sent_messages: bool = False
    #: Where the thread stood before the request set something going.
    mark: Mark | None = None

    _ear: Ear | None = None
    _sent: int = 0
    _checked: float = 0.0
    _run_id: UUID | None = None
    _telling: Telling = field(default_factory=Telling)
    #: Since when the run stands still.
    _ended_at: float = 0.0
    #: What a held stream has said that it waits for.
    _held: frozenset[UUID] = frozenset()
    #: The messages of the last snapshot.
    _shown: list[Any] | None = None

    async def chunks(self) -> AsyncGenerator[bytes]:
        """The frames, with comments between them where nothing happens."""
        hub.attach()
        loop = asyncio.get_running_loop()
        last = loop.time()
        pulse = self._events()
        waiting: asyncio.Future[list[Event]] | None = None
        try:
            while True:
                waiting = waiting or asyncio.ensure_future(anext(pulse))
                done, _ = await asyncio.wait(
                    {waiting}, timeout=max(0.0, last + KEEP_ALIVE - loop.time())
                )
                if not done:
                    last = loop.time()
                    yield frames.KEEP_ALIVE
                    continue
                finished, waiting = waiting, None
                try:
                    events = finished.result()
                except StopAsyncIteration:
                    return
                if events:
                    chunk = frames.encode(events)
                    self._sent += len(chunk)
                    last = loop.time()
                    yield chunk
        finally:
            if waiting is not None:
                waiting.cancel()
                await asyncio.gather(waiting, return_exceptions=True)
            await pulse.aclose()
            self._listen(None)

    async def _events(self) -> AsyncGenerator[list[Event]]:
        at_once = [notice for notice in self.notices if not notice.spoken]
        yield [self._started(), *frames.told(at_once)]
        self.notices = [notice for notice in self.notices if notice.spoken]
        if self.thread is None:
            yield [*self._spoken(), self._finished({"type": "success"})]
            return
        try:
            async with aclosing(self._follow(self.thread)) as following:
                async for events in following:
                    yield events
        except Exception:
            logger.exception("agui: A stream of thread %s broke.", self.thread.pk)
            yield [*self._telling.close(), *self._failed(BROKE)]

    async def _follow(self, thread: Thread) -> AsyncGenerator[list[Event]]:
        """The thread from its snapshot to where it stands still."""
        known = await in_streams(history, thread, whole=False, mark=self.mark)
        yield self._snapshot(known)
        if known.run is None:
            yield [*self._spoken(), self._finished({"type": "success"})]
            return
        self._begin(known.run.pk, _telling(known))
        until, look = 0.0, True
        while True:
            if look:
                events, next_look = await self._look(thread)
                yield events
                if next_look is None:
                    return
                until = next_look
            events, look = await self._hear(until)
            yield events

    def _begin(self, run_id: UUID, telling: Telling) -> None:
        """Follow this run from now on."""
        self._run_id, self._telling = run_id, telling
        self._held, self._ended_at = frozenset(), 0.0
        self._listen(run_id)

    async def _look(self, thread: Thread) -> tuple[list[Event], float | None]:
        """Read what is new; says when to look again at the latest, None at the end."""
        assert self._run_id is not None
        now = asyncio.get_running_loop().time()
        due = now - self._checked >= settings.SAYSO_LIVE_CHECK_SECONDS
        self._checked = now if due else self._checked
        caller = self.caller if due else None
        seen = await in_streams(
            glance, thread, self._run_id, self._telling.read, caller
        )
        told = self._telling.stored(seen.events, seen.secrets)
        if not seen.welcome:
            return [*told, *self._telling.close(), _error(SIGNED_OUT)], None
        if self._sent > MOST_BYTES:
            return [*told, *self._telling.close(), *self._failed(TOO_LONG)], None
        if self._telling.cut_off:
            known = await in_streams(history, thread, whole=False)
            told += [*self._telling.close(), *self._snapshot(known)]
            self._telling = _telling(known)
            return told, now
        if seen.more:
            return told, now
        if not is_still(seen.status):
            self._held, self.expects, self._ended_at = frozenset(), True, 0.0
            return told, now + LOOK_RUNNING
        if seen.following is not None and not stands(seen.status):
            told += self._telling.close()
            self._begin(seen.following, Telling())
            self.expects = True
            return told, now
        self._ended_at = self._ended_at or now
        if self.hold and (
            seen.status == RunStatus.IN_DOUBT
            or (seen.waiting and seen.waiting == self._held)
        ):
            return told, now + LOOK_WAITING
        soon = seen.queued and lets_go_on(seen.status)
        if soon and now - self._ended_at < NEXT_RUN:
            return told, now + LOOK_ENDING
        known = await in_streams(history, thread, whole=True)
        ending = await in_streams(self._ending, known)
        if not ending:
            return told, now + LOOK_WAITING
        over = ending[-1][0] in ("RUN_FINISHED", "RUN_ERROR")
        told += [*self._telling.close(), *ending]
        return told, None if over else now + LOOK_WAITING

    async def _hear(self, until: float) -> tuple[list[Event], bool]:
        """Wait for the next thing, or until the run should be looked at anyway; says
        whether it should."""
        assert self._ear is not None
        left = until - asyncio.get_running_loop().time()
        await self._ear.wait(max(0.0, left))
        deltas, look = self._ear.take()
        told = [event for delta in deltas for event in self._telling.live(delta)]
        return told, look or not deltas

    def _listen(self, run: UUID | None) -> None:
        if self._ear is not None:
            hub.unhear(self._ear)
        self._ear = None if run is None else Ear(run)
        if self._ear is not None:
            hub.hear(self._ear)

    # How it ends

    def _ending(self, known: History) -> list[Event]:
        """The last events for a thread that stands still; those of a pause that is held;
        none if it goes on after all. Reads the rules."""
        run = known.run
        assert run is not None
        status = RunStatus(run.status)
        if not is_still(status):
            return []
        if status == RunStatus.WAITING:
            if known.waiting:
                return self._waiting(known)
            return self._at_page(known) if known.at_page else []
        trouble = _trouble(run)
        if trouble is not None and self.expects and status != RunStatus.CANCELLED:
            return [*self._snapshot(known), *self._failed(trouble)]
        if trouble is not None:
            self.notices.append(trouble)
        cancelled = status == RunStatus.CANCELLED and self.expects and self.modern
        outcome = {"type": "cancelled" if cancelled else "success"}
        return [*self._snapshot(known), *self._spoken(), self._finished(outcome)]

    def _waiting(self, known: History) -> list[Event]:
        """End with the open interrupts, or say what is waited for and stay."""
        shapes = [
            interrupt_for(interrupt, site=self.site, modern=self.modern)
            for interrupt in known.waiting
        ]
        if self.sent_messages and known.queued and not self.hold:
            self.notices.append(KEPT)
        told = [*self._snapshot(known), *self._spoken()]
        if not self.hold:
            outcome = {"type": "interrupt", "interrupts": shapes}
            return [*told, self._finished(outcome)]
        self.notices.clear()
        self._held = frozenset(interrupt.pk for interrupt in known.waiting)
        return [*told, frames.custom("sayso.held", {"interrupts": shapes})]

    def _at_page(self, known: History) -> list[Event]:
        """End: the next word is the page's. It runs its tools once the run is over, so this
        is no interrupt, and nothing to hold the stream for."""
        outcome: dict[str, Any] = {"type": "success"}
        if self.modern:
            outcome["pendingToolCallIds"] = list(known.at_page)
        return [*self._snapshot(known), *self._spoken(), self._finished(outcome)]

    def _snapshot(self, known: History) -> list[Event]:
        """The messages, unless the last snapshot said the same."""
        if known.messages == self._shown:
            return []
        self._shown = known.messages
        return [frames.snapshot(known.messages)]

    def _spoken(self) -> list[Event]:
        return [
            *frames.told(self.notices),
            *frames.spoken(self.notices, f"sayso-{uuid4()}"),
        ]

    def _failed(self, trouble: Notice) -> list[Event]:
        """The end where the run went wrong or the stream cannot go on.

        A RUN_ERROR would leave a page that has answered an interrupt without its card and
        with a chat that is blocked, since only a run that finishes clears what is open.
        """
        if not self.resumes:
            return [*self._spoken(), _error(trouble)]
        self.notices.append(trouble)
        return [*self._spoken(), self._finished({"type": "success"})]

    def _started(self) -> Event:
        type, members = wire.run_started(self.thread_key, self.run_key)
        if self.modern:
            members["protocolVersion"] = PROTOCOL_VERSION
        return type, members

    def _finished(self, outcome: dict[str, Any]) -> Event:
        return "RUN_FINISHED", {
            "threadId": self.thread_key,
            "runId": self.run_key,
            "outcome": outcome,
        }


BROKE = Notice(code="stream_broke", message="The stream broke. Connect again to go on.")
TOO_LONG = Notice(
    code="too_long", message="This stream has become too long. Connect again."
)
SIGNED_OUT = Notice(code="signed_out", message="You are not signed in any more.")
KEPT = Notice(
    code="message_kept",
    message="Your message is kept. The agent gets it once the request is decided.",
)


def _telling(known: History) -> Telling:
    return Telling(
        seq=known.seq,
        attempt=known.attempt,
        open_calls=known.open_calls,
        answered=known.answered,
    )


def _trouble(run: Run) -> Notice | None:
    match run.status:
        case RunStatus.FAILED:
            return Notice(code="run_failed", message=f"The run failed: {run.error}")
        case RunStatus.IN_DOUBT:
            return Notice(
                code="in_doubt",
                message="A tool was interrupted, and nobody knows whether it ran. "
                "Somebody has to settle that before the agent goes on.",
            )
        case RunStatus.CANCELLED:
            return Notice(
                code="run_cancelled", message="The run was cancelled.", spoken=False
            )
    return None


def _error(trouble: Notice) -> Event:
    return "RUN_ERROR", {"message": trouble.message, "code": trouble.code}
