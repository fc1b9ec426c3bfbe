"""The Inspector: what an agent is made of, and what the rules make of its calls.

Open to whoever may talk to the agent, which is anybody who is signed in.
"""

from __future__ import annotations

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext as _
from django.views.decorators.http import require_safe

from approvals.http import DeskRequest, respond, takes_posts, wants_fragment
from hitlagents import catalog, tool_reading
from hitlagents.inspector import Inspected

TEMPLATE = "hitlagents/inspector.html"


@require_safe
@login_required
def inspector(request: DeskRequest, slug: str) -> HttpResponse:
    return _page(request, _inspected(request, slug))


@takes_posts
def read_tools(request: DeskRequest, slug: str) -> HttpResponse:
    """Have a worker say which tools the agent has. The page learns when it is done."""
    found = _inspected(request, slug)
    if not found.installed:
        raise Http404
    tool_reading.ask(slug, person=request.user)
    if wants_fragment(request):
        return _page(request, found)
    return redirect("inspector", slug)


def _inspected(request: DeskRequest, slug: str) -> Inspected:
    spec = catalog.get(slug)
    if spec is None:
        raise Http404
    return Inspected(spec, request.user)


def _page(request: DeskRequest, found: Inspected) -> HttpResponse:
    context = {
        "title": _("Inspector: %s") % found.spec.name,
        "active": "agents",
        "agent": found,
        "spec": found.spec,
    }
    return respond(request, TEMPLATE, "inspector", context)
