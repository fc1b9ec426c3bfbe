"""Secrets in the database, sealed with a key that is not in it."""

from __future__ import annotations

import base64
import hashlib

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from django.conf import settings

_DOMAIN = b"sayso.remote.headers.v1\0"


class Unreadable(Exception):
    """What was sealed cannot be opened with the secret key of now."""


def seal(text: str) -> str:
    """Encrypt with the installation's secret key. Two seals of one text differ."""
    return _keys().encrypt(text.encode()).decode()


def unseal(sealed: str) -> str:
    """Raises Unreadable. Also tries the keys of SAYSO_SECRET_KEY_FALLBACKS."""
    try:
        return _keys().decrypt(sealed.encode()).decode()
    except (InvalidToken, UnicodeError) as error:
        raise Unreadable(
            "The stored headers cannot be read with the secret key of now. Enter them "
            "again, or add the old key to SAYSO_SECRET_KEY_FALLBACKS."
        ) from error


def _keys() -> MultiFernet:
    secrets = [settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS]
    return MultiFernet([Fernet(_key(secret)) for secret in secrets])


def _key(secret: str) -> bytes:
    digest = hashlib.sha256(_DOMAIN + secret.encode()).digest()
    return base64.urlsafe_b64encode(digest)
