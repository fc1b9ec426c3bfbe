"""Adapters ready to use: built once per process and gating, their tools registered."""

from __future__ import annotations

import threading

from approvals import services
from approvals.policies import Rulebook
from hitlagents import catalog
from hitlagents.adapters.base import Adapter, AgentRunError, AgentSpec, Gating

_lock = threading.Lock()
_adapters: dict[tuple[str, frozenset[str]], Adapter] = {}
_registered: set[str] = set()


def adapter_for(slug: str, allowed: frozenset[str]) -> Adapter:
    """The agent's adapter, letting only ``allowed`` tools run without asking.

    At first use it imports the framework and registers the tools. Raises
    AgentRunError when the agent is not hosted here or not installed.
    """
    spec = _installed(slug)
    if spec.is_remote:
        return spec.build(Gating(allowed=allowed))
    with _lock:
        if slug not in _registered:
            _register(spec)
            # What was allowed before the tools were known may have missed some.
            allowed = Rulebook(slug).allowed()
        key = (slug, allowed)
        if key not in _adapters:
            _adapters[key] = spec.build(Gating(allowed=allowed))
        return _adapters[key]


def register(slug: str) -> None:
    """Make the registered tools those of the code here. Raises as ``adapter_for`` does.

    An agent that runs elsewhere has no code here: its tools stay as it named them.
    """
    spec = _installed(slug)
    if not spec.is_remote:
        with _lock:
            _register(spec)


def _installed(slug: str) -> AgentSpec:
    spec = catalog.get(slug)
    if spec is None:
        raise AgentRunError(f"No agent named {slug} is hosted here.", retryable=True)
    if not catalog.installed(spec):
        raise AgentRunError(
            f"{spec.framework} is not installed. Install it with: {spec.install}",
            retryable=True,
        )
    return spec


def _register(spec: AgentSpec) -> None:
    bare = spec.build(Gating(allowed=frozenset()))
    services.register_tools(spec.slug, bare.tools)
    _registered.add(spec.slug)
