"""System checks that refuse an installation which would be unsafe.

They run before every management command, so `manage.py serve` does not start until
they pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.apps import AppConfig
from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning, register
from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import CommandError

from hitlsite.hosts import is_loopback


@register()
def check_demo(
    app_configs: Sequence[AppConfig] | None, **kwargs: Any
) -> list[CheckMessage]:
    if not (settings.SAYSO_DEMO and settings.SAYSO_PUBLIC):
        return []
    return [
        Error(
            "Demo mode is on while others can reach this installation.",
            hint="Demo people sign in with known passwords. Set SAYSO_DEMO=0, or keep "
            "HOST and SAYSO_HOSTS on this machine.",
            id="hitlsite.E001",
        )
    ]


@register()
def check_debug(
    app_configs: Sequence[AppConfig] | None, **kwargs: Any
) -> list[CheckMessage]:
    if not (settings.DEBUG and settings.SAYSO_PUBLIC):
        return []
    return [
        Error(
            "Debug mode is on while others can reach this installation.",
            hint="Error pages would show code and settings. Set SAYSO_DEBUG=0, or keep "
            "HOST and SAYSO_HOSTS on this machine.",
            id="hitlsite.E002",
        )
    ]


@register()
def check_several_processes(
    app_configs: Sequence[AppConfig] | None, **kwargs: Any
) -> list[CheckMessage]:
    if settings.SAYSO_PROCESSES == 1:
        return []
    return several_processes_problems()


def several_processes_problems() -> list[CheckMessage]:
    """Say why this installation cannot be one process of several.

    For commands that know it without being told by SAYSO_PROCESSES.
    """
    problems: list[CheckMessage] = []
    if not settings.REDIS_URL:
        problems.append(
            Error(
                "Several processes cannot tell each other what changed.",
                hint="Set REDIS_URL: without it a page hears only of what its own "
                "process did.",
                id="hitlsite.E003",
            )
        )
    if not settings.DATABASE_URL:
        problems.append(
            Error(
                "Several processes cannot share the embedded SQLite database.",
                hint="Set DATABASE_URL to a PostgreSQL database.",
                id="hitlsite.E004",
            )
        )
    return problems


def refuse_several_processes() -> None:
    """Stop a command that only makes sense as one process of several. Raises CommandError."""
    if problems := several_processes_problems():
        raise CommandError("\n".join(f"{p.msg}\n  {p.hint}" for p in problems))


@register()
def check_secret_key(
    app_configs: Sequence[AppConfig] | None, **kwargs: Any
) -> list[CheckMessage]:
    try:
        settings.SECRET_KEY  # noqa: B018  (reading an empty one raises)
    except ImproperlyConfigured:
        return [
            Error(
                "There is no secret key, and DATABASE_URL is set.",
                hint="Processes that share a database must share a key. Set "
                "SAYSO_SECRET_KEY or SAYSO_SECRET_KEY_FILE to the same long random "
                "text for all of them.",
                id="hitlsite.E005",
            )
        ]
    return []


@register()
def check_reachable(
    app_configs: Sequence[AppConfig] | None, **kwargs: Any
) -> list[CheckMessage]:
    if is_loopback(settings.SAYSO_HOST):
        return []
    problems: list[CheckMessage] = []
    if all(map(is_loopback, settings.ALLOWED_HOSTS)):
        problems.append(
            Warning(
                "Others can reach the port, but every request of theirs is refused.",
                hint="Set SAYSO_HOSTS to the names people use in their browsers.",
                id="hitlsite.W001",
            )
        )
    if not settings.SAYSO_HTTPS:
        problems.append(
            Warning(
                "Passwords and sessions travel unencrypted.",
                hint="Put a proxy with HTTPS in front that sets X-Forwarded-Proto "
                "itself, and set SAYSO_HTTPS=1.",
                id="hitlsite.W002",
            )
        )
    return problems
