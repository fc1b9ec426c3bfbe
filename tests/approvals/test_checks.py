from __future__ import annotations

import pytest
from django.core import checks
from django.core.checks import Tags
from django.db import connection

from approvals.checks import covers
from approvals.models import Policy
from approvals.policies import Rule, Ruling
from approvals.states import Gate


def found():
    messages = checks.run_checks(tags=[Tags.database], databases=["default"])
    return [message for message in messages if message.id.startswith("approvals.")]


def test_the_cast_has_nothing_to_warn_of(desk):
    assert found() == []


def test_i20_a_policy_that_cannot_be_read_is_named(desk):
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE approvals_policy SET note_rule = 'maybe' WHERE name = 'Notes'"
        )
    (message,) = found()
    assert message.id == "approvals.W001"
    assert "Notes (cannot be read, so it holds)" in message.msg


def test_a_policy_that_is_never_reached_is_named(desk):
    Policy.objects.create(position=0, name="All", gate=Gate.HOLD)
    messages = found()
    assert {message.id for message in messages} == {"approvals.W002"}
    assert len(messages) == 4
    Policy.objects.filter(name="All").update(enabled=False)
    assert found() == []


def test_without_a_database_nothing_is_asked(desk):
    assert checks.run_checks(tags=[Tags.database], databases=None) == []


def test_before_the_first_migration_nothing_is_asked(desk, monkeypatch):
    monkeypatch.setattr(connection.introspection, "table_names", list)
    assert found() == []


@pytest.mark.parametrize(
    ("wide", "narrow", "covered"),
    [
        ("*", "delete_*", True),
        ("delete_*", "delete_file", True),
        ("delete_*", "delete_?ile*", True),
        ("*_file", "delete_*", False),
        ("delete_file", "delete_*", False),
        ("a?c", "a?c", True),
        ("a?c", "abc", True),
        ("a?c", "a*c", False),
        ("[ab]", "a", False),
    ],
)
def test_what_covers_what(wide, narrow, covered):
    def rule(pattern):
        return Rule(agent_pattern=pattern, tool_pattern=pattern, ruling=Ruling())

    assert covers(rule(wide), rule(narrow)) is covered
