"""What the pages of the desk say of the agents that are hosted here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.urls import reverse

from hitlagents import catalog, conversations
from hitlagents.models import RemoteAgent

if TYPE_CHECKING:
    from approvals.models import Run
    from approvals.permissions import Person


class HostedAgents:
    """The ``approvals.hosts.Host`` of this package."""

    def name(self, agent: str) -> str:
        """The name in the catalogue. A remote agent that is switched off keeps its own."""
        for spec in catalog.hosted():
            if spec.slug == agent:
                return spec.name
        remote = RemoteAgent.objects.filter(slug=agent).values_list("name", flat=True)
        return remote.first() or ""

    def conversation(self, run: Run, person: Person) -> str:
        if not person.is_authenticated:
            return ""
        thread = conversations.threads_of(person, run.agent).filter(pk=run.thread)
        if not thread.exists():
            return ""
        return reverse("thread", args=[run.agent, run.thread])
