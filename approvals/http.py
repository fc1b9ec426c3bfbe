"""What every page of the desk shares: the typed request, and page or fragment."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, cast
from urllib.parse import urlsplit

from channels.db import database_sync_to_async
from django.contrib import messages
from django.contrib.auth.views import redirect_to_login
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.shortcuts import render
from django.urls import NoReverseMatch, reverse
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST

if TYPE_CHECKING:
    from django.contrib.auth.models import User
    from django_htmx.middleware import HtmxDetails


class DeskRequest(HttpRequest):
    """A request of a signed-in person that came through htmx, or did not."""

    htmx: HtmxDetails
    user: User


def url_or_empty(route: str) -> str:
    """The address of a page; empty where the site does not have it."""
    try:
        return reverse(route)
    except NoReverseMatch:
        return ""


def wants_fragment(request: DeskRequest) -> bool:
    return bool(request.htmx) and not request.htmx.history_restore_request


def respond(
    request: DeskRequest,
    template: str,
    fragment: str,
    context: dict[str, Any],
    *,
    status: int = 200,
) -> HttpResponse:
    """The whole page, or the fragment of it that htmx swaps."""
    name = f"{template}#{fragment}" if wants_fragment(request) else template
    response = render(request, name, context, status=status)
    response["Vary"] = "HX-Request"
    response["Cache-Control"] = "no-store"
    return response


def takes_posts[**P](
    view: Callable[Concatenate[DeskRequest, P], HttpResponse],
) -> Callable[Concatenate[HttpRequest, P], HttpResponse]:
    """Only POSTs, and only of people who are signed in.

    Others sign in and come back to the page that their form was on: the address it was
    sent to has nothing to show, and what was sent is not sent again for them.
    """

    @require_POST
    @wraps(view)
    def guarded(
        request: HttpRequest, /, *args: P.args, **kwargs: P.kwargs
    ) -> HttpResponse:
        if request.user.is_authenticated:
            return view(cast("DeskRequest", request), *args, **kwargs)
        messages.error(request, _("You were signed out, so nothing was sent."))
        return redirect_to_login(_page_of_form(request))

    return guarded


def _page_of_form(request: HttpRequest) -> str:
    sent_from = request.headers.get("Referer", "")
    if not _is_here(request, sent_from):
        return reverse("home")
    parts = urlsplit(sent_from)
    return f"{parts.path}?{parts.query}" if parts.query else parts.path


def download_lines(
    request: HttpRequest, more: Callable[[], str], filename: str
) -> StreamingHttpResponse:
    """JSON lines as they are read: whatever ``more`` gives, until it gives nothing.

    ``more`` runs on a thread for database work and keeps no cursor between two calls.
    """

    def now() -> Iterator[str]:
        while lines := more():
            yield lines

    async def later() -> AsyncIterator[str]:
        # A plain iterator would be read to its end before the first byte is sent.
        while lines := await database_sync_to_async(more)():
            yield lines

    response = StreamingHttpResponse(
        later() if isinstance(request, ASGIRequest) else now(),
        content_type="application/x-ndjson; charset=utf-8",
    )
    response["Content-Disposition"] = f'attachment; filename="{filename}"'
    response["Cache-Control"] = "no-store"
    return response


def safe_next(request: HttpRequest, fallback: str) -> str:
    """Where a form asked to go afterwards, if that is on this site."""
    url = request.POST.get("next", "")
    return url if _is_here(request, url) else fallback


def _is_here(request: HttpRequest, url: str) -> bool:
    """Whether an address is one of this site."""
    return bool(url) and url_has_allowed_host_and_scheme(
        url, allowed_hosts={request.get_host()}, require_https=request.is_secure()
    )
