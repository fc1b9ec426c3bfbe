"""What changes the record's surroundings: rules, and payloads that must be forgotten."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from approvals import audit
from approvals.exceptions import InvalidArguments
from approvals.models import AuditEntry, Policy
from approvals.services.work import name_of, unit_of_work

if TYPE_CHECKING:
    from django.contrib.auth.models import User


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
