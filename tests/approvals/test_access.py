"""M19: who may decide is changed on the record, by whichever door of the admin or command."""

from __future__ import annotations

import json
from io import StringIO

import pytest
from django.contrib.auth.models import Group, Permission, User
from django.core.management import call_command
from django.urls import reverse

from approvals import audit
from approvals.models import AuditEntry
from approvals.services import access
from tests.plugins.cast import FINANCE, OPS

NEW_PASSWORD = "quite-another-4711"


@pytest.fixture
def root(client, ada):
    client.force_login(ada)
    return client


def entries():
    rows = AuditEntry.objects.filter(action__regex="^(user|group)\\.").order_by(
        "number"
    )
    return [(row.action, row.actor, json.loads(row.payload)) for row in rows]


def account(user, *groups, **changes):
    """What the form of an account sends, as it stands but for ``changes``."""
    joined = user.date_joined
    fields = {
        "username": user.username,
        "is_active": user.is_active,
        "is_staff": user.is_staff,
        "is_superuser": user.is_superuser,
        "date_joined_0": joined.date().isoformat(),
        "date_joined_1": joined.strftime("%H:%M:%S"),
        "groups": [group.pk for group in Group.objects.filter(name__in=groups)],
    } | changes
    return {name: value for name, value in fields.items() if value is not False}


def change(root, user, *groups, **changes):
    address = reverse("admin:auth_user_change", args=[user.pk])
    response = root.post(address, account(user, *groups, **changes))
    assert response.status_code == 302, response.context["errors"]


def test_m19_a_group_given_to_somebody(root, mia):
    change(root, mia, OPS)
    [(action, actor, said)] = entries()
    assert (action, actor, said["user"]) == ("user.changed", "ada", mia.pk)
    assert said["before"] | {"groups": [OPS]} == said["after"]
    assert said["after"] == {
        "name": "mia",
        "active": True,
        "staff": False,
        "superuser": False,
        "groups": [OPS],
        "permissions": [],
    }
    assert said["password_changed"] is False


@pytest.mark.parametrize(
    ("field", "name"),
    [("is_active", "active"), ("is_staff", "staff"), ("is_superuser", "superuser")],
)
def test_m19_what_an_account_may(root, rita, field, name):
    change(root, rita, OPS, **{field: not getattr(rita, field)})
    [(_, _, said)] = entries()
    assert said["before"][name] != said["after"][name]


def test_m19_a_permission_of_ones_own(root, mia):
    permission = Permission.objects.get(codename="decide_interrupt")
    change(root, mia, user_permissions=[permission.pk])
    [(_, _, said)] = entries()
    assert said["after"]["permissions"] == ["approvals.decide_interrupt"]


def test_m19_what_decides_nothing_is_no_entry(root, rita):
    change(root, rita, OPS, first_name="Marguerita")
    assert entries() == []


def test_m19_an_account_that_is_made_and_deleted(root):
    root.post(
        reverse("admin:auth_user_add"),
        {
            "username": "nora",
            "usable_password": "true",
            "password1": NEW_PASSWORD,
            "password2": NEW_PASSWORD,
        },
    )
    nora = User.objects.get(username="nora")
    root.post(reverse("admin:auth_user_delete", args=[nora.pk]), {"post": "yes"})
    (made, _, new), (deleted, _, old) = entries()
    assert (made, new["before"], new["after"]["name"]) == ("user.changed", None, "nora")
    assert (deleted, old["after"]) == ("user.deleted", None)
    assert old["before"] == new["after"]


def test_m19_accounts_deleted_from_the_list(root, eve):
    data = {"action": "delete_selected", "_selected_action": [eve.pk], "post": "yes"}
    root.post(reverse("admin:auth_user_changelist"), data)
    [(action, _, said)] = entries()
    assert (action, said["before"]["name"]) == ("user.deleted", "eve")


def test_m19_a_password_set_by_somebody_else(root, rita):
    root.post(
        reverse("admin:auth_user_password_change", args=[rita.pk]),
        {
            "usable_password": "true",
            "password1": NEW_PASSWORD,
            "password2": NEW_PASSWORD,
        },
    )
    [(action, actor, said)] = entries()
    assert (action, actor, said["user"]) == ("user.changed", "ada", rita.pk)
    assert said["password_changed"] is True
    assert said["before"] == said["after"]
    rita.refresh_from_db()
    assert rita.password not in json.dumps(said)
    assert NEW_PASSWORD not in json.dumps(said)


def test_m19_ones_own_password(root, ada):
    response = root.post(
        reverse("admin:password_change"),
        {
            "old_password": "secret-for-tests",
            "new_password1": NEW_PASSWORD,
            "new_password2": NEW_PASSWORD,
        },
    )
    assert response.status_code == 302
    [(_, actor, said)] = entries()
    assert (actor, said["user"], said["password_changed"]) == ("ada", ada.pk, True)


def test_m19_what_a_group_may_and_who_loses_it(root, fin):
    group = Group.objects.get(name=FINANCE)
    permission = Permission.objects.get(codename="decide_interrupt")
    root.post(
        reverse("admin:auth_group_change", args=[group.pk]),
        {"name": "Treasury", "permissions": [permission.pk]},
    )
    of_group, of_fin = sorted(entries(), key=lambda entry: entry[0])
    assert of_group[2]["before"]["name"] == FINANCE
    assert of_group[2]["after"] == {
        "name": "Treasury",
        "permissions": ["approvals.decide_interrupt"],
    }
    assert of_fin[2]["after"]["groups"] == ["Treasury"]


def test_m19_a_change_that_fails_leaves_no_entry(root, mia, monkeypatch):
    """One transaction: neither is without the other."""

    def fails(*_args, **_kwargs):
        raise RuntimeError("on the way")

    monkeypatch.setattr(audit, "append", fails)
    with pytest.raises(RuntimeError):
        change(root, mia, OPS)
    assert not mia.groups.exists()


def test_m19_signing_in_is_no_change(client, rita):
    before = access()
    client.post(reverse("login"), {"username": "rita", "password": "secret-for-tests"})
    assert access() == before


def test_m19_accounts_made_at_the_console(desk, monkeypatch):
    monkeypatch.setenv("DJANGO_SUPERUSER_PASSWORD", NEW_PASSWORD)
    call_command(
        "createsuperuser",
        username="boss",
        email="",
        interactive=False,
        stdout=StringIO(),
    )
    monkeypatch.setattr("getpass.getpass", lambda **_: f"{NEW_PASSWORD}-2")
    call_command("changepassword", "boss", stdout=StringIO())
    made, changed = entries()
    assert made[:2] == ("user.changed", "system:command")
    assert made[2]["after"]["superuser"] is True
    assert changed[2]["password_changed"] is True
