"""The demo calendar: one per person, in the database, filled by the agent scheduler.

Functions are for database threads. Django is imported when one is called, so that
importing this costs nothing and needs no settings.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from hitlagents.adapters.base import DataPage
from hitlagents.toolcall import ToolError

if TYPE_CHECKING:
    from django.db.models import QuerySet

    from hitlagents.models import CalendarEntry

MAX_TEXT = 200
MAX_LISTED = 50


class CalendarError(ToolError):
    """Why the calendar was left as it is, as a sentence for the model."""


@dataclass(frozen=True, kw_only=True)
class Slot:
    """When a meeting is: what the reviewer's page called it, and the moment if known."""

    label: str
    starts_at: datetime | None = None

    @classmethod
    def chosen(cls, answer: Any) -> Slot | None:
        """What a reviewer chose: ``chosen_label``, else ``chosen_time``; None if neither."""
        if not isinstance(answer, dict):
            return None
        time = _line(answer.get("chosen_time"))
        label = _line(answer.get("chosen_label")) or time
        return cls(label=label, starts_at=_moment(time)) if label else None


def book(
    thread_id: UUID,
    *,
    run_id: UUID,
    call_id: str,
    topic: str,
    attendee: str,
    slot: Slot,
) -> str:
    """Enter a meeting, once however often this call is made."""
    from hitlagents.models import CalendarEntry

    entry, _ = CalendarEntry.objects.get_or_create(
        run_id=run_id,
        call_id=call_id,
        defaults={
            "owner_id": _owner(thread_id),
            "topic": _line(topic) or "Meeting",
            "attendee": _line(attendee),
            "label": slot.label,
            "starts_at": slot.starts_at,
        },
    )
    return f"Booked {described(entry)}."


def listing(thread_id: UUID) -> str:
    entries = list(_entries(thread_id)[: MAX_LISTED + 1])
    if not entries:
        return "The calendar is empty."
    lines = [f"- #{entry.pk} {described(entry)}" for entry in entries[:MAX_LISTED]]
    if len(entries) > MAX_LISTED:
        lines.append("- and more")
    count = "1 meeting" if len(entries) == 1 else f"{len(lines)} meetings"
    return f"The calendar holds {count}:\n" + "\n".join(lines)


def cancel(thread_id: UUID, meeting: str) -> str:
    """Strike a meeting out. ``meeting`` is its number, its attendee, its topic, or
    topic "with" attendee.

    Raises CalendarError when that names none or several.
    """
    from django.utils import timezone

    entry = _named(list(_entries(thread_id)), _line(meeting))
    entry.cancelled_at = timezone.now()
    entry.save(update_fields=["cancelled_at"])
    return f"Cancelled {described(entry)}."


def page(thread_id: UUID, asked: Mapping[str, str]) -> Mapping[str, Any]:
    """Everything in the calendar of the person who owns the thread, in its order in time."""
    from django.db.models import F

    from hitlagents.models import CalendarEntry

    entries = CalendarEntry.objects.filter(owner_id=_owner(thread_id)).order_by(
        F("starts_at").asc(nulls_last=True), "pk"
    )
    return {"entries": entries}


PAGE = DataPage(
    label="Calendar",
    icon="calendar-days",
    template="hitlagents/data/calendar.html",
    read=page,
)


def described(entry: CalendarEntry) -> str:
    """A meeting in words, such as "“1:1” with Alice, Monday 09:00"."""
    attendee = f" with {entry.attendee}" if entry.attendee else ""
    return f"“{entry.topic}”{attendee}, {entry.label}"


def _entries(thread_id: UUID) -> QuerySet[CalendarEntry]:
    from hitlagents.models import CalendarEntry

    return CalendarEntry.objects.filter(
        owner_id=_owner(thread_id), cancelled_at=None
    ).order_by("pk")


def _owner(thread_id: UUID) -> int:
    """Whose calendar it is: the person's who talks to the agent."""
    from hitlagents.models import Thread

    return Thread.objects.values_list("owner_id", flat=True).get(pk=thread_id)


def _named(entries: list[CalendarEntry], name: str) -> CalendarEntry:
    number = re.fullmatch(r"#?(\d{1,18})", name)
    if number:
        found = [entry for entry in entries if entry.pk == int(number[1])]
    else:
        wanted = name.casefold()
        found = [entry for entry in entries if wanted in _names(entry)]
    if not found:
        raise CalendarError(f"There is no meeting “{name}” in the calendar.")
    if len(found) > 1:
        which = "; ".join(f"#{entry.pk} {described(entry)}" for entry in found[:10])
        raise CalendarError(
            f"“{name}” names several meetings: {which}. Say the number."
        )
    return found[0]


def _names(entry: CalendarEntry) -> set[str]:
    topic, attendee = entry.topic.casefold(), entry.attendee.casefold()
    return {topic, attendee, f"{topic} with {attendee}"} - {""}


def _line(value: Any) -> str:
    """Text on one line of bearable length; anything else is nothing."""
    if not isinstance(value, str):
        return ""
    return " ".join(value.replace("\0", "").split())[:MAX_TEXT]


def _moment(text: str) -> datetime | None:
    """A moment with its zone, from an ISO text. Without a zone it is nobody's moment."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    try:
        return moment.astimezone(UTC) if moment.tzinfo else None
    except OverflowError:
        return None
