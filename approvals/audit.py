"""The append-only, hash-chained record of everything that happened, and its verifier.

Each entry's hash covers its number, time, action, actor, run, interrupt, the keyed digest
of its payload and the previous hash. The payload is covered through HMAC-SHA-256 under a
salt of its own: payload and salt can be erased later and the chain still verifies.
Layout and test vectors: ``docs/canonical.md``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from time import monotonic
from typing import Any, BinaryIO, NamedTuple
from uuid import UUID

from django.db import DatabaseError, connection
from django.db.models import QuerySet

from approvals import canonical
from approvals.exceptions import ApprovalsError, InvalidArguments, NotFound
from approvals.models import AuditEntry, AuditHead

#: Everything that can happen, with the words a person reads.
ACTIONS = {
    "run.queued": "Run queued",
    "run.started": "Run started",
    "run.resumed": "Run resumed",
    "run.waiting": "Run waits for an answer",
    "run.finished": "Run finished",
    "run.failed": "Run failed",
    "run.retried": "Run retried",
    "run.cancelled": "Run cancelled",
    "run.in_doubt": "Run stopped, outcome unknown",
    "interrupt.opened": "Asked",
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
    "execution.paused": "Tool stopped to ask, and will be entered again",
    "execution.replaced": "Tool did not run, the agent got an answer instead",
    "execution.in_doubt": "Tool outcome unknown",
    "execution.settled": "Tool outcome settled",
    "execution.refused": "Tool call refused at the guard",
    "policy.changed": "Policy changed",
    "policy.deleted": "Policy deleted",
    "user.changed": "Account or its rights changed",
    "user.deleted": "Account deleted",
    "group.changed": "Group or its rights changed",
    "group.deleted": "Group deleted",
    "agent.changed": "Remote agent changed",
    "agent.deleted": "Remote agent deleted",
    "token.created": "API token created",
    "token.revoked": "API token revoked",
    "audit.erased": "Payload of an entry erased",
}

GENESIS = "0" * 64
ENTRY_DOMAIN = "sayso.audit.entry.v1"
PAYLOAD_DOMAIN = "sayso.audit.payload.v1"
#: The action that says a payload was erased on purpose.
ERASED = "audit.erased"


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


class Link(NamedTuple):
    """An entry as plain values, exactly as its hash covers them."""

    number: int
    time: str
    action: str
    actor: str
    run: str | None
    interrupt: str | None
    payload: str | None
    salt: str | None
    payload_mac: str
    previous: str
    hash: str


class Unreadable(Exception):
    """Something stands where an entry should, and it is none."""


def payload_mac(salt: str, payload: str) -> str:
    return canonical.keyed_digest(salt, PAYLOAD_DOMAIN, payload)


def entry_hash(entry: AuditEntry | Link) -> str:
    """The hash an entry must have, from its own fields and ``previous``."""
    link = link_of(entry)
    text = canonical.dumps(
        {
            "number": link.number,
            "time": link.time,
            "action": link.action,
            "actor": link.actor,
            "run": link.run,
            "interrupt": link.interrupt,
            "payload_mac": link.payload_mac,
            "previous": link.previous,
        }
    )
    return canonical.plain_digest(ENTRY_DOMAIN, text)


def stamp(time: datetime) -> str:
    """UTC with exactly six decimals, the same from every database."""
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def link_of(entry: AuditEntry | Link) -> Link:
    if isinstance(entry, Link):
        return entry
    return _link(*(getattr(entry, name) for name in Link._fields))


def _link(number: int, time: datetime, *rest: Any) -> Link:
    action, actor, run, interrupt, *digests = rest
    return Link(
        number,
        stamp(time),
        action,
        actor,
        str(run) if run else None,
        str(interrupt) if interrupt else None,
        *digests,
    )


# Verifying


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
    #: Number and time of the last entry that fits.
    number: int = 0
    time: str = ""
    #: Payloads that are gone and whose erasing is an entry itself.
    erased: int = 0
    #: Only in a part of a chain: places where entries are left out.
    gaps: int = 0


class Verifier:
    """Takes entries oldest first and holds only the last one: memory does not grow.

    ``expect`` is the number and hash of one entry as noted elsewhere. ``partial`` takes
    a part of a chain: numbers may then be left out, and nothing shows by whom.
    """

    def __init__(
        self, *, partial: bool = False, expect: tuple[int, str] | None = None
    ) -> None:
        self.partial = partial
        self.expect = expect
        self.met = False
        self.count = self.number = self.erased = self.gaps = 0
        self.head = GENESIS
        self.time = ""
        self.broken: Broken | None = None
        #: Erased, and the entry that says so has not come yet.
        self.unexplained: set[int] = set()

    def state(self) -> dict[str, Any]:
        """Where it stands, as JSON: to go on later, in whichever process."""
        return {
            "count": self.count,
            "number": self.number,
            "erased": self.erased,
            "head": self.head,
            "time": self.time,
            "unexplained": sorted(self.unexplained),
        }

    @classmethod
    def going_on(cls, state: Mapping[str, Any]) -> Verifier:
        """One that goes on with a whole chain, from where ``state`` was taken."""
        verifier = cls()
        verifier.count, verifier.number = state["count"], state["number"]
        verifier.erased, verifier.head = state["erased"], state["head"]
        verifier.time = state["time"]
        verifier.unexplained = set(state["unexplained"])
        return verifier

    def take_all(self, entries: Iterable[AuditEntry | Link]) -> None:
        """Take entries up to the first that does not fit."""
        if self.broken:
            return
        try:
            for entry in entries:
                if not self._take(link_of(entry)):
                    return
        except Unreadable as error:
            self._break(self.number + 1, str(error))

    def report(self, *, head: tuple[int, str] | None = None) -> Report:
        """What was found. ``head``: where the chain must end."""
        if self.broken is None:
            self._look_back(head)
        return Report(
            count=self.count,
            head=self.head,
            broken=self.broken,
            number=self.number,
            time=self.time,
            erased=self.erased,
            gaps=self.gaps,
        )

    def _take(self, link: Link) -> bool:
        why = self._misfit(link)
        if why:
            self._break(link.number if self.partial else self.number + 1, why)
            return False
        if link.payload is None:
            self.erased += 1
            self.unexplained.add(link.number)
        elif link.action == ERASED:
            self.unexplained -= {_erased_by(link.payload)}
        if link.number != self.number + 1:
            self.gaps += 1
        self.count += 1
        self.number, self.head, self.time = link.number, link.hash, link.time
        return True

    def _misfit(self, link: Link) -> str:
        following = link.number == self.number + 1
        if not following and not self.partial:
            return f"it is missing, in its place stands {link.number}"
        if link.number <= self.number:
            return f"it stands behind entry {self.number}"
        if following and link.previous != self.head:
            return "it does not link to the entry before it"
        why = contents_misfit(link)
        if not why and self.expect and link.number == self.expect[0]:
            self.met = True
            if link.hash != self.expect[1]:
                return "its hash is not the expected one"
        return why

    def _look_back(self, head: tuple[int, str] | None) -> None:
        """What can only be said at the end."""
        if head is not None and head[0] != self.number:
            why = f"the chain ends at {self.number}, but its head is {head[0]}"
            self._break(min(self.number, head[0]) + 1, why)
        elif head is not None and head[1] != self.head:
            self._break(self.number, "its hash is not the head's hash")
        elif self.expect and not self.met:
            number = self.expect[0]
            missing = "the chain ends before it" if number > self.number else "missing"
            self._break(number, f"it was expected, and is not here: {missing}")
        elif self.unexplained:
            self._break(
                min(self.unexplained),
                "its payload is gone, and no entry says that it was erased",
            )

    def _break(self, number: int, why: str) -> None:
        self.broken = Broken(number=number, why=why)


def contents_misfit(link: Link) -> str:
    """Why an entry, looked at alone, is not as it was written; empty if it is."""
    try:
        return _contents_misfit(link)
    except (ApprovalsError, AttributeError, TypeError, ValueError) as error:
        why = str(error).rstrip(".")
        return f"its contents are none that were ever written ({why})"


def _contents_misfit(link: Link) -> str:
    if link.hash != entry_hash(link):
        return "its contents do not match its hash"
    if link.payload is None or link.salt is None:
        return "" if link.payload is link.salt else "it is only half erased"
    if payload_mac(link.salt, link.payload) != link.payload_mac:
        return "its payload was changed"
    return ""


def _erased_by(payload: str) -> object:
    """The number of the entry that this payload says was erased."""
    try:
        loaded = canonical.loads(payload)
    except InvalidArguments:
        return None
    return loaded.get("number") if isinstance(loaded, dict) else None


def verify(
    entries: Iterable[AuditEntry | Link],
    *,
    expected_head: tuple[int, str] | None = None,
) -> Report:
    """Check a whole chain, oldest first.

    ``expected_head`` is (number, hash) as noted elsewhere: it finds a chain cut short.
    """
    verifier = Verifier()
    verifier.take_all(entries)
    return verifier.report(head=expected_head)


def verify_stored(*, expect: tuple[int, str] | None = None) -> Report:
    """Check the stored chain up to its head, while others go on appending."""
    report = verify_on(Verifier(expect=expect))
    assert report is not None
    return report


def verify_on(verifier: Verifier, *, seconds: float = math.inf) -> Report | None:
    """Go on checking the stored chain, for about so long. None: there is more of it."""
    until = monotonic() + seconds
    while True:
        verifier.take_all(_until(until, stored_chain(after=verifier.number)))
        row = AuditHead.objects.filter(pk=AuditHead.ONLY).first()
        head = (row.number, row.hash) if row else (0, GENESIS)
        # Entries commit together with the head: one behind it can only be newer.
        if verifier.broken or head[0] <= verifier.number or not _exists_after(verifier):
            return verifier.report(head=head)
        if monotonic() >= until:
            return None


def _until(moment: float, links: Iterable[Link]) -> Iterator[Link]:
    for link in links:
        yield link
        if monotonic() >= moment:
            return


def _exists_after(verifier: Verifier) -> bool:
    return AuditEntry.objects.filter(number__gt=verifier.number).exists()


# Reading


def stored_chain(
    *,
    after: int = 0,
    upto: int | None = None,
    run: UUID | None = None,
    batch: int = 500,
) -> Iterator[Link]:
    """Stored entries, oldest first. Raises Unreadable at one whose columns are broken.

    Each batch is a query of its own, so that a slow reader holds no cursor, lock or
    memory.
    """
    while links := stored_links(after=after, upto=upto, run=run, limit=batch):
        yield from links
        after = links[-1].number


def stored_links(
    *, after: int, upto: int | None = None, run: UUID | None = None, limit: int
) -> list[Link]:
    """The next entries behind the number ``after``."""
    found = AuditEntry.objects.filter(number__gt=after).order_by("number")
    if upto is not None:
        found = found.filter(number__lte=upto)
    if run is not None:
        found = found.filter(run=run)
    rows = found.values_list(*Link._fields)
    try:
        return [_link(*row) for row in rows[:limit]]
    except _BROKEN_COLUMNS:
        return _readable_links(found.values_list("number", flat=True)[:limit])


_BROKEN_COLUMNS = (AttributeError, DatabaseError, TypeError, ValueError)


def _readable_links(numbers: Iterable[int]) -> list[Link]:
    """Read one by one up to the broken one, which is named once it is the first."""
    links: list[Link] = []
    for number in list(numbers):
        try:
            row = AuditEntry.objects.values_list(*Link._fields).get(number=number)
            links.append(_link(*row))
        except _BROKEN_COLUMNS:
            if links:
                break
            raise Unreadable(f"the columns of entry {number} are damaged") from None
    return links


def to_json_line(entry: AuditEntry | Link) -> str:
    """One entry as canonical JSON, enough to verify it without the database."""
    return canonical.dumps(link_of(entry)._asdict())


#: No entry is longer: a payload and its escapes.
MAX_LINE = 6 * canonical.MAX_BYTES + 10_000


def read_lines(file: BinaryIO) -> Iterator[Link]:
    """Read an export. Raises Unreadable with the number of a line that is no entry."""
    count = 0
    while raw := file.readline(MAX_LINE + 1):
        count += 1
        if len(raw) > MAX_LINE:
            raise Unreadable(f"line {count} is longer than any entry")
        try:
            yield from_json_line(raw.decode())
        except (ApprovalsError, ValueError) as error:
            why = str(error).rstrip(".")
            raise Unreadable(f"line {count} is no entry: {why}") from None


def from_json_line(line: str) -> Link:
    """Read ``to_json_line`` back; raises InvalidArguments or ValueError."""
    data = canonical.loads(line)
    if not isinstance(data, dict) or data.keys() != _LINE_KEYS:
        raise ValueError(f"its members must be {', '.join(Link._fields)}")
    link = Link(**data)
    if type(link.number) is not int:
        raise ValueError("number is not a whole number")
    for name, value in zip(Link._fields[1:], link[1:], strict=True):
        if not isinstance(value, str) and (name not in _NULLABLE or value is not None):
            raise ValueError(f"{name} is not text")
    return link


_LINE_KEYS = frozenset(Link._fields)
_NULLABLE = frozenset({"run", "interrupt", "payload", "salt"})


# Erasing


def erase(number: int) -> AuditEntry:
    """Erase payload and salt of one entry: the only change ever made to one.

    The caller records it (see ``services.erase_payload``). Returns the entry as it was
    found; raises NotFound and InvalidArguments.
    """
    entry = AuditEntry.objects.select_for_update(no_key=True).filter(pk=number).first()
    if entry is None:
        raise NotFound(f"There is no entry {number}.")
    if entry.action == ERASED:
        raise InvalidArguments("That entry says what was erased, so it stays.")
    if entry.payload is None:
        raise InvalidArguments(f"The payload of entry {number} is already erased.")
    QuerySet.update(AuditEntry.objects.filter(pk=number), payload=None, salt=None)
    return entry


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
