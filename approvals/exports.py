"""The chain on its way out: JSON lines for a browser, as they are read."""

from __future__ import annotations

from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.http import (
    Http404,
    HttpRequest,
    HttpResponse,
    HttpResponseBase,
)
from django.utils import timezone
from django.views.decorators.http import require_safe

from approvals import audit, permissions
from approvals.http import download_lines
from approvals.models import AuditHead

BATCH = 500


@require_safe
@login_required
def export(request: HttpRequest) -> HttpResponseBase:
    """The chain up to its head of now; ``?since=NUMBER`` or ``?run=UUID`` for a part."""
    assert request.user.is_authenticated
    if not permissions.may_audit(request.user):
        raise Http404
    try:
        since, run = _since(request), _run(request)
    except ValueError as error:
        return HttpResponse(str(error), status=400, content_type="text/plain")
    part = f"-run-{run}" if run else f"-from-{since}" if since > 1 else ""
    name = f"sayso-audit-{timezone.now():%Y%m%dT%H%M%SZ}{part}.jsonl"
    return download_lines(request, Batches(since=since, run=run).next, name)


class Batches:
    """Pieces of an export. None of them keeps a cursor or a connection waiting."""

    def __init__(self, *, since: int, run: UUID | None) -> None:
        self.after = max(since, 1) - 1
        self.run = run
        head = AuditHead.objects.first()
        self.upto = head.number if head else 0

    def next(self) -> str:
        links = audit.stored_links(
            after=self.after, upto=self.upto, run=self.run, limit=BATCH
        )
        if links:
            self.after = links[-1].number
        return "".join(f"{audit.to_json_line(link)}\n" for link in links)


def _since(request: HttpRequest) -> int:
    text = request.GET.get("since", "")
    if not text:
        return 1
    if not text.isdecimal() or len(text) > 18:
        raise ValueError("since must be the number of an entry.")
    return int(text)


def _run(request: HttpRequest) -> UUID | None:
    text = request.GET.get("run", "")
    try:
        return UUID(text) if text else None
    except ValueError:
        raise ValueError("run must be the id of a run.") from None
