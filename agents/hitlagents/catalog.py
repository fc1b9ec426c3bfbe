"""The agents of this installation. Listing them imports no agent framework.

Those that are hosted here are code; the remote ones are rows, asked for each time, so
that every process knows them as they are now.
"""

from __future__ import annotations

import re
from functools import cache
from importlib import import_module, metadata

from hitlagents.adapters.base import AgentSpec
from hitlagents.demo import banking, file_ops, scheduler, support, writer
from hitlagents.remote import listing as remote

_AGENTS = {
    spec.slug: spec
    for spec in (file_ops.SPEC, scheduler.SPEC, support.SPEC, banking.SPEC, writer.SPEC)
}


class Unusable(Exception):
    """What was given as an agent is none; the text says why."""


def add(module_name: str) -> AgentSpec:
    """Take up the agent of a module: its ``SPEC``. Raises Unusable."""
    try:
        module = import_module(module_name)
    except (ImportError, TypeError, ValueError) as error:
        raise Unusable(f"{module_name!r} cannot be imported: {error}.") from error
    spec = getattr(module, "SPEC", None)
    if not isinstance(spec, AgentSpec):
        raise Unusable(f"{module_name!r} has no AgentSpec named SPEC.")
    try:
        take(spec)
    except Unusable as error:
        raise Unusable(f"{module_name!r}: {error}") from error
    return spec


def take(spec: AgentSpec) -> None:
    """Put an agent at the end of the catalogue. Raises Unusable."""
    if not re.fullmatch(r"[a-z0-9][a-z0-9_-]{0,99}", spec.slug):
        raise Unusable(
            f"{spec.slug!r} is no name for an agent; it takes small letters, digits, "
            "- and _."
        )
    if _AGENTS.setdefault(spec.slug, spec) is not spec:
        raise Unusable(f"There are two agents named {spec.slug!r}.")


def agents() -> list[AgentSpec]:
    """Every agent: the hosted ones in the order of the catalogue, whether or not they can
    run here, then the remote ones."""
    elsewhere = [spec for spec in remote.specs() if spec.slug not in _AGENTS]
    return [*hosted(), *elsewhere]


def hosted() -> list[AgentSpec]:
    """The agents that are code here. Asks no database."""
    return list(_AGENTS.values())


def get(slug: str) -> AgentSpec | None:
    return _AGENTS.get(slug) or remote.spec(slug)


def installed(spec: AgentSpec) -> bool:
    """Whether the agent's framework is here."""
    return version(spec) is not None


def version(spec: AgentSpec) -> str | None:
    """The version of the framework's package; None if it is not here.

    Asked of the distribution's metadata: an import would cost seconds and tens of
    megabytes, and ``import agents`` always works.
    """
    try:
        return _version(spec.distribution)
    except metadata.PackageNotFoundError:
        return None


@cache
def _version(distribution: str) -> str:
    """What is here stays as it is while a process runs; what is not is looked for again."""
    return metadata.version(distribution)
