"""M22: tokens for programs, from making to revoking."""

from __future__ import annotations

import json
import re
from datetime import timedelta

import pytest
from django.core.management import CommandError, call_command
from django.http import JsonResponse
from django.test import RequestFactory
from django.urls import reverse

from approvals import audit, clock, services
from approvals.callers import api
from approvals.exceptions import BadToken, InvalidArguments, NotFound
from approvals.models import ApiToken, AuditEntry
from approvals.states import TokenScope


@api(scope=TokenScope.DECIDE)
def whoami(request, caller):
    return JsonResponse({"user": caller.user.username})


def ask(secret=None, **headers):
    if secret is not None:
        headers["HTTP_AUTHORIZATION"] = f"Bearer {secret}"
    request = RequestFactory().post("/", **headers)
    from django.contrib.auth.models import AnonymousUser

    request.user = AnonymousUser()
    return whoami(request)


@pytest.fixture
def made(mia):
    return services.create_token(mia, name="My page", actor=mia)


def test_a_token_speaks_for_its_owner_and_is_stored_as_a_digest(made):
    token, secret = made
    answer = ask(secret)
    assert (answer.status_code, json.loads(answer.content)) == (200, {"user": "mia"})
    row = ApiToken.objects.values().get(pk=token.pk)
    assert secret not in str(row)
    assert re.fullmatch(r"[0-9a-f]{64}", row["digest"])


def test_last_use_is_written_once_a_minute(made, monkeypatch):
    token, secret = made
    start = clock.now()
    for seconds, noted in ((0, 0), (59, 0), (61, 61)):
        at = start + timedelta(seconds=seconds)
        monkeypatch.setattr(clock, "now", lambda at=at: at)
        services.authenticate_token(secret)
        token.refresh_from_db()
        assert token.last_used_at == start + timedelta(seconds=noted)


def revoked(token):
    services.revoke_token(token.pk, actor=token.user)


def expired(token):
    ApiToken.objects.update(expires_at=clock.now() - timedelta(seconds=1))


def locked(token):
    token.user.is_active = False
    token.user.save()


@pytest.mark.parametrize("end", [revoked, expired, locked])
def test_what_is_no_longer_valid_gets_the_same_401_as_what_never_was(made, end):
    token, secret = made
    end(token)
    answer = ask(secret)
    unknown = ask("sayso_" + "x" * 43)
    assert answer.status_code == unknown.status_code == 401
    assert answer.content == unknown.content
    assert answer["WWW-Authenticate"] == "Bearer"
    assert json.loads(answer.content)["error"]["code"] == "bad_token"
    assert not services.token_is_good(token.pk)


@pytest.mark.parametrize(
    "header",
    [
        "Bearer",
        "Bearer ",
        "Basic bWlhOng=",
        "Bearer x",
        "Bearer sayso_" + "x" * 9000,
        "Bearer sayso_\0",
        "nonsense",
        "Bearer sayso_ü",
    ],
)
def test_a_malformed_header_is_a_401_in_json(desk, header):
    answer = ask(HTTP_AUTHORIZATION=header)
    assert answer.status_code == 401
    assert json.loads(answer.content)["error"]["code"] == "bad_token"


def test_nobody_is_told_how_to_come_in(desk):
    answer = ask()
    assert answer.status_code == 401
    assert "Bearer" in json.loads(answer.content)["error"]["message"]


def test_a_token_does_no_more_than_its_scopes(mia):
    _, secret = services.create_token(
        mia, name="Reads", actor=mia, scopes=[TokenScope.AGENTS]
    )
    answer = ask(secret)
    assert answer.status_code == 403
    assert json.loads(answer.content)["error"] == {
        "code": "out_of_scope",
        "message": "This token may not: Decide requests.",
    }


def test_making_and_revoking_are_entries_without_the_secret(made):
    token, secret = made
    services.revoke_token(token.pk, actor=token.user)
    services.revoke_token(token.pk, actor=token.user)
    entries = list(
        AuditEntry.objects.filter(action__startswith="token.").order_by("pk")
    )
    assert [entry.action for entry in entries] == ["token.created", "token.revoked"]
    assert {entry.actor for entry in entries} == {"mia"}
    assert all(secret not in entry.payload for entry in entries)
    assert audit.verify_stored().broken is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": " "},
        {"name": "x" * 101},
        {"name": "a\0b"},
        {"scopes": []},
        {"expires_at": "past"},
    ],
)
def test_a_token_that_makes_no_sense_is_refused(mia, wrong):
    if wrong.get("expires_at"):
        wrong = {"expires_at": clock.now()}
    with pytest.raises(InvalidArguments):
        services.create_token(mia, **({"name": "x", "actor": mia} | wrong))
    assert not ApiToken.objects.exists()


def test_nobody_revokes_somebody_elses(made, eve):
    token, secret = made
    with pytest.raises(NotFound):
        services.revoke_token(token.pk, actor=eve)
    assert services.authenticate_token(secret) == token
    with pytest.raises(BadToken):
        services.authenticate_token("")


# The command


def test_the_command_prints_the_secret_alone_on_its_last_line(mia, capsys):
    call_command("create_token", "mia", "--days", "7", "--scope", "agents")
    secret = capsys.readouterr().out.splitlines()[-1]
    token = services.authenticate_token(secret)
    assert token.user == mia
    assert token.scopes == ["agents"]
    assert timedelta(days=6.9) < token.expires_at - token.created <= timedelta(days=7)
    entry = AuditEntry.objects.get(action="token.created")
    assert entry.actor == "system:command"


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["nobody"], "nobody named nobody"),
        (["mia", "--days", "0"], "--days must be"),
        (["mia", "--name", " "], "Give the token a name"),
    ],
)
def test_the_command_says_what_is_wrong(mia, arguments, why):
    with pytest.raises(CommandError, match=why):
        call_command("create_token", *arguments)


def test_the_command_makes_none_for_a_locked_account(mia):
    mia.is_active = False
    mia.save()
    with pytest.raises(CommandError, match="locked"):
        call_command("create_token", "mia")


# The page


@pytest.fixture
def page(client, mia):
    client.force_login(mia)
    return client


def test_the_page_shows_the_secret_once(page, mia):
    sent = {"name": "My page", "scopes": ["agents", "decide"], "days": "30"}
    made = page.post(reverse("tokens"), sent)
    # What a browser loads again is the list and not the form.
    assert (made.status_code, made["Location"]) == (302, reverse("tokens"))
    assert "sayso_" not in str(made.headers) + made.content.decode()
    assert not [each for each in made.cookies.values() if "sayso_" in each.value]
    assert page.head(reverse("tokens")).status_code == 200
    shown = page.get(reverse("tokens"))
    assert shown["Cache-Control"] == "no-store"
    secret = re.search(r'value="(sayso_[\w-]+)"', shown.content.decode())[1]
    assert services.authenticate_token(secret).user == mia
    assert secret not in str(dict(page.session))
    again = page.get(reverse("tokens")).content.decode()
    assert "sayso_" not in again
    assert "My page" in again
    assert ApiToken.objects.count() == 1


def late(page):
    made = page.session["made_token"]
    session = page.session
    session["made_token"] = [*made[:2], clock.now().timestamp()]
    session.save()


def revoked_meanwhile(page):
    ApiToken.objects.update(revoked_at=clock.now())


def signed_out(page):
    mia = ApiToken.objects.get().user
    page.logout()
    page.force_login(mia)


@pytest.mark.parametrize("then", [late, revoked_meanwhile, signed_out])
def test_a_secret_that_was_not_fetched_is_not_shown_later(page, then):
    page.post(
        reverse("tokens"), {"name": "My page", "scopes": ["agents"], "days": "30"}
    )
    then(page)
    assert "sayso_" not in page.get(reverse("tokens")).content.decode()
    assert "made_token" not in page.session


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": ""},
        {"scopes": []},
        {"scopes": ["everything"]},
        {"days": "7"},
        {"name": "x" * 101},
    ],
)
def test_a_form_that_does_not_fit_comes_back(page, wrong):
    sent = {"name": "My page", "scopes": ["agents"], "days": "30"} | wrong
    answer = page.post(reverse("tokens"), sent)
    assert answer.status_code == 422
    assert "form-error" in answer.content.decode()
    assert not ApiToken.objects.exists()


def test_the_page_revokes_ones_own_only(page, mia, eve):
    own, secret = services.create_token(mia, name="Mine", actor=mia)
    other, _ = services.create_token(eve, name="Eves", actor=eve)
    assert "Eves" not in page.get(reverse("tokens")).content.decode()
    assert page.post(reverse("revoke-token", args=[other.pk])).status_code == 404
    assert page.get(reverse("revoke-token", args=[own.pk])).status_code == 405
    answer = page.post(reverse("revoke-token", args=[own.pk]), follow=True)
    assert "Revoked “Mine”." in answer.content.decode()
    with pytest.raises(BadToken):
        services.authenticate_token(secret)
    assert services.token_is_good(other.pk)


def test_the_page_is_for_people_who_are_signed_in(client, desk):
    assert client.get(reverse("tokens")).status_code == 302
    assert client.post(reverse("tokens"), {"name": "x"}).status_code == 302


def test_the_menu_leads_there(page):
    assert page.get(reverse("agents")).content.decode().count(reverse("tokens")) == 2
