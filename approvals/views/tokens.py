"""One's own API tokens: what there is, a new one, and revoking one."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods

from approvals import clock, services
from approvals.exceptions import ApprovalsError, NotFound
from approvals.forms import TokenForm
from approvals.http import DeskRequest, takes_posts
from approvals.models import ApiToken
from approvals.states import TokenScope

#: So many are listed, with those that ended long ago last.
LISTED = 200
#: Where a session has the secret of a new token until the page it leads to is drawn, and
#: how long at most. Whoever reads sessions could make tokens anyway.
MADE, KEPT = "made_token", timedelta(minutes=2)


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def tokens(request: DeskRequest) -> HttpResponse:
    """The list, and a form for a new one. POST makes it; the page it leads to shows the
    secret, and no page after that."""
    if request.method != "POST":
        # Nobody reads the answer to a HEAD.
        made = _take(request) if request.method == "GET" else {}
        return _page(request, TokenForm(), **made)
    form = TokenForm(request.POST)
    if not form.is_valid():
        return _page(request, form, status=422)
    days: int | None = form.cleaned_data["days"]
    try:
        token, secret = services.create_token(
            request.user,
            name=form.cleaned_data["name"],
            actor=request.user,
            scopes=form.cleaned_data["scopes"],
            expires_at=clock.now() + timedelta(days=days) if days else None,
        )
    except ApprovalsError as error:
        form.add_error("name", error.message)
        return _page(request, form, status=error.http_status)
    # Answered with a page, a reload would make another token.
    _keep(request, token, secret)
    return redirect("tokens")


@takes_posts
def revoke(request: DeskRequest, pk: int) -> HttpResponse:
    try:
        token = services.revoke_token(pk, actor=request.user)
    except NotFound as error:
        raise Http404 from error
    messages.success(request, _("Revoked “%s”.") % token.name)
    return redirect("tokens")


def _keep(request: DeskRequest, token: ApiToken, secret: str) -> None:
    until = clock.now() + KEPT
    request.session[MADE] = [token.pk, secret, until.timestamp()]


def _take(request: DeskRequest) -> dict[str, Any]:
    """The token that was just made and its secret, which is nowhere any more then."""
    pk, secret, until = request.session.pop(MADE, (None, "", 0))
    if until <= clock.now().timestamp():
        return {}
    made = ApiToken.objects.filter(pk=pk, user=request.user, revoked_at=None).first()
    return {"made": made, "secret": secret} if made else {}


def _page(
    request: DeskRequest, form: TokenForm, *, status: int = 200, **more: Any
) -> HttpResponse:
    now = clock.now()
    context = {
        "title": _("API tokens"),
        "form": form,
        "rows": [
            {
                "token": token,
                "state": _state(token, now),
                "can": [TokenScope(each).label for each in token.scopes],
            }
            for token in ApiToken.objects.filter(user=request.user)[:LISTED]
        ],
        **more,
    }
    response = render(request, "approvals/tokens.html", context, status=status)
    response["Cache-Control"] = "no-store"
    return response


def _state(token: ApiToken, now: datetime) -> str:
    if token.revoked_at is not None:
        return "revoked"
    if token.expires_at is not None and token.expires_at <= now:
        return "expired"
    return "valid"
