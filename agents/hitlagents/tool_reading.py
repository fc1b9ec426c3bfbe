"""Asking a worker which tools an agent has.

The registry of tools is filled by whoever runs an agent first. A page that wants to know
earlier cannot look itself: web processes import no agent framework.
"""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import TYPE_CHECKING

from django.db import transaction

from approvals import services
from approvals.exceptions import InvalidArguments
from hitlagents import registry
from hitlagents.adapters.base import AgentRunError
from hitlagents.engine import wake
from hitlagents.models import ToolReading
from hitlagents.tasks import read_tools

if TYPE_CHECKING:
    from django.contrib.auth.models import User

logger = logging.getLogger(__name__)

#: A worker that has not answered after so long is not going to.
PATIENCE = timedelta(seconds=60)
#: What pages hear when a reading has ended; its id is the agent.
OP = "tools"


def ask(agent: str, *, person: User) -> None:
    """Have a worker read the agent's tools, unless one has just been asked to."""
    with services.unit_of_work() as work:
        last = ToolReading.objects.select_for_update().filter(pk=agent).first()
        if last and not last.ended_at and work.now - last.asked_at < PATIENCE:
            return
        ToolReading.objects.update_or_create(
            agent=agent,
            defaults={"asked_at": work.now, "ended_at": None, "error": ""},
        )
        read_tools.enqueue(agent, person.pk)
        transaction.on_commit(wake.notify, robust=True)


def carry_out(agent: str, person_id: int) -> None:
    """Read the tools, note how it went and tell whoever asked. Runs in a worker."""
    error = ""
    try:
        registry.register(agent)
    except (AgentRunError, InvalidArguments, ValueError) as wrong:
        # Said for people: a model set up wrong, two tools of one name.
        error = str(wrong)
    except Exception as wrong:
        logger.exception("tools: Those of %s cannot be read.", agent)
        error = f"The agent could not be made ({type(wrong).__name__})."
    with services.unit_of_work() as work:
        ToolReading.objects.filter(pk=agent).update(ended_at=work.now, error=error)
        work.tell(OP, agent, {f"user.{person_id}"})
