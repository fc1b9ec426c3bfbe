"""What an agent did in a conversation, for its owner: its calendar, outbox, files…

Which page belongs to an agent stands in its ``AgentSpec``.
"""

from __future__ import annotations

from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpResponse
from django.shortcuts import get_object_or_404
from django.views.decorators.http import require_safe

from approvals.http import DeskRequest, respond
from hitlagents import catalog, conversations

TEMPLATE = "hitlagents/data.html"


@require_safe
@login_required
def data(request: DeskRequest, slug: str, pk: UUID) -> HttpResponse:
    thread = get_object_or_404(conversations.threads_of(request.user, slug), pk=pk)
    spec = catalog.get(slug)
    if spec is None or spec.page is None:
        raise Http404
    context = {
        "title": f"{spec.page.label}, {spec.name}",
        "active": "agents",
        "spec": spec,
        "page": spec.page,
        "thread": thread,
        "data": spec.page.read(thread.pk, request.GET.dict()),
    }
    return respond(request, TEMPLATE, "data", context)
