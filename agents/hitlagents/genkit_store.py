"""Genkit's sessions in our database, for agents that are given ``store=``.

A session is a thread. Imports the framework, so import this module late.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import Exists, OuterRef
from genkit import GenkitError
from genkit.exp.agent import SessionSnapshot, SnapshotStatus

from hitlagents.engine.threads import in_database
from hitlagents.models import GenkitSnapshot

type Change = Callable[[SessionSnapshot | None], SessionSnapshot | None]

_ENDED = frozenset(
    {SnapshotStatus.COMPLETED, SnapshotStatus.FAILED, SnapshotStatus.ABORTED}
)


class DatabaseSessions:
    """A ``SessionStore``. Every turn is one row with the whole session; rows go with
    their thread.

    ``context`` is Genkit's place for tenants. Who may go on with a thread is decided
    before a run is queued, so it is not looked at here.
    """

    async def get_snapshot(
        self,
        *,
        snapshot_id: str | None = None,
        session_id: str | None = None,
        context: dict[str, Any] | None = None,
    ) -> SessionSnapshot | None:
        """The snapshot of that id, or the newest end of that session's history.

        Raises GenkitError unless exactly one of the two is given.
        """
        if bool(snapshot_id) == bool(session_id):
            raise GenkitError(
                status="INVALID_ARGUMENT",
                message="Name either a snapshot or a session.",
            )
        if snapshot_id:
            return await in_database(_by_id, snapshot_id)
        return await in_database(_newest, str(session_id))

    async def save_snapshot(
        self,
        snapshot_id: str,
        fn: Change,
        *,
        context: dict[str, Any] | None = None,
    ) -> SessionSnapshot | None:
        """Write what ``fn`` makes of the snapshot of that id; nothing if it gives None.

        Raises GenkitError for a snapshot of another session, for one that would leave an
        end state, and for a session that is no thread.
        """
        return await in_database(_save, snapshot_id, fn)


def _by_id(snapshot_id: str) -> SessionSnapshot | None:
    return _snapshot(GenkitSnapshot.objects.filter(pk=snapshot_id).first())


def _newest(session_id: str) -> SessionSnapshot | None:
    rows = GenkitSnapshot.objects.filter(thread_id=_thread(session_id))
    later = rows.filter(parent_id=OuterRef("snapshot_id"))
    ends = rows.exclude(Exists(later)).order_by("created", "snapshot_id")
    return _snapshot(ends.last())


def _save(snapshot_id: str, fn: Change) -> SessionSnapshot | None:
    with transaction.atomic():
        row = GenkitSnapshot.objects.select_for_update().filter(pk=snapshot_id).first()
        existing = _snapshot(row)
        changed = fn(_snapshot(row))
        if changed is None:
            return None
        changed = changed.model_copy(update=_stamp(snapshot_id, changed))
        if existing is not None:
            _check(existing, changed)
        GenkitSnapshot.objects.update_or_create(
            snapshot_id=snapshot_id,
            defaults={
                "thread_id": _thread(changed.session_id or ""),
                "parent_id": changed.parent_id or "",
                "data": changed.model_dump_json(by_alias=True, exclude_none=True),
            },
        )
    return changed


def _stamp(snapshot_id: str, changed: SessionSnapshot) -> dict[str, Any]:
    """What a store fills in where the framework has left it open."""
    session_id = changed.session_id
    if session_id is None and changed.state is not None:
        session_id = changed.state.session_id
    return {
        "snapshot_id": snapshot_id,
        "session_id": session_id,
        "created_at": changed.created_at or datetime.now(UTC).isoformat(),
        "status": changed.status or SnapshotStatus.COMPLETED,
    }


def _check(existing: SessionSnapshot, changed: SessionSnapshot) -> None:
    if existing.session_id != changed.session_id:
        raise GenkitError(
            status="FAILED_PRECONDITION",
            message="The snapshot belongs to another session.",
        )
    if existing.status in _ENDED and changed.status != existing.status:
        raise GenkitError(
            status="FAILED_PRECONDITION",
            message=f"The snapshot has ended as {existing.status}.",
        )


def _snapshot(row: GenkitSnapshot | None) -> SessionSnapshot | None:
    return None if row is None else SessionSnapshot.model_validate_json(row.data)


def _thread(session_id: str) -> UUID:
    try:
        return UUID(session_id)
    except ValueError:
        raise GenkitError(
            status="INVALID_ARGUMENT", message="The session is no thread."
        ) from None
