"""The inbox: the list, one request, and what has changed since a page was drawn."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.http import require_GET, require_safe

from approvals import permissions
from approvals.cases import Case
from approvals.http import DeskRequest, respond, url_or_empty, wants_fragment
from approvals.inbox import Inbox, Shown, View
from approvals.states import Verdict
from approvals.views.showing import (
    TEMPLATE,
    Typed,
    arguments_form,
    detail,
    list_frame,
    listing,
    must_see_inbox,
    page,
    today,
    visible,
    visible_anywhere,
)


@require_safe
@login_required
def home(request: DeskRequest) -> HttpResponse:
    """Everybody's first page: the inbox, the agents, or what is left."""
    if permissions.sees_inbox(request.user):
        return redirect("inbox")
    return redirect(url_or_empty("agents") or "runs")


@require_safe
@login_required
def inbox(request: DeskRequest) -> HttpResponse:
    """The list, with the first request open where there is room for both."""
    must_see_inbox(request)
    return page(request, None)


@require_safe
@login_required
def interrupt(request: DeskRequest, pk: UUID) -> HttpResponse:
    """The list with this request open; for htmx the request alone."""
    case = Case(visible(request, pk), request.user)
    typed = Typed(
        edit_form=arguments_form(case) if "edit" in request.GET else None,
        confirm=Verdict.CANCEL_CALL if "cancel" in request.GET else "",
    )
    if wants_fragment(request):
        return respond(request, TEMPLATE, "detail", detail(request, case, typed=typed))
    return page(request, case, typed=typed)


@require_safe
@login_required
def card(request: DeskRequest, pk: UUID) -> HttpResponse:
    """The request as the card that stands in a conversation."""
    case = Case(visible_anywhere(request, pk), request.user)
    return render(request, "approvals/card.html", detail(request, case))


@require_GET
@login_required
def updates(request: DeskRequest) -> HttpResponse:
    """What changed since the page that asks was drawn. Only fragments, each with its place."""
    must_see_inbox(request)
    desk = Inbox(request.user, View.read(request.GET))
    shown = Shown.read(request.GET.getlist("row"))
    changed, gone = desk.changed(shown)
    new = desk.arrivals(shown, _time(request.GET.get("since", "")))
    context: dict[str, Any] = {
        **list_frame(desk),
        "rows": changed,
        "gone": gone,
        "new": new,
        "current": _uuid(request.GET.get("open", "")),
        # Where nothing waits, what arrives pushes nothing away.
        "draw_list": bool(new["n"]) and not shown.any_open,
    }
    opened = context["current"]
    if context["draw_list"]:
        context["listing"] = desk.listing(shown)
    # With nothing open, the page says how many wait.
    waiting = str(context["counts"]["all"])
    stale = request.GET.get("waiting", waiting) != waiting
    if not opened and (stale or context["draw_list"]):
        context |= {"greet": True, **today(request)}
    if opened:
        found = desk.visible.filter(pk=opened).first()
        case = Case(found, request.user) if found else None
        if case is None:
            context["withdrawn"] = True
        elif case.version != request.GET.get("seen", "") and not (
            # Somebody is changing arguments: what they typed matters more.
            "editing" in request.GET and case.can_edit
        ):
            context |= detail(request, case)
    return render(request, f"{TEMPLATE}#updates", context)


@require_GET
@login_required
def rows(request: DeskRequest) -> HttpResponse:
    """The list drawn anew, because the reader asked for what has arrived."""
    must_see_inbox(request)
    desk = Inbox(request.user, View.read(request.GET))
    shown = Shown.read(request.GET.getlist("row"))
    context = listing(desk, _uuid(request.GET.get("open", "")), shown)
    return render(request, f"{TEMPLATE}#rows", context)


def _uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None


def _time(text: str) -> datetime | None:
    try:
        time = datetime.fromisoformat(text)
        return time.astimezone(UTC) if timezone.is_aware(time) else None
    except (ValueError, OverflowError):
        return None
