"""Threads that start at the same moment, each with a connection of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from django.db import connection, connections

#: So many connections the pool surely has; a crowd has to queue for them.
FEW = 5

type Racer = Callable[[], Any]


def race(racers: Sequence[Racer]) -> list[Any]:
    """Run all at the same moment; what each returned, or the exception it raised."""
    barrier = threading.Barrier(len(racers))
    results: list[Any] = [None] * len(racers)

    def run(at: int, racer: Racer) -> None:
        try:
            if len(racers) <= FEW:
                # Connected before the start, so that nobody is late for that reason.
                connection.ensure_connection()
            barrier.wait(timeout=60)
            results[at] = racer()
        except Exception as error:  # noqa: BLE001  (it is what the race came to)
            results[at] = error
        finally:
            connections.close_all()

    threads = [
        threading.Thread(target=run, args=(at, racer), daemon=True)
        for at, racer in enumerate(racers)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
        assert not thread.is_alive(), "a racer is stuck"
    return results
