"""What every page of the desk shares: the typed request, and page or fragment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.http import HttpRequest, HttpResponse
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


def safe_next(request: HttpRequest, fallback: str) -> str:
    """Where a form asked to go afterwards, if that is on this site."""
    url = request.POST.get("next", "")
    allowed = url_has_allowed_host_and_scheme(
        url, allowed_hosts={request.get_host()}, require_https=request.is_secure()
    )
    return url if url and allowed else fallback
