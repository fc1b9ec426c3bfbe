"""Django's command, with what it changed in the audit."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.management.commands import createsuperuser

from approvals import services


class Command(createsuperuser.Command):
    def handle(self, *args: Any, **options: Any) -> str | None:
        # The entry follows the change: no transaction may wait for what somebody types.
        before = services.access()
        said = super().handle(*args, **options)
        services.record_access(before, actor="system:command")
        return said
