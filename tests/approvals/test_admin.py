"""The admin: records nobody can touch, policies whose every change is an entry."""

from __future__ import annotations

import json
import re
import threading

import pytest
from django.contrib import admin
from django.contrib.auth.models import Group, Permission
from django.urls import reverse

from approvals import audit, services
from approvals.admin import shown_json
from approvals.hiding import Hiding
from approvals.models import (
    AuditEntry,
    AuditHead,
    Decision,
    Interrupt,
    Policy,
    ToolExecution,
    Vote,
)
from approvals.states import Gate, Verdict
from hitlagents.models import Checkpoint, Thread
from tests.plugins.cast import OPS, ballot, call

RECORDS = [
    "approvals.apitoken",
    "approvals.auditentry",
    "approvals.decision",
    "approvals.interrupt",
    "approvals.run",
    "approvals.tool",
    "approvals.toolexecution",
    "approvals.vote",
    "hitlagents.checkpoint",
    "hitlagents.thread",
]

OURS = {"approvals", "hitlagents", "hitlsite"}


@pytest.fixture
def records(make_interrupts, rita, fin, mia):
    """One of everything that can be looked at."""
    proposed = [
        call(call_id="call-1"),
        call("pay", call_id="call-2", amount=12, account="DE02", pin="pin-4711"),
    ]
    first, second = make_interrupts(proposed)
    services.decide(first.pk, ballot(first), reviewer=rita)
    services.decide(
        second.pk,
        ballot(second, arguments={"amount": 5, "account": "DE02", "pin": "pin-4712"}),
        reviewer=fin,
    )
    claim = services.claim_run(first.run_id, owner="worker")
    for each in proposed:
        services.begin_execution(
            first.run_id, attempt=claim.attempt, call=each, owner="worker"
        )
    services.create_token(mia, name="Report", actor=mia)
    Thread.objects.create(agent="clerk", owner=mia, title="Reports")
    Checkpoint.objects.create(
        run=first.run,
        framework="agent-framework",
        framework_version="1.23",
        schema=1,
        attempt=1,
        state=json.dumps({"secret": "state-of-the-agent"}),
    )
    return first


@pytest.fixture
def root(client, ada):
    client.force_login(ada)
    return client


def rows(label):
    model_admin = admin_of(label)
    return model_admin.model.objects.order_by("pk")


def admin_of(label):
    return next(
        registered
        for model, registered in admin.site._registry.items()
        if model._meta.label_lower == label
    )


def url(label, page, *arguments):
    return reverse(f"admin:{label.replace('.', '_')}_{page}", args=arguments)


def test_every_record_is_registered_as_read_only():
    registered = {model._meta.label_lower for model in admin.site._registry}
    assert set(RECORDS) <= registered
    ours = {label for label in registered if label.split(".")[0] in OURS}
    assert ours == {*RECORDS, "approvals.policy", "hitlagents.remoteagent"}


@pytest.mark.parametrize("label", RECORDS)
def test_k35_a_record_can_be_read_and_nothing_else(root, records, label):
    """B83: by page, by address and in bulk."""
    row = rows(label).first()
    before = rows(label).values().get(pk=row.pk)
    head = AuditHead.objects.get().number

    assert root.get(url(label, "changelist")).status_code == 200
    page = root.get(url(label, "change", row.pk))
    assert page.status_code == 200
    assert 'name="_save"' not in page.content.decode()
    assert "deletelink" not in page.content.decode()

    assert root.get(url(label, "add")).status_code == 403
    assert root.post(url(label, "add"), {}).status_code == 403
    assert (
        root.post(url(label, "change", row.pk), {"status": "open"}).status_code == 403
    )
    assert root.get(url(label, "delete", row.pk)).status_code == 403
    assert root.post(url(label, "delete", row.pk), {"post": "yes"}).status_code == 403
    bulk = {"action": "delete_selected", "_selected_action": [row.pk], "post": "yes"}
    assert root.post(url(label, "changelist"), bulk).status_code == 403
    assert root.get(url(label, "changelist")).content.count(b"delete_selected") == 0
    assert root.get(url(label, "history", row.pk)).status_code == 200

    assert rows(label).values().get(pk=row.pk) == before
    assert AuditHead.objects.get().number == head


@pytest.mark.parametrize("label", RECORDS)
def test_lists_can_be_searched_with_anything(root, records, label):
    for text in ("report", str(records.pk), "7", "'\"%_\\", "ü🗂"):
        page = root.get(url(label, "changelist"), {"q": text})
        assert page.status_code == 200


@pytest.mark.parametrize(
    ("label", "lookup"),
    [
        ("approvals.interrupt", "arguments__contains"),
        ("approvals.interrupt", "salt__startswith"),
        ("approvals.interrupt", "status__regex"),
        ("approvals.apitoken", "digest__startswith"),
        ("approvals.toolexecution", "arguments__regex"),
    ],
)
def test_i22_no_address_of_a_list_asks_of_a_hidden_column(root, records, label, lookup):
    page = root.get(url(label, "changelist"), {lookup: "a"})
    assert page.status_code == 400


def test_search_finds_what_it_names(root, records):
    page = root.get(url("approvals.auditentry", "changelist"), {"q": str(records.pk)})
    assert (
        page.context["cl"].result_count
        == AuditEntry.objects.filter(interrupt=records.pk).count()
    )
    page = root.get(
        url("approvals.auditentry", "changelist"), {"action": "interrupt.approved"}
    )
    assert page.context["cl"].result_count == 2


def test_i22_secrets_and_salts_are_on_no_page(root, records):
    seen = 0
    for label in RECORDS:
        for row in rows(label):
            page = root.get(url(label, "change", row.pk)).content.decode()
            assert "pin-4711" not in page
            assert "pin-4712" not in page
            assert "state-of-the-agent" not in page
            for kept in [*Interrupt.objects.all(), *ToolExecution.objects.all()]:
                assert kept.salt not in page
            seen += "hidden, " in page
    assert seen == 4  # the request, its entry, the edited decision, the execution


def test_json_is_shown_with_nothing_hidden_and_nothing_run():
    shown = shown_json(
        '{"name":"a\u202eb<b>","pin":"pin-4711"}', hiding=Hiding.of(["pin"])
    )
    assert shown.startswith("<pre>")
    assert '<mark class="hid" title="right-to-left override">⟦U+202E⟧</mark>' in shown
    assert "b&lt;b&gt;" in shown
    assert "hidden, 8 characters" in shown
    assert "pin-4711" not in shown
    assert shown_json(None) == "-"
    assert shown_json("{") == "(cannot be read)"


def test_a_damaged_entry_is_marked(root, records):
    entry = AuditEntry.objects.get(number=2)
    fits = admin_of("approvals.auditentry").fits
    assert fits(entry)
    entry.actor = "eve"
    assert not fits(entry)
    entry.salt = "no hex"
    entry.hash = audit.entry_hash(entry)
    assert not fits(entry)


def test_i21_staff_without_the_wide_permissions_see_no_records(client, records, rita):
    """The admin knows no review groups, so being a reviewer is not enough."""
    rita.is_staff = True
    rita.save()
    client.force_login(rita)
    for label in RECORDS:
        assert client.get(url(label, "changelist")).status_code == 403
    assert "approvals" not in client.get(reverse("admin:index")).content.decode()


def test_an_auditor_among_the_staff_sees_them(client, records, aud):
    aud.is_staff = True
    aud.save()
    client.force_login(aud)
    for label in RECORDS:
        assert client.get(url(label, "changelist")).status_code == 200
    assert client.get(url("approvals.policy", "changelist")).status_code == 403


# Policies


def form(**fields):
    return {
        "name": "Money out",
        "enabled": "on",
        "position": 4,
        "agent_pattern": "clerk",
        "tool_pattern": "pay",
        "gate": "hold",
        "groups": [],
        "approvals_required": 1,
        "note_rule": "optional",
        "deadline_seconds": "",
        "on_deadline": "deny",
        "undo_seconds": 0,
    } | fields


def entries(action):
    found = AuditEntry.objects.filter(action=action).order_by("number")
    return [(entry.actor, json.loads(entry.payload)) for entry in found]


@pytest.fixture
def money(desk):
    return Policy.objects.get(name="Money out")


def test_i23_a_changed_policy_is_an_entry_with_before_and_after(root, money):
    ops = Group.objects.get(name=OPS)
    answer = root.post(
        url("approvals.policy", "change", money.pk),
        form(groups=[ops.pk], approvals_required=2),
    )
    assert answer.status_code == 302
    ((actor, payload),) = entries("policy.changed")
    assert actor == "ada"
    assert payload["policy"] == money.pk
    assert payload["before"]["groups"] == ["Finance reviewers"]
    assert payload["before"]["approvals_required"] == 1
    assert payload["after"]["groups"] == [OPS]
    assert payload["after"]["approvals_required"] == 2
    assert audit.verify_stored().broken is None


def test_a_change_of_the_groups_alone_is_an_entry(root, money):
    root.post(url("approvals.policy", "change", money.pk), form())
    ((_, payload),) = entries("policy.changed")
    assert payload["after"] == payload["before"] | {"groups": []}


def test_a_save_that_changes_nothing_is_none(root, money):
    groups = [group.pk for group in money.groups.all()]
    root.post(url("approvals.policy", "change", money.pk), form(groups=groups))
    assert not entries("policy.changed")


def test_a_new_and_a_deleted_policy_are_entries(root, money):
    root.post(url("approvals.policy", "add"), form(name="Letters", tool_pattern="mail"))
    ((_, payload),) = entries("policy.changed")
    assert payload["before"] is None
    assert payload["after"]["tool_pattern"] == "mail"

    pk = Policy.objects.get(name="Letters").pk
    root.post(url("approvals.policy", "delete", pk), {"post": "yes"})
    ((_, payload),) = entries("policy.deleted")
    assert payload["before"]["name"] == "Letters"
    assert payload["after"] is None


def test_deleting_several_at_once_is_an_entry_for_each(root, money):
    pks = list(Policy.objects.values_list("pk", flat=True))
    root.post(
        url("approvals.policy", "changelist"),
        {"action": "delete_selected", "_selected_action": pks, "post": "yes"},
    )
    assert not Policy.objects.exists()
    assert sorted(payload["policy"] for _, payload in entries("policy.deleted")) == pks


def test_a_change_whose_entry_cannot_be_written_is_none(root, money, monkeypatch):
    def stumble(entries):
        raise RuntimeError("disk full")

    monkeypatch.setattr(audit, "append", stumble)
    with pytest.raises(RuntimeError, match="disk full"):
        root.post(url("approvals.policy", "change", money.pk), form(gate="allow"))
    money.refresh_from_db()
    assert money.gate == Gate.HOLD


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"gate": "open"}, "not one of the available choices"),
        ({"gate": "refuse", "deadline_seconds": 60}, "waits for nobody"),
        ({"tool_pattern": "pay["}, "Only * and ? are wildcards"),
        ({"agent_pattern": ""}, "This field is required"),
        ({"approvals_required": 0}, "greater than or equal to 1"),
        ({"deadline_seconds": 0}, "greater than or equal to 1"),
        ({"undo_seconds": 31}, "less than or equal to 30"),
        ({"note_rule": "sometimes"}, "not one of the available choices"),
        ({"name": "Notes"}, "already exists"),
    ],
)
def test_i20_a_broken_policy_is_refused_with_a_reason(root, money, fields, said):
    answer = root.post(url("approvals.policy", "change", money.pk), form(**fields))
    assert answer.status_code == 200
    assert said in answer.content.decode()
    assert not entries("policy.changed")
    before = money.approvals_required, money.gate, money.tool_pattern
    money.refresh_from_db()
    assert (money.approvals_required, money.gate, money.tool_pattern) == before


def test_a_group_that_a_policy_or_a_request_names_cannot_be_deleted(root, records):
    ops = Group.objects.get(name=OPS)
    page = root.get(reverse("admin:auth_group_delete", args=[ops.pk])).content.decode()
    assert "Policy: Destructive file tools" in page
    root.post(reverse("admin:auth_group_delete", args=[ops.pk]), {"post": "yes"})
    root.post(
        reverse("admin:auth_group_changelist"),
        {"action": "delete_selected", "_selected_action": [ops.pk], "post": "yes"},
    )
    assert Group.objects.filter(pk=ops.pk).exists()
    free = Group.objects.create(name="Nobody needs it")
    root.post(reverse("admin:auth_group_delete", args=[free.pk]), {"post": "yes"})
    assert not Group.objects.filter(pk=free.pk).exists()


# The content security policy


def pages(records):
    for label in RECORDS:
        yield url(label, "changelist")
        yield url(label, "change", rows(label).first().pk)
    policy = Policy.objects.first()
    yield reverse("admin:index")
    yield url("approvals.policy", "changelist")
    yield url("approvals.policy", "add")
    yield url("approvals.policy", "change", policy.pk)
    yield url("approvals.policy", "delete", policy.pk)
    yield reverse("admin:auth_user_changelist")
    yield reverse("admin:auth_group_changelist")


INLINE = re.compile(
    r"""<script(?![^>]*\bsrc=)(?![^>]*application/json)|<style|\sstyle=|\son[a-z]+=["']"""
)


def test_no_page_has_anything_inline(root, records):
    for page in pages(records):
        answer = root.get(page)
        assert "'unsafe-inline'" not in answer["Content-Security-Policy"]
        assert not INLINE.search(answer.content.decode()), page


def test_a_browser_finds_nothing_to_refuse(
    transactional_db, records, ada, chromium, live_server
):
    visited, complaints = [], []
    addresses = list(pages(records))

    def browse():
        from playwright.sync_api import sync_playwright

        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(
                executable_path=chromium, args=["--no-sandbox"]
            )
            page = browser.new_page()
            page.on("console", lambda said: complaints.append(said.text))
            page.on("pageerror", lambda error: complaints.append(str(error)))
            page.goto(f"{live_server.url}{reverse('admin:login')}")
            page.fill("[name=username]", "ada")
            page.fill("[name=password]", "secret-for-tests")
            page.click("[type=submit]")
            for address in addresses:
                answer = page.goto(f"{live_server.url}{address}")
                visited.append((address, answer.status))
            browser.close()

    # A thread of its own: Playwright's loop would bar this one from the database.
    thread = threading.Thread(target=browse)
    thread.start()
    thread.join()

    assert visited == [(address, 200) for address in addresses]
    assert complaints == []


def test_votes_and_undone_decisions_stay_to_be_seen(root, make_interrupts, rita):
    Policy.objects.filter(name="Destructive file tools").update(undo_seconds=10)
    asked = make_interrupts(1)[0]
    services.decide(asked.pk, ballot(asked, Verdict.APPROVE), reviewer=rita)
    services.undo(asked.pk, actor=rita)
    assert Vote.objects.get().void_at
    page = root.get(url("approvals.decision", "change", Decision.objects.get().pk))
    assert page.status_code == 200
    page = root.get(url("approvals.vote", "changelist"))
    assert page.context["cl"].result_count == 1


def test_permissions_of_the_policy_are_djangos_own(client, make_person, money):
    clerk = make_person("paula", is_staff=True)
    clerk.user_permissions.add(Permission.objects.get(codename="change_policy"))
    client.force_login(clerk)
    change = url("approvals.policy", "change", money.pk)
    assert client.post(change, form(undo_seconds=5)).status_code == 302
    assert client.post(url("approvals.policy", "add"), form()).status_code == 403
    ((actor, _),) = entries("policy.changed")
    assert actor == "paula"
