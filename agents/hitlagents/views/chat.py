"""The pages on which people talk to agents: the list of agents, and one conversation.

Anybody who is signed in may talk to an agent. A conversation exists for its owner only;
others who may see a run of it use the page of that run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import (
    require_http_methods,
    require_safe,
)

from approvals import services
from approvals.exceptions import ApprovalsError, NotFound
from approvals.http import DeskRequest, respond, takes_posts, wants_fragment
from approvals.models import Run
from hitlagents import catalog, conversations
from hitlagents.chat import LISTED, Chat, listed, model_label, threads_with_state
from hitlagents.models import Thread

TEMPLATE = "hitlagents/chat.html"


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Why something was not done, and the text that came with it."""

    text: str
    message: str = ""
    status: int = 422


@require_safe
@login_required
def agents(request: DeskRequest) -> HttpResponse:
    """The agents of this installation, and one's conversations with them."""
    context = {
        "title": _("Agents"),
        "active": "agents",
        "agents": listed(request.user),
    }
    return render(request, "hitlagents/agents.html", context)


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def agent(request: DeskRequest, slug: str) -> HttpResponse:
    """A conversation that has not begun. The first message begins it."""
    if catalog.get(slug) is None:
        raise Http404
    unsaved = Thread(agent=slug, owner=request.user)
    if request.method != "POST":
        return _page(request, Chat(unsaved, request.user))
    text = _said(request)
    try:
        # One transaction: a message that is refused leaves no empty conversation.
        with services.unit_of_work():
            thread = conversations.open_thread(slug, owner=request.user)
            conversations.send(thread.pk, text, author=request.user)
    except ApprovalsError as error:
        problem = Problem(text=error.message, message=text, status=error.http_status)
        return _page(request, Chat(unsaved, request.user), problem=problem)
    return redirect(_end_of(thread))


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def thread(request: DeskRequest, slug: str, pk: UUID) -> HttpResponse:
    """A conversation; for htmx its transcript and what stands around it. POST sends."""
    found = _own(request, slug, pk)
    if request.method != "POST":
        return _page(request, _chat(request, found))
    text = _said(request)
    return _act(
        request, found, lambda: conversations.send(pk, text, author=request.user), text
    )


@takes_posts
def retry(request: DeskRequest, slug: str, pk: UUID) -> HttpResponse:
    """Put the run that failed back in the queue."""
    found = _own(request, slug, pk)
    run = _named_run(request, found)
    return _act(request, found, lambda: services.retry_run(run.pk, actor=request.user))


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def cancel(request: DeskRequest, slug: str, pk: UUID) -> HttpResponse:
    """End the run that is under way. Without JavaScript, GET asks once more."""
    found = _own(request, slug, pk)
    if request.method != "POST":
        return _page(request, _chat(request, found), confirm_cancel=True)
    run = _named_run(request, found)
    note = request.POST.get("note", "").replace("\0", "")[:10_000]
    return _act(
        request,
        found,
        lambda: services.cancel_run(run.pk, actor=request.user, note=note),
    )


# Finding


def _own(request: DeskRequest, slug: str, pk: UUID) -> Thread:
    """The conversation, for its owner; for others it does not exist."""
    return get_object_or_404(conversations.threads_of(request.user, slug), pk=pk)


def _named_run(request: DeskRequest, thread: Thread) -> Run:
    """The run that the page showed, which may no longer be the newest."""
    try:
        pk = UUID(request.POST.get("run", ""))
    except ValueError as error:
        raise Http404 from error
    return get_object_or_404(Run, pk=pk, thread=thread.pk)


def _said(request: DeskRequest) -> str:
    return request.POST.get("suggestion") or request.POST.get("message", "")


def _chat(request: DeskRequest, thread: Thread) -> Chat:
    return Chat(thread, request.user, whole="all" in request.GET)


# Answering


def _act(
    request: DeskRequest, thread: Thread, verb: Callable[[], object], text: str = ""
) -> HttpResponse:
    """Do one thing to a conversation and show it, or say why it was not done."""
    try:
        verb()
    except NotFound as error:
        raise Http404 from error
    except ApprovalsError as error:
        problem = Problem(text=error.message, message=text, status=error.http_status)
        return _page(request, _chat(request, thread), problem=problem)
    if wants_fragment(request):
        return _page(request, _chat(request, thread))
    return redirect(_end_of(thread))


def _end_of(thread: Thread) -> str:
    """The newest of a conversation, also for a browser that runs no script."""
    return reverse("thread", args=[thread.agent, thread.pk]) + "#end"


def _page(
    request: DeskRequest,
    chat: Chat,
    *,
    problem: Problem | None = None,
    confirm_cancel: bool = False,
) -> HttpResponse:
    """The page, the fragment that is fetched anew, or only why something was refused."""
    status = problem.status if problem else 200
    fragment = "problem" if problem else "fresh"
    context: dict[str, Any] = {
        "title": str(chat.thread) if chat.run else chat.name,
        "active": "agents",
        "chat": chat,
        "thread": chat.thread,
        "run": chat.run,
        "model": model_label(chat.spec),
        "installed": chat.spec is not None and catalog.installed(chat.spec),
        "threads": threads_with_state(request.user, chat.thread.agent)[:LISTED],
        "refusal": problem,
        "confirm_cancel": confirm_cancel and chat.can_cancel,
        "max_message": conversations.MAX_MESSAGE,
    }
    if not wants_fragment(request):
        context["agents"] = catalog.agents()
    return respond(request, TEMPLATE, fragment, context, status=status)
