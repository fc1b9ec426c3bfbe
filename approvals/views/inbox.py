"""The inbox: the list, one request, deciding it, and what changed since."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpResponse, HttpResponseBadRequest
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_POST, require_safe

from approvals import permissions, services
from approvals.cases import Case, Problem, problem_of
from approvals.context_processors import url_or_empty
from approvals.exceptions import ApprovalsError, NotFound
from approvals.forms import AnswerForm, DecisionForm, asks_more
from approvals.http import DeskRequest, respond, wants_fragment
from approvals.inbox import Inbox, Row, Shown, View
from approvals.models import Decision, Interrupt
from approvals.services import Ballot
from approvals.states import Verdict

TEMPLATE = "approvals/inbox.html"


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
    _must_see_inbox(request)
    return _page(request, None)


@require_safe
@login_required
def interrupt(request: DeskRequest, pk: UUID) -> HttpResponse:
    """The list with this request open; for htmx the request alone."""
    case = Case(_visible(request, pk), request.user)
    if wants_fragment(request):
        return respond(request, TEMPLATE, "detail", _detail(request, case))
    return _page(request, case)


@require_safe
@login_required
def card(request: DeskRequest, pk: UUID) -> HttpResponse:
    """The request as the card that stands in a conversation."""
    case = Case(_visible_anywhere(request, pk), request.user)
    return render(request, "approvals/card.html", _detail(request, case))


@require_GET
@login_required
def updates(request: DeskRequest) -> HttpResponse:
    """What changed since the page that asks was drawn. Only fragments, each with its place."""
    _must_see_inbox(request)
    desk = Inbox(request.user, View.read(request.GET))
    shown = Shown.read(request.GET.getlist("row"))
    changed, gone = desk.changed(shown)
    new = desk.arrivals(shown)
    context: dict[str, Any] = {
        **_list_frame(desk),
        "rows": changed,
        "gone": gone,
        "new": new,
        "current": _uuid(request.GET.get("open", "")),
        "draw_list": bool(not shown.rows and new["n"]),
    }
    if context["draw_list"]:
        context |= {"groups": desk.groups(shown)}
    opened = context["current"]
    if opened:
        found = desk.visible.filter(pk=opened).first()
        case = Case(found, request.user) if found else None
        if case is None:
            context["withdrawn"] = True
        elif case.version != request.GET.get("seen", ""):
            context |= _detail(request, case)
    return render(request, f"{TEMPLATE}#updates", context)


@require_GET
@login_required
def rows(request: DeskRequest) -> HttpResponse:
    """The list drawn anew, because the reader asked for what has arrived."""
    _must_see_inbox(request)
    desk = Inbox(request.user, View.read(request.GET))
    context = _list(desk, _uuid(request.GET.get("open", "")))
    context["groups"] = desk.groups(Shown.read(request.GET.getlist("row")))
    context["swap_frame"] = True
    return render(request, f"{TEMPLATE}#rows", context)


@require_POST
@login_required
def decide(request: DeskRequest, pk: UUID) -> HttpResponse:
    """Take a verdict. The inbox and the cards of conversations post here."""
    as_card = request.POST.get("place") == "card"
    found = _visible_anywhere(request, pk) if as_card else _visible(request, pk)
    case = Case(found, request.user)
    form = DecisionForm(request.POST)
    if not form.is_valid():
        if "note" in form.errors:
            problem = Problem(
                text=str(form.errors["note"][0]),
                note=request.POST.get("note", ""),
                field="note",
            )
            return _again(request, case, problem, status=422)
        return HttpResponseBadRequest()
    verdict, note = form.cleaned_data["verdict"], form.cleaned_data["note"]
    asks = verdict == Verdict.APPROVE and asks_more(found.response_schema)
    answer_form = None
    if asks or verdict == Verdict.ANSWER:
        answer_form = AnswerForm(found.response_schema, request.POST)
        if not answer_form.is_valid():
            problem = Problem(
                text=_("The answer is not complete."), note=note, field="answer"
            )
            return _again(request, case, problem, status=422, answer_form=answer_form)
    if (
        verdict == Verdict.APPROVE
        and case.high_risk
        and not form.cleaned_data["confirmed"]
    ):
        # Without JavaScript the dialog comes as an answer of the server.
        return _again(
            request, case, None, note=note, confirm=True, answer_form=answer_form
        )
    ballot = Ballot(
        verdict=verdict,
        shown=form.cleaned_data["shown"],
        note=note,
        answer=answer_form.value() if answer_form else None,
        channel="chat" if as_card else "inbox",
    )
    try:
        services.decide(pk, ballot, reviewer=request.user)
    except NotFound as error:
        raise Http404 from error
    except ApprovalsError as error:
        problem = problem_of(error, verdict=verdict, note=note, now=timezone.now())
        case = Case(_reread(pk), request.user)
        return _again(
            request, case, problem, status=error.http_status, answer_form=answer_form
        )
    return _decided(request, Case(_reread(pk), request.user), as_card=as_card)


@require_POST
@login_required
def undo(request: DeskRequest, pk: UUID) -> HttpResponse:
    """Take one's own decision back while it has not left."""
    _visible(request, pk)
    problem = None
    status = 200
    try:
        services.undo(pk, actor=request.user)
    except NotFound as error:
        raise Http404 from error
    except ApprovalsError as error:
        problem, status = Problem(text=error.message, conflict=True), error.http_status
    case = Case(_reread(pk), request.user)
    if not wants_fragment(request):
        if problem:
            messages.error(request, problem.text)
        return redirect("interrupt", pk)
    context = _detail(request, case, problem=problem)
    context |= {
        "row": Row(interrupt=case.interrupt),
        "current": pk,
        "focus_title": not problem,
    }
    response = render(request, f"{TEMPLATE}#undone", context, status=status)
    response["HX-Push-Url"] = reverse("interrupt", args=[pk])
    return response


# Finding


def _must_see_inbox(request: DeskRequest) -> None:
    if not permissions.sees_inbox(request.user):
        raise Http404


def _visible(request: DeskRequest, pk: UUID) -> Interrupt:
    """The request, if it exists for this person."""
    return get_object_or_404(
        permissions.visible_interrupts(request.user)
        .select_related("run", "run__requester")
        .prefetch_related("review_groups", "decisions__reviewer"),
        pk=pk,
    )


def _visible_anywhere(request: DeskRequest, pk: UUID) -> Interrupt:
    """The request for the inbox, or for the run one asked for oneself."""
    return get_object_or_404(
        Interrupt.objects.filter(
            run__in=permissions.visible_runs(request.user).values("pk")
        )
        .select_related("run", "run__requester")
        .prefetch_related("review_groups", "decisions__reviewer"),
        pk=pk,
    )


def _reread(pk: UUID) -> Interrupt:
    return (
        Interrupt.objects.select_related("run", "run__requester")
        .prefetch_related("review_groups", "decisions__reviewer")
        .get(pk=pk)
    )


def _uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None


# Showing


def _list_frame(desk: Inbox) -> dict[str, Any]:
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


def _list(desk: Inbox, current: UUID | None) -> dict[str, Any]:
    groups = desk.groups()
    listed = sum(len(group.rows) for group in groups if group.key != "done")
    counts = _list_frame(desk)
    return {
        **counts,
        "groups": groups,
        "current": current,
        "new": {"n": 0, "high": 0},
        "query": desk.view.query(),
        "beyond": max(0, desk.view.narrow(desk.visible.open()).count() - listed),
    }


def _detail(
    request: DeskRequest,
    case: Case,
    *,
    problem: Problem | None = None,
    note: str = "",
    confirm: bool = False,
    answer_form: AnswerForm | None = None,
) -> dict[str, Any]:
    found = case.interrupt
    if answer_form is None and (case.is_question or asks_more(found.response_schema)):
        answer_form = AnswerForm(found.response_schema)
    return {
        "case": case,
        "interrupt": found,
        "run": case.run,
        "problem": problem,
        "note": problem.note if problem else note,
        "confirm": confirm,
        "answer_form": answer_form if case.can_decide else None,
        "view": View.read(request.GET),
    }


def _page(
    request: DeskRequest, case: Case | None, *, status: int = 200, **detail: Any
) -> HttpResponse:
    """The split view. ``case`` is what is open; without one the list stands alone."""
    desk = Inbox(request.user, View.read(request.GET))
    context = _list(desk, case.interrupt.pk if case else None)
    context |= {
        "title": _("Inbox"),
        "active": "inbox",
        "layout": "detail" if case else "list",
    }
    if case is not None:
        context |= _detail(request, case, **detail)
        context["title"] = case.interrupt.title
        context |= _place(context["groups"], case.interrupt.pk)
    else:
        context |= _today(request)
    response = render(request, TEMPLATE, context, status=status)
    response["Vary"] = "HX-Request"
    response["Cache-Control"] = "no-store"
    return response


def _place(groups: list[Any], pk: UUID) -> dict[str, Any]:
    """Where the open request stands among the open ones of the list, for small screens."""
    open_ones = [
        row.interrupt for group in groups for row in group.rows if not row.done
    ]
    ids = [one.pk for one in open_ones]
    if pk not in ids:
        return {"following": open_ones[0] if open_ones else None}
    at = ids.index(pk)
    following = open_ones[at + 1] if at + 1 < len(ids) else None
    return {"position": at + 1, "positions": len(ids), "following": following}


def _today(request: DeskRequest) -> dict[str, Any]:
    midnight = timezone.localtime().replace(hour=0, minute=0, second=0, microsecond=0)
    mine = Decision.objects.filter(reviewer=request.user, created__gte=midnight)
    return {
        "decided_today": mine.count(),
        "last_decision": mine.order_by("-created").first(),
        "agents_url": url_or_empty("agents"),
        "anything_yet": Interrupt.objects.exists(),
    }


def _again(
    request: DeskRequest,
    case: Case,
    problem: Problem | None,
    *,
    status: int = 200,
    note: str = "",
    confirm: bool = False,
    answer_form: AnswerForm | None = None,
) -> HttpResponse:
    """The same request once more, with what was typed and why it was not taken."""
    detail: dict[str, Any] = {
        "problem": problem,
        "note": note,
        "confirm": confirm,
        "answer_form": answer_form,
    }
    if request.POST.get("place") == "card":
        context = _detail(request, case, **detail)
        if wants_fragment(request):
            return render(request, "approvals/card.html", context, status=status)
        return _page_or_run(request, case, status, detail)
    if wants_fragment(request):
        shown = Shown.read(request.POST.getlist("row"))
        context = _detail(request, case, **detail)
        context |= {
            "row": Row(interrupt=case.interrupt),
            "current": case.interrupt.pk,
            "shown_rows": shown.rows,
        }
        if not case.is_open:
            desk = Inbox(request.user, View.read(request.GET))
            context["upcoming"] = desk.next_after(case.interrupt.pk, shown)
        return render(request, f"{TEMPLATE}#answered", context, status=status)
    return _page(request, case, status=status, **detail)


def _page_or_run(
    request: DeskRequest, case: Case, status: int, detail: dict[str, Any]
) -> HttpResponse:
    """A card's form without JavaScript: the inbox where one sees it, else the run."""
    if (
        permissions.visible_interrupts(request.user)
        .filter(pk=case.interrupt.pk)
        .exists()
    ):
        return _page(request, case, status=status, **detail)
    if detail["problem"]:
        messages.error(request, detail["problem"].text)
    return redirect("run", case.run.pk)


def _decided(request: DeskRequest, case: Case, *, as_card: bool) -> HttpResponse:
    """It was taken: say so, and open the next one."""
    if as_card:
        if wants_fragment(request):
            return render(request, "approvals/card.html", _detail(request, case))
        return redirect("run", case.run.pk)
    desk = Inbox(request.user, View.read(request.GET))
    shown = Shown.read(request.POST.getlist("row"))
    stays = case.interrupt.is_open
    following = None if stays else desk.next_after(case.interrupt.pk, shown)
    said = _said(case)
    if not wants_fragment(request):
        messages.success(request, said)
        if following is None:
            return redirect("interrupt", case.interrupt.pk)
        return redirect(reverse("interrupt", args=[following.pk]) + desk.view.query())
    context: dict[str, Any] = {
        **_list_frame(desk),
        "row": Row(interrupt=case.interrupt),
        "shown_rows": shown.rows,
        "toast": said,
        "toast_undo": case.undo_seconds and case.interrupt.pk,
        "toast_seconds": max(6, case.undo_seconds),
    }
    if stays:
        context |= _detail(request, case) | {"current": case.interrupt.pk}
    elif following is not None:
        opened = Case(_reread(following.pk), request.user)
        context |= _detail(request, opened)
        context |= {
            "current": following.pk,
            "next_row": Row(interrupt=opened.interrupt),
            "focus_next": True,
        }
    else:
        context |= {"current": None, "nothing_left": True, **_today(request)}
    response = render(request, f"{TEMPLATE}#answered", context)
    if following is not None:
        response["HX-Push-Url"] = (
            reverse("interrupt", args=[following.pk]) + desk.view.query()
        )
    elif not stays:
        response["HX-Push-Url"] = reverse("inbox") + desk.view.query()
    return response


def _said(case: Case) -> str:
    """What the toast says: the same words as the history."""
    title = case.interrupt.title
    if case.interrupt.is_open:
        left = case.ruling.approvals_required - case.have
        return _("Your approval of “%(title)s” counts. %(n)s more needed.") % {
            "title": title,
            "n": left,
        }
    words = {
        Verdict.APPROVE: _("Approved “%s”."),
        Verdict.DENY: _("Denied “%s”."),
        Verdict.ANSWER: _("Answered “%s”."),
    }.get(
        Verdict(case.decision.verdict) if case.decision else Verdict.DENY,
        _("Cancelled “%s”."),
    )
    return f"{words % title} {case.delivery}".strip()
