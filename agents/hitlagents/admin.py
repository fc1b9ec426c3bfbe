"""Conversations and saved states in Django's admin: to look at, never to change."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.contrib import admin
from django.db.models.functions import Length
from django.http import HttpRequest

from approvals.admin import ReadOnly
from hitlagents.models import Checkpoint, Thread
from hitlagents.remote.admin import RemoteAgentAdmin

__all__ = ["CheckpointAdmin", "RemoteAgentAdmin", "ThreadAdmin"]

if TYPE_CHECKING:
    from django.db.models import QuerySet


@admin.register(Thread)
class ThreadAdmin(ReadOnly):
    list_display = ("id", "agent", "title", "owner", "created", "updated")
    list_filter = ("agent",)
    list_select_related = ("owner",)
    search_fields = ("id__exact", "title", "owner__username")


@admin.register(Checkpoint)
class CheckpointAdmin(ReadOnly):
    """How large a saved state is and who wrote it. The state itself stays unread."""

    list_display = (
        "run",
        "framework",
        "framework_version",
        "schema",
        "size",
        "created",
    )
    list_filter = ("framework", "framework_version", "schema")
    list_select_related = ("run",)
    search_fields = ("run__id__exact",)
    fields = (
        "run",
        ("framework", "framework_version", "schema"),
        "attempt",
        "size",
        "created",
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[Checkpoint]:
        found: QuerySet[Checkpoint] = super().get_queryset(request)
        return found.defer("state").annotate(size=Length("state"))

    @admin.display(description="size in characters", ordering="size")
    def size(self, checkpoint: Checkpoint) -> int:
        size: int = checkpoint.size  # type: ignore[attr-defined]  # annotated above
        return size
