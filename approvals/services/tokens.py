"""Tokens: with one a program speaks for a person. The secret is shown once, at its making."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Collection
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from django.db.models import Q

from approvals import clock
from approvals.exceptions import BadToken, InvalidArguments, NotFound
from approvals.models import ApiToken
from approvals.services.work import name_of, unit_of_work
from approvals.states import TokenScope

if TYPE_CHECKING:
    from django.contrib.auth.models import User
    from django.db.models import QuerySet

PREFIX = "sayso_"
#: Longer than any secret of ours; what is longer need not be looked up.
MAX_LENGTH = 200
MAX_TOKENS = 100
#: How exactly it is known when a token was used last.
USED_EVERY = timedelta(minutes=1)


def create_token(
    user: User,
    *,
    name: str,
    actor: User | None,
    scopes: Collection[TokenScope] = tuple(TokenScope),
    expires_at: datetime | None = None,
) -> tuple[ApiToken, str]:
    """Make a token; returns it with its secret, which nobody can read again.

    ``actor``: who makes it, None for whoever runs the installation. Raises
    InvalidArguments (no name, no scope, an end that has passed, too many tokens).
    """
    name = " ".join(name.split())
    if not name or len(name) > 100 or "\0" in name:
        raise InvalidArguments("Give the token a name of at most 100 characters.")
    if not scopes:
        raise InvalidArguments("A token that may do nothing is of no use.")
    secret = PREFIX + secrets.token_urlsafe(32)
    with unit_of_work() as work:
        if expires_at is not None and expires_at <= work.now:
            raise InvalidArguments("This end has passed already.")
        if usable_tokens(user, work.now).count() >= MAX_TOKENS:
            raise InvalidArguments(
                f"More than {MAX_TOKENS} tokens are not kept. Revoke one first."
            )
        token = ApiToken.objects.create(
            user=user,
            name=name,
            digest=_digest(secret),
            scopes=[scope.value for scope in TokenScope if scope in scopes],
            created=work.now,
            expires_at=expires_at,
        )
        work.record(
            "token.created",
            actor=name_of(actor) if actor else "system:command",
            token=token.pk,
            name=name,
            user=name_of(user),
            scopes=token.scopes,
            expires_at=expires_at.isoformat() if expires_at else None,
        )
    return token, secret


def revoke_token(pk: int, *, actor: User) -> ApiToken:
    """End one of the actor's own tokens for good. Raises NotFound."""
    with unit_of_work() as work:
        own = ApiToken.objects.filter(user=actor).select_for_update(no_key=True)
        token = own.filter(pk=pk).first()
        if token is None:
            raise NotFound("There is no such token.")
        if token.revoked_at is None:
            token.revoked_at = work.now
            token.save(update_fields=["revoked_at"])
            work.record(
                "token.revoked",
                actor=name_of(actor),
                token=token.pk,
                name=token.name,
                user=name_of(actor),
            )
        return token


def authenticate_token(secret: str) -> ApiToken:
    """The token of a secret, with its user. Raises BadToken, always the same."""
    if not secret.startswith(PREFIX) or len(secret) > MAX_LENGTH:
        raise BadToken
    now = clock.now()
    found = _usable(now).select_related("user").filter(digest=_digest(secret)).first()
    if found is None:
        raise BadToken
    if found.last_used_at is None or found.last_used_at <= now - USED_EVERY:
        found.last_used_at = now
        found.save(update_fields=["last_used_at"])
    return found


def token_is_good(pk: int) -> bool:
    """Whether a token that was good still is."""
    return _usable(clock.now()).filter(pk=pk).exists()


def usable_tokens(user: User, now: datetime) -> QuerySet[ApiToken]:
    return _usable(now).filter(user=user)


def _usable(now: datetime) -> QuerySet[ApiToken]:
    return ApiToken.objects.filter(
        Q(expires_at=None) | Q(expires_at__gt=now),
        revoked_at=None,
        user__is_active=True,
    )


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()
