"""The words of pages for what Sayso itself knows: names, states, risks and times.

What agents and people wrote is put on a page by ``approvals.display``.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, tzinfo
from typing import TYPE_CHECKING, Literal

from django.utils import timezone
from django.utils.translation import gettext as _

if TYPE_CHECKING:
    from django.contrib.auth.models import User


def person(user: User | None) -> str:
    """A person as pages name them; "somebody" if that is all that is known.

    Always with the name they sign in with: the other one can be anybody's, and whose
    decision it was must not depend on it.
    """
    if user is None:
        return _("somebody")
    full, own = user.get_full_name(), user.get_username()
    return f"{full} ({own})" if full and full != own else own


# ── names in words ───────────────────────────────────────────────────────────


def humanise(tool: str) -> str:
    """`delete_file` and `deleteFile` as "Delete file"."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", tool)
    words = re.sub(r"[\s_./:-]+", " ", words).strip()
    return words[:1].upper() + words[1:].lower() if words else tool


def approve_label(tool: str) -> str:
    """The button says what it does: "Approve and delete file"."""
    return _("Approve and %(what)s") % {"what": humanise(tool).lower()}


def initials(name: str) -> str:
    words = [word for word in re.split(r"[\s._@-]+", name) if word]
    letters = (
        words[0][0] + (words[-1][0] if len(words) > 1 else words[0][1:2])
        if words
        else "?"
    )
    return letters.upper()


def avatar_colour(name: str) -> int:
    """One of the five colours, the same one for a name everywhere."""
    return sum(name.encode()) % 5 + 1


# ── states and risk ──────────────────────────────────────────────────────────

State = Literal[
    "pending",
    "claimed",
    "approved",
    "denied",
    "answered",
    "cancelled",
    "expired",
    "failed",
]

STATE_ICONS: dict[str, str] = {
    "pending": "circle-dot",
    "claimed": "user-check",
    "approved": "check",
    "denied": "x",
    "answered": "corner-down-right",
    "cancelled": "circle-slash",
    "expired": "timer-off",
    "failed": "triangle-alert",
}

# The statuses of requests, runs and tool executions, each drawn as one of the states.
STATE_OF: dict[str, str] = {
    "open": "pending",
    "queued": "claimed",
    "running": "claimed",
    "inflight": "claimed",
    "waiting": "pending",
    "at_page": "pending",
    "finished": "approved",
    "done": "approved",
    "in_doubt": "failed",
    "neutral": "cancelled",
}


# Where the status itself says more than the state it is drawn as.
STATUS_ICONS: dict[str, str] = {
    "queued": "clock",
    "at_page": "app-window",
    "running": "loader-circle",
    "inflight": "loader-circle",
    "neutral": "dot",
}


def icon_of(status: str) -> str:
    return STATUS_ICONS.get(status) or STATE_ICONS[state_of(status)]


def state_of(status: str) -> str:
    state = STATE_OF.get(status, status)
    return state if state in STATE_ICONS else "cancelled"


def state_word(status: str) -> str:
    words = {
        "open": _("Pending"),
        "pending": _("Pending"),
        "claimed": _("Claimed"),
        "approved": _("Approved"),
        "denied": _("Denied"),
        "answered": _("Answered"),
        "cancelled": _("Cancelled"),
        "expired": _("Expired"),
        "failed": _("Failed"),
        "queued": _("Queued"),
        "running": _("Running"),
        "inflight": _("Running"),
        "waiting": _("Waiting for a person"),
        "at_page": _("Waiting for its page"),
        "finished": _("Finished"),
        "done": _("Ran"),
        "in_doubt": _("Outcome unknown"),
    }
    return words.get(status, humanise(status))


def risk_word(risk: str) -> str:
    return {
        "high": _("High risk"),
        "medium": _("Medium risk"),
        "low": _("Low risk"),
    }.get(risk, risk)


def risk_notice(risk: str) -> str:
    """The sentence under the arguments of a risky call; empty for a low one."""
    if risk == "high":
        return _(
            "Approving lets this run at once. Check every argument: it may not be reversible."
        )
    if risk == "medium":
        return _("This changes something outside the conversation.")
    return ""


# ── time in words ────────────────────────────────────────────────────────────


def duration(span: timedelta | float) -> str:
    """ "40 s", "2 min 04 s", "1 h 12 min", "3 d 4 h"."""
    seconds = int(span.total_seconds() if isinstance(span, timedelta) else span)
    seconds = max(0, seconds)
    minutes, second = divmod(seconds, 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    if days:
        return (
            _("%(d)s d %(h)s h") % {"d": days, "h": hour} if hour else _("%s d") % days
        )
    if hours:
        return (
            _("%(h)s h %(m)s min") % {"h": hours, "m": minute}
            if minute
            else _("%s h") % hours
        )
    if minutes:
        if minutes < 10 and second:
            return _("%(m)s min %(s)02d s") % {"m": minutes, "s": second}
        return _("%s min") % minutes
    return _("%s s") % second


DAY = timedelta(days=1)


def moment_of(value: object) -> datetime | None:
    """The moment that a text in ISO 8601 names; None for anything else, also for a time
    without a zone, which is nobody's moment."""
    if not isinstance(value, str) or "T" not in value:
        return None
    try:
        found = datetime.fromisoformat(value)
        # The first and the last days of all time have no neighbours, so that not every
        # zone could tell them.
        first, last = (found.astimezone(UTC) + days for days in (-DAY, DAY))
        assert first < last
    except (ValueError, OverflowError):
        return None
    return found if timezone.is_aware(found) else None


def moment(then: datetime, zone: tzinfo | None = None) -> str:
    """ "Mon 07 Dec 2026, 10:00 CET", told by the calendar in the zone."""
    return f"{timezone.localtime(then, zone):%a %d %b %Y, %H:%M %Z}"


type Precision = Literal["minute", "second", "microsecond"]

_CLOCK: dict[Precision, str] = {
    "minute": "%H:%M",
    "second": "%H:%M:%S",
    "microsecond": "%H:%M:%S.%f",
}


def time_of(then: datetime, to: Precision = "minute") -> str:
    """ "14:32" for today, else "30 Nov, 14:32"; the year stands where it is another one."""
    local, today = timezone.localtime(then), timezone.localdate()
    clock = local.strftime(_CLOCK[to])
    if local.date() == today:
        return clock
    return (
        f"{local:%d %b}{'' if local.year == today.year else f' {local.year}'}, {clock}"
    )


def exact_time(then: datetime) -> str:
    """ "30 Nov 2026, 14:32:07 CET", as stands behind every time of a page."""
    return f"{timezone.localtime(then):%d %b %Y, %H:%M:%S %Z}"


def age(then: datetime, now: datetime) -> str:
    """The short age of a row: "now", "2m", "1h", "3d"."""
    seconds = int((now - then).total_seconds())
    if seconds < 60:
        return _("now")
    for size, unit in ((86400, _("d")), (3600, _("h")), (60, _("m"))):
        if seconds >= size:
            return f"{seconds // size}{unit}"
    return ""


def time_left(until: datetime, now: datetime) -> str:
    """ "12 min left", "expired"."""
    seconds = (until - now).total_seconds()
    if seconds <= 0:
        return _("expired")
    if seconds >= 60:
        seconds -= seconds % 60
    return _("%s left") % duration(seconds)
