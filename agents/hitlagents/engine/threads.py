"""How code on the agents' loop calls what blocks: on threads kept for that purpose.

Every purpose has its own few threads, so that none waits for another: a lease is renewed
in time also while every database thread is busy, and slow tools (whose threads belong to
the adapters) hold up neither.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Lock

from django.db import connection, connections
from django.db.backends.base.base import BaseDatabaseWrapper


class Threads:
    """A bounded pool of threads, made at its first call, each with its own connection.

    A connection to a server goes back to Django's pool after every call. One to SQLite
    stays open with its thread: opening the file costs more than most queries.

    ``setup`` is SQL for every SQLite connection these threads open.
    """

    def __init__(self, name: str, size: int, *, setup: str = "") -> None:
        self._name = name
        self._size = size
        self._setup = setup
        self._executor: ThreadPoolExecutor | None = None
        self._connections: list[BaseDatabaseWrapper] = []
        self._lock = Lock()

    async def run[**P, T](
        self, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Call it on one of the threads and give what it gives.

        Cancelling the caller does not stop a call that has begun.
        """
        context = contextvars.copy_context()
        work = partial(context.run, self._call, partial(call, *args, **kwargs))
        with self._lock:
            future = self._started().submit(work)
        return await asyncio.wrap_future(future)

    def close(self) -> None:
        """Wait for what is running, then end the threads and their connections."""
        with self._lock:
            executor, self._executor = self._executor, None
        if executor is not None:
            executor.shutdown(wait=True, cancel_futures=True)
        while self._connections:
            self._connections.pop().close()

    def _started(self) -> ThreadPoolExecutor:
        if self._executor is None:
            self._executor = ThreadPoolExecutor(
                self._size, thread_name_prefix=self._name, initializer=self._enter
            )
        return self._executor

    def _call[T](self, call: Callable[[], T]) -> T:
        _drop_unusable()
        if self._setup and connection.connection is None:
            self._open()
        try:
            return call()
        finally:
            _drop_unusable()

    def _open(self) -> None:
        if connection.vendor == "sqlite":
            with connection.cursor() as cursor:
                cursor.execute(self._setup)

    def _enter(self) -> None:
        """Remember the connections of a new thread, so that close() can end them."""
        for alias in connections:
            one = connections[alias]
            one.inc_thread_sharing()
            self._connections.append(one)


def _drop_unusable() -> None:
    """What Django does around a request, except that healthy SQLite stays open."""
    for one in connections.all(initialized_only=True):
        if one.vendor != "sqlite" or one.errors_occurred:
            one.close_if_unusable_or_obsolete()


_database = Threads("sayso-database", 4)
_lease = Threads("sayso-lease", 2)
_streams = Threads("sayso-streams", 2)
# Rows of the queue are wake-ups, which the sweeper makes again if they are lost. So a run
# need not wait until the disk has confirmed that its row was taken.
_queue = Threads("sayso-queue", 1, setup="PRAGMA synchronous = NORMAL")


async def in_database[**P, T](
    call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
) -> T:
    """Call a sync function that uses the ORM, from the agents' loop."""
    return await _database.run(call, *args, **kwargs)


async def in_lease[**P, T](
    call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
) -> T:
    """Call what keeps or gives back a lease, and so must never queue behind other work."""
    return await _lease.run(call, *args, **kwargs)


async def in_streams[**P, T](
    call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
) -> T:
    """Call what reads for streams that follow a run, from the web loop."""
    return await _streams.run(call, *args, **kwargs)


async def in_queue[**P, T](
    call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
) -> T:
    """Call what reads or writes the task queue: the engine's own thread."""
    return await _queue.run(call, *args, **kwargs)


def close() -> None:
    """End all threads; the next call makes new ones. For the end of a process or a test."""
    for threads in (_database, _lease, _streams, _queue):
        threads.close()
