"""The agents of this installation. Listing them imports no agent framework."""

from __future__ import annotations

from importlib import metadata

from hitlagents.adapters.base import AgentSpec
from hitlagents.demo import file_ops, scheduler, support

_AGENTS = {spec.slug: spec for spec in (file_ops.SPEC, scheduler.SPEC, support.SPEC)}


def agents() -> list[AgentSpec]:
    """Every agent, in the order of the catalogue, whether or not it can run here."""
    return list(_AGENTS.values())


def get(slug: str) -> AgentSpec | None:
    return _AGENTS.get(slug)


def installed(spec: AgentSpec) -> bool:
    """Whether the agent's framework is here."""
    return version(spec) is not None


def version(spec: AgentSpec) -> str | None:
    """The version of the framework's package; None if it is not here.

    Asked of the distribution's metadata: an import would cost seconds and tens of
    megabytes, and ``import agents`` always works.
    """
    try:
        return metadata.version(spec.distribution)
    except metadata.PackageNotFoundError:
        return None
