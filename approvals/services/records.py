"""What changes the record's surroundings: rules, who may do what, and payloads that must be
forgotten."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from django.contrib.auth.models import Group, Permission, User

from approvals import audit
from approvals.exceptions import InvalidArguments
from approvals.models import AuditEntry, Policy
from approvals.services.work import name_of, unit_of_work


def erase_payload(number: int, *, reason: str, actor: str) -> AuditEntry:
    """Erase what one audit entry says, for good. That it was erased, by whom and why is
    an entry of its own, and the chain still verifies.

    Returns the entry as it was. Raises NotFound, InvalidArguments.
    """
    if not reason.strip():
        raise InvalidArguments("Say why the payload is erased.")
    with unit_of_work() as work:
        entry = audit.erase(number)
        # With the run of the entry, so that an export of that run explains the gap.
        work.entries.append(
            audit.Pending(
                action=audit.ERASED,
                actor=actor,
                time=work.now,
                run=entry.run,
                interrupt=entry.interrupt,
                payload={"number": number, "reason": reason},
            )
        )
        return entry


@contextmanager
def changing_policies(*, actor: User) -> Iterator[None]:
    """Record every policy that is added, changed or deleted inside, before and after.

    Compares all rows instead of trusting the caller to say what it did: one transaction
    with the change, so neither is ever without the other.
    """
    with unit_of_work() as work:
        before = _policies()
        yield
        after = _policies()
        for pk in sorted(before.keys() | after.keys()):
            if before.get(pk) == after.get(pk):
                continue
            work.record(
                "policy.changed" if pk in after else "policy.deleted",
                actor=name_of(actor),
                policy=pk,
                before=before.get(pk),
                after=after.get(pk),
            )


def _policies() -> dict[int, dict[str, Any]]:
    """Every policy as it stands, locked so that two administrators take turns."""
    rows = Policy.objects.order_by("pk").select_for_update(no_key=True)
    return {row.pk: _as_payload(row) for row in rows.prefetch_related("groups")}


def _as_payload(policy: Policy) -> dict[str, Any]:
    values = {
        field.name: getattr(policy, field.name)
        for field in policy._meta.concrete_fields
        if not field.primary_key
    }
    return values | {"groups": sorted(group.name for group in policy.groups.all())}


type Access = dict[tuple[str, int], dict[str, Any]]


@contextmanager
def changing_access(*, actor: User) -> Iterator[None]:
    """Record every account and group that is added, changed or deleted inside: its name,
    its rights, and that its password changed. In one transaction with the change."""
    with unit_of_work():
        # Two administrators take turns, and nobody's sign-in waits for them.
        list(Group.objects.order_by("pk").select_for_update(no_key=True))
        before = access()
        yield
        record_access(before, actor=name_of(actor))


def access() -> Access:
    """Every account and group with what decides about its rights, as it stands."""
    found: Access = {}
    groups = Group.objects.prefetch_related("permissions__content_type")
    for group in groups:
        found["group", group.pk] = {
            "name": group.name,
            "permissions": _names(group.permissions.all()),
        }
    users = User.objects.prefetch_related("groups", "user_permissions__content_type")
    for user in users:
        found["user", user.pk] = {
            "name": name_of(user),
            "active": user.is_active,
            "staff": user.is_staff,
            "superuser": user.is_superuser,
            "groups": sorted(group.name for group in user.groups.all()),
            "permissions": _names(user.user_permissions.all()),
            # Compared, and never written down.
            "password": user.password,
        }
    return found


def record_access(before: Access, *, actor: str) -> None:
    """Record what is another by now."""
    with unit_of_work() as work:
        after = access()
        for kind, pk in sorted(before.keys() | after.keys()):
            was, now = before.get((kind, pk)), after.get((kind, pk))
            if was == now:
                continue
            said: dict[str, Any] = {
                kind: pk,
                "before": _without_password(was),
                "after": _without_password(now),
            }
            if kind == "user":
                passwords = [each["password"] for each in (was, now) if each]
                said["password_changed"] = len(set(passwords)) == 2
            work.record(
                f"{kind}.changed" if now else f"{kind}.deleted", actor=actor, **said
            )


def _without_password(values: dict[str, Any] | None) -> dict[str, Any] | None:
    if values is None:
        return None
    return {name: value for name, value in values.items() if name != "password"}


def _names(permissions: Iterable[Permission]) -> list[str]:
    return sorted(f"{p.content_type.app_label}.{p.codename}" for p in permissions)
