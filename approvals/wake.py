"""How a run reaches whoever runs it, without this package knowing who that is.

``hitlagents`` connects the source "hosted" when the site starts. The calls are made inside
the transaction that changed the run, so what they write commits or rolls back with it.
"""

from __future__ import annotations

from datetime import datetime
from typing import Protocol
from uuid import UUID


class Runner(Protocol):
    """Whoever works on the runs of one source."""

    def queued(self, run_id: UUID, due_at: datetime) -> None:
        """A run wants a worker at ``due_at``."""

    def ended(self, run_id: UUID) -> None:
        """A run finished, failed or was cancelled."""

    def hold(self, thread: UUID) -> None:
        """Until the transaction ends, let no other run begin on this thread."""


_runners: dict[str, Runner] = {}


def connect(source: str, runner: Runner) -> None:
    _runners[source] = runner


def run_queued(source: str, run_id: UUID, due_at: datetime) -> None:
    """Wake the runner of ``source``. Without one the sweeper finds the run later."""
    if source in _runners:
        _runners[source].queued(run_id, due_at)


def run_ended(source: str, run_id: UUID) -> None:
    """Tell the runner of ``source`` that one of its runs is over."""
    if source in _runners:
        _runners[source].ended(run_id)


def hold_thread(source: str, thread: UUID) -> None:
    """Keep the runner of ``source`` from beginning another run on a thread."""
    if source in _runners:
        _runners[source].hold(thread)
