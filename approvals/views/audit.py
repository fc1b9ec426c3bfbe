"""The audit log: entries, one entry with its hashes, the state of the chain."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.core import signing
from django.core.cache import cache
from django.db.models import Q
from django.http import Http404, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.utils import timezone
from django.utils.dateparse import parse_date
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods, require_safe

from approvals import audit, canonical, permissions, services
from approvals.cases import Happened, happened
from approvals.exceptions import InvalidArguments
from approvals.http import DeskRequest, respond
from approvals.models import AuditEntry, AuditHead, Interrupt
from approvals.states import InterruptKind

PAGE = 50
#: A verified chain is not verified again for this long, unless somebody asks.
STALE_AFTER = 60
#: What was found is shown for so long, with its time, where a look at the page is too short.
KEPT_FOR = 24 * 60 * 60
_CACHE_KEY = "approvals.audit.report"
#: Seconds of one request for the chain: it has one of the few threads that answer all pages.
STEP = 0.5
#: A check that takes more requests is begun anew after so long: its first entries may be
#: others by then.
_SALT, _MAX_AGE = "approvals.audit.check", timedelta(minutes=10)


def _kinds() -> dict[str, tuple[str, Q]]:
    return {
        "decisions": (
            _("Decisions"),
            Q(
                action__in=[
                    "interrupt.approved",
                    "interrupt.denied",
                    "interrupt.answered",
                    "interrupt.cancelled",
                    "interrupt.expired",
                    "interrupt.voted",
                    "decision.undone",
                    "decision.refused",
                ]
            ),
        ),
        "requests": (_("Requests"), Q(action__startswith="interrupt.")),
        "tools": (_("Tool calls"), Q(action__startswith="execution.")),
        "runs": (_("Runs"), Q(action__startswith="run.")),
        "policies": (_("Policies"), Q(action__startswith="policy.")),
        "access": (
            _("Accounts and groups"),
            Q(action__startswith="user.") | Q(action__startswith="group."),
        ),
    }


@require_safe
@login_required
def entries(request: DeskRequest) -> HttpResponse:
    """Entries, newest first, a page at a time; the filters are in the URL."""
    _must_audit(request)
    kinds = _kinds()
    kind = request.GET.get("kind", "")
    found = permissions.visible_audit(request.user)
    if kind in kinds:
        found = found.filter(kinds[kind][1])
    actor = request.GET.get("actor", "").replace("\0", "").strip()[:200]
    if actor:
        found = found.filter(actor=actor)
    about, about_id = request.GET.get("about", "").strip()[:40], None
    if about:
        about_id = _uuid(about)
        found = (
            found.filter(Q(run=about_id) | Q(interrupt=about_id))
            if about_id
            else found.none()
        )
    day = _day(request.GET.get("day", ""))
    if day:
        found = found.filter(time__date=day)
    before = request.GET.get("before", "")
    if before.isdecimal() and len(before) < 19:
        found = found.filter(number__lt=int(before))
    listed = list(found.order_by("-number")[: PAGE + 1])
    query = request.GET.copy()
    if len(listed) > PAGE:
        query["before"] = str(listed[PAGE - 1].number)
    newest = request.GET.copy()
    newest.pop("before", None)
    context = {
        "title": _("Audit"),
        "active": "audit",
        "rows": _rows(listed[:PAGE]),
        "kind": kind if kind in kinds else "",
        "kinds": [(key, label) for key, (label, _q) in kinds.items()],
        "actor": actor,
        "about": about,
        "day": day.isoformat() if day else "",
        "older": f"?{query.urlencode()}" if len(listed) > PAGE else "",
        "newest": f"?{newest.urlencode()}" if before else "",
        "filtered": bool(kind or actor or about or day),
        "head": AuditHead.objects.first(),
    }
    if "verify" in request.GET:
        context |= _chain(fresh=True)
    return respond(request, "approvals/audit.html", "entries", context)


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def chain(request: DeskRequest) -> HttpResponse:
    """The state of the chain, as a badge or as a banner. A POST goes on with a check that
    takes more than one request."""
    _must_audit(request)
    if request.method == "POST":
        context = _go_on(request.POST.get("at", ""))
    else:
        context = _chain(fresh="fresh" in request.GET)
    return render(request, "approvals/audit.html#chain", context)


@require_safe
@login_required
def entry(request: DeskRequest, number: int) -> HttpResponse:
    """One entry: everything its hash covers."""
    _must_audit(request)
    found = get_object_or_404(permissions.visible_audit(request.user), number=number)
    links = AuditEntry.objects.values_list("number", flat=True)
    context = {
        "title": _("Entry %s") % number,
        "active": "audit",
        "entry": found,
        "row": _rows([found])[0],
        "time": audit.stamp(found.time),
        "fits": not audit.contents_misfit(audit.link_of(found)),
        "older": links.filter(number__lt=number).order_by("-number").first(),
        "newer": links.filter(number__gt=number).order_by("number").first(),
    }
    return render(request, "approvals/audit_entry.html", context)


def _must_audit(request: DeskRequest) -> None:
    if not permissions.may_audit(request.user):
        raise Http404


def _uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None


def _day(text: str) -> Any:
    try:
        return parse_date(text)
    except ValueError:
        return None


def _rows(listed: list[AuditEntry]) -> list[dict[str, Any]]:
    about = (
        Interrupt.objects.filter(pk__in={found.interrupt for found in listed})
        .select_related("run")
        .only("kind", "title", "tool", "status", "run__agent")
        .prefetch_related("decisions")
    )
    decided = services.decided_titles(about)
    requests: dict[UUID | None, Interrupt] = {each.pk: each for each in about}
    lines: list[Happened] = happened(listed)
    return [
        {
            "entry": found,
            "line": line,
            "state": _STATES.get(found.action, "neutral"),
            **_about(found, requests.get(found.interrupt), decided),
        }
        for found, line in zip(listed, lines, strict=True)
    ]


def _about(
    found: AuditEntry, request: Interrupt | None, decided: Mapping[UUID, str]
) -> dict[str, Any]:
    """The request an entry is about, as it was asked or as it was decided."""
    if request is None:
        return {"title": "", "subject": _subject(found)}
    asked = found.action == "interrupt.opened"
    return {
        "title": request.title if asked else decided[request.pk],
        # What is put to nobody has no page of its own.
        "at_page": request.kind == InterruptKind.CLIENT,
    }


def _subject(found: AuditEntry) -> str:
    """The account, group, policy or token an entry is about, by its name."""
    if found.run is not None or found.payload is None:
        return ""
    try:
        said = canonical.loads(found.payload)
    except InvalidArguments:
        return ""  # Somebody changed it; the state of the chain says so.
    if not isinstance(said, dict):
        return ""
    named = said.get("after") or said.get("before") or said
    name = named.get("name", "") if isinstance(named, dict) else ""
    return f"{name} ({said.get('user')})" if "token" in said else str(name)


#: Which badge an action is drawn with.
_STATES = {
    "interrupt.opened": "pending",
    "interrupt.reopened": "pending",
    "interrupt.approved": "approved",
    "interrupt.denied": "denied",
    "interrupt.answered": "answered",
    "interrupt.cancelled": "cancelled",
    "interrupt.withdrawn": "cancelled",
    "interrupt.expired": "expired",
    "decision.refused": "denied",
    "decision.undone": "cancelled",
    "execution.done": "approved",
    "execution.failed": "failed",
    "execution.in_doubt": "failed",
    "execution.refused": "denied",
    "execution.replaced": "cancelled",
    "run.waiting": "pending",
    "run.finished": "approved",
    "run.failed": "failed",
    "run.cancelled": "cancelled",
    "run.in_doubt": "failed",
    "policy.deleted": "cancelled",
    "user.deleted": "cancelled",
    "group.deleted": "cancelled",
}


def _chain(*, fresh: bool) -> dict[str, Any]:
    """What is known of the chain. ``fresh``: somebody asked for all of it to be checked,
    so that the page goes on until it is; otherwise one step has to do."""
    kept: dict[str, Any] | None = cache.get(_CACHE_KEY)
    now = timezone.now()
    if not fresh and kept and (now - kept["checked"]).total_seconds() < STALE_AFTER:
        return kept
    found = _check(audit.Verifier())
    if fresh or "report" in found:
        return found
    return kept or {"unchecked": found["checking"]["of"]}


def _check(verifier: audit.Verifier, began: datetime | None = None) -> dict[str, Any]:
    """One step of a check: what it found, or where it stands.

    What it found is as of its beginning, and takes the place of nothing that is newer.
    """
    began = began or timezone.now()
    report = audit.verify_on(verifier, seconds=STEP)
    if report is not None:
        found = {"report": report, "checked": began}
        kept = cache.get(_CACHE_KEY)
        if kept and kept["checked"] > began:
            return dict(kept)
        cache.set(_CACHE_KEY, found, KEPT_FOR)
        return found
    head = AuditHead.objects.get()
    state = [began.isoformat(), verifier.state()]
    at = signing.dumps(state, salt=_SALT, compress=True)
    return {"checking": {"at": at, "count": verifier.count, "of": head.number}}


def _go_on(at: str) -> dict[str, Any]:
    """The check of a page goes on; a new one where it is not ours or too old."""
    try:
        said, state = signing.loads(at, salt=_SALT)
    except signing.BadSignature:
        return _check(audit.Verifier())
    began = datetime.fromisoformat(said)
    if timezone.now() - began > _MAX_AGE:
        return _check(audit.Verifier())
    return _check(audit.Verifier.going_on(state), began)
