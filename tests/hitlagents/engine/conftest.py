"""Limits here are generous, because a machine may be busy: what must not happen would take
a minute (the next look at the queue) or for ever.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from uuid import UUID

import pytest

from hitlagents.engine import threads
from hitlagents.engine.worker import WorkerThread

type Advance = Callable[[UUID], Awaitable[None]]


class Advances:
    """Stands in for the runner: notes which run was to be advanced, and when."""

    def __init__(self) -> None:
        self.entered: dict[UUID, float] = {}
        self.count = 0
        self.doing: Advance | None = None
        self._changed = threading.Condition()

    async def __call__(self, run_id: UUID, *, owner: str) -> None:
        with self._changed:
            self.entered[run_id] = time.monotonic()
            self.count += 1
            self._changed.notify_all()
        if self.doing is not None:
            await self.doing(run_id)

    def wait_for(self, *run_ids: UUID, seconds: float = 30.0) -> None:
        wanted = set(run_ids)
        with self._changed:
            there = self._changed.wait_for(
                lambda: wanted <= self.entered.keys(), seconds
            )
        assert there, "The run was not advanced in time."


@pytest.fixture
def advances(monkeypatch: pytest.MonkeyPatch) -> Advances:
    stand_in = Advances()
    monkeypatch.setattr("hitlagents.runner.advance", stand_in)
    return stand_in


@pytest.fixture
def start_worker(transactional_db: None) -> Iterator[Callable[..., WorkerThread]]:
    """Starts workers that do not poll, so that nothing but the bell can wake them."""
    started: list[WorkerThread] = []

    def start(*, concurrency: int = 8, poll: float = 60) -> WorkerThread:
        worker = WorkerThread(concurrency=concurrency, poll=poll)
        worker.start()
        started.append(worker)
        return worker

    yield start
    stopped = [worker.stop(timeout=60) for worker in started]
    assert all(stopped)
    threads.close()


def eventually(holds: Callable[[], bool], seconds: float = 30.0) -> bool:
    """Ask again and again until it holds; False if it never does."""
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True
