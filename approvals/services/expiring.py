"""The clock decides what nobody decided in time."""

from __future__ import annotations

import logging
from datetime import datetime
from uuid import UUID

from approvals.models import Interrupt
from approvals.services.outcomes import expire, is_past
from approvals.services.work import (
    lock_run,
    unit_of_work,
)

logger = logging.getLogger(__name__)


def expire_due(now: datetime, *, limit: int = 500) -> int:
    """Expire what is past its deadline, each in a transaction of its own.

    One that cannot be expired is logged and tried again at the next call; it keeps
    nothing else from its end. Returns how many expired.
    """
    due = Interrupt.objects.open().filter(expires_at__lte=now)
    ids = list(due.order_by("expires_at").values_list("pk", "run_id")[:limit])
    expired = 0
    for interrupt_id, run_id in ids:
        try:
            expired += _expire_one(run_id, interrupt_id)
        except Exception:
            logger.exception("approvals: Could not expire request %s.", interrupt_id)
    return expired


def _expire_one(run_id: UUID, interrupt_id: UUID) -> int:
    with unit_of_work() as work:
        run = lock_run(run_id)
        interrupt = run.interrupts.get(pk=interrupt_id)
        interrupt.run = run
        if not interrupt.is_open or not is_past(interrupt, work.now):
            return 0
        expire(work, run, interrupt)
        return 1
