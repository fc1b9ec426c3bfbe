"""The people, groups and policies of a demo: one account for each part one can play.

Their password is known to everybody, so they are made in demo mode and on an empty
database only; the system checks refuse demo mode where others can come in.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.contrib.auth.hashers import make_password
from django.contrib.auth.models import Group, User
from django.db import transaction

from approvals import services
from approvals.models import Policy
from approvals.states import Gate, NoteRule

DEMO_PASSWORD = "sayso-demo"  # noqa: S105  (shown on the sign-in page)

OPS = "Ops reviewers"
FINANCE = "Finance reviewers"
SUPPORT = "Support reviewers"


@dataclass(frozen=True, kw_only=True)
class DemoAccount:
    username: str
    role: str
    what: str
    groups: tuple[str, ...] = ()
    admin: bool = False


DEMO_ACCOUNTS = (
    DemoAccount(
        username="admin",
        role="Administrator",
        what="Sees and decides everything, reads the audit, changes people and policies.",
        admin=True,
    ),
    DemoAccount(
        username="ops-reviewer",
        role="Reviewer, operations",
        what="Decides what agents want to do to files and systems.",
        groups=(OPS,),
    ),
    DemoAccount(
        username="finance-reviewer",
        role="Reviewer, finance",
        what="Decides what agents want to do with money.",
        groups=(FINANCE,),
    ),
    DemoAccount(
        username="support-reviewer",
        role="Reviewer, support",
        what="Decides what agents want to write, book and promise to customers.",
        groups=(SUPPORT,),
    ),
    DemoAccount(
        username="watcher",
        role="Watcher",
        what="Sees every request and run, and may decide nothing.",
        groups=("Watchers",),
    ),
    DemoAccount(
        username="member",
        role="Member",
        what="Talks to agents. Somebody else has to approve what they ask for.",
    ),
)

#: Asked in this order; what none of them matches is held for the group Reviewers.
DEMO_POLICIES: tuple[tuple[str, str, str, dict[str, Any], tuple[str, ...]], ...] = (
    ("List files", "file-ops", "list_files", {"gate": Gate.ALLOW}, ()),
    ("Read files", "file-ops", "read_file", {"gate": Gate.ALLOW}, ()),
    (
        "Destructive file tools",
        "file-ops",
        "delete_file",
        {"gate": Gate.HOLD, "note_rule": NoteRule.ON_DENY},
        (OPS,),
    ),
    ("Look at the calendar", "scheduler", "list_meetings", {"gate": Gate.ALLOW}, ()),
    ("Questions in the chat", "scheduler", "book_call", {"asks_requester": True}, ()),
    ("Calendar", "scheduler", "*", {"gate": Gate.HOLD}, (SUPPORT,)),
    ("Look up tickets", "support", "lookup_ticket", {"gate": Gate.ALLOW}, ()),
    ("Mail to customers", "support", "send_email", {"gate": Gate.HOLD}, (SUPPORT,)),
    (
        "Refunds",
        "support",
        "refund_invoice",
        {"gate": Gate.HOLD, "note_rule": NoteRule.ON_DENY},
        (FINANCE,),
    ),
    ("Look up balances", "banking", "lookup_balance", {"gate": Gate.ALLOW}, ()),
    (
        "Transfers",
        "banking",
        "transferMoney",
        {"gate": Gate.HOLD, "note_rule": NoteRule.ON_DENY},
        (FINANCE,),
    ),
    ("Look at documents", "writer", "list_files", {"gate": Gate.ALLOW}, ()),
    ("Read documents", "writer", "read_*", {"gate": Gate.ALLOW}, ()),
    ("Writing", "writer", "*", {"gate": Gate.HOLD}, (OPS,)),
)


@transaction.atomic
def seed() -> bool:
    """Make the demo in a database without users; say whether it was made.

    Expects ``services.prepare`` to have run.
    """
    if User.objects.exists():
        return False
    for name in (OPS, FINANCE, SUPPORT):
        services.make_group(name)
    # Hashed once: it takes half a second on purpose, and it is no secret here.
    password = make_password(DEMO_PASSWORD)
    for account in DEMO_ACCOUNTS:
        user = User.objects.create(
            username=account.username,
            password=password,
            is_staff=account.admin,
            is_superuser=account.admin,
        )
        user.groups.set(Group.objects.filter(name__in=account.groups))
    for position, (name, agent, tool, fields, groups) in enumerate(DEMO_POLICIES):
        policy, _ = Policy.objects.get_or_create(
            name=name,
            defaults={
                "position": 10 * (position + 1),
                "agent_pattern": agent,
                "tool_pattern": tool,
                **fields,
            },
        )
        policy.groups.set(Group.objects.filter(name__in=groups))
    return True


def accounts() -> list[DemoAccount]:
    """The demo accounts one can sign in with now: none outside demo mode."""
    if not settings.SAYSO_DEMO:
        return []
    names = [account.username for account in DEMO_ACCOUNTS]
    there = User.objects.filter(username__in=names, is_active=True)
    usernames = set(there.values_list("username", flat=True))
    return [account for account in DEMO_ACCOUNTS if account.username in usernames]


def sign_in_context() -> dict[str, Any]:
    """What the sign-in page shows of the demo."""
    return {"demo_accounts": accounts(), "demo_password": DEMO_PASSWORD}
