"""The append-only, hash-chained record of everything that happened, and its verifier.

Each entry's hash covers its number, time, action, actor, run, interrupt, the keyed digest
of its payload and the previous hash. The payload is covered through HMAC-SHA-256 under a
salt of its own: payload and salt can be erased later and the chain still verifies.
Layout and test vectors: ``docs/canonical.md``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from django.db import connection

from approvals import canonical
from approvals.models import AuditEntry, AuditHead

#: Everything that can happen, with the words a person reads.
ACTIONS = {
    "run.queued": "Run queued",
    "run.started": "Run started",
    "run.resumed": "Run resumed",
    "run.waiting": "Run waits for a decision",
    "run.finished": "Run finished",
    "run.failed": "Run failed",
    "run.retried": "Run retried",
    "run.cancelled": "Run cancelled",
    "run.in_doubt": "Run stopped, outcome unknown",
    "interrupt.opened": "Request queued",
    "interrupt.voted": "Vote recorded",
    "interrupt.approved": "Approved",
    "interrupt.denied": "Denied",
    "interrupt.answered": "Answered",
    "interrupt.cancelled": "Cancelled",
    "interrupt.expired": "Expired",
    "interrupt.withdrawn": "Withdrawn, its run ended",
    "interrupt.reopened": "Asked again, the rules changed",
    "decision.undone": "Decision undone",
    "decision.refused": "Decision refused",
    "execution.started": "Tool started",
    "execution.done": "Tool ran",
    "execution.failed": "Tool failed",
    "execution.replaced": "Tool did not run, the agent got an answer instead",
    "execution.in_doubt": "Tool outcome unknown",
    "execution.settled": "Tool outcome settled",
    "execution.refused": "Tool call refused at the guard",
    "policy.changed": "Policy changed",
    "policy.deleted": "Policy deleted",
}

GENESIS = "0" * 64
ENTRY_DOMAIN = "sayso.audit.entry.v1"
PAYLOAD_DOMAIN = "sayso.audit.payload.v1"


@dataclass(frozen=True, kw_only=True)
class Pending:
    """An entry that waits for the end of its transaction to get its number."""

    action: str
    actor: str
    time: datetime
    run: UUID | None = None
    interrupt: UUID | None = None
    payload: dict[str, Any] = field(default_factory=dict)


def append(entries: Iterable[Pending]) -> None:
    """Number, link and store entries. Call last in a transaction: it holds the head lock."""
    entries = list(entries)
    if not entries:
        return
    number, previous = _lock_head()
    rows = []
    for entry in entries:
        assert entry.action in ACTIONS, entry.action
        row = _row(entry, number=number + 1, previous=previous)
        number, previous = row.number, row.hash
        rows.append(row)
    AuditEntry.objects.bulk_create(rows)
    with connection.cursor() as cursor:
        cursor.execute(SET_HEAD, [number, previous])


def payload_mac(salt: str, payload: str) -> str:
    return canonical.keyed_digest(salt, PAYLOAD_DOMAIN, payload)


def entry_hash(entry: AuditEntry) -> str:
    """The hash an entry must have, from its own fields and ``previous``."""
    text = canonical.dumps(
        {
            "number": entry.number,
            "time": stamp(entry.time),
            "action": entry.action,
            "actor": entry.actor,
            "run": str(entry.run) if entry.run else None,
            "interrupt": str(entry.interrupt) if entry.interrupt else None,
            "payload_mac": entry.payload_mac,
            "previous": entry.previous,
        }
    )
    return canonical.plain_digest(ENTRY_DOMAIN, text)


def stamp(time: datetime) -> str:
    """UTC with exactly six decimals, the same from every database."""
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


@dataclass(frozen=True, kw_only=True)
class Broken:
    """The first entry that does not fit, and why."""

    number: int
    why: str


@dataclass(frozen=True, kw_only=True)
class Report:
    """What verifying found: how many entries fit, the last hash, and the first misfit."""

    count: int
    head: str
    broken: Broken | None = None


def verify(
    entries: Iterable[AuditEntry], *, expected_head: tuple[int, str] | None = None
) -> Report:
    """Check a whole chain, oldest first.

    ``expected_head`` is (number, hash) as noted elsewhere: it finds a chain cut short.
    """
    number, previous = 0, GENESIS
    for entry in entries:
        why = _misfit(entry, number + 1, previous)
        if why:
            broken = Broken(number=number + 1, why=why)
            return Report(count=number, head=previous, broken=broken)
        number, previous = entry.number, entry.hash
    if expected_head is not None and expected_head != (number, previous):
        why = (
            f"the chain ends at {number}, but its head was {expected_head[0]}"
            if expected_head[0] != number
            else "the last hash is not the head's hash"
        )
        broken = Broken(number=min(number + 1, max(expected_head[0], 1)), why=why)
        return Report(count=number, head=previous, broken=broken)
    return Report(count=number, head=previous)


def stored_chain(batch: int = 2000) -> Iterator[AuditEntry]:
    """All entries, oldest first, read in batches."""
    return AuditEntry.objects.order_by("number").iterator(chunk_size=batch)


def to_json_line(entry: AuditEntry) -> str:
    """One entry as canonical JSON, enough to verify it without the database."""
    return canonical.dumps(
        {
            "number": entry.number,
            "time": stamp(entry.time),
            "action": entry.action,
            "actor": entry.actor,
            "run": str(entry.run) if entry.run else None,
            "interrupt": str(entry.interrupt) if entry.interrupt else None,
            "payload": entry.payload,
            "salt": entry.salt,
            "payload_mac": entry.payload_mac,
            "previous": entry.previous,
            "hash": entry.hash,
        }
    )


def from_json_line(line: str) -> AuditEntry:
    """Read ``to_json_line`` back; raises InvalidArguments, KeyError or ValueError."""
    data = canonical.loads(line)
    return AuditEntry(
        number=int(data["number"]),
        time=datetime.strptime(data["time"], "%Y-%m-%dT%H:%M:%S.%fZ").replace(
            tzinfo=UTC
        ),
        action=data["action"],
        actor=data["actor"],
        run=UUID(data["run"]) if data["run"] else None,
        interrupt=UUID(data["interrupt"]) if data["interrupt"] else None,
        payload=data["payload"],
        salt=data["salt"],
        payload_mac=data["payload_mac"],
        previous=data["previous"],
        hash=data["hash"],
    )


# Plain SQL, because every transaction of the product runs these two.
GET_HEAD = "SELECT number, hash FROM approvals_audithead WHERE id = 1"
SET_HEAD = "UPDATE approvals_audithead SET number = %s, hash = %s WHERE id = 1"


def _lock_head() -> tuple[int, str]:
    """Number and hash of the newest entry; nobody else appends until the commit."""
    # SQLite's transaction holds the database's one write lock already.
    lock = " FOR NO KEY UPDATE" if connection.vendor == "postgresql" else ""
    with connection.cursor() as cursor:
        cursor.execute(GET_HEAD + lock)
        found = cursor.fetchone()
    if found is None:
        AuditHead.objects.get_or_create(pk=AuditHead.ONLY, defaults={"hash": GENESIS})
        return _lock_head()
    number, newest = found
    return int(number), str(newest)


def _row(entry: Pending, *, number: int, previous: str) -> AuditEntry:
    salt = canonical.new_salt()
    payload = canonical.dumps(entry.payload)
    row = AuditEntry(
        number=number,
        time=entry.time,
        action=entry.action,
        actor=entry.actor,
        run=entry.run,
        interrupt=entry.interrupt,
        payload=payload,
        salt=salt,
        payload_mac=payload_mac(salt, payload),
        previous=previous,
    )
    row.hash = entry_hash(row)
    return row


def _misfit(entry: AuditEntry, number: int, previous: str) -> str:
    if entry.number != number:
        return f"entry {number} is missing, {entry.number} follows"
    if entry.previous != previous:
        return "it does not link to the entry before it"
    if entry.hash != entry_hash(entry):
        return "its contents do not match its hash"
    if entry.payload is None or entry.salt is None:
        return "" if entry.payload is entry.salt else "it is only half erased"
    if payload_mac(entry.salt, entry.payload) != entry.payload_mac:
        return "its payload was changed"
    return ""
