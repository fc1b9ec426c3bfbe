"""Follows a thread for one reader, as AG-UI events.

A stream is an asynchronous iterator on the web loop. While nothing happens it holds a
timer and a place among the hub's listeners, and no thread; its reads are short and have
threads of their own. It keeps a bounded number of live messages, sends a bounded number
of bytes (nothing on the way says how far the reader is behind), and ends when the reader
leaves or loses the right to listen.
"""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

from ag_ui.core import PROTOCOL_VERSION
from django.conf import settings
from django.http import StreamingHttpResponse

from approvals.callers import Caller
from approvals.exceptions import ApprovalsError
from approvals.hub import hub
from approvals.models import Run
from approvals.sockets import HELLO, Message
from approvals.states import RunStatus
from hitlagents import wire
from hitlagents.agui import frames
from hitlagents.agui.frames import Notice
from hitlagents.agui.shapes import interrupt_for
from hitlagents.agui.snapshot import History, Secrets, history, secrets_of
from hitlagents.agui.telling import Stored, Telling
from hitlagents.engine.threads import in_streams
from hitlagents.models import RunEvent, Thread
from hitlagents.wire import Event

logger = logging.getLogger(__name__)

#: All in seconds.
KEEP_ALIVE = 15.0
#: How often a run is looked at when nothing is heard of it.
LOOK_RUNNING, LOOK_WAITING, LOOK_ENDING = 2.0, 5.0, 0.1
#: How long the next message of a run that ended may take to start its run.
NEXT_RUN = 10.0

#: More live messages than this are given up: the stored events say the same.
MOST_HEARD = 500
MOST_BYTES = 32_000_000
#: Events taken from storage at once.
MOST_EVENTS = 500


class TooManyStreams(ApprovalsError):
    """You have too many open streams."""

    http_status = 429
    code = "too_many_streams"


# How many


@dataclass(eq=False)
class Place:
    """One stream's place among those of its reader."""

    user: int
    taken: float
    #: It is being read; a place whose stream never began is free again soon.
    begun: bool = False

    def release(self) -> None:
        places.give_back(self)


class Places:
    """Who has how many streams in this process."""

    START = 30.0

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._taken: dict[int, set[Place]] = {}

    def take(self, user: int) -> Place:
        """Raises TooManyStreams."""
        now = time.monotonic()
        with self._lock:
            own = self._taken.setdefault(user, set())
            for place in [p for p in own if not p.begun and now - p.taken > self.START]:
                own.discard(place)
            if len(own) >= settings.SAYSO_AGUI_STREAMS:
                raise TooManyStreams(
                    f"You have {len(own)} open streams, and no more are kept for one "
                    "person. Close some first."
                )
            place = Place(user, now)
            own.add(place)
            return place

    def give_back(self, place: Place) -> None:
        with self._lock:
            own = self._taken.get(place.user, set())
            own.discard(place)
            if not own:
                self._taken.pop(place.user, None)


places = Places()


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


# What is heard


class Ear:
    """What the hub says about one run, as far as there is room."""

    def __init__(self, run: UUID) -> None:
        self.scopes = frozenset({f"run.{run}"})
        self._heard: deque[dict[str, Any]] = deque(maxlen=MOST_HEARD)
        self._something = asyncio.Event()
        #: The stored events have more to tell.
        self._look = False

    def offer(self, message: Message) -> None:
        if message is HELLO or not message.is_delta:
            self._look = True
        else:
            self._heard.append(message.fields)
        self._something.set()

    async def wait(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._something.wait()
        except TimeoutError:
            return

    def take(self) -> tuple[list[dict[str, Any]], bool]:
        """What was heard since, and whether to look at what is stored."""
        heard, look = list(self._heard), self._look
        self._heard.clear()
        self._look = False
        self._something.clear()
        return heard, look


# What is read


@dataclass(frozen=True, kw_only=True)
class Glance:
    """A run at one moment, with what is new of it."""

    status: RunStatus
    error: str
    events: Sequence[Stored]
    secrets: Secrets
    #: The run that came after it on the thread.
    following: UUID | None
    queued: bool
    #: The reader may still listen.
    welcome: bool


def glance(thread: Thread, run_id: UUID, seq: int, caller: Caller | None) -> Glance:
    """Read in this order: a status never says more than the events that are read."""
    welcome = caller is None or caller.still_is()
    run = Run.objects.get(pk=run_id)
    after = thread.inputs.filter(run__created__gt=run.created)
    following = after.order_by("run__created").values_list("run", flat=True).first()
    queued = thread.queued.exists()
    rows = RunEvent.objects.filter(run=run_id, seq__gt=seq).order_by("seq")
    events = [
        Stored(
            seq=row.seq,
            attempt=row.attempt,
            type=row.type,
            members=json.loads(row.payload),
        )
        for row in rows[:MOST_EVENTS]
    ]
    calls = any(event.type == "TOOL_CALL_ARGS" for event in events)
    return Glance(
        status=RunStatus(run.status),
        error=run.error,
        events=events,
        secrets=secrets_of(thread.agent) if calls else {},
        following=following,
        queued=queued,
        welcome=welcome,
    )


# The stream


@dataclass(kw_only=True)
class Stream:
    """One answer to one request.

    ``thread`` is None for a conversation that has not begun. ``expects``: the request
    itself set something going, so that it wants to hear how that ended.
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
    sent_messages: bool = False

    _ear: Ear | None = None
    _sent: int = 0
    _checked: float = 0.0
    _held: frozenset[str] = frozenset()
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
            yield [wire.run_error("The stream broke. Connect again to go on.")]

    async def _follow(self, thread: Thread) -> AsyncGenerator[list[Event]]:
        known = await in_streams(history, thread, whole=False)
        yield self._snapshot(known)
        run = known.run
        if run is None:
            yield [*self._spoken(), self._finished({"type": "success"})]
            return
        telling = _telling(known)
        run_id = run.pk
        self._listen(run_id)
        ended_at = 0.0
        look = True
        while True:
            now = asyncio.get_running_loop().time()
            every = LOOK_RUNNING
            if look:
                seen = await self._glance(thread, run_id, telling, now)
                if told := telling.stored(seen.events, seen.secrets):
                    yield told
                if not seen.welcome or self._sent > MOST_BYTES:
                    yield [*telling.close(), _cut(welcome=seen.welcome)]
                    return
                if telling.cut_off:
                    known = await in_streams(history, thread, whole=False)
                    yield [*telling.close(), *self._snapshot(known)]
                    telling = _telling(known)
                    continue
                if len(seen.events) == MOST_EVENTS:
                    continue
                if not _is_still(seen.status):
                    self._held, self.expects, ended_at = frozenset(), True, 0.0
                elif seen.following is not None and not _stands(seen.status):
                    yield telling.close()
                    run_id, telling = seen.following, Telling()
                    self._held, self.expects, ended_at = frozenset(), True, 0.0
                    self._listen(run_id)
                    continue
                else:
                    ended_at = ended_at or now
                    if (
                        seen.queued
                        and _lets_go_on(seen.status)
                        and now - ended_at < NEXT_RUN
                    ):
                        every = LOOK_ENDING
                    else:
                        every = LOOK_WAITING
                        final = await in_streams(history, thread, whole=True)
                        ending = await in_streams(self._ending, final)
                        if ending:
                            yield [*telling.close(), *ending]
                            if ending[-1][0] in ("RUN_FINISHED", "RUN_ERROR"):
                                return
            told, look = await self._hear(telling, now + every)
            if told:
                yield told

    async def _glance(
        self, thread: Thread, run_id: UUID, telling: Telling, now: float
    ) -> Glance:
        """Look at the run, and now and then at whether the reader may still listen."""
        due = now - self._checked >= settings.SAYSO_LIVE_CHECK_SECONDS
        if due:
            self._checked = now
        caller = self.caller if due else None
        return await in_streams(glance, thread, run_id, telling.read, caller)

    async def _hear(self, telling: Telling, until: float) -> tuple[list[Event], bool]:
        """Wait for the next thing, or until the run should be looked at anyway; says
        whether it should."""
        assert self._ear is not None
        left = until - asyncio.get_running_loop().time()
        await self._ear.wait(max(0.0, left))
        deltas, look = self._ear.take()
        told: list[Event] = []
        for delta in deltas:
            told += telling.live(delta)
        return told, look or not deltas

    def _listen(self, run: UUID | None) -> None:
        if self._ear is not None:
            hub.unhear(self._ear)
        self._ear = None if run is None else Ear(run)
        if self._ear is not None:
            hub.hear(self._ear)

    # How it ends

    def _ending(self, known: History) -> list[Event] | None:
        """The last events for a thread that stands still; those of a pause that is held;
        None if it goes on after all. Reads the rules."""
        run = known.run
        assert run is not None
        status = RunStatus(run.status)
        if not _is_still(status):
            return None
        messages = self._snapshot(known)
        if status == RunStatus.WAITING:
            if not known.waiting:
                return None
            shapes = [
                interrupt_for(interrupt, site=self.site, modern=self.modern)
                for interrupt in known.waiting
            ]
            if self.hold:
                return self._hold(messages, shapes)
            if self.sent_messages and known.queued:
                self.notices.append(KEPT)
            outcome = {"type": "interrupt", "interrupts": shapes}
            return [*messages, *self._spoken(), self._finished(outcome)]
        if status == RunStatus.IN_DOUBT and self.hold:
            return None
        trouble = _trouble(run)
        if trouble is not None and self.expects and status != RunStatus.CANCELLED:
            error = ("RUN_ERROR", {"message": trouble.message, "code": trouble.code})
            return [*messages, *self._spoken(), error]
        if trouble is not None:
            self.notices.append(trouble)
        cancelled = status == RunStatus.CANCELLED and self.expects and self.modern
        outcome = {"type": "cancelled" if cancelled else "success"}
        return [*messages, *self._spoken(), self._finished(outcome)]

    def _snapshot(self, known: History) -> list[Event]:
        """The messages, unless the last snapshot said the same."""
        if known.messages == self._shown:
            return []
        self._shown = known.messages
        return [frames.snapshot(known.messages)]

    def _hold(
        self, messages: list[Event], shapes: list[dict[str, Any]]
    ) -> list[Event] | None:
        """Say once what is waited for, and stay."""
        ids = frozenset(shape["id"] for shape in shapes)
        if ids == self._held:
            return None
        self._held = ids
        told = [*self._spoken(), frames.custom("sayso.held", {"interrupts": shapes})]
        self.notices.clear()
        return [*messages, *told]

    def _spoken(self) -> list[Event]:
        return [
            *frames.told(self.notices),
            *frames.spoken(self.notices, f"sayso-{uuid4()}"),
        ]

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


KEPT = Notice(
    code="message_kept",
    message="Your message is kept. The agent gets it once the request is decided.",
)


def _telling(known: History) -> Telling:
    return Telling(seq=known.seq, attempt=known.attempt, open_calls=known.open_calls)


def _is_still(status: RunStatus) -> bool:
    """Whether nothing will happen until a person does something."""
    return status not in (RunStatus.QUEUED, RunStatus.RUNNING)


def _stands(status: RunStatus) -> bool:
    """Whether the run is not over, though still."""
    return status in (RunStatus.WAITING, RunStatus.IN_DOUBT)


def _lets_go_on(status: RunStatus) -> bool:
    """Whether a message that waits starts the next run now."""
    return status in (RunStatus.FINISHED, RunStatus.CANCELLED)


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


def _cut(*, welcome: bool) -> Event:
    if welcome:
        why, code = "This stream has become too long. Connect again.", "too_long"
    else:
        why, code = "You are not signed in any more.", "signed_out"
    return "RUN_ERROR", {"message": why, "code": code}
