"""The rows of the task queue: taken, put back, thrown away.

A row is a wake-up and nothing else, so it goes as soon as a worker has it. Whether a run
may be worked on is decided by its lease; a wake-up that is lost with its worker is made
again by the sweeper, and a doubled one does no harm.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

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


@dataclass(frozen=True, kw_only=True)
class Taken:
    rows: list[Row]
    #: Seconds until it is worth looking again, as far as the rows tell.
    next_in: float | None


def take(*, limit: int) -> Taken:
    """Take up to ``limit`` rows that are due out of the queue: nobody else has them."""
    now = clock.now()
    found = list(due(now)[:limit]) if limit > 0 else []
    if not found:
        return Taken(rows=[], next_in=_next_in(now))
    # Whoever deletes a row has it; another worker may have been faster.
    rows = [row for row in found if _of(row).delete()[0]]
    # Nothing more is asked just now, so that these start without delay.
    return Taken(rows=rows, next_in=0 if len(found) == limit else LOOK_AGAIN)


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


def fail(row: Row, error: BaseException) -> None:
    """Keep the row with its traceback, for whoever looks into it."""
    # In one transaction: as a row that waits, another worker would take it.
    with transaction.atomic():
        put_back(row)
        row.set_failed(error)


def put_back(row: Row) -> None:
    """The worker stops before the task is done: another may take it."""
    row.save(force_insert=True)


def prune() -> int:
    """Throw away rows of failed tasks that nobody will look at; say how many."""
    old = clock.now() - KEEP_FAILED
    failed = _with(TaskResultStatus.FAILED).filter(finished_at__lt=old)
    return int(failed.delete()[0])


def _of(row: Row) -> Any:
    return DBTaskResult.objects.filter(pk=row.pk)


def _with(status: TaskResultStatus) -> Any:
    return DBTaskResult.objects.filter(status=status)
