"""What a stream hears of a run through the hub, and what it reads of it from storage."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from approvals.callers import Caller
from approvals.models import Run
from approvals.sockets import HELLO, Message
from approvals.states import RunStatus
from hitlagents.agui.snapshot import Secrets, secrets_of
from hitlagents.agui.telling import Stored
from hitlagents.models import RunEvent, Thread

#: More live messages than this are given up: the stored events say the same.
MOST_HEARD = 500
#: Events taken from storage at once.
MOST_EVENTS = 500


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


@dataclass(frozen=True, kw_only=True)
class Glance:
    """A run at one moment, with what is new of it."""

    status: RunStatus
    events: Sequence[Stored]
    secrets: Secrets
    #: The run that came after it on the thread.
    following: UUID | None
    queued: bool
    #: The requests it waits for.
    waiting: frozenset[UUID]
    #: There are more than were read.
    more: bool
    #: The reader may still listen.
    welcome: bool


def glance(thread: Thread, run_id: UUID, seq: int, caller: Caller | None) -> Glance:
    """Read in this order: a status never says more than the events that are read."""
    welcome = caller is None or caller.still_is()
    run = Run.objects.get(pk=run_id)
    after = thread.inputs.filter(run__created__gt=run.created)
    following = after.order_by("run__created").values_list("run", flat=True).first()
    queued = thread.queued.exists()
    waiting: list[UUID] = []
    if run.status == RunStatus.WAITING:
        asked = run.interrupts.open().for_people()
        waiting = list(asked.values_list("pk", flat=True))
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
        events=events,
        secrets=secrets_of(thread.agent) if calls else {},
        following=following,
        queued=queued,
        waiting=frozenset(waiting),
        more=len(events) == MOST_EVENTS,
        welcome=welcome,
    )


def is_still(status: RunStatus) -> bool:
    """Whether nothing will happen until a person does something."""
    return status not in (RunStatus.QUEUED, RunStatus.RUNNING)


def stands(status: RunStatus) -> bool:
    """Whether the run is not over, though still."""
    return status in (RunStatus.WAITING, RunStatus.IN_DOUBT)


def lets_go_on(status: RunStatus) -> bool:
    """Whether a message that waits starts the next run now."""
    return status in (RunStatus.FINISHED, RunStatus.CANCELLED)
