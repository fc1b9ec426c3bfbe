"""Every address of the site: who may open it, and that looking changes nothing.

The walk goes through the routes themselves, so that a new one cannot be forgotten: it has
to be named in ``ARGUMENTS`` before these tests pass.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.db.models import Model
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver, reverse

from approvals import services
from approvals.models import AuditEntry, AuditHead, Interrupt, Policy, Run, Vote
from hitlagents import conversations
from hitlagents.models import QueuedMessage, Thread
from tests.plugins.cast import ballot

BOT = "LinkExpanding 1.0 (preview bot)"
#: Pages for people who have not signed in.
OPEN = {"login"}
#: Pages for everybody who has.
FOR_ALL = {
    "home",
    "logout",
    "agents",
    "agent",
    "inspector",
    "read-tools",
    "runs",
    "tokens",
    "copilotkit-info",
}
#: Stands in the place of a page of the admin.
OF_ADMIN = {"own-password"}
REFUSED = {400, 401, 403, 404, 405, 411, 413, 415, 422}


@pytest.fixture
def there(make_interrupts, make_run, rita, mia) -> dict[str, dict[str, Any]]:
    """What each route needs to lead to something that is there."""
    (asked,) = make_interrupts(1)
    (decided,) = make_interrupts(1)
    services.decide(decided.pk, ballot(decided), reviewer=rita)
    claim = services.claim_run(decided.run_id, owner="elsewhere:1:1")
    assert claim is not None
    services.begin_execution(
        decided.run_id, attempt=claim.attempt, call=claim.answers[0].call, owner="w"
    )
    thread = conversations.open_thread("file-ops", owner=mia)
    conversations.send(thread.pk, "Please delete report.txt", author=mia)
    token, _secret = services.create_token(mia, name="Report", actor=mia)
    of = {"slug": thread.agent}
    in_thread = {**of, "pk": thread.pk}
    run = {"pk": asked.run_id}
    return {
        "interrupt": {"pk": asked.pk},
        "card": {"pk": asked.pk},
        "decide": {"pk": asked.pk},
        "undo": {"pk": decided.pk},
        "run": run,
        "cancel-run": run,
        "retry-run": run,
        "run-events": run,
        "run-events-download": run,
        "settle": {"pk": decided.executions.get().pk},
        "revoke-token": {"pk": token.pk},
        "audit-entry": {"number": 1},
        "agent": of,
        "inspector": of,
        "read-tools": of,
        "thread": in_thread,
        "thread-data": in_thread,
        "thread-retry": in_thread,
        "thread-cancel": in_thread,
        "agui": of,
        "agui-connect": of,
        "copilotkit-run": of,
        "copilotkit-connect": of,
        "copilotkit-stop": {**of, "thread_key": str(thread.pk)},
    }


def routes(patterns: list[URLPattern | URLResolver]) -> Iterator[URLPattern]:
    for pattern in patterns:
        if isinstance(pattern, URLPattern):
            if pattern.name not in OF_ADMIN:
                yield pattern
        elif pattern.namespace != "admin":
            yield from routes(pattern.url_patterns)


def addresses(there: dict[str, dict[str, Any]]) -> dict[str, str]:
    found = {}
    for pattern in routes(get_resolver().url_patterns):
        assert pattern.name
        takes = set(pattern.pattern.regex.groupindex) | set(pattern.pattern.converters)
        assert takes == set(there.get(pattern.name, {})), pattern.name
        found[pattern.name] = reverse(pattern.name, kwargs=there.get(pattern.name))
    return found


def of_admin() -> list[str]:
    found = [reverse("admin:index"), *map(reverse, OF_ADMIN)]
    for model in admin.site._registry:
        name = f"admin:{model._meta.app_label}_{model._meta.model_name}"
        found += [reverse(f"{name}_changelist"), reverse(f"{name}_add")]
        row = model._default_manager.first()
        if row is not None:
            found.append(reverse(f"{name}_change", args=[row.pk]))
            found.append(reverse(f"{name}_delete", args=[row.pk]))
    return found


#: What somebody's visit must not change.
KEPT: tuple[type[Model], ...] = (
    AuditEntry,
    AuditHead,
    Interrupt,
    Run,
    Vote,
    Policy,
    Thread,
    QueuedMessage,
    User,
)


def state() -> list[Any]:
    return [
        sorted(
            (tuple(map(str, row)) for row in model._default_manager.values_list()),
        )
        for model in KEPT
    ]


def signed_in(user: User) -> Client:
    client = Client(raise_request_exception=False)
    client.force_login(user)
    return client


@pytest.mark.parametrize("method", ["get", "head", "post"])
def test_b73_nobody_gets_in_without_signing_in(there, method):
    before = state()
    for name, address in addresses(there).items():
        response = getattr(Client(), method)(address)
        if name in OPEN:
            assert response.status_code == 200
        elif response.status_code == 302:
            assert response["Location"].startswith(reverse("login")), name
        else:
            assert response.status_code in REFUSED, name
    for address in of_admin():
        response = getattr(Client(), method)(address)
        assert response.status_code == 302
        assert response["Location"].startswith("/admin/login/")
    assert state() == before


@pytest.mark.parametrize("method", ["get", "head", "post"])
def test_b73_an_account_without_permission_reaches_nothing_of_others(
    there, eve, method
):
    signed_in(eve)  # Signing in is noted at the account.
    before = state()
    for name, address in addresses(there).items():
        response = getattr(signed_in(eve), method)(address)
        if name in FOR_ALL or name in OPEN:
            assert response.status_code in {200, 302, *REFUSED}, name
        else:
            assert response.status_code in REFUSED, name
    for address in of_admin():
        assert getattr(signed_in(eve), method)(address).status_code in {302, *REFUSED}
    after = state()
    accounts = KEPT.index(User)
    assert after[:accounts] == before[:accounts]


LINK = re.compile(r'(?:href|src|hx-get|action|formaction)="([^"#]+)"')


@pytest.mark.parametrize("who", [None, "rita", "mia", "ada"])
def test_b119_following_every_link_changes_nothing(there, request, who):
    """As a preview bot does: every address a page mentions, also those of its forms."""
    client = Client(headers={"User-Agent": BOT})
    if who:
        client.force_login(request.getfixturevalue(who))
    before = state()
    sessions = Session.objects.count()
    asked = there["interrupt"]["pk"]
    waiting = [reverse("inbox"), reverse("interrupt", args=[asked]), "/agents/"]
    waiting += [reverse("run", args=[there["run"]["pk"]]), "/runs/", "/audit/"]
    waiting.append(reverse("card", args=[asked]))
    seen: set[str] = set()
    while waiting and len(seen) < 150:
        address = unescape(waiting.pop())
        if address in seen or not address.startswith("/") or "/static/" in address:
            continue
        seen.add(address)
        client.head(address)
        response = client.get(address)
        assert response.status_code < 500, address
        if not response.streaming:
            waiting += LINK.findall(response.content.decode())
    assert len(seen) > 6
    assert state() == before
    assert Session.objects.count() == sessions


# Errors in pieces


def refused_pieces(there: dict[str, dict[str, Any]], rita: User, owen: User, eve: User):
    asked = Interrupt.objects.get(pk=there["interrupt"]["pk"])
    shown = services.shown_digest(asked)
    decide = reverse("decide", args=[asked.pk])
    deny = {"verdict": "deny", "shown": shown}
    closed = reverse("decide", args=[there["undo"]["pk"]])
    yield 404, eve, "get", reverse("interrupt", args=[asked.pk]), {}
    yield 404, eve, "post", decide, deny
    yield 403, owen, "post", decide, {**deny, "note": "no"}
    yield 400, rita, "post", decide, {"verdict": "nonsense", "shown": shown}
    yield 422, rita, "post", decide, deny
    yield 409, rita, "post", decide, {**deny, "note": "no", "shown": "0" * 64}
    yield 409, rita, "post", closed, {**deny, "note": "no"}
    yield 409, rita, "post", reverse("undo", args=[there["undo"]["pk"]]), {}
    yield 409, rita, "post", reverse("retry-run", args=[asked.run_id]), {}
    yield 405, rita, "get", decide, {}


def test_b122_an_error_in_a_piece_is_never_a_whole_page(there, rita, owen, eve):
    for status, who, method, address, data in refused_pieces(there, rita, owen, eve):
        client = signed_in(who)
        response = getattr(client, method)(
            address, data, headers={"HX-Request": "true"}
        )
        assert response.status_code == status, address
        assert "<html" not in response.content.decode(), address
