"""What an empty installation needs before anybody can work with it."""

from __future__ import annotations

from collections.abc import Iterable

from django.contrib.auth.models import Group, Permission
from django.db import transaction

from approvals.audit import GENESIS
from approvals.models import AuditHead
from approvals.policies import FALLBACK_GROUP

REVIEWER = ("view_interrupt", "decide_interrupt", "cancel_run", "settle_toolexecution")
WATCHER = ("view_interrupt", "view_all_interrupts")
AUDITOR = (*WATCHER, "view_auditentry")

ROLES = {FALLBACK_GROUP: REVIEWER, "Watchers": WATCHER, "Auditors": AUDITOR}


@transaction.atomic
def prepare() -> None:
    """Make the groups every installation has, and the head of the chain. Idempotent.

    A group that is there already keeps the permissions an administrator gave it.
    """
    AuditHead.objects.get_or_create(pk=AuditHead.ONLY, defaults={"hash": GENESIS})
    for name, codenames in ROLES.items():
        make_group(name, codenames)


def make_group(name: str, codenames: Iterable[str] = REVIEWER) -> Group:
    """A group with these permissions of ``approvals``, unless it is there already."""
    group, created = Group.objects.get_or_create(name=name)
    if created:
        group.permissions.set(
            Permission.objects.filter(
                content_type__app_label="approvals", codename__in=list(codenames)
            )
        )
    return group
