"""How a queued run reaches a worker: a task row in the same transaction, then a bell.

The row is what counts. The bell only spares the worker of this process the wait until it
looks at the queue by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
from datetime import datetime
from uuid import UUID

from django.db import transaction

from approvals import clock
from hitlagents.tasks import advance_run


class Bell:
    """An event of the running loop that every thread may set."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._rung = asyncio.Event()

    def ring(self) -> None:
        # A loop that has closed has nobody who could listen.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._rung.set)

    async def wait(self, seconds: float) -> None:
        """Until it rings, or so long. A ring since the last wait counts."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._rung.wait()
        self._rung.clear()


_bells: set[Bell] = set()


def hang(bell: Bell) -> None:
    _bells.add(bell)


def take_down(bell: Bell) -> None:
    _bells.discard(bell)


def notify() -> None:
    """Tell the worker of this process, if there is one, to look at the queue now."""
    for bell in tuple(_bells):
        bell.ring()


class HostedRuns:
    """What the desk tells of runs that are worked on here (``approvals.wake.Runner``)."""

    def queued(self, run_id: UUID, due_at: datetime) -> None:
        due_later = due_at > clock.now()
        task = advance_run.using(run_after=due_at) if due_later else advance_run
        task.enqueue(str(run_id))
        transaction.on_commit(notify, robust=True)

    def ended(self, run_id: UUID) -> None:
        # Here, because conversations start runs, which brings them back to this module.
        from hitlagents import conversations

        conversations.after_run(run_id)

    def hold(self, thread: UUID) -> None:
        from hitlagents import conversations

        conversations.hold(thread)
