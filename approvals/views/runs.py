"""Runs: the list, one run with all that happened in it, and what a person may do to it."""

from __future__ import annotations

from datetime import UTC
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.db.models import Count, Q, QuerySet
from django.http import Http404, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.dateparse import parse_datetime
from django.utils.translation import gettext as _
from django.views.decorators.http import (
    require_http_methods,
    require_safe,
)

from approvals import hosts, permissions, services
from approvals.cases import Case, Happened, Problem, happened
from approvals.exceptions import ApprovalsError, NotFound
from approvals.forms import SettleForm
from approvals.hiding import BY_LOOKS
from approvals.http import DeskRequest, respond, safe_next, takes_posts, wants_fragment
from approvals.models import AuditEntry, Interrupt, Run, Tool, ToolExecution
from approvals.states import ExecutionStatus, RunStatus, Settlement

PAGE = 40


@require_safe
@login_required
def runs(request: DeskRequest) -> HttpResponse:
    """Runs one may see, newest first, a page at a time."""
    status = request.GET.get("status", "")
    found = _visible_runs(request)
    if status in set(RunStatus):
        found = found.filter(status=status)
    else:
        status = ""
    before = _cursor(request.GET.get("before", ""))
    if before:
        time, pk = before
        found = found.filter(Q(created__lt=time) | Q(created=time, id__lt=pk))
    listed = list(found[: PAGE + 1])
    open_requests = dict(
        Interrupt.objects.open()
        .for_people()
        .filter(run__in=[one.pk for one in listed])
        .order_by()
        .values_list("run")
        .annotate(n=Count("pk"))
    )
    more = listed[PAGE - 1] if len(listed) > PAGE else None
    context = {
        "title": _("Runs"),
        "active": "runs",
        "runs": [
            {"run": one, "open": open_requests.get(one.pk, 0)} for one in listed[:PAGE]
        ],
        "status": status,
        "statuses": RunStatus.choices,
        "before": f"{more.created.isoformat()}_{more.pk}" if more else "",
        "paged": bool(before),
    }
    return respond(request, "approvals/runs.html", "list", context)


@require_safe
@login_required
def run(request: DeskRequest, pk: UUID) -> HttpResponse:
    found = _visible(request, pk)
    return respond(request, "approvals/run.html", "run", _run(request, found))


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def cancel(request: DeskRequest, pk: UUID) -> HttpResponse:
    """Ask once more on a page of its own, then end the run."""
    found = _visible(request, pk)
    if not permissions.may_cancel(request.user, found):
        raise Http404
    back = reverse("run", args=[pk])
    if request.method != "POST":
        context = {
            "title": _("Cancel the run?"),
            "active": "runs",
            "run": found,
            "next": back,
        }
        return render(request, "approvals/cancel_run.html", context)
    note = request.POST.get("note", "").replace("\0", "")[:10_000]
    return _act(
        request,
        found,
        lambda: services.cancel_run(pk, actor=request.user, note=note),
        done=_("The run is cancelled."),
        back=safe_next(request, back),
    )


@takes_posts
def retry(request: DeskRequest, pk: UUID) -> HttpResponse:
    found = _visible(request, pk)
    return _act(
        request,
        found,
        lambda: services.retry_run(pk, actor=request.user),
        done=_("The run is queued again. Tools that ran are not run again."),
        back=reverse("run", args=[pk]),
    )


@takes_posts
def settle(request: DeskRequest, pk: int) -> HttpResponse:
    """Say what became of a tool call whose outcome was unknown."""
    execution = get_object_or_404(
        ToolExecution.objects.filter(
            run__in=permissions.visible_runs(request.user).values("pk")
        ),
        pk=pk,
    )
    found = _visible(request, execution.run_id)
    form = SettleForm(request.POST)
    if not form.is_valid():
        problem = Problem(
            text=str(next(iter(form.errors.values()))[0]),
            note=request.POST.get("note", ""),
            field=next(iter(form.errors)),
        )
        return _again(request, found, problem, status=422, settling=pk)
    try:
        services.settle_execution(
            pk,
            settlement=Settlement(form.cleaned_data["settlement"]),
            actor=request.user,
            note=form.cleaned_data["note"],
            result=form.cleaned_data["result"],
        )
    except NotFound as error:
        raise Http404 from error
    except ApprovalsError as error:
        problem = Problem(
            text=error.message,
            note=form.cleaned_data["note"],
            field=getattr(error, "field", ""),
        )
        return _again(request, found, problem, status=error.http_status, settling=pk)
    if wants_fragment(request):
        return respond(
            request,
            "approvals/run.html",
            "run",
            _run(request, _visible(request, found.pk)),
        )
    messages.success(request, _("Settled. The run goes on."))
    return redirect("run", found.pk)


def _visible(request: DeskRequest, pk: UUID) -> Run:
    return get_object_or_404(_visible_runs(request), pk=pk)


def _visible_runs(request: DeskRequest) -> QuerySet[Run]:
    found = permissions.visible_runs(request.user)
    return found.with_state().select_related("requester")


def _cursor(text: str) -> tuple[Any, UUID] | None:
    time_text, _sep, pk_text = text.rpartition("_")
    try:
        time, pk = parse_datetime(time_text), UUID(pk_text)
        if time is None or timezone.is_naive(time):
            return None
        return time.astimezone(UTC), pk
    except (ValueError, OverflowError):
        return None


def _act(
    request: DeskRequest, found: Run, verb: Any, *, done: str, back: str
) -> HttpResponse:
    """Do one thing to a run, and show the run with what came of it."""
    try:
        verb()
    except NotFound as error:
        raise Http404 from error
    except ApprovalsError as error:
        return _again(
            request, found, Problem(text=error.message), status=error.http_status
        )
    if wants_fragment(request):
        return respond(
            request,
            "approvals/run.html",
            "run",
            _run(request, _visible(request, found.pk)),
        )
    messages.success(request, done)
    return redirect(back)


def _again(
    request: DeskRequest,
    found: Run,
    problem: Problem,
    *,
    status: int,
    settling: int | None = None,
) -> HttpResponse:
    context = _run(request, _visible(request, found.pk))
    context |= {"problem": problem, "settling": settling}
    return respond(request, "approvals/run.html", "run", context, status=status)


def _run(request: DeskRequest, found: Run) -> dict[str, Any]:
    person = request.user
    interrupts = (
        found.interrupts.select_related("run", "run__requester")
        .prefetch_related("review_groups", "decisions__reviewer")
        .order_by("turn", "created", "id")
    )
    cases = [Case(interrupt, person) for interrupt in interrupts]
    in_inbox = set(
        permissions.visible_interrupts(person)
        .filter(run=found)
        .values_list("pk", flat=True)
    )
    hiding = {tool.name: tool.hiding for tool in Tool.objects.filter(agent=found.agent)}
    executions: list[dict[str, Any]] = [
        {"row": execution, "hiding": hiding.get(execution.tool, BY_LOOKS)}
        for execution in found.executions.order_by("started", "pk")
    ]
    entries = AuditEntry.objects.filter(run=found.pk).order_by("number")[:500]
    return {
        "title": found.title or str(found),
        "active": "runs",
        "run": found,
        "conversation": hosts.conversation(found, person),
        "cases": cases,
        "in_inbox": in_inbox,
        "executions": executions,
        "in_doubt": [
            e for e in executions if e["row"].status == ExecutionStatus.IN_DOUBT
        ],
        "timeline": _timeline(happened(entries), cases),
        "open_requests": sum(case.is_open for case in cases),
        "can_cancel": not found.ended and permissions.may_cancel(person, found),
        "can_retry": found.status == RunStatus.FAILED
        and permissions.may_retry(person, found),
        "can_settle": permissions.may_settle(person, found),
        "settlements": Settlement.choices,
    }


def _timeline(lines: list[Happened], cases: list[Case]) -> list[dict[str, Any]]:
    by_request: dict[UUID | None, Case] = {case.interrupt.pk: case for case in cases}
    return [
        {"line": line, "about": _about(line, by_request.get(line.interrupt))}
        for line in lines
    ]


def _about(line: Happened, case: Case | None) -> str:
    if case is None:
        return ""
    asked = line.action == "interrupt.opened"
    return case.interrupt.title if asked else case.title
