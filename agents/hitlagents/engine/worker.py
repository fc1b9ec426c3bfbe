"""The worker: one asyncio loop that takes tasks from the queue and runs many at once.

``Worker`` is the loop's own code. ``WorkerThread`` runs it beside a web server, on a
thread of its own, so that an agent that blocks its loop never freezes a page.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from datetime import timedelta
from typing import Any

from hitlagents.engine import queue, sweeper, threads, wake
from hitlagents.engine.threads import in_database, in_queue

logger = logging.getLogger(__name__)

#: Seconds between looks at the queue when nothing rings: rows of other processes.
POLL = 1.0
SWEEP_EVERY = 30.0
EXPIRE_EVERY = 1.0
#: A run that was queued so short a time ago is on its way, not forgotten.
PATIENCE = timedelta(seconds=5)
#: How long a stopping worker waits for its runs, in seconds.
GRACE = 2.5


class Worker:
    """Runs tasks until it is told to stop. One per process."""

    def __init__(self, *, concurrency: int, poll: float = POLL) -> None:
        self._concurrency = concurrency
        self._poll = poll
        self._jobs: set[asyncio.Task[None]] = set()
        #: Whether the last look at the queue found as much as there was room for.
        self._more = False
        self._stopping = False
        self._bell: wake.Bell | None = None

    async def run(self) -> None:
        """Work until ``stop``; then give back what is still running."""
        self._bell = bell = wake.Bell()
        wake.hang(bell)
        # Before the first look at the queue: what a crash left behind comes first.
        await in_database(sweeper.sweep)
        sweeping = asyncio.create_task(self._keep_sweeping())
        try:
            while not self._stopping:
                await bell.wait(await self._take())
        finally:
            wake.take_down(bell)
            sweeping.cancel()
            await self._give_back()

    def stop(self) -> None:
        """Take no more tasks and end. May be called from any thread."""
        self._stopping = True
        if self._bell is not None:
            self._bell.ring()

    async def _take(self) -> float:
        """Start what is due; say how many seconds to wait before the next look."""
        free = self._concurrency - len(self._jobs)
        try:
            taken = await in_queue(queue.take, limit=free)
        except Exception:
            logger.exception("worker: Could not read the queue; trying again.")
            return self._poll
        for row in taken.rows:
            job = asyncio.create_task(self._work(row))
            self._jobs.add(job)
            job.add_done_callback(self._ended)
        self._more = len(taken.rows) == free
        if taken.next_in is None:
            return self._poll
        return min(self._poll, taken.next_in)

    async def _work(self, row: queue.Row) -> None:
        """Run one task and note how it ended. Never raises for what the task did."""
        given: dict[str, Any] = row.args_kwargs
        try:
            await row.task.acall(*given["args"], **given["kwargs"])
        except asyncio.CancelledError:
            await in_queue(queue.put_back, row)
            raise
        # Those two also: a tool that calls exit() must not end the worker.
        except (Exception, SystemExit, KeyboardInterrupt) as error:
            logger.exception("worker: Task %s failed.", row.task_path)
            await in_queue(queue.fail, row, error)

    def _ended(self, job: asyncio.Task[None]) -> None:
        self._jobs.discard(job)
        if not job.cancelled() and (error := job.exception()) is not None:
            logger.error("worker: A task could not be put away.", exc_info=error)
        if self._more and self._bell is not None:
            self._bell.ring()

    async def _keep_sweeping(self) -> None:
        clock = asyncio.get_running_loop().time
        next_sweep = clock() + SWEEP_EVERY
        while True:
            await asyncio.sleep(EXPIRE_EVERY)
            try:
                if clock() < next_sweep:
                    await in_database(sweeper.expire)
                    continue
                await in_database(sweeper.sweep, patience=PATIENCE)
            except Exception:
                logger.exception("worker: The sweeper failed; trying again.")
            next_sweep = clock() + SWEEP_EVERY

    async def _give_back(self) -> None:
        """Cancel the runs, which gives their leases back; tools may still come to an end."""
        for job in self._jobs:
            job.cancel()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        if not others:
            return
        _, left = await asyncio.wait(others, timeout=GRACE)
        if left:
            logger.warning("worker: Stopping although %s tasks still run.", len(left))


class WorkerThread:
    """A worker on a thread and loop of its own, for a process that also does other work."""

    def __init__(self, *, concurrency: int, poll: float = POLL) -> None:
        self._worker = Worker(concurrency=concurrency, poll=poll)
        # A daemon: a tool that never returns must not keep the process from ending.
        self._thread = threading.Thread(
            target=self._run, name="sayso-worker", daemon=True
        )

    def start(self) -> None:
        self._thread.start()

    def stop(self, *, timeout: float = GRACE + 1) -> bool:
        """Stop and wait for the end; False if it has not come by then."""
        self._worker.stop()
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _run(self) -> None:
        run(self._worker)


def run(worker: Worker) -> None:
    """Run a worker on the calling thread, to its end."""
    try:
        asyncio.run(worker.run())
    except Exception:
        logger.exception("worker: Stopped by an error.")
        raise
    finally:
        threads.close()
