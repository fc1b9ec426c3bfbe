"""System checks of what is stored: `manage.py check --database default`, and migrate.

Warnings, not errors: a rule that cannot be read holds its calls, so nothing is open.
"""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any

from django.apps import AppConfig
from django.core.checks import CheckMessage, Tags, Warning, register
from django.db import DatabaseError, connections

from approvals import policies
from approvals.models import Policy
from approvals.policies import Rule


@register(Tags.database)
def check_policies(
    app_configs: Sequence[AppConfig] | None,
    databases: Sequence[str] | None,
    **kwargs: Any,
) -> list[CheckMessage]:
    """Enabled policies that cannot be read, or that an earlier one never lets match."""
    if "default" not in (databases or ()):
        return []
    try:
        tables = connections["default"].introspection.table_names()
        # Before the first migrate there is nothing to look at.
        rules = policies.load_rules() if Policy._meta.db_table in tables else []
    except DatabaseError:
        # A database that does not answer, or is older than this code, has checks of
        # its own.
        return []
    return [*_unreadable(rules), *_never_reached(rules)]


def _unreadable(rules: Sequence[Rule]) -> list[CheckMessage]:
    return [
        Warning(
            f"A policy is damaged: {rule.ruling.policy}.",
            hint="Every call it matches waits for a person of its groups. Save it anew "
            "in the admin.",
            id="approvals.W001",
        )
        for rule in rules
        if rule.unreadable
    ]


def _never_reached(rules: Sequence[Rule]) -> list[CheckMessage]:
    found: list[CheckMessage] = []
    for at, rule in enumerate(rules):
        first = next((other for other in rules[:at] if covers(other, rule)), None)
        if first is not None:
            found.append(
                Warning(
                    f"The policy “{rule.ruling.policy}” never matches: "
                    f"“{first.ruling.policy}” is asked before it and takes every call.",
                    hint="Change the order, or delete one of them.",
                    id="approvals.W002",
                )
            )
    return found


def covers(first: Rule, second: Rule) -> bool:
    """Whether ``first`` surely matches every call that ``second`` matches."""
    return _covers(first.agent_pattern, second.agent_pattern) and _covers(
        first.tool_pattern, second.tool_pattern
    )


def _covers(wide: str, narrow: str) -> bool:
    # Read as text, a * of the narrow pattern is one character, which a ? of the wide
    # one would take although the * stands for any number of them.
    if "[" in wide or ("?" in wide and "*" in narrow):
        return wide == narrow
    return fnmatchcase(narrow, wide)
