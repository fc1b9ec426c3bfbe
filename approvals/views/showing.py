"""Finding requests for a person, and putting together what their pages show."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal
from uuid import UUID

from django.http import Http404, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _

from approvals import cards, permissions
from approvals.cases import Case, Problem
from approvals.forms import AnswerForm, ArgumentsForm
from approvals.http import DeskRequest, safe_next, url_or_empty
from approvals.inbox import Inbox, Listing, Shown, View
from approvals.models import Decision, Interrupt
from approvals.states import InterruptKind, Verdict

TEMPLATE = "approvals/inbox.html"


@dataclass(frozen=True, kw_only=True)
class Typed:
    """What somebody has put into the forms of a request, to be shown again."""

    note: str = ""
    answer_form: AnswerForm | None = None
    edit_form: ArgumentsForm | None = None
    #: The confirmation of this stands open on the page, because there is no JavaScript
    #: to ask.
    confirm: Verdict | Literal[""] = ""


NOTHING = Typed()


# Finding


def must_see_inbox(request: DeskRequest) -> None:
    if not permissions.sees_inbox(request.user):
        raise Http404


def visible(request: DeskRequest, pk: UUID) -> Interrupt:
    """The request, if it exists for this person."""
    found = permissions.visible_interrupt(request.user, pk)
    if found is None:
        raise Http404
    return found


def visible_anywhere(request: DeskRequest, pk: UUID) -> Interrupt:
    """The request for the inbox, or for the run one asked for oneself."""
    return get_object_or_404(
        Interrupt.objects.for_people()
        .filter(run__in=permissions.visible_runs(request.user).values("pk"))
        .select_related("run", "run__requester"),
        pk=pk,
    )


def reread(pk: UUID) -> Interrupt:
    return Interrupt.objects.select_related("run", "run__requester").get(pk=pk)


# Showing


def list_frame(desk: Inbox) -> dict[str, Any]:
    counts = desk.counts()
    chips = [
        ("all", _("All")),
        ("high", _("High risk")),
        ("soon", _("Expiring soon")),
    ]
    return {
        "view": desk.view,
        "counts": counts,
        "chips": [
            {
                "key": key,
                "label": label,
                "n": counts[key],
                "url": reverse("inbox") + desk.view.query(view=key),
            }
            for key, label in chips
        ],
    }


def listing(
    desk: Inbox, current: UUID | None, shown: Shown | None = None
) -> dict[str, Any]:
    frame = list_frame(desk)
    found = desk.listing(shown)
    beyond = frame["counts"][desk.view.name] - len(found.open_rows)
    return {
        **frame,
        "listing": found,
        "current": current,
        "new": {"n": 0, "high": 0},
        # How many a search leaves out is not counted: it would have to find them all.
        "beyond": 0 if desk.view.q else beyond,
    }


def detail(
    request: DeskRequest,
    case: Case,
    *,
    problem: Problem | None = None,
    typed: Typed = NOTHING,
) -> dict[str, Any]:
    """One request: what it shows, what was typed, and why that was not taken."""
    return {
        "case": case,
        "interrupt": case.interrupt,
        "run": case.run,
        "problem": problem,
        "note": problem.note if problem else typed.note,
        "confirm": typed.confirm,
        "answer_form": _answer_form(case, typed.answer_form),
        "edit_form": typed.edit_form if case.can_edit else None,
        "view": View.read(request.GET),
        "back": safe_next(request, ""),
    }


def _answer_form(case: Case, typed: AnswerForm | None) -> AnswerForm | None:
    if not case.takes_answer or not cards.asks_answer(case.interrupt):
        return None
    return typed or cards.answer_form(case.interrupt)


def arguments_form(case: Case, data: Any = None) -> ArgumentsForm | None:
    """The arguments to edit, where they may be."""
    if not case.can_edit:
        return None
    found = case.interrupt
    return ArgumentsForm(found.arguments, found.tool_schema, data, hiding=found.hiding)


def page(
    request: DeskRequest,
    case: Case | None,
    *,
    status: int = 200,
    problem: Problem | None = None,
    typed: Typed = NOTHING,
) -> HttpResponse:
    """The split view. ``case`` is what is open; without one the list stands alone."""
    desk = Inbox(request.user, View.read(request.GET))
    context = listing(desk, case.interrupt.pk if case else None)
    context |= {
        "title": _("Inbox"),
        "active": "inbox",
        "layout": "detail" if case else "list",
    }
    if case is not None:
        context |= detail(request, case, problem=problem, typed=typed)
        context["title"] = case.title
        context |= _place(context["listing"], case.interrupt.pk)
    else:
        context |= today(request)
    response = render(request, TEMPLATE, context, status=status)
    response["Vary"] = "HX-Request"
    response["Cache-Control"] = "no-store"
    return response


def _place(found: Listing, pk: UUID) -> dict[str, Any]:
    """Where the open request stands among the open ones of the list, for small screens."""
    open_ones = [row.interrupt for row in found.open_rows]
    ids = [one.pk for one in open_ones]
    if pk not in ids:
        return {"following": open_ones[0] if open_ones else None}
    at = ids.index(pk)
    following = open_ones[at + 1] if at + 1 < len(ids) else None
    return {"position": at + 1, "positions": len(ids), "following": following}


def today(request: DeskRequest) -> dict[str, Any]:
    midnight = timezone.localtime().replace(hour=0, minute=0, second=0, microsecond=0)
    mine = Decision.objects.filter(
        reviewer=request.user, created__gte=midnight
    ).exclude(interrupt__kind=InterruptKind.CLIENT)
    return {
        "decided_today": mine.count(),
        "last_decision": mine.order_by("-created").first(),
        "agents_url": url_or_empty("agents"),
        "anything_yet": permissions.visible_interrupts(request.user).exists(),
    }
