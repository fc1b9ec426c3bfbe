"""What pages say of an agent, without this package knowing who hosts it.

``hitlagents`` connects itself when the site starts, as it does for ``approvals.wake``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from approvals.models import Run
    from approvals.permissions import Person


class Host(Protocol):
    """Whoever knows the agents of this installation."""

    def name(self, agent: str) -> str:
        """What an agent is called; empty if it is not known."""

    def conversation(self, run: Run, person: Person) -> str:
        """The address of the run's conversation; empty for all but its owner."""


_hosts: list[Host] = []


def connect(host: Host) -> None:
    _hosts.append(host)


class Names(dict[str, str]):
    """The names of agents by their slugs, each asked for once; of a strange one its slug."""

    def __missing__(self, agent: str) -> str:
        found = (host.name(agent) for host in _hosts)
        name = self[agent] = next(filter(None, found), agent)
        return name


def conversation(run: Run, person: Person) -> str:
    """The address of the run's conversation; empty for all but its owner."""
    found = (host.conversation(run, person) for host in _hosts)
    return next(filter(None, found), "")
