"""What the inbox lists for one person: groups of rows, counts, and what has changed since."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING
from uuid import UUID

from django.db.models import Count, F, Q
from django.http import QueryDict
from django.utils import timezone
from django.utils.translation import gettext as _

from approvals import permissions
from approvals.models import Interrupt, InterruptQuerySet
from approvals.states import Risk

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
    fresh: bool = False

    @property
    def version(self) -> str:
        """Changes when the line should be drawn again."""
        decided = self.interrupt.decided_at
        return f"{self.interrupt.status}-{int(decided.timestamp()) if decided else 0}"

    @property
    def done(self) -> bool:
        return not self.interrupt.is_open

    @property
    def soon(self) -> bool:
        until = self.interrupt.expires_at
        return (
            self.interrupt.is_open
            and until is not None
            and until <= timezone.now() + SOON
        )


@dataclass(frozen=True, kw_only=True)
class RowGroup:
    key: str
    label: str
    rows: list[Row]


@dataclass(frozen=True, kw_only=True)
class Shown:
    """Rows that a page shows, as it reports them: id to version."""

    rows: dict[UUID, str] = field(default_factory=dict)

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


class Inbox:
    """The inbox of one person under one view, as of now."""

    def __init__(self, person: Person, view: View) -> None:
        self.person = person
        self.view = view
        self.now = timezone.now()
        self.visible = permissions.visible_interrupts(person).select_related(
            "run", "run__requester"
        )

    def groups(self, shown: Shown | None = None) -> list[RowGroup]:
        """Urgent first, then oldest first; decided ones of the last minutes at the end.

        ``shown``: rows the reader has seen already; the others are marked as fresh.
        """
        seen = shown.rows.keys() if shown is not None else None

        def rows(interrupts: Iterable[Interrupt]) -> list[Row]:
            return [
                Row(interrupt=i, fresh=seen is not None and i.pk not in seen)
                for i in interrupts
            ]

        waiting = self.view.narrow(self.visible.open())
        soon = Q(expires_at__lte=self.now + SOON)
        urgent = list(waiting.filter(soon).order_by("expires_at", "id")[:PAGE])
        rest = list(waiting.exclude(soon)[:PAGE])
        decided = (
            self.view.narrow(self.visible.decided())
            .filter(decided_at__gte=self.now - JUST_DECIDED)
            .order_by("-decided_at", "-id")
            .prefetch_related("decisions__reviewer")[:20]
        )
        groups = [
            RowGroup(
                key="soon", label=_("Expires within 15 minutes"), rows=rows(urgent)
            ),
            RowGroup(key="waiting", label=_("Waiting"), rows=rows(rest)),
            RowGroup(key="done", label=_("Just decided"), rows=rows(decided)),
        ]
        return [group for group in groups if group.rows]

    def counts(self) -> dict[str, int]:
        """How many requests are open, by chip."""
        return self.visible.open().aggregate(
            all=Count("pk"),
            high=Count("pk", filter=Q(risk=Risk.HIGH)),
            soon=Count("pk", filter=Q(expires_at__lte=self.now + SOON)),
        )

    def changed(self, shown: Shown) -> tuple[list[Row], list[UUID]]:
        """Rows of the page to draw again, and rows that no longer exist for this person."""
        found = self.visible.filter(pk__in=shown.rows).prefetch_related(
            "decisions__reviewer"
        )
        rows = {i.pk: Row(interrupt=i) for i in found}
        changed = [row for pk, row in rows.items() if row.version != shown.rows[pk]]
        return changed, [pk for pk in shown.rows if pk not in rows]

    def arrivals(self, shown: Shown) -> dict[str, int]:
        """Open requests the page does not show yet, and how many of them are of high risk.

        A page that is full shows the oldest; what lies behind them has not just arrived.
        """
        new = self.view.narrow(self.visible.open()).exclude(pk__in=shown.rows)
        if len(shown.rows) >= PAGE:
            newest = self.visible.filter(pk__in=shown.rows).order_by("-created").first()
            if newest is not None:
                new = new.filter(created__gt=newest.created)
        return new.aggregate(n=Count("pk"), high=Count("pk", filter=Q(risk=Risk.HIGH)))

    def next_after(self, pk: UUID, shown: Shown) -> Interrupt | None:
        """The next open request below ``pk`` in the list the reader sees, else the first."""
        order = list(shown.rows)
        start = order.index(pk) + 1 if pk in shown.rows else 0
        open_ones = {i.pk: i for i in self.visible.open().filter(pk__in=order)}
        for candidate in order[start:] + order[:start]:
            if candidate != pk and candidate in open_ones:
                return open_ones[candidate]
        return (
            self.view.narrow(self.visible.open())
            .exclude(pk=pk)
            .order_by(F("expires_at").asc(nulls_last=True), "created", "id")
            .first()
        )
