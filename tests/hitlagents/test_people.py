from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.test import override_settings

from approvals import permissions, services
from approvals.models import Policy
from approvals.policies import load_rules, rule_on
from approvals.states import Gate, NoteRule
from hitlagents.demo import people

pytestmark = pytest.mark.django_db


@pytest.fixture
def demo():
    services.prepare()
    assert people.seed()


def test_the_demo_is_made_once(demo):
    assert not people.seed()
    assert User.objects.count() == len(people.DEMO_ACCOUNTS)


def test_no_demo_where_somebody_is_already():
    services.prepare()
    User.objects.create(username="owner")
    assert not people.seed()
    assert User.objects.count() == 1
    assert not Policy.objects.exists()


def test_everybody_signs_in_and_may_do_what_the_page_says(demo, client):
    for account in people.DEMO_ACCOUNTS:
        assert client.login(username=account.username, password=people.DEMO_PASSWORD)
    admin, ops, watcher, member = (
        User.objects.get(username=name)
        for name in ("admin", "ops-reviewer", "watcher", "member")
    )
    assert permissions.may_audit(admin)
    assert ops.has_perm("approvals.decide_interrupt")
    assert permissions.sees_everything(watcher)
    assert not watcher.has_perm("approvals.decide_interrupt")
    assert not permissions.sees_inbox(member)


def test_deleting_is_held_for_ops_and_unknown_tools_for_reviewers(demo):
    rules = load_rules()
    assert rule_on("file-ops", "read_file", rules=rules).gate == Gate.ALLOW
    ruling = rule_on("file-ops", "delete_file", rules=rules)
    assert (ruling.gate, ruling.groups) == (Gate.HOLD, (people.OPS,))
    assert ruling.policy == "Destructive file tools"
    assert ruling.note_rule == NoteRule.ON_DENY
    assert rule_on("file-ops", "format_disk", rules=rules).gate == Gate.HOLD


def test_the_sign_in_page_lists_them_in_demo_mode_only(demo, client):
    with override_settings(SAYSO_DEMO=True):
        page = client.get("/accounts/login/").content.decode()
    assert "ops-reviewer" in page
    assert people.DEMO_PASSWORD in page
    with override_settings(SAYSO_DEMO=False):
        page = client.get("/accounts/login/").content.decode()
    assert "ops-reviewer" not in page


def test_an_account_that_is_gone_is_not_offered(demo):
    User.objects.filter(username="watcher").update(is_active=False)
    with override_settings(SAYSO_DEMO=True):
        names = [account.username for account in people.accounts()]
    assert "watcher" not in names
    assert "member" in names
