"""The rows of the task queue: taken, finished, put back, thrown away.

A row is a wake-up and nothing else. Whether a run may be worked on is decided by its
lease, so a row that is lost is made again by the sweeper, and a doubled one does no harm.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import Q
from django.tasks import TaskResultStatus
from django_tasks_db.models import DBTaskResult, get_date_max

from approvals import clock

type Row = DBTaskResult[..., Any]

#: Seconds after rows were found until the next look, for those that are due later.
LOOK_AGAIN = 0.05
#: How long rows of failed tasks are kept for whoever looks into them.
KEEP_FAILED = timedelta(days=7)
#: A row that claims to run for longer belongs to a worker that never came back.
LONGEST = timedelta(days=1)


@dataclass(frozen=True, kw_only=True)
class Taken:
    rows: list[Row]
    #: Seconds until it is worth looking again, as far as the rows tell.
    next_in: float | None


def take(owner: str, *, limit: int) -> Taken:
    """Claim up to ``limit`` rows that are due, for one worker and no other."""
    now = clock.now()
    # Looking first, because the transaction takes SQLite's one write lock.
    if limit < 1 or not due(now).exists():
        return Taken(rows=[], next_in=_next_in(now))
    with transaction.atomic():
        rows = list(due(now).select_for_update(skip_locked=True)[:limit])
        for row in rows:
            row.claim(owner)
    # Nothing more is asked just now, so that these start without delay.
    return Taken(rows=rows, next_in=0 if len(rows) == limit else LOOK_AGAIN)


def due(now: datetime) -> Any:
    """Rows that wait for a worker. Immediate ones carry the largest date there is."""
    at_once_or_past = Q(run_after=get_date_max()) | Q(run_after__lte=now)
    return _with(TaskResultStatus.READY).filter(at_once_or_past)


def _next_in(now: datetime) -> float | None:
    later = _with(TaskResultStatus.READY).filter(
        run_after__gt=now, run_after__lt=get_date_max()
    )
    first = later.order_by("run_after").values_list("run_after", flat=True).first()
    return None if first is None else (first - now).total_seconds()


def finish(row_id: UUID) -> None:
    """The task is done, and nobody asks for its result: the row goes."""
    DBTaskResult.objects.filter(pk=row_id).delete()


def fail(row: Row, error: BaseException) -> None:
    """Keep the row with its traceback."""
    row.set_failed(error)


def put_back(row_id: UUID) -> None:
    """The worker stops before the task is done: another may take it."""
    _make_ready([row_id])


def recover(is_gone: Callable[[str], bool]) -> int:
    """Put back the rows of workers that have ended; say how many."""
    running = _with(TaskResultStatus.RUNNING).only("pk", "worker_ids")
    lost = [row.pk for row in running if row.worker_ids and is_gone(row.worker_ids[-1])]
    return _make_ready(lost)


def prune() -> int:
    """Throw away what is of no use any more; say how many rows."""
    now = clock.now()
    failed = _with(TaskResultStatus.FAILED).filter(finished_at__lt=now - KEEP_FAILED)
    stuck = _with(TaskResultStatus.RUNNING).filter(started_at__lt=now - LONGEST)
    return sum(rows.delete()[0] for rows in (failed, stuck))


def _make_ready(row_ids: list[UUID]) -> int:
    rows = _with(TaskResultStatus.RUNNING).filter(pk__in=row_ids)
    return int(rows.update(status=TaskResultStatus.READY))


def _with(status: TaskResultStatus) -> Any:
    return DBTaskResult.objects.filter(status=status)
