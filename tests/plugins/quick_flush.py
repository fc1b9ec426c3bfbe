"""Empties the tables after a test that commits, without Django's detours.

On PostgreSQL Django uses TRUNCATE, which gives every table and every index a new file and
takes longer than most tests. And it forgets which models and permissions there are, only
to make the same rows again.
"""

from __future__ import annotations

from typing import Any

import pytest
from django.core.management.commands import flush

#: What `migrate` makes of the models.
KEPT = {"auth_permission", "django_content_type"}


def sql_flush(style: Any, connection: Any, **options: Any) -> list[str]:
    tables = connection.introspection.django_table_names(
        only_existing=True, include_views=False
    )
    # In any order: foreign keys are looked at when the transaction ends.
    return [
        f"DELETE FROM {connection.ops.quote_name(table)}"  # noqa: S608
        for table in tables
        if table not in KEPT
    ]


def pytest_configure(config: pytest.Config) -> None:
    patch = pytest.MonkeyPatch()
    config.add_cleanup(patch.undo)
    patch.setattr(flush, "sql_flush", sql_flush)
    patch.setattr(flush, "emit_post_migrate_signal", lambda *arguments: None)
