"""Who changed what about a remote agent, on record."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from approvals import services
from hitlagents.models import RemoteAgent
from hitlagents.remote import sealing

if TYPE_CHECKING:
    from django.contrib.auth.models import User

#: What the agent itself or a health check writes; nobody's decision.
_OBSERVED = frozenset({"heard", "protocol_version"})
_CHECKED = frozenset({"checked", "check_passed", "check_result"})


@contextmanager
def changing_remotes(*, actor: User) -> Iterator[None]:
    """Record every remote agent that is added, changed or deleted inside, before and
    after. Of headers only the names are recorded, and that their values changed."""
    with services.unit_of_work() as work:
        before = _rows()
        yield
        after = _rows()
        for pk in sorted(before.keys() | after.keys()):
            if before.get(pk) == after.get(pk):
                continue
            old, new = before.get(pk), after.get(pk)
            work.record(
                "agent.changed" if new else "agent.deleted",
                actor=actor.get_username(),
                before=_shown(old),
                after=_shown(new),
                headers_changed=_sealed(old) != _sealed(new),
            )


def _rows() -> dict[int, dict[str, Any]]:
    """Every row as it stands, locked so that two administrators take turns."""
    rows = RemoteAgent.objects.order_by("pk").select_for_update(no_key=True)
    return {row.pk: _values(row) for row in rows}


def _values(row: RemoteAgent) -> dict[str, Any]:
    left_out = _OBSERVED | _CHECKED
    values = {
        field.name: getattr(row, field.name)
        for field in row._meta.concrete_fields
        if field.name not in left_out and not field.primary_key
    }
    values["created"] = row.created.isoformat()
    try:
        values["headers"] = sorted(row.headers)
    except sealing.Unreadable:
        values["headers"] = None
    return values


def _shown(values: dict[str, Any] | None) -> dict[str, Any] | None:
    if values is None:
        return None
    return {name: value for name, value in values.items() if name != "sealed_headers"}


def _sealed(values: dict[str, Any] | None) -> str:
    return values["sealed_headers"] if values else ""
