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


@task
async def read_tools(agent: str, person_id: int) -> None:
    """Register the agent's tools for the page that a person has open."""
    from hitlagents import tool_reading
    from hitlagents.engine.threads import in_database

    await in_database(tool_reading.carry_out, agent, person_id)
