"""Remote agents as the catalogue lists them."""

from __future__ import annotations

from functools import partial

from approvals.states import Source, Verdict
from hitlagents.adapters.base import Adapter, AgentRunError, AgentSpec, Gating
from hitlagents.models import RemoteAgent
from hitlagents.remote import sealing
from hitlagents.remote.profiles import HABITS, Together

#: What calls them; a package that is always here.
DISTRIBUTION = "httpx"


def specs() -> list[AgentSpec]:
    """Every remote agent that is switched on, by name."""
    found = RemoteAgent.objects.filter(enabled=True).order_by("name", "slug")
    return [_spec(agent) for agent in found]


def spec(slug: str) -> AgentSpec | None:
    """One remote agent, or None if there is none or it is switched off."""
    found = RemoteAgent.objects.filter(slug=slug, enabled=True).first()
    return None if found is None else _spec(found)


def _spec(agent: RemoteAgent) -> AgentSpec:
    return AgentSpec(
        slug=agent.slug,
        name=agent.name,
        framework=f"AG-UI, {agent.get_profile_display()}",
        metadata_key="sayso",
        description=agent.description,
        distribution=DISTRIBUTION,
        install=f"pip install {DISTRIBUTION}",
        build=partial(_build, agent),
        cancel=(
            Verdict.CANCEL_RUN
            if HABITS[agent.profile].cancel_ends_run
            else Verdict.CANCEL_CALL
        ),
        model_label=lambda: agent.host,
        source=Source.REMOTE,
    )


def _build(agent: RemoteAgent, gating: Gating) -> Adapter:
    """What is held is the remote's to say, so the gating changes nothing in it.

    Raises AgentRunError when the stored headers cannot be read.
    """
    from hitlagents.remote.adapter import RemoteAdapter
    from hitlagents.remote.journal import DatabaseJournal

    try:
        endpoint = agent.endpoint()
    except sealing.Unreadable as error:
        raise AgentRunError(str(error), retryable=True) from error
    return RemoteAdapter(
        endpoint=endpoint,
        journal=DatabaseJournal(agent.slug),
        profile=agent.profile,
        together=Together(agent.together) if agent.together else None,
        may_repost=agent.may_repost,
    )
