"""Finds what nobody was told of: passed deadlines, lapsed leases, lost wake-ups.

Deadlines are looked at every second; they are one indexed query. The rest comes every 30
seconds and at the start of a worker.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from uuid import UUID

from approvals import clock, services, wake
from approvals.models import Run
from approvals.states import RunStatus
from hitlagents.engine import queue
from hitlagents.tasks import advance_run

logger = logging.getLogger(__name__)


def expire() -> None:
    """End the requests whose deadline has passed."""
    services.expire_due(clock.now())


def sweep(*, patience: timedelta = timedelta()) -> None:
    """Everything, in this order: what one step frees, a later one wakes.

    ``patience``: leave alone what became due so short a time ago; it is on its way.
    """
    steps: tuple[Callable[[], object], ...] = (
        expire,
        _free_runs_of_the_gone,
        partial(_wake_runs, patience),
        queue.prune,
    )
    for step in steps:
        try:
            step()
        except Exception:
            logger.exception("sweeper: A step failed; the others go on.")


def _free_runs_of_the_gone() -> None:
    """Let leases of ended processes lapse at once instead of in their own time."""
    leased = Run.objects.filter(
        status=RunStatus.RUNNING, lease_until__gt=clock.now()
    ).only("pk", "attempt", "lease_owner")
    for run in leased:
        if services.worker_is_gone(run.lease_owner):
            services.release_run(run.pk, attempt=run.attempt)


def _wake_runs(patience: timedelta) -> None:
    """Wake each run that is due or abandoned, unless a wake-up for it waits already."""
    now = clock.now()
    runs = services.runs_to_wake(now - patience)
    waiting = _runs_in_queue() if runs else frozenset()
    for run in runs:
        if run.pk not in waiting:
            logger.info("sweeper: Waking run %s (%s).", run.pk, run.status)
            wake.run_queued(run.source, run.pk, now)


def _runs_in_queue() -> frozenset[UUID]:
    given = (
        queue.due(clock.now())
        .filter(task_path=advance_run.module_path)
        .values_list("args_kwargs", flat=True)
    )
    return frozenset(UUID(call["args"][0]) for call in given)
