"""What the frame around every page needs: where one may go, and as whom."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.http import HttpRequest
from django.utils import timezone
from django.utils.translation import gettext as _

from approvals import hosts, permissions
from approvals.http import url_or_empty

if TYPE_CHECKING:
    from django.contrib.auth.models import User


def _entries() -> list[tuple[str, str, str, str, str]]:
    """Key, label, icon, route and the permission that opens it."""
    return [
        ("inbox", _("Inbox"), "inbox", "inbox", "approvals.view_interrupt"),
        ("agents", _("Agents"), "bot", "agents", ""),
        ("runs", _("Runs"), "activity", "runs", ""),
        ("audit", _("Audit"), "shield-check", "audit", "approvals.view_auditentry"),
    ]


_SECOND_KEY = {"inbox": "i", "agents": "a", "runs": "r", "audit": "u"}


#: Counting stops here, so that every page stays quick however much waits.
MOST_COUNTED = 1000


def _waiting(user: User) -> str:
    """How many requests wait, for the entry of the inbox; empty for none."""
    waiting = permissions.visible_interrupts(user).open().in_time(timezone.now())
    n = waiting[:MOST_COUNTED].count()
    return f"{MOST_COUNTED - 1}+" if n == MOST_COUNTED else str(n or "")


def shell(request: HttpRequest) -> dict[str, Any]:
    user = getattr(request, "user", None)
    if user is None or not user.is_authenticated:
        return {"login_path": url_or_empty("login")}
    nav = [
        {
            "key": key,
            "label": label,
            "icon": icon,
            "url": url,
            "hotkey": f"g {_SECOND_KEY[key]}",
            "keys": ["G", _SECOND_KEY[key].upper()],
            "count": _waiting(user) if key == "inbox" else "",
            "unit": _("pending"),
        }
        for key, label, icon, route, permission in _entries()
        if (not permission or user.has_perm(permission))
        and (url := url_or_empty(route))
    ]
    return {
        "nav": nav,
        "agent_names": hosts.Names(),
        "person_role": ", ".join(sorted(group.name for group in user.groups.all())),
        "login_path": url_or_empty("login"),
        "tokens_url": url_or_empty("tokens"),
        "logout_url": url_or_empty("logout"),
        "admin_url": url_or_empty("admin:index"),
    }
