"""The doors: one address per agent, and the four routes of CopilotKit's runtime."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any
from uuid import UUID

from django.conf import settings
from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.middleware.csrf import get_token
from django.utils.cache import patch_vary_headers
from django.views.decorators.csrf import csrf_exempt

from approvals import services
from approvals.callers import Api, Caller, View, api, error_response
from approvals.exceptions import ApprovalsError, NotFound, RunEnded
from approvals.models import Run
from approvals.states import TokenScope
from hitlagents import catalog, conversations
from hitlagents.adapters.base import AgentSpec
from hitlagents.agui import at_page, capabilities, intake, resuming
from hitlagents.agui.frames import Notice
from hitlagents.agui.intake import Asked
from hitlagents.agui.places import places
from hitlagents.agui.snapshot import Mark
from hitlagents.agui.streams import EventStream, Stream
from hitlagents.models import Thread

NOT_FORWARDED = Notice(
    code="client_tools_ignored",
    message="This agent runs elsewhere. Tools of the page are not sent on to it.",
    spoken=False,
)
ONLY_TEXT = Notice(
    code="only_text",
    message="Only the text of your message was taken. Files and pictures were not.",
)


class WrongMethod(ApprovalsError):
    """This address does not take that method."""

    http_status = 405
    code = "wrong_method"


def door(method: str) -> Callable[[Api[...]], View[...]]:
    """A view for programs that may talk to agents, also for pages of the origins in
    SAYSO_CORS_ORIGINS. Those send a token: no answer lets a browser send cookies."""

    def decorate(view: Api[...]) -> View[...]:
        inner = api(scope=TokenScope.AGENTS)(view)

        @csrf_exempt
        @wraps(view)
        def opened(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
            answer: HttpResponseBase
            if request.method == "OPTIONS":
                answer = HttpResponse(status=204)
            elif request.method != method:
                answer = error_response(WrongMethod(f"Use {method} here."))
                answer["Allow"] = method
            else:
                answer = inner(request, *args, **kwargs)
            return _crossing(request, answer, method)

        return opened

    return decorate


def _crossing(
    request: HttpRequest, answer: HttpResponseBase, method: str
) -> HttpResponseBase:
    patch_vary_headers(answer, ["Origin"])
    origin = request.headers.get("Origin", "")
    if origin in settings.SAYSO_CORS_ORIGINS:
        answer["Access-Control-Allow-Origin"] = origin
        if request.method == "OPTIONS":
            answer["Access-Control-Allow-Methods"] = method
            answer["Access-Control-Allow-Headers"] = (
                "Authorization, Content-Type, X-Sayso-Hold"
            )
            answer["Access-Control-Max-Age"] = "600"
    return answer


# AG-UI


@door("POST")
def run(request: HttpRequest, caller: Caller, slug: str) -> HttpResponseBase:
    """Say something, answer interrupts, or (with no messages) see the thread as it is."""
    spec = _agent(slug)
    return _answer(request, caller, spec, intake.read(request))


@door("POST")
def connect(request: HttpRequest, caller: Caller, slug: str) -> HttpResponseBase:
    """See the thread as it is, and a run under way to its end. Changes nothing."""
    spec = _agent(slug)
    asked = intake.read(request)
    thread = _thread(caller, spec, asked.thread)
    place = places.take(caller.user.pk)
    return EventStream(_stream(request, caller, asked, thread), place)


# CopilotKit's runtime


@door("GET")
def info(request: HttpRequest, caller: Caller) -> HttpResponseBase:
    """What a CopilotKit page asks first: which agents there are.

    A page that comes with a session also gets what proves, with its next requests, that
    it is of this site: our cookie cannot be read by scripts.
    """
    agents = {
        spec.slug: {
            "name": spec.slug,
            "description": spec.description,
            "className": "SaysoAgent",
            "capabilities": capabilities.declared(spec),
        }
        for spec in catalog.agents()
    }
    answer = {"version": settings.SAYSO_VERSION, "mode": "sse", "agents": agents}
    if caller.token is None:
        answer["csrfToken"] = get_token(request)
    response = JsonResponse(answer)
    response["Cache-Control"] = "no-store"
    return response


@door("POST")
def stop(
    request: HttpRequest, caller: Caller, slug: str, thread_key: str
) -> HttpResponseBase:
    """Cancel the run that is under way on a thread."""
    thread = _thread(caller, _agent(slug), thread_key)
    if thread is None:
        raise NotFound("There is no such thread.")
    active = Run.objects.active().filter(thread=thread.pk).first()
    stopped = False
    if active is not None:
        try:
            services.cancel_run(active.pk, actor=caller.user)
            stopped = True
        except RunEnded:
            pass  # by itself, a moment ago
    return JsonResponse({"stopped": stopped})


# What a request does


def _answer(
    request: HttpRequest, caller: Caller, spec: AgentSpec, asked: Asked
) -> HttpResponseBase:
    """Take what the page's tools gave, decide, then send, then follow: in this order, so
    that a message that comes with an answer reaches the agent behind it."""
    intake.refuse_duplicate_tools(spec, asked.tools, person=caller.user)
    thread = _thread(caller, spec, asked.thread)
    resuming.refuse_long_notes(thread, asked.resume)
    place = places.take(caller.user.pk)
    try:
        stream = _stream(request, caller, asked, thread)
        if asked.tools and spec.is_remote:
            stream.notices.append(NOT_FORWARDED)
        if asked.left_out:
            stream.notices.append(ONLY_TEXT)
        stream.mark = _mark(thread)
        if thread is not None:
            stream.expects, notices = at_page.answer(thread, asked.results, caller.user)
            stream.notices += notices
        if asked.resume:
            stream.notices += resuming.decide(
                thread, asked.resume, caller=caller, spec=spec
            )
            stream.expects = stream.resumes = True
        _send(stream, spec, asked)
    except BaseException:
        place.release()
        raise
    return EventStream(stream, place)


def _mark(thread: Thread | None) -> Mark | None:
    """Where the thread stands now, if a run is not over."""
    if thread is None:
        return None
    active = Run.objects.active().filter(thread=thread.pk).first()
    return Mark(run=active.pk, attempt=active.saved_attempt) if active else None


def _send(stream: Stream, spec: AgentSpec, asked: Asked) -> None:
    """Send what is new; with the first message the conversation begins."""
    person, known = stream.caller.user, set[str]()
    if stream.thread is not None:
        ids = [message.id for message in asked.latest]
        known = conversations.known_messages(stream.thread, ids)
    new = list(asked.latest)
    for place, message in enumerate(asked.latest):
        if message.id in known:
            new = list(asked.latest[place + 1 :])
    for message in new:
        if stream.thread is None:
            stream.thread = conversations.open_thread(
                spec.slug, owner=person, client_key=asked.thread
            )
        sent = conversations.send(
            stream.thread.pk,
            message.text,
            author=person,
            message_id=message.id,
            tools=() if spec.is_remote else asked.tools,
        )
        if isinstance(sent, Run) and stream.mark is None:
            stream.mark = Mark(run=sent.pk)
        stream.expects = stream.sent_messages = True


def _stream(
    request: HttpRequest, caller: Caller, asked: Asked, thread: Thread | None
) -> Stream:
    return Stream(
        thread=thread,
        caller=caller,
        thread_key=asked.thread,
        run_key=asked.run,
        modern=asked.modern,
        site=request.build_absolute_uri("/").rstrip("/"),
        hold="1" in (request.headers.get("X-Sayso-Hold"), request.GET.get("hold")),
    )


def _agent(slug: str) -> AgentSpec:
    spec = catalog.get(slug)
    if spec is None:
        raise NotFound(f"There is no agent named {slug}.")
    return spec


def _thread(caller: Caller, spec: AgentSpec, key: str) -> Thread | None:
    """The caller's thread that goes by this key; None if it has not begun.

    Raises NotFound for the id of somebody else's thread, or of another agent's.
    """
    own = conversations.threads_of(caller.user, spec.slug)
    found = own.filter(client_key=key).first()
    if found is not None:
        return found
    try:
        pk = UUID(key)
    except ValueError:
        return None
    found = own.filter(pk=pk).first()
    if found is None and Thread.objects.filter(pk=pk).exists():
        raise NotFound("There is no such thread.")
    return found
