"""The Inspector: what is said of an agent's tools and rules, and to whom how much."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from html import unescape

import pytest
from django.contrib.auth.models import Group, Permission
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from django_tasks_db.models import DBTaskResult

from approvals import live, services
from approvals.models import Policy, Tool
from approvals.schemas import ToolSpec
from approvals.states import Gate, InterruptKind, OnDeadline
from hitlagents import catalog, registry, tool_reading
from hitlagents.inspector import kind_of, parameters_of
from hitlagents.models import ToolReading
from tests.plugins.cast import FINANCE, OPS, TOOLS

AGENT = "file-ops"
PAGE = reverse("inspector", args=[AGENT])
READ = reverse("read-tools", args=[AGENT])


@pytest.fixture
def rules(desk):
    """Rules for the agent, one for each gate; ``pay`` has none."""
    ops, finance = (Group.objects.get(name=name) for name in (OPS, FINANCE))
    for position, (name, tool, fields, groups) in enumerate(
        [
            ("Secret plan", "delete_file", {"approvals_required": 2}, [ops, finance]),
            ("Just looking", "list_files", {"gate": Gate.ALLOW}, []),
            ("Never ever", "post_note", {"gate": Gate.REFUSE}, []),
        ]
    ):
        policy = Policy.objects.create(
            position=position,
            name=name,
            agent_pattern=AGENT,
            tool_pattern=tool,
            **fields,
        )
        policy.groups.set(groups)
    services.register_tools(AGENT, TOOLS)


@pytest.fixture
def unread(monkeypatch):
    """No worker of this process has read anything yet."""
    monkeypatch.setattr(registry, "_adapters", {})
    monkeypatch.setattr(registry, "_registered", set())
    monkeypatch.delenv("SAYSO_MODEL", raising=False)


def read(client, person, url=PAGE):
    client.force_login(person)
    response = client.get(url)
    assert response.status_code == 200
    return response.content.decode()


def tool_of(page, name):
    """The part of the page about one tool, as text."""
    for part in page.split('<li class="tool-x"')[1:]:
        text = " ".join(re.sub(r"<[^>]+>", " ", part.partition("</li>")[0]).split())
        if f" {name} " in f" {text} ":
            return unescape(text)
    raise AssertionError(f"{name} is not on the page")


def work():
    """What a worker does with the row, in this thread and transaction."""
    (row,) = DBTaskResult.objects.all()
    assert row.task_path == "hitlagents.tasks.read_tools"
    tool_reading.carry_out(*row.args_kwargs["args"])
    row.delete()


# What it says


def test_m13_it_names_framework_version_model_and_suggestions(client, mia, rules):
    page = read(client, mia)
    spec = catalog.get(AGENT)
    assert f"{spec.framework} {catalog.version(spec)}" in page
    assert "Scripted model, no network" in page
    for words in (spec.description, *spec.suggestions, *spec.models):
        assert words in unescape(page)


def test_m13_it_lists_the_tools_and_their_schemas_as_the_code_has_them(
    client, mia, desk, unread
):
    registry.register(AGENT)
    page = read(client, mia)
    assert page.count('<li class="tool-x"') == 3
    deleting = tool_of(page, "delete_file")
    assert "Delete a file of the workspace for good." in deleting
    assert "High risk" in deleting
    assert "filename required string Plain name of the file, no path." in deleting
    assert "reads only" not in deleting
    assert "reads only" in tool_of(page, "read_file")
    schema = Tool.objects.get(agent=AGENT, name="delete_file").schema
    assert json.loads(schema) in schemas_on(page)


def schemas_on(page):
    """The schemas as somebody copies them from the page."""
    found = re.findall(r'<code id="schema-\d+"[^>]*>(.*?)</code>', page, re.DOTALL)
    return [json.loads(unescape(re.sub(r"<[^>]+>", "", text))) for text in found]


def test_m17_it_says_what_the_rules_of_now_make_of_a_call(client, mia, rules):
    page = read(client, mia)
    held = tool_of(page, "delete_file")
    assert "Held" in held
    assert "A call waits for Finance reviewers, Ops reviewers." in held
    assert "A call runs without asking anybody." in tool_of(page, "list_files")
    assert "A call is refused" in tool_of(page, "post_note")
    unruled = tool_of(page, "pay")
    assert "A call waits for Reviewers. No rule matches, so it is held." in unruled
    assert "pin secret" in unruled

    Policy.objects.filter(name="Just looking").update(enabled=False)
    assert "No rule matches" in tool_of(read(client, mia), "list_files")


def test_m17_a_rule_that_cannot_be_read_is_shown_as_holding(client, ada, rules):
    Policy.objects.filter(name="Just looking").update(on_deadline="whatever")
    shown = tool_of(read(client, ada), "list_files")
    assert "Held" in shown
    assert "cannot be read, so it holds" in shown


# To whom how much


def test_m16_whoever_only_asks_learns_no_rule(client, mia, eve, rules):
    for person in (mia, eve):
        page = read(client, person)
        for secret in ("Secret plan", "Just looking", "Never ever", "Approvals needed"):
            assert secret not in page


def test_m16_a_reviewer_reads_the_rules_of_their_own_groups(
    client, rita, fin, make_person, rules
):
    other = services.make_group("Legal reviewers")
    outsider = make_person("leo", other.name)
    for person in (rita, fin):
        shown = tool_of(read(client, person), "delete_file")
        assert "Rule: Secret plan" in shown
        assert "Approvals needed: 2" in shown
    assert "Secret plan" not in read(client, outsider)
    assert "Just looking" not in read(client, rita)


def test_m16_membership_without_the_permission_opens_no_rule(client, eve, rules):
    silent = Group.objects.create(name="Silent")
    Policy.objects.get(name="Secret plan").groups.add(silent)
    eve.groups.add(silent)
    assert "Secret plan" not in read(client, eve)


def test_m16_watchers_and_who_may_see_policies_read_all_rules(
    client, owen, make_person, rules
):
    clerk = make_person("clerk", is_staff=True)
    clerk.user_permissions.add(Permission.objects.get(codename="view_policy"))
    for person in (owen, clerk):
        page = read(client, person)
        for name in ("Secret plan", "Just looking", "Never ever"):
            assert name in page
        assert ("/admin/approvals/policy/" in page) == (person == clerk)


def test_a_deadline_is_said_with_what_comes_after_it(client, rita, rules):
    Policy.objects.filter(name="Secret plan").update(
        deadline_seconds=5400, on_deadline=OnDeadline.CANCEL_RUN, undo_seconds=10
    )
    shown = tool_of(read(client, rita), "delete_file")
    assert "If nobody answers: The run is cancelled" in shown
    assert "Time to decide: 1 h 30 min" in shown
    assert "Undo: Within 10 s" in shown


def test_signed_out_people_unknown_agents_and_wrong_methods(client, mia, desk):
    for response in (client.get(PAGE), client.post(READ)):
        assert response["Location"].startswith(reverse("login"))
    client.force_login(mia)
    assert client.get("/agents/nobody/inspector/").status_code == 404
    assert client.post("/agents/nobody/inspector/tools/").status_code == 404
    assert client.post(PAGE).status_code == 405
    assert client.get(READ).status_code == 405
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(mia)
    assert strict.post(READ).status_code == 403
    assert not DBTaskResult.objects.exists()


def test_it_is_linked_from_the_list_and_from_the_chat(client, mia, desk):
    assert PAGE in read(client, mia, reverse("agents"))
    assert PAGE in read(client, mia, reverse("agent", args=[AGENT]))


# Tools nobody has read yet


def test_unknown_tools_are_said_to_be_unknown_and_a_worker_reads_them(
    client, mia, desk, unread, django_capture_on_commit_callbacks
):
    page = read(client, mia)
    assert "Its tools are not known yet." in page
    assert READ in page
    assert client.post(READ)["Location"] == PAGE
    page = read(client, mia)
    assert "A worker has been asked to read them." in page
    assert READ not in page

    told = []
    live.connect(lambda scopes, message: told.append((scopes, message)))
    try:
        with django_capture_on_commit_callbacks(execute=True):
            work()
    finally:
        live.connect(None)
    assert (frozenset({f"user.{mia.pk}"}), {"op": "tools", "id": AGENT}) in told
    page = read(client, mia)
    assert "delete_file" in page
    assert "has been asked" not in page
    assert "Read them again" in page


def test_reading_again_takes_tools_away_that_the_code_no_longer_has(
    client, mia, desk, unread
):
    services.register_tools(AGENT, [ToolSpec(name="of_an_older_release")])
    assert "of_an_older_release" in read(client, mia)
    client.post(READ)
    work()
    page = read(client, mia)
    assert "of_an_older_release" not in page
    assert "delete_file" in page


def test_asking_twice_makes_one_task_and_a_lost_one_can_be_asked_again(
    client, mia, rita, desk
):
    for person in (mia, rita, mia):
        client.force_login(person)
        client.post(READ)
    assert DBTaskResult.objects.count() == 1
    late = timezone.now() - tool_reading.PATIENCE - timedelta(seconds=1)
    ToolReading.objects.update(asked_at=late)
    page = read(client, mia)
    assert "No worker has answered." in page
    assert READ in page
    client.post(READ)
    assert DBTaskResult.objects.count() == 2


def test_why_they_could_not_be_read_is_said(client, mia, desk, unread, monkeypatch):
    monkeypatch.setenv("SAYSO_MODEL", "some-model")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    client.force_login(mia)
    client.post(READ)
    work()
    page = read(client, mia)
    assert "The tools could not be read." in page
    assert "SAYSO_MODEL names a model" in page
    assert READ in page


def test_an_agent_that_cannot_be_made_gives_its_error_away_by_kind_only(
    client, mia, desk, unread, monkeypatch
):
    def broken(gating):
        raise RuntimeError("the key is sk-12345")

    monkeypatch.setitem(
        vars(catalog.get(AGENT)), "build", broken
    )  # frozen, but not against tests
    client.force_login(mia)
    client.post(READ)
    work()
    page = read(client, mia)
    assert "could not be made (RuntimeError)" in page
    assert "sk-12345" not in page


def test_an_agent_that_is_not_installed_says_how_and_reads_nothing(
    client, mia, desk, monkeypatch
):
    monkeypatch.setattr(catalog, "version", lambda spec: None)
    page = read(client, mia)
    assert "Not installed" in page
    assert catalog.get(AGENT).install in page
    assert READ not in page
    assert client.post(READ).status_code == 404
    assert not DBTaskResult.objects.exists()


# Odd tools


def test_what_an_agent_says_of_itself_is_harmless_and_in_sight(client, mia, desk):
    description = "Pays <b>nobody</b> \u202ereversed"
    parameters = {
        "type": "object",
        "properties": {"a\u200b<i>": {"description": description}},
    }
    spec = ToolSpec(name="pay\u2066", description=description, parameters=parameters)
    services.register_tools(AGENT, [spec])
    page = read(client, mia)
    assert "\u202e" not in page
    assert "\u200b" not in page
    assert "<b>nobody" not in page
    assert "⟦U+202E⟧" in page
    assert "⟦U+2066⟧" in page
    assert parameters in schemas_on(page)


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ({"type": "string"}, "string"),
        ({"type": "string", "format": "date"}, "string, date"),
        ({"type": ["string", "null"]}, "string or null"),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "integer or null"),
        ({"type": "array", "items": {"type": "number"}}, "list of number"),
        ({"enum": ["a", 1, None]}, '"a" or 1 or null'),
        ({"const": "x"}, '"x"'),
        ({}, "anything"),
        (True, "anything"),
        ({"type": {}}, "anything"),
        ({"enum": "no list"}, "anything"),
    ],
)
def test_a_kind_in_words(part, words):
    assert kind_of(part) == words


@pytest.mark.parametrize(
    "schema", [True, [], None, {"properties": []}, {"type": "object"}]
)
def test_a_schema_without_properties_has_no_parameters(schema):
    assert parameters_of(schema) == []


@pytest.mark.parametrize(
    ("asks_requester", "groups", "who"),
    [
        (True, [], "whoever talks to the agent"),
        (True, [OPS], f"whoever talks to the agent, {OPS}"),
        (False, [OPS], OPS),
    ],
)
def test_m10_a_question_says_who_is_asked(rules, mia, asks_requester, groups, who):
    ask = ToolSpec(name="ask", kind=InterruptKind.QUESTION)
    services.register_tools(AGENT, [*TOOLS, ask])
    policy = Policy.objects.create(
        name="Ask",
        agent_pattern=AGENT,
        tool_pattern="ask",
        asks_requester=asks_requester,
    )
    policy.groups.set(Group.objects.filter(name__in=groups))
    client = Client()
    client.force_login(mia)
    page = unescape(client.get(PAGE).content.decode())
    assert f"A call is a question to {who}. Nothing runs for it." in page
