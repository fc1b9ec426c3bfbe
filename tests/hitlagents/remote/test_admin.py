"""M21: staff put agents behind the desk, and see of their headers only the names."""

from __future__ import annotations

import json

import pytest
from django.contrib.auth.models import Permission
from django.urls import reverse

from approvals.models import AuditEntry
from hitlagents import catalog, registry
from hitlagents.models import RemoteAgent
from hitlagents.remote import health
from hitlagents.remote.client import Endpoint
from tests.hitlagents.remote.conftest import finished, sse, started

pytestmark = pytest.mark.django_db

SECRET = "sk-very-secret"
ADD = "admin:hitlagents_remoteagent_add"
FORM = {
    "slug": "far-away",
    "name": "Far away",
    "description": "Answers from afar.",
    "url": "https://agents.example/agent",
    "profile": "agent_framework",
    "together": "",
    "connect_seconds": 10,
    "idle_seconds": 60,
    "total_seconds": 600,
    "max_event_bytes": 100_000,
    "max_run_bytes": 1_000_000,
    "enabled": "on",
    "new_headers": f"Authorization: Bearer {SECRET}\nX-Team: ops",
}


@pytest.fixture
def root(client, ada):
    client.force_login(ada)
    return client


@pytest.fixture
def agent(root):
    answer = root.post(reverse(ADD), FORM)
    assert answer.status_code == 302, answer.context["errors"]
    return RemoteAgent.objects.get()


def change(agent):
    return reverse("admin:hitlagents_remoteagent_change", args=[agent.pk])


def test_m21_staff_add_an_agent_and_it_stands_among_the_others(root, agent, mia):
    assert agent.headers == {"Authorization": f"Bearer {SECRET}", "X-Team": "ops"}
    spec = catalog.get("far-away")
    assert [each.slug for each in catalog.agents()][-1] == "far-away"
    assert catalog.installed(spec)
    assert spec.framework == "AG-UI, Agent Framework (Python)"
    root.force_login(mia)
    page = root.get(reverse("agents")).content.decode()
    assert "Answers from afar." in page
    assert "agents.example" in page
    assert "Runs elsewhere" in page
    assert root.get(reverse("agent", args=["far-away"])).status_code == 200


def test_m21_headers_are_never_shown_again(root, agent):
    page = root.get(change(agent)).content.decode()
    assert "Authorization, X-Team" in page
    assert SECRET not in page
    assert agent.sealed_headers not in page
    assert SECRET not in repr(agent.endpoint())
    for entry in AuditEntry.objects.all():
        assert SECRET not in (entry.payload or "")
        assert agent.sealed_headers not in (entry.payload or "")


def test_m21_headers_stay_unless_new_ones_are_given(root, agent):
    kept = {**FORM, "new_headers": ""}
    assert root.post(change(agent), kept).status_code == 302
    agent.refresh_from_db()
    assert agent.headers["X-Team"] == "ops"
    root.post(change(agent), {**FORM, "new_headers": "X-Key: abc"})
    agent.refresh_from_db()
    assert agent.headers == {"X-Key": "abc"}
    root.post(change(agent), {**kept, "remove_headers": "on"})
    agent.refresh_from_db()
    assert agent.headers == {}
    assert agent.sealed_headers == ""


def test_m19_every_change_is_an_entry(root, agent, ada):
    root.post(change(agent), {**FORM, "name": "Farther", "new_headers": ""})
    root.post(change(agent), {**FORM, "name": "Farther", "new_headers": "X-Team: new"})
    root.post(change(agent), {**FORM, "name": "Farther", "new_headers": ""})
    root.post(
        reverse("admin:hitlagents_remoteagent_delete", args=[agent.pk]), {"post": "yes"}
    )
    entries = AuditEntry.objects.filter(action__startswith="agent.").order_by("number")
    assert [entry.action for entry in entries] == [
        "agent.changed",
        "agent.changed",
        "agent.changed",
        "agent.deleted",
    ]
    assert {entry.actor for entry in entries} == {ada.get_username()}
    added, renamed, new_headers, deleted = [json.loads(e.payload) for e in entries]
    assert added["before"] is None
    assert added["after"]["headers"] == ["Authorization", "X-Team"]
    assert (renamed["before"]["name"], renamed["after"]["name"]) == (
        "Far away",
        "Farther",
    )
    assert not renamed["headers_changed"]
    assert new_headers["headers_changed"]
    assert deleted["after"] is None


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("slug", "file-ops", "hosted here"),
        ("slug", "not a slug", "valid"),
        ("url", "http://agents.example/", "only https"),
        ("url", "https://user:pw@agents.example/", "must not hold a user name"),
        ("url", "agents.example", "must begin with"),
        ("new_headers", SECRET, "Every line must be"),
        ("new_headers", "Host: elsewhere", "set by Sayso"),
        ("new_headers", "X-A: 1\nx-a: 2", "given twice"),
        ("new_headers", "X-A: ä", "plain ASCII"),
        ("new_headers", "X A: 1", "Every line must be"),
        ("idle_seconds", 0, "greater than or equal to 1"),
        ("max_run_bytes", 10, "greater than or equal to 1000"),
    ],
)
def test_m21_what_cannot_be_is_refused_in_words(root, field, value, words):
    answer = root.post(reverse(ADD), {**FORM, field: value})
    assert answer.status_code == 200
    assert words in str(answer.context["errors"])
    assert not RemoteAgent.objects.exists()
    assert not AuditEntry.objects.filter(action="agent.changed").exists()


def test_m21_a_slug_is_taken_once_and_never_changed(root, agent):
    answer = root.post(reverse(ADD), FORM)
    assert "already exists" in str(answer.context["errors"])
    root.post(change(agent), {**FORM, "slug": "another", "new_headers": ""})
    agent.refresh_from_db()
    assert agent.slug == "far-away"


def test_m21_what_only_a_stored_agent_has_is_not_on_the_page_to_add_one(root, agent):
    page = root.get(reverse(ADD)).content.decode()
    later = ("Remove all headers", "Stored headers", "Health", "Check whether it is")
    assert [words for words in later if words in page] == []
    page = root.get(change(agent)).content.decode()
    assert [words for words in later if words in page] == list(later)


def test_m21_an_agent_that_nobody_described_has_no_empty_place(root, agent):
    listed, inspected = reverse("agents"), reverse("inspector", args=["far-away"])
    assert "What it does" in root.get(inspected).content.decode()
    RemoteAgent.objects.update(description="")
    assert "Nobody has described it yet." in root.get(listed).content.decode()
    assert "What it does" not in root.get(inspected).content.decode()


def test_m21_a_hosted_agent_is_never_replaced_by_a_remote_one(root, agent):
    RemoteAgent.objects.update(slug="file-ops")
    assert catalog.get("file-ops").framework != "AG-UI, Agent Framework (Python)"
    slugs = [spec.slug for spec in catalog.agents()]
    assert len(slugs) == len(set(slugs))


def test_m16_only_staff_with_the_permission(client, agent, make_person):
    staff = make_person("sam", is_staff=True)
    client.force_login(staff)
    assert client.get(change(agent)).status_code == 403
    check = reverse("admin:hitlagents_remoteagent_check", args=[agent.pk])
    assert client.post(check).status_code == 403
    staff.user_permissions.add(Permission.objects.get(codename="view_remoteagent"))
    page = client.get(change(agent)).content.decode()
    assert SECRET not in page
    assert "Check whether it is there" not in page
    assert client.post(check).status_code == 403
    client.force_login(make_person("nobody"))
    assert client.post(check).status_code == 302  # to the sign-in page


def test_m13_reading_the_tools_anew_forgets_none_of_a_remote_agent(root, agent):
    from approvals import services
    from approvals.models import Tool
    from approvals.schemas import ToolSpec

    services.learn_tools("far-away", [ToolSpec(name="delete_file")])
    registry.register("far-away")
    assert Tool.objects.filter(agent="far-away").count() == 1
    page = root.get(reverse("inspector", args=["far-away"])).content.decode()
    assert "delete_file" in page
    assert "The agent said nothing of its parameters." in page
    assert "Read them again" not in page
    assert "Runs elsewhere" in page
    Tool.objects.all().delete()
    page = root.get(reverse("inspector", args=["far-away"])).content.decode()
    assert "has asked for no tool yet" in page
    assert "Let a worker read them" not in page


# Health


@pytest.fixture
def stubbed(root, agent, serve):
    def make(*replies):
        stub = serve(*replies)
        RemoteAgent.objects.update(url=stub.url, allow_private=True)
        return stub

    return make


def test_m21_a_check_starts_nothing_and_its_result_stays(root, agent, stubbed):
    stub = stubbed({"status": 405, "type": "application/json", "get": True})
    check = reverse("admin:hitlagents_remoteagent_check", args=[agent.pk])
    assert root.get(check).status_code == 405
    answer = root.post(check, follow=True)
    page = answer.content.decode()
    assert "Reachable: HTTP 405, application/json." in page
    agent.refresh_from_db()
    assert agent.check_passed
    assert f"{agent.checked:%Y-%m-%d %H:%M:%S} UTC" in page
    [request] = stub.requests
    assert request["method"] == "GET"
    assert request["headers"]["authorization"] == f"Bearer {SECRET}"
    # What a check finds is nobody's change.
    assert AuditEntry.objects.filter(action="agent.changed").count() == 1


@pytest.mark.parametrize(
    ("reply", "passed", "words"),
    [
        ({"status": 422, "type": "application/json"}, True, "wants a request"),
        (sse(started(), finished()), True, "text/event-stream"),
        ({"status": 401}, False, "does not accept our headers"),
        ({"status": 404}, False, "nothing at this address"),
        ({"status": 302, "headers": {"Location": "/x"}}, False, "Leads elsewhere"),
        ({"status": 503}, False, "not working"),
        ({"type": "text/html", "parts": ["<p>hi"]}, False, "no AG-UI agent"),
    ],
)
def test_m21_what_a_check_says(agent, stubbed, reply, passed, words):
    stubbed({**reply, "get": True})
    agent.refresh_from_db()
    found = health.check(agent)
    assert (found.passed, words in found.words) == (passed, True), found


def test_m21_a_check_of_nothing_says_so(agent):
    from asgiref.sync import async_to_sync

    endpoint = Endpoint(url="http://127.0.0.1:1/", allow_private=True)
    found = async_to_sync(health.ask)(endpoint)
    assert "could not be reached" in found.words
    private = Endpoint(url="https://127.0.0.1/")
    assert "public internet" in async_to_sync(health.ask)(private).words
