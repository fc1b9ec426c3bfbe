"""What the inbox lists for one person: groups of rows, counts, and what has changed since."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING
from uuid import UUID

from django.db.models import Count, Q
from django.http import QueryDict
from django.utils import timezone
from django.utils.translation import gettext as _

from approvals import permissions, services
from approvals.models import Interrupt, InterruptQuerySet
from approvals.states import InterruptStatus, Risk

if TYPE_CHECKING:
    from approvals.permissions import Person

SOON = timedelta(minutes=15)
JUST_DECIDED = timedelta(minutes=10)
PAGE = 50


@dataclass(frozen=True, kw_only=True)
class View:
    """The part of the inbox one looks at. Lives in the URL."""

    name: str = "all"
    q: str = ""

    @classmethod
    def read(cls, query: QueryDict) -> View:
        name = query.get("view", "all")
        return cls(
            name=name if name in {"all", "high", "soon"} else "all",
            q=query.get("q", "").replace("\0", "").strip()[:200],
        )

    @property
    def is_narrow(self) -> bool:
        return self.name != "all" or bool(self.q)

    def query(self, **changes: str) -> str:
        """This view as the query of a link, with changes; empty for the plain one."""
        values = {"view": self.name, "q": self.q, **changes}
        query = QueryDict(mutable=True)
        for key, value in values.items():
            if value and (key, value) != ("view", "all"):
                query[key] = value
        return f"?{query.urlencode()}" if query else ""

    def narrow(self, interrupts: InterruptQuerySet) -> InterruptQuerySet:
        if self.name == "high":
            interrupts = interrupts.filter(risk=Risk.HIGH)
        elif self.name == "soon":
            interrupts = interrupts.filter(expires_at__lte=timezone.now() + SOON)
        for word in self.q.split()[:5]:
            interrupts = interrupts.filter(
                Q(title__icontains=word)
                | Q(tool__icontains=word)
                | Q(run__agent__icontains=word)
                | Q(run__requester__username__icontains=word)
            )
        return interrupts


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of the list."""

    interrupt: Interrupt
    title: str
    fresh: bool = False

    @property
    def version(self) -> str:
        """Changes when the line should be drawn again."""
        decided = self.interrupt.decided_at
        return f"{self.status}-{int(decided.timestamp()) if decided else 0}"

    @property
    def status(self) -> str:
        """What it is as of now, also where the sweeper is behind."""
        if self.interrupt.is_open and self._ends_within(timedelta()):
            return InterruptStatus.EXPIRED
        return self.interrupt.status

    @property
    def done(self) -> bool:
        return self.status != InterruptStatus.OPEN

    @property
    def was_edited(self) -> bool:
        decision = self.interrupt.decision
        return decision is not None and decision.arguments is not None

    @property
    def since(self) -> datetime:
        """When it came into the state it is in."""
        return self.interrupt.decided_at or self.interrupt.created

    @property
    def soon(self) -> bool:
        return not self.done and self._ends_within(SOON)

    def _ends_within(self, time: timedelta) -> bool:
        until = self.interrupt.expires_at
        return until is not None and until <= timezone.now() + time


@dataclass(frozen=True, kw_only=True)
class RowGroup:
    key: str
    label: str
    rows: list[Row]


@dataclass(frozen=True, kw_only=True)
class Shown:
    """Rows that a page shows, as it reports them: id to version."""

    rows: dict[UUID, str] = field(default_factory=dict)

    @property
    def any_open(self) -> bool:
        return any(version.startswith("open-") for version in self.rows.values())

    @classmethod
    def read(cls, values: Iterable[str]) -> Shown:
        rows = {}
        for value in list(values)[: 4 * PAGE]:
            key, _dot, version = value.partition(".")
            try:
                rows[UUID(key)] = version
            except ValueError:
                continue
        return cls(rows=rows)


@dataclass(frozen=True, kw_only=True)
class Listing:
    """The rows of one page of the inbox."""

    groups: list[RowGroup]
    #: More requests wait than the page shows.
    more: bool
    #: When it was read: on a page with more, only what came later has just arrived.
    at: datetime

    @property
    def open_rows(self) -> list[Row]:
        return [row for group in self.groups for row in group.rows if not row.done]


#: What a row shows. Arguments and schemas can be long, and a list needs none of them.
LISTED = (
    "kind",
    "title",
    "tool",
    "risk",
    "denied_before",
    "status",
    "created",
    "expires_at",
    "decided_at",
    "run__agent",
    "run__on_behalf_of",
    "run__requester__username",
    "run__requester__first_name",
    "run__requester__last_name",
)


def _rows(interrupts: Iterable[Interrupt], shown: Shown | None = None) -> list[Row]:
    """``shown``: rows the reader has seen already; the others are fresh."""
    found = list(interrupts)
    titles = services.decided_titles(found)
    return [
        Row(
            interrupt=each,
            title=titles[each.pk],
            fresh=shown is not None and each.pk not in shown.rows,
        )
        for each in found
    ]


class Inbox:
    """The inbox of one person under one view, as of now."""

    def __init__(self, person: Person, view: View) -> None:
        self.person = person
        self.view = view
        self.now = timezone.now()

    @cached_property
    def visible(self) -> InterruptQuerySet:
        found = permissions.visible_interrupts(self.person)
        return found.select_related("run", "run__requester")

    @cached_property
    def waiting(self) -> InterruptQuerySet:
        return self.visible.open().in_time(self.now)

    def listing(self, shown: Shown | None = None) -> Listing:
        """Urgent first, then oldest first; decided ones of the last minutes at the end.

        ``shown``: rows the reader has seen already; the others are marked as fresh.
        """
        narrowed = self.view.narrow(self.visible).only(*LISTED)
        open_ones = self.view.narrow(self.waiting).only(*LISTED)
        soon = Q(expires_at__lte=self.now + SOON)
        urgent = open_ones.filter(soon).order_by("expires_at", "id")[: PAGE + 1]
        waiting = open_ones.exclude(soon)[: PAGE + 1]
        closed = narrowed.prefetch_related("decisions__reviewer")
        expired = closed.open().filter(expires_at__lte=self.now)
        decided = closed.filter(decided_at__gte=self.now - JUST_DECIDED)
        done = [
            *expired.order_by("-expires_at", "-id")[:20],
            *decided.order_by("-decided_at", "-id")[:20],
        ]
        groups = [
            RowGroup(
                key="soon",
                label=_("Expires within 15 minutes"),
                rows=_rows(urgent, shown),
            ),
            RowGroup(
                key="pending", label=_("Oldest first"), rows=_rows(waiting, shown)
            ),
            RowGroup(key="done", label=_("Just decided"), rows=_rows(done, shown)),
        ]
        more = any(len(group.rows) > PAGE for group in groups)
        for group in groups:
            del group.rows[PAGE:]
        groups = [group for group in groups if group.rows]
        return Listing(groups=groups, more=more, at=self.now)

    def counts(self) -> dict[str, int]:
        """How many requests are open, by chip."""
        return self.waiting.aggregate(
            all=Count("pk"),
            high=Count("pk", filter=Q(risk=Risk.HIGH)),
            soon=Count("pk", filter=Q(expires_at__lte=self.now + SOON)),
        )

    def changed(self, shown: Shown) -> tuple[list[Row], list[UUID]]:
        """Rows of the page to draw again, and rows that no longer exist for this person."""
        found = (
            self.visible.filter(pk__in=shown.rows)
            .only(*LISTED)
            .prefetch_related("decisions__reviewer")
        )
        rows = _rows(found)
        changed = [row for row in rows if row.version != shown.rows[row.interrupt.pk]]
        there = {row.interrupt.pk for row in rows}
        return changed, [pk for pk in shown.rows if pk not in there]

    def arrivals(self, shown: Shown, since: datetime | None = None) -> dict[str, int]:
        """Open requests the page does not show yet, how many of them are of high risk, and
        how many come to stand above those that are not urgent.

        ``since``: when a page was read that could not show all; what it left out then has
        not just arrived.
        """
        new = self.view.narrow(self.waiting).exclude(pk__in=shown.rows)
        if since is not None:
            new = new.filter(created__gt=since)
        return new.aggregate(
            n=Count("pk"),
            high=Count("pk", filter=Q(risk=Risk.HIGH)),
            soon=Count("pk", filter=Q(expires_at__lte=self.now + SOON)),
        )

    def next_after(self, pk: UUID, shown: Shown) -> UUID | None:
        """The next open request below ``pk``, which is not open any more, in the list the
        reader sees, else the first."""
        order = list(shown.rows)
        start = order.index(pk) + 1 if pk in shown.rows else 0
        if order:
            listed = self.waiting.filter(pk__in=order)
            open_ones = set(listed.values_list("pk", flat=True))
            for candidate in order[start:] + order[:start]:
                if candidate in open_ones:
                    return candidate
        if not self.view.is_narrow:
            return permissions.first_waiting(self.person, self.now)
        return self.view.narrow(self.waiting).values_list("pk", flat=True).first()
