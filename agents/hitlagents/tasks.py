"""What the queue can be asked to do, written against ``django.tasks``."""

from __future__ import annotations

from uuid import UUID

from django.tasks import task

from approvals import services


@task
async def advance_run(run_id: str) -> None:
    """Take the run to its next pause or its end. Doubled and late wake-ups do no harm."""
    # Here, because whoever only enqueues needs none of what runs agents.
    from hitlagents import runner

    await runner.advance(UUID(run_id), owner=services.worker_name())
