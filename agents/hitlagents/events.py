"""The stored events of a run, and the live copy of them.

A worker numbers what happens (``seq``, from 1 over the whole run). Text deltas go to open
pages at once; everything is stored soon, in pieces, and at the latest with the state that
ends the advance. A page that finds that text is missing fetches the stored events instead.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Sequence
from typing import Any
from uuid import UUID

from approvals import live, services
from approvals.models import Run
from approvals.prepared import Prepared, Slot
from hitlagents import wire
from hitlagents.adapters.base import (
    Happening,
    TextDelta,
    ToolCallProposed,
    ToolCallResult,
)
from hitlagents.engine.threads import in_database
from hitlagents.models import RunEvent

type Numbered = tuple[int, wire.Event]

#: How long an event may wait for its place in the database, in seconds.
PIECE = 0.2


def append(run: Run, attempt: int, events: Sequence[Numbered]) -> None:
    """Store numbered events of a run this attempt holds. The caller has its lock."""
    RunEvent.objects.bulk_create(
        RunEvent(
            run=run,
            seq=seq,
            attempt=attempt,
            type=type,
            payload=_as_text(members),
        )
        for seq, (type, members) in events
    )


def _as_text(members: dict[str, Any]) -> str:
    """JSON that every database and page can take, whatever a model wrote."""
    text = json.dumps(members, ensure_ascii=False)
    return text.encode("utf-8", "replace").decode()


def last_seq(run_id: UUID) -> int:
    return _SEQ.first(run=run_id) or 0


_SEQ = Prepared(
    lambda: (
        RunEvent.objects.filter(run=Slot(RunEvent, "run"))
        .order_by("-seq")
        .values_list("seq", flat=True)[:1]
    )
)


def shown(run: Run) -> list[tuple[RunEvent, dict[str, Any]]]:
    """The events that count, in order, with their members.

    An attempt that was cut off before its state was saved is played again by the next
    one; its events then no longer count.
    """
    events = list(run.events.all())
    counted = attempts_that_count((event.attempt, event.type) for event in events)
    return [
        (event, json.loads(event.payload))
        for event in events
        if event.attempt in counted
    ]


def attempts_that_count(seen: Iterable[tuple[int, str]]) -> frozenset[int]:
    """Of the attempts and types of all events of a run: the attempts not played again."""
    pairs = list(seen)
    saved = {attempt for attempt, type in pairs if type == "RUN_FINISHED"}
    return frozenset(saved | {max((attempt for attempt, _ in pairs), default=0)})


def utf16_length(text: str) -> int:
    """How long a text is for a browser."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


class EventLog:
    """Numbers, stores and publishes the events of one advance of one run."""

    def __init__(self, run_id: UUID, attempt: int, seq: int) -> None:
        self._run_id = run_id
        self._attempt = attempt
        self._seq = seq
        self._text = ""
        self._message_id = ""
        self._said = ""
        #: Length of what was said, as browsers count it.
        self._size = 0
        self._pending: list[Numbered] = []
        self._timer: asyncio.Task[None] | None = None
        self._storing = asyncio.Lock()
        self._failure: BaseException | None = None

    @property
    def said(self) -> str:
        """The last message of this advance, whole."""
        return self._said

    @property
    def seq(self) -> int:
        """The last number given."""
        return self._seq

    async def happened(self, happening: Happening) -> None:
        """Record one thing. Raises LostLease when the run was taken away."""
        if self._failure is not None:
            raise self._failure
        match happening:
            case TextDelta():
                self._add_text(happening)
            case ToolCallProposed():
                self._add(wire.tool_call(happening))
            case ToolCallResult():
                self._add([wire.tool_result(happening)])
        if self._timer is None:
            self._timer = asyncio.create_task(self._store_soon())

    def begin(self, event: wire.Event) -> None:
        """Record the event that opens this advance; it is stored with the next one."""
        self._add([event])

    async def drain(self) -> list[Numbered]:
        """Everything that is not stored yet, for the transaction that ends the advance."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        async with self._storing:
            self._close_text()
            taken, self._pending = self._pending, []
            return taken

    async def _store(self) -> None:
        """Write what is pending, in a transaction that checks the attempt."""
        async with self._storing:
            self._flush_text()
            taken, self._pending = self._pending, []
            if not taken:
                return
            try:
                await in_database(_append_leased, self._run_id, self._attempt, taken)
            except Exception:
                # What ends the advance writes them with it.
                self._pending = [*taken, *self._pending]
                raise

    def _add(self, added: Sequence[wire.Event]) -> None:
        self._close_text()
        for event in added:
            self._put(event)

    def _put(self, event: wire.Event) -> None:
        self._seq += 1
        self._pending.append((self._seq, event))

    def _add_text(self, happening: TextDelta) -> None:
        if happening.message_id != self._message_id:
            self._close_text()
            self._message_id = happening.message_id
            self._said, self._size = "", 0
            self._put(wire.text_start(happening.message_id))
        self._seq += 1
        self._text += happening.delta
        self._said += happening.delta
        self._size += utf16_length(happening.delta)
        live.publish(
            {f"run.{self._run_id}"},
            {
                "op": "delta",
                "id": str(self._run_id),
                "attempt": self._attempt,
                "seq": self._seq,
                "message": happening.message_id,
                # Where the text ends in its message: a page sees whether it has all.
                "size": self._size,
                "text": happening.delta,
            },
        )

    def _flush_text(self) -> None:
        if self._text:
            event = wire.text_content(self._message_id, self._text)
            self._pending.append((self._seq, event))
            self._text = ""

    def _close_text(self) -> None:
        self._flush_text()
        if self._message_id:
            self._put(wire.text_end(self._message_id))
            self._message_id = ""

    async def _store_soon(self) -> None:
        await asyncio.sleep(PIECE)
        self._timer = None
        try:
            await self._store()
        except Exception as failure:  # noqa: BLE001 - raised again by the next event
            self._failure = failure


def _append_leased(run_id: UUID, attempt: int, taken: list[Numbered]) -> None:
    with services.unit_of_work() as work:
        run = services.lock_leased(run_id, attempt)
        append(run, attempt, taken)
        work.tell_run(run)
