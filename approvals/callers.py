"""Who calls over HTTP without a page of ours: by a token, or by the session of a page.

Whatever goes wrong is answered in JSON: a program gets no page and is sent nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate

from django.http import HttpRequest, HttpResponseBase, JsonResponse
from django.middleware.csrf import CsrfViewMiddleware
from django.views.decorators.csrf import csrf_exempt

from approvals import services
from approvals.admission import Claim, judge
from approvals.exceptions import ApprovalsError, BadToken
from approvals.states import TokenScope

if TYPE_CHECKING:
    from django.contrib.auth.models import User


class NotSignedIn(ApprovalsError):
    """Send a token (Authorization: Bearer …), or sign in on this site."""

    http_status = 401
    code = "not_signed_in"


class ForeignPage(ApprovalsError):
    """This request did not prove that it comes from a page of this site (X-CSRFToken)."""

    http_status = 403
    code = "csrf"


@dataclass(frozen=True, kw_only=True)
class Caller:
    """A person, and on what ground the program that calls speaks for them."""

    user: User
    scopes: frozenset[str]
    token: int | None = None
    session: str = ""

    def may(self, scope: TokenScope) -> bool:
        return scope.value in self.scopes

    def still_is(self) -> bool:
        """Whether the same call would be let in now. Asks the database."""
        if self.token is not None:
            return services.token_is_good(self.token)
        claim = Claim(session=self.session)
        return judge([claim])[claim].user == self.user.pk


def identified(request: HttpRequest) -> Caller:
    """Who calls. Raises BadToken, NotSignedIn, ForeignPage.

    A session counts only with its page's CSRF token, as for every form; a token is sent
    by nobody else's page.
    """
    kind, _, secret = request.headers.get("Authorization", "").partition(" ")
    if kind:
        if kind.lower() != "bearer":
            raise BadToken
        token = services.authenticate_token(secret.strip())
        return Caller(user=token.user, scopes=frozenset(token.scopes), token=token.pk)
    user = request.user
    if not user.is_authenticated:
        raise NotSignedIn
    if _Check.refuses(request):
        raise ForeignPage
    return Caller(
        user=user,
        scopes=frozenset(TokenScope.values),
        session=request.session.session_key or "",
    )


class _Check(CsrfViewMiddleware):
    """Django's own check, saying whether instead of answering with a page."""

    def _reject(self, request: HttpRequest, reason: str) -> Any:
        return reason

    @classmethod
    def refuses(cls, request: HttpRequest) -> bool:
        check = cls(_any_view)
        check.process_request(request)
        return check.process_view(request, _any_view, (), {}) is not None


def _any_view(request: HttpRequest) -> HttpResponseBase:
    """Stands for the view: one that is not exempt from the check."""
    return JsonResponse({})


def error_response(error: ApprovalsError, **more: Any) -> JsonResponse:
    """Why something was refused: ``{"error": {"code", "message", …}}``."""
    told = {"code": error.code, "message": error.message, **more}
    response = JsonResponse({"error": told}, status=error.http_status)
    response["Cache-Control"] = "no-store"
    if error.http_status == 401:
        response["WWW-Authenticate"] = "Bearer"
    return response


type Api[**P] = Callable[Concatenate[HttpRequest, Caller, P], HttpResponseBase]
type View[**P] = Callable[Concatenate[HttpRequest, P], HttpResponseBase]


def api(*, scope: TokenScope) -> Callable[[Api[...]], View[...]]:
    """A view for programs: gets the caller, who has this scope, after the request.

    Any ApprovalsError it raises becomes a JSON answer.
    """

    def decorate(view: Api[...]) -> View[...]:
        @csrf_exempt
        @wraps(view)
        def called(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
            try:
                caller = identified(request)
                if not caller.may(scope):
                    raise OutOfScope(f"This token may not: {scope.label}.")
                return view(request, caller, *args, **kwargs)
            except ApprovalsError as error:
                field = getattr(error, "field", "")
                return error_response(error, **({"field": field} if field else {}))

        return called

    return decorate


class OutOfScope(ApprovalsError):
    """This token does not allow that."""

    http_status = 403
    code = "out_of_scope"
