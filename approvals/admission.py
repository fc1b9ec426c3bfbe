"""Who may hold a live socket, at the start and for as long as it is open.

A socket rests on a session, and a run's socket also on the right to see that run. Both
are checked for many sockets at once, with the same few queries, so that doing it again
every few seconds stays cheap.

The rule for the Origin header is the one Django has for forms: a page that may post a
decision may open a socket, and no other. Browsers always send it; a program that sends
none is let through to the login check, and without a session gets nothing there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from io import BytesIO
from typing import Any
from uuid import UUID

from django.conf import settings
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.core.exceptions import DisallowedHost
from django.core.handlers.asgi import ASGIRequest
from django.db import connections
from django.http import parse_cookie
from django.utils import timezone
from django.utils.crypto import constant_time_compare

from approvals import permissions

# Close codes, after the statuses of HTTP: a server may send none below 3000 but 1000.
SIGNED_OUT = 4401
NOT_ALLOWED = 4403
TRY_AGAIN_LATER = 4503

#: SQLite allows some thousand values in one query.
BATCH = 500

# A thread of its own: what sockets ask through asgiref shares one thread with whatever
# else the process does synchronously, and one slow page would hold up every socket.
_thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="admission")


@dataclass(frozen=True)
class Claim:
    """What a socket asks for: to listen as the owner of a session, perhaps to a run."""

    session: str
    run: UUID | None = None


@dataclass(frozen=True)
class Verdict:
    """The answer: who it is and what they hear, or the code to close the socket with."""

    code: int = 0
    user: int | None = None
    scopes: frozenset[str] = frozenset()


async def check(claims: Collection[Claim]) -> dict[Claim, Verdict]:
    """Judge the claims as of now."""
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(_thread, _check, list(claims))


def _check(claims: list[Claim]) -> dict[Claim, Verdict]:
    verdicts: dict[Claim, Verdict] = {}
    try:
        for start in range(0, len(claims), BATCH):
            verdicts |= judge(claims[start : start + BATCH])
    finally:
        # Nobody else closes what this thread opened.
        connections.close_all()
    return verdicts


def judge(claims: Collection[Claim]) -> dict[Claim, Verdict]:
    """Judge at most BATCH claims, in the calling thread."""
    owners = _owners({claim.session for claim in claims if claim.session})
    scopes = permissions.scopes_of(set(owners.values()))
    audiences = permissions.audiences({claim.run for claim in claims if claim.run})
    verdicts: dict[Claim, Verdict] = {}
    for claim in claims:
        user = owners.get(claim.session)
        if user is None or user not in scopes:
            verdicts[claim] = Verdict(SIGNED_OUT)
        elif claim.run is None:
            verdicts[claim] = Verdict(user=user, scopes=scopes[user])
        elif scopes[user] & audiences.get(claim.run, frozenset()):
            heard = scopes[user] | {f"run.{claim.run}"}
            verdicts[claim] = Verdict(user=user, scopes=heard)
        else:
            verdicts[claim] = Verdict(NOT_ALLOWED)
    return verdicts


# Sessions


@dataclass(frozen=True)
class _Login:
    """What a session says about who signed in."""

    user: int
    hash: str


def _owners(keys: Iterable[str]) -> dict[str, int]:
    """Whose valid sessions these are, by the rules of ``django.contrib.auth.get_user``."""
    rows = Session.objects.filter(session_key__in=keys, expire_date__gt=timezone.now())
    logins = {
        key: login
        for key, data in rows.values_list("session_key", "session_data")
        if (login := _login_in(data))
    }
    users = User.objects.in_bulk({login.user for login in logins.values()})
    return {
        key: login.user
        for key, login in logins.items()
        if (user := users.get(login.user)) and user.is_active and _fits(login, user)
    }


@lru_cache(maxsize=10_000)
def _login_in(data: str) -> _Login | None:
    """Read a stored session; remembered, because most are the same at the next check."""
    session = Session(session_data=data).get_decoded()
    if session.get(BACKEND_SESSION_KEY) not in settings.AUTHENTICATION_BACKENDS:
        return None
    try:
        return _Login(int(session[SESSION_KEY]), session[HASH_SESSION_KEY])
    except (KeyError, TypeError, ValueError):
        return None


def _fits(login: _Login, user: User) -> bool:
    """The password is the one that was signed in with."""
    hashes = [user.get_session_auth_hash(), *user.get_session_auth_fallback_hash()]
    return any(constant_time_compare(login.hash, one) for one in hashes)


# The handshake


def claim_of(scope: Mapping[str, Any]) -> Claim:
    cookies = parse_cookie(_header(scope, b"cookie"))
    return Claim(
        session=cookies.get(settings.SESSION_COOKIE_NAME, ""),
        run=scope["url_route"]["kwargs"].get("run"),
    )


def origin_fits(scope: Mapping[str, Any]) -> bool:
    """The page that opens the socket came from here, if a page it is."""
    origin = _header(scope, b"origin")
    if not origin:
        return True
    if origin in settings.CSRF_TRUSTED_ORIGINS:
        return True
    # The address as Django sees it for a page: allowed host, port, scheme behind a proxy.
    scheme = {"ws": "http", "wss": "https"}.get(scope.get("scheme", "ws"), "http")
    as_page = {**scope, "method": "GET", "scheme": scheme, "query_string": b""}
    request = ASGIRequest(as_page, BytesIO())
    try:
        return origin == f"{request.scheme}://{request.get_host()}"
    except DisallowedHost:
        return False


def _header(scope: Mapping[str, Any], name: bytes) -> str:
    values = [value for key, value in scope["headers"] if key == name]
    return b"; ".join(values).decode("latin1")
