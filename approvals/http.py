"""What every page of the desk shares: the typed request, and page or fragment."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING, Any

from asgiref.sync import sync_to_async
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.shortcuts import render
from django.urls import NoReverseMatch, reverse
from django.utils.http import url_has_allowed_host_and_scheme

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
        while lines := await sync_to_async(more)():
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
    allowed = url_has_allowed_host_and_scheme(
        url, allowed_hosts={request.get_host()}, require_https=request.is_secure()
    )
    return url if url and allowed else fallback
