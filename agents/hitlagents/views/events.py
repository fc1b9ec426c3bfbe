"""The raw events of a run, as a page and as a download, for whoever may see the run."""

from __future__ import annotations

from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import get_object_or_404
from django.utils.translation import gettext as _
from django.views.decorators.http import require_safe

from approvals import permissions
from approvals.http import DeskRequest, download_lines, respond
from approvals.models import Run
from hitlagents.conversations import threads_of
from hitlagents.raw_events import LONGEST, Lines, RawEvents, saved_state

TEMPLATE = "hitlagents/events.html"


@require_safe
@login_required
def events(request: DeskRequest, pk: UUID) -> HttpResponse:
    """``?type=`` narrows to one type, ``?after=`` and ``?before=`` are numbers of events."""
    run = _visible(request, pk)
    found = RawEvents(
        run,
        type=request.GET.get("type", ""),
        after=_number(request.GET.get("after", "")),
        before=_number(request.GET.get("before", "")),
    )
    person = request.user
    staff = person.is_staff and permissions.sees_everything(person)
    context = {
        "title": _("Events of %s") % run,
        "active": "runs",
        "run": run,
        "events": found,
        "longest": LONGEST,
        "thread": threads_of(person, run.agent).filter(pk=run.thread).first(),
        "staff": staff,
        "saved": saved_state(run) if staff else None,
    }
    return respond(request, TEMPLATE, "events", context)


@require_safe
@login_required
def download(request: DeskRequest, pk: UUID) -> HttpResponseBase:
    """All of them, one JSON object a line."""
    run = _visible(request, pk)
    return download_lines(request, Lines(run).next, f"sayso-events-{run.pk}.jsonl")


def _visible(request: HttpRequest, pk: UUID) -> Run:
    return get_object_or_404(permissions.visible_runs(request.user).with_state(), pk=pk)


def _number(text: str) -> int | None:
    """A number of an event, as far as the database can compare it."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else None
