"""How a queued run reaches whoever runs it, without this package knowing who that is.

``hitlagents`` connects the source "hosted" when the site starts. The call is made inside
the transaction that queued the run, so the wake-up commits or rolls back with it.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from uuid import UUID

type Waker = Callable[[UUID, datetime], None]

_wakers: dict[str, Waker] = {}


def connect(source: str, waker: Waker) -> None:
    _wakers[source] = waker


def run_queued(source: str, run_id: UUID, due_at: datetime) -> None:
    """Wake the runner of ``source``. Without one the sweeper finds the run later."""
    waker = _wakers.get(source)
    if waker is not None:
        waker(run_id, due_at)
