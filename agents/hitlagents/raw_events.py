"""The stored AG-UI events of a run as they are, but for the values of secret parameters.

Reads only. Who may see the run may read them; the caller asks.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from django.db.models import Count, Max
from django.db.models.functions import Length

from approvals import canonical, display
from approvals.exceptions import InvalidArguments
from approvals.hiding import BY_LOOKS, Hiding, hidden_words, masked_text, texts_of
from approvals.models import Run, Tool
from hitlagents.events import attempts_that_count
from hitlagents.models import Checkpoint, RunEvent

if TYPE_CHECKING:
    from django.db.models import QuerySet

#: Events on one page, and lines read at once for a download.
PAGE, BATCH = 100, 500
#: Characters of one event on the page; the download has all of it.
LONGEST = 20_000
#: Shorter values of secret parameters are not looked for outside of the arguments: they
#: would be found in everything.
SHORTEST_SECRET = 4


@dataclass(frozen=True, kw_only=True)
class RawEvent:
    """One event, and how its page draws it."""

    row: RunEvent
    #: The event as AG-UI has it.
    event: dict[str, Any]
    #: Its attempt was not played again by a later one.
    counts: bool

    @cached_property
    def shown(self) -> display.Shown:
        return display.show_json(self.event, limit=LONGEST)

    @property
    def is_cut(self) -> bool:
        return self.shown.size > LONGEST


class RawEvents:
    """One page of a run's events, oldest first. ``type`` narrows it to one type."""

    def __init__(
        self,
        run: Run,
        *,
        type: str = "",
        after: int | None = None,
        before: int | None = None,
    ) -> None:
        self.run = run
        self.type = type if type in self.types else ""
        self._after = after
        self._before = before

    @cached_property
    def types(self) -> dict[str, int]:
        """Every type there is, with how many."""
        counted = self.run.events.order_by().values_list("type")
        return dict(sorted(counted.annotate(n=Count("pk"))))

    @property
    def total(self) -> int:
        return sum(self.types.values())

    @cached_property
    def _counting(self) -> frozenset[int]:
        pairs = self.run.events.order_by().values_list("attempt", "type").distinct()
        return attempts_that_count(pairs)

    @cached_property
    def secrets(self) -> Secrets:
        return Secrets(self.run)

    @property
    def _rows(self) -> QuerySet[RunEvent]:
        rows = RunEvent.objects.filter(run=self.run)
        return rows.filter(type=self.type) if self.type else rows

    @cached_property
    def page(self) -> list[RawEvent]:
        if self._before is not None:
            earlier = self._rows.filter(seq__lt=self._before).order_by("-seq")
            rows = list(earlier[:PAGE])[::-1]
        else:
            rows = list(self._rows.filter(seq__gt=self._after or 0)[:PAGE])
        return [
            RawEvent(
                row=row,
                event=self.secrets.without(row),
                counts=row.attempt in self._counting,
            )
            for row in rows
        ]

    @cached_property
    def previous(self) -> int | None:
        """The ``before`` of the page before this one."""
        if not self.page:
            return None
        first = self.page[0].row.seq
        return first if self._rows.filter(seq__lt=first).exists() else None

    @cached_property
    def next(self) -> int | None:
        """The ``after`` of the page behind this one."""
        if not self.page:
            return None
        last = self.page[-1].row.seq
        return last if self._rows.filter(seq__gt=last).exists() else None

    @cached_property
    def end(self) -> int:
        """The ``before`` of the last page."""
        return int(self.run.events.aggregate(last=Max("seq"))["last"] or 0) + 1


class Lines:
    """A run's events as JSON lines, a batch at a time, up to the last one of now."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._secrets = Secrets(run)
        self._after = 0
        self._upto = run.events.aggregate(last=Max("seq"))["last"] or 0

    def next(self) -> str:
        """The next lines; nothing at the end. ASCII only, so that nothing is hidden."""
        rows = list(
            self._run.events.filter(seq__gt=self._after, seq__lte=self._upto)[:BATCH]
        )
        if rows:
            self._after = rows[-1].seq
        return "".join(f"{json.dumps(self._line(row))}\n" for row in rows)

    def _line(self, row: RunEvent) -> dict[str, Any]:
        return {
            "seq": row.seq,
            "attempt": row.attempt,
            "time": row.created.isoformat(),
            "event": self._secrets.without(row),
        }


class Secrets:
    """What of a run's events nobody is shown: the secrets in the arguments of its calls.

    There they are always replaced; a value of some length also wherever else it was written
    whole, such as in a result. What is a credential by its form is replaced everywhere.
    """

    def __init__(self, run: Run) -> None:
        self._run = run

    def without(self, row: RunEvent) -> dict[str, Any]:
        """The whole event, without secrets."""
        members = json.loads(row.payload)
        if row.type == "TOOL_CALL_ARGS":
            hiding = self._hiding.get(str(members.get("toolCallId")), BY_LOOKS)
            members["delta"] = _redacted(str(members.get("delta")), hiding)
        return {"type": row.type, **self._replaced(members)}

    @cached_property
    def _hiding(self) -> dict[str, Hiding]:
        """What is hidden of the arguments of every call of the run."""
        found: dict[str, Hiding] = {}
        tools = {
            tool.name: tool.hiding
            for tool in Tool.objects.filter(agent=self._run.agent)
        }
        for members in self._members("TOOL_CALL_START"):
            own = tools.get(str(members.get("toolCallName")), BY_LOOKS)
            found[str(members.get("toolCallId"))] = own
        for interrupt in self._run.interrupts.only("call_id", "secrets", "plain"):
            own = found.get(interrupt.call_id, interrupt.hiding)
            found[interrupt.call_id] = own | interrupt.hiding
        return found

    @cached_property
    def _values(self) -> list[str]:
        """The values themselves, the longest first, also as they stand inside JSON."""
        found = set()
        for members in self._members("TOOL_CALL_ARGS"):
            hiding = self._hiding.get(str(members.get("toolCallId")), BY_LOOKS)
            secrets = hiding.found(_arguments(str(members.get("delta"))))
            for text in map(_written, texts_of(secrets)):
                found |= {text, json.dumps(text, ensure_ascii=False)[1:-1]}
        long = (text for text in found if len(text) >= SHORTEST_SECRET)
        return sorted(long, key=len, reverse=True)

    def _members(self, type: str) -> Iterable[dict[str, Any]]:
        rows = self._run.events.filter(type=type).values_list("payload", flat=True)
        return (json.loads(payload) for payload in rows)

    def _replaced(self, value: Any) -> Any:
        if isinstance(value, str):
            if value in self._values:
                return hidden_words(value)
            for secret in self._values:
                value = value.replace(secret, f"⟦{hidden_words(secret)}⟧")
            return masked_text(value)
        if isinstance(value, dict):
            return {key: self._replaced(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self._replaced(item) for item in value]
        return value


def _redacted(delta: str, hiding: Hiding) -> str:
    """The arguments of a call without secrets; all hidden if they cannot be read."""
    arguments = _arguments(delta)
    if not arguments and delta.strip() != "{}":
        return hidden_words(delta) if hiding.secrets else delta
    if not hiding.found(arguments):
        return delta
    return json.dumps(hiding.masked(arguments), ensure_ascii=False)


def _written(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _arguments(delta: str) -> dict[str, Any]:
    try:
        found = canonical.loads(delta)
    except InvalidArguments:
        return {}
    return found if isinstance(found, dict) else {}


def saved_state(run: Run) -> Mapping[str, object] | None:
    """What may be told of the agent's saved state: who wrote it, and its size. Never it."""
    return (
        Checkpoint.objects.filter(run=run)
        .annotate(size=Length("state"))
        .values(
            "framework", "framework_version", "schema", "attempt", "created", "size"
        )
        .first()
    )
