"""Deciding a request, and taking a decision back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.http import Http404, HttpResponse, HttpResponseBadRequest
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _

from approvals import cards, permissions, services
from approvals.cases import Case, Problem, not_sent, problem_of
from approvals.exceptions import ApprovalsError, NotAllowed, NotFound
from approvals.forms import DecisionForm
from approvals.http import DeskRequest, safe_next, takes_posts, wants_fragment
from approvals.inbox import Inbox, Row, Shown, View
from approvals.services import Ballot
from approvals.states import Verdict
from approvals.views.showing import (
    TEMPLATE,
    Typed,
    arguments_form,
    detail,
    list_frame,
    page,
    reread,
    today,
    visible,
    visible_anywhere,
)


@takes_posts
def decide(request: DeskRequest, pk: UUID) -> HttpResponse:
    """Take a verdict. The inbox and the cards of conversations post here."""
    as_card = request.POST.get("place") == "card"
    found = visible_anywhere(request, pk) if as_card else visible(request, pk)
    case = Case(found, request.user)
    form = DecisionForm(request.POST)
    if not form.is_valid():
        if "note" not in form.errors:
            return HttpResponseBadRequest()
        typed = Typed(note=request.POST.get("note", ""))
        problem = Problem(
            text=str(form.errors["note"][0]), note=typed.note, field="note"
        )
        return _again(request, case, typed, problem, status=422)
    verdict: Verdict = form.cleaned_data["verdict"]
    typed = _typed(request, case, verdict, form.cleaned_data["note"])
    incomplete = _incomplete(typed)
    if incomplete is not None:
        return _again(request, case, typed, incomplete, status=422)
    if _wants_confirming(case, verdict) and not form.cleaned_data["confirmed"]:
        # Without JavaScript the dialog comes as an answer of the server.
        return _again(request, case, replace(typed, confirm=verdict), None)
    ballot = Ballot(
        verdict=verdict,
        shown=form.cleaned_data["shown"],
        note=typed.note,
        answer=typed.answer_form.value() if typed.answer_form else None,
        arguments=typed.edit_form.value() if typed.edit_form else None,
        channel="chat" if as_card else "inbox",
    )
    try:
        decided = services.decide(pk, ballot, reviewer=request.user)
    except ApprovalsError as error:
        case = Case(reread(pk), request.user)
        if isinstance(error, NotFound):
            if not as_card:
                raise Http404 from error
            # Their own run shows them the request, so who decides it is no secret.
            error = NotAllowed(f"{case.why_not} {not_sent(verdict)}")
        problem = problem_of(
            error, verdict=verdict, note=typed.note, now=timezone.now()
        )
        return _again(request, case, typed, problem, status=error.http_status)
    return _decided(request, Case(decided, request.user), as_card=as_card)


@takes_posts
def undo(request: DeskRequest, pk: UUID) -> HttpResponse:
    """Take one's own decision back while it has not left."""
    visible(request, pk)
    problem = None
    status = 200
    try:
        services.undo(pk, actor=request.user)
    except NotFound as error:
        raise Http404 from error
    except ApprovalsError as error:
        problem, status = Problem(text=error.message, conflict=True), error.http_status
    case = Case(reread(pk), request.user)
    if not wants_fragment(request):
        if problem:
            messages.error(request, problem.text)
        return redirect("interrupt", pk)
    context = detail(request, case, problem=problem)
    context |= {
        "row": Row(interrupt=case.interrupt, title=case.title),
        "current": pk,
        "focus_title": not problem,
    }
    response = render(request, f"{TEMPLATE}#undone", context, status=status)
    response["HX-Push-Url"] = reverse("interrupt", args=[pk])
    return response


# What came in the forms


def _typed(request: DeskRequest, case: Case, verdict: Verdict, note: str) -> Typed:
    found = case.interrupt
    approves = verdict == Verdict.APPROVE
    answers = verdict == Verdict.ANSWER or (approves and cards.asks_answer(found))
    edits = approves and "editing" in request.POST
    return Typed(
        note=note,
        answer_form=cards.answer_form(found, request.POST) if answers else None,
        edit_form=arguments_form(case, request.POST) if edits else None,
    )


def _wants_confirming(case: Case, verdict: Verdict) -> bool:
    return verdict == Verdict.CANCEL_CALL or (
        verdict == Verdict.APPROVE and case.high_risk
    )


def _incomplete(typed: Typed) -> Problem | None:
    """What has to be filled in or corrected before anything can be sent."""
    if typed.answer_form and not typed.answer_form.is_valid():
        text, field = _("The answer is not complete."), "answer"
    elif typed.edit_form and not typed.edit_form.is_valid():
        text, field = _("Some arguments cannot be used."), "arguments"
    else:
        return None
    return Problem(text=text, note=typed.note, field=field)


# Answering


def _again(
    request: DeskRequest,
    case: Case,
    typed: Typed,
    problem: Problem | None,
    *,
    status: int = 200,
) -> HttpResponse:
    """The same request once more, with what was typed and why it was not taken."""
    as_card = request.POST.get("place") == "card"
    if not wants_fragment(request):
        if as_card and not _in_inbox(request, case):
            if problem:
                messages.error(request, problem.text)
            return redirect(_back(request, case))
        return page(request, case, status=status, problem=problem, typed=typed)
    context = detail(request, case, problem=problem, typed=typed)
    if as_card:
        return render(request, "approvals/card.html", context, status=status)
    shown = Shown.read(request.POST.getlist("row"))
    context |= {
        "row": Row(interrupt=case.interrupt, title=case.title),
        "current": case.interrupt.pk,
        "shown_rows": shown.rows,
    }
    if not case.is_open:
        desk = Inbox(request.user, View.read(request.GET))
        context["upcoming"] = desk.next_after(case.interrupt.pk, shown)
    return render(request, f"{TEMPLATE}#answered", context, status=status)


def _back(request: DeskRequest, case: Case) -> str:
    """Where a card stands, or else the page of its run."""
    return safe_next(request, reverse("run", args=[case.run.pk]))


def _in_inbox(request: DeskRequest, case: Case) -> bool:
    mine = permissions.visible_interrupts(request.user)
    return mine.filter(pk=case.interrupt.pk).exists()


def _decided(request: DeskRequest, case: Case, *, as_card: bool) -> HttpResponse:
    """It was taken: say so, and open the next one."""
    if as_card:
        if wants_fragment(request):
            return render(request, "approvals/card.html", detail(request, case))
        return redirect(_back(request, case))
    desk = Inbox(request.user, View.read(request.GET))
    shown = Shown.read(request.POST.getlist("row"))
    stays = case.interrupt.is_open
    following = None if stays else desk.next_after(case.interrupt.pk, shown)
    said = _said(case)
    if not wants_fragment(request):
        messages.success(request, said)
        if following is None:
            return redirect("interrupt", case.interrupt.pk)
        return redirect(reverse("interrupt", args=[following]) + desk.view.query())
    context: dict[str, Any] = {
        **list_frame(desk),
        "row": Row(interrupt=case.interrupt, title=case.title),
        "shown_rows": shown.rows,
        "toast": said,
        "toast_undo": case.undo_seconds and case.interrupt.pk,
        "toast_seconds": max(6, case.undo_seconds),
    }
    if stays:
        context |= detail(request, case) | {"current": case.interrupt.pk}
    elif following is not None:
        opened = Case(reread(following), request.user)
        context |= detail(request, opened)
        context |= {
            "current": following,
            "next_row": Row(interrupt=opened.interrupt, title=opened.title),
            "focus_next": True,
        }
    else:
        context |= {"current": None, "nothing_left": True, **today(request)}
    response = render(request, f"{TEMPLATE}#answered", context)
    if following is not None:
        response["HX-Push-Url"] = (
            reverse("interrupt", args=[following]) + desk.view.query()
        )
    elif not stays:
        response["HX-Push-Url"] = reverse("inbox") + desk.view.query()
    return response


def _said(case: Case) -> str:
    """What the toast says: the same words as the history."""
    title = case.title
    if case.interrupt.is_open:
        left = case.still_needed
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
