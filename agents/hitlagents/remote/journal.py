"""What was sent to remote agents: marked before it leaves, so that it never leaves twice.

Requests that carry an approval are in the ledger; all others have a row here. A row that
is found again means that a worker stopped, or heard nothing, after it had sent this.
"""

from __future__ import annotations

from uuid import UUID

from django.db import transaction
from django.utils import timezone

from hitlagents.engine.threads import in_database
from hitlagents.models import RemoteAgent, RemotePost


class DatabaseJournal:
    """The journal of one remote agent of this installation (``adapter.Journal``)."""

    def __init__(self, slug: str) -> None:
        self._slug = slug

    async def begin(self, run_id: UUID, place: str, *, again: bool) -> bool:
        return await in_database(_begin, run_id, place, again=again)

    async def forget(self, run_id: UUID, place: str) -> None:
        await in_database(_forget, run_id, place)

    async def lost(self, run_id: UUID, place: str) -> None:
        await in_database(_lose, run_id, place)

    async def heard(self, protocol_version: str) -> None:
        await in_database(_hear, self._slug, protocol_version)


@transaction.atomic
def _begin(run_id: UUID, place: str, *, again: bool) -> bool:
    post, created = RemotePost.objects.select_for_update().get_or_create(
        run_id=run_id, place=place
    )
    if created:
        return True
    if post.lost and again:
        post.lost, post.sent = False, timezone.now()
        post.save(update_fields=["lost", "sent"])
        return True
    if not post.lost:
        # Whoever sent it stopped before it heard anything.
        post.lost = True
        post.save(update_fields=["lost"])
    return False


def _forget(run_id: UUID, place: str) -> None:
    RemotePost.objects.filter(run=run_id, place=place).delete()


def _lose(run_id: UUID, place: str) -> None:
    RemotePost.objects.filter(run=run_id, place=place).update(lost=True)


def _hear(slug: str, protocol_version: str) -> None:
    RemoteAgent.objects.filter(slug=slug).update(
        heard=timezone.now(), protocol_version=protocol_version
    )
