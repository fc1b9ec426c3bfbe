"""The clock that deadlines, undo times and leases are judged by: the database's."""

from __future__ import annotations

from datetime import datetime

from django.db import connection
from django.utils import timezone


def now() -> datetime:
    """The database's wall clock, aware, so that web processes and workers agree.

    SQLite has no clock of its own: its processes share this machine's.
    """
    if connection.vendor != "postgresql":
        return timezone.now()
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        (instant,) = cursor.fetchone()
    assert isinstance(instant, datetime)
    return instant
