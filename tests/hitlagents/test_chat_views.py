"""The agents' pages over HTTP: who may open them, what they show, what they take."""

from __future__ import annotations

import re
import subprocess
import sys
import uuid

import pytest
from django.contrib.auth.models import Group
from django.urls import reverse

from approvals import services
from approvals.models import AuditEntry, Decision, Policy, Run
from approvals.schemas import InterruptDraft
from approvals.states import Gate, RunStatus, Verdict
from hitlagents import catalog, chat, conversations, events, wire
from hitlagents.adapters.base import ToolCallProposed, ToolCallResult
from hitlagents.models import QueuedMessage, Thread
from tests.plugins.cast import OPS, TOOLS, ballot, call

AGENT = "file-ops"
HTMX = {"HTTP_HX_REQUEST": "true"}


@pytest.fixture
def desk(desk):
    """The desk of the cast, which also rules on the agent of the catalogue."""
    services.register_tools(AGENT, TOOLS)
    policy = Policy.objects.create(name="Files", agent_pattern=AGENT, position=9)
    policy.groups.set(Group.objects.filter(name=OPS))


@pytest.fixture
def thread(mia):
    return conversations.open_thread(AGENT, owner=mia)


@pytest.fixture
def run(thread, mia):
    found = conversations.send(thread.pk, "Please delete report.txt", author=mia)
    assert isinstance(found, Run)
    return found


@pytest.fixture
def waiting(run):
    """The run, once the agent has spoken and asked for a deletion."""
    advance(run, say="I am going to delete it.", ask=[call()])
    run.refresh_from_db()
    return run


def advance(run, *, say="", ask=(), told="", error="", end=False):
    """What a worker writes while it drives a run."""
    claim = services.claim_run(run.pk, owner="worker")
    assert claim is not None
    found = []
    if say:
        mid = f"m{claim.attempt}"
        found = [wire.text_start(mid), wire.text_content(mid, say), wire.text_end(mid)]
    for each in ask:
        found += wire.tool_call(ToolCallProposed(call=each))
    if told:
        found.append(wire.tool_result(ToolCallResult(call_id="call-1", content=told)))
    if ask or end:
        found.append(wire.run_finished(run.thread, run.pk, []))
    seq = events.last_seq(run.pk)
    with services.unit_of_work():
        events.append(run, claim.attempt, list(enumerate(found, seq + 1)))
    if ask:
        drafts = [InterruptDraft(call=each, verdicts=tuple(Verdict)) for each in ask]
        services.open_interrupts(run.pk, attempt=claim.attempt, drafts=drafts)
    if error:
        services.fail_run(run.pk, attempt=claim.attempt, error=error, retryable=True)
    if end:
        services.finish_run(run.pk, attempt=claim.attempt)
    return claim


def url(thread, name="thread"):
    return reverse(name, args=[thread.agent, thread.pk])


def text_of(response):
    return response.content.decode()


# The list of agents


def test_anybody_who_is_signed_in_sees_the_agents(client, eve):
    client.force_login(eve)
    response = client.get(reverse("agents"))
    assert response.status_code == 200
    page = text_of(response)
    assert "Microsoft Agent Framework" in page
    assert "Scripted model, no network" in page
    assert 'aria-current="page"' in page


def test_the_list_shows_only_my_conversations(client, mia, eve, run):
    client.force_login(mia)
    assert "Please delete report.txt" in text_of(client.get(reverse("agents")))
    client.force_login(eve)
    assert "Please delete report.txt" not in text_of(client.get(reverse("agents")))


def test_an_agent_that_is_not_installed_says_how_to_install_it(
    client, mia, monkeypatch
):
    monkeypatch.setattr(catalog, "installed", lambda spec: False)
    client.force_login(mia)
    page = text_of(client.get(reverse("agents")))
    assert "Not installed" in page
    assert catalog.agents()[0].install in page
    assert "New conversation" not in page
    page = text_of(client.get(reverse("agent", args=[AGENT])))
    assert 'id="message"' not in page
    assert catalog.agents()[0].install in page


def test_a_wrongly_set_up_model_is_said_instead_of_raised(client, mia, monkeypatch):
    monkeypatch.setenv("SAYSO_MODEL", "some-model")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    client.force_login(mia)
    response = client.get(reverse("agents"))
    assert response.status_code == 200
    assert "SAYSO_MODEL names a model" in text_of(response)


@pytest.mark.once
def test_the_pages_import_no_agent_framework():
    code = (
        "import os, sys; sys.path.insert(0, '.');"
        "os.environ['DJANGO_SETTINGS_MODULE'] = 'hitlsite.settings';"
        "sys.modules['pytest'] = sys;"
        "import django; django.setup();"
        "from hitlagents import catalog, chat;"
        "from hitlagents.views import chat as pages, inspector;"
        "print({chat.model_label(spec) for spec in catalog.hosted()});"
        "print([name for name in sys.modules if name.startswith("
        "('agent_framework', 'openai', 'agents.', 'langgraph', 'langchain', 'genkit'))])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    label, imported = done.stdout.splitlines()
    assert label == "{'Scripted model, no network'}"
    assert imported == "[]"


# Who may open what


PAGES = ["thread", "thread-cancel"]


@pytest.mark.parametrize("name", PAGES)
def test_the_owner_opens_a_conversation(client, mia, thread, run, name):
    client.force_login(mia)
    assert client.get(url(thread, name)).status_code == 200


@pytest.mark.parametrize("name", [*PAGES, "thread-retry"])
@pytest.mark.parametrize("who", ["eve", "rita", "owen", "ada"])
def test_a_conversation_exists_for_its_owner_only(
    client, request, thread, run, waiting, name, who
):
    client.force_login(request.getfixturevalue(who))
    if name != "thread-retry":
        assert client.get(url(thread, name)).status_code == 404
    before = Run.objects.get(pk=run.pk).status
    posted = client.post(url(thread, name), {"message": "Hello", "run": run.pk})
    assert posted.status_code == 404
    assert not QueuedMessage.objects.exists()
    assert Run.objects.get(pk=run.pk).status == before


@pytest.mark.parametrize("name", [*PAGES, "thread-retry"])
def test_anonymous_people_are_sent_to_sign_in(client, thread, name):
    response = client.post(url(thread, name), {"message": "Hello"})
    assert response.status_code == 302
    assert response["Location"].startswith(reverse("login"))


def test_the_list_sends_anonymous_people_to_sign_in(client, db):
    for path in (reverse("agents"), reverse("agent", args=[AGENT])):
        assert client.get(path)["Location"].startswith(reverse("login"))


def test_wrong_methods(client, mia, thread):
    client.force_login(mia)
    assert client.get(url(thread, "thread-retry")).status_code == 405
    assert client.post(reverse("agents")).status_code == 405
    for path in (url(thread), url(thread, "thread-cancel"), f"/agents/{AGENT}/"):
        assert client.put(path).status_code == 405
        assert client.delete(path).status_code == 405


def test_a_conversation_under_another_agents_address_does_not_exist(
    client, mia, thread
):
    client.force_login(mia)
    assert client.get(f"/agents/other/{thread.pk}/").status_code == 404
    assert client.get(f"/agents/{AGENT}/{uuid.uuid4()}/").status_code == 404
    assert client.get("/agents/nobody/").status_code == 404


def test_posts_need_the_token(client, mia, thread, run):
    from django.test import Client

    strict = Client(enforce_csrf_checks=True)
    strict.force_login(mia)
    posted = strict.post(url(thread), {"message": "Hello"})
    assert posted.status_code == 403
    assert not QueuedMessage.objects.exists()


# Beginning


def test_a_first_message_begins_a_conversation(client, mia, desk):
    client.force_login(mia)
    response = client.post(reverse("agent", args=[AGENT]), {"message": "Hello"})
    thread = Thread.objects.get()
    assert response.status_code == 302
    assert response["Location"] == url(thread) + "#end"
    assert (thread.owner, thread.agent, thread.title) == (mia, AGENT, "Hello")
    assert Run.objects.get(thread=thread.pk).requester == mia


def test_looking_at_an_agent_begins_nothing(client, mia):
    client.force_login(mia)
    page = text_of(client.get(reverse("agent", args=[AGENT])))
    assert not Thread.objects.exists()
    for words in catalog.agents()[0].suggestions:
        assert words in page


def test_a_suggestion_is_sent_as_it_is(client, mia, desk):
    client.force_login(mia)
    data = {"suggestion": "Please delete report.txt", "message": ""}
    client.post(reverse("agent", args=[AGENT]), data)
    assert Run.objects.get().title == "Please delete report.txt"


BAD = {
    "": "Write something first.",
    "  \n ": "Write something first.",
    "x" * 100_001: "100,001 characters",
    "a\0b": "NUL",
}


@pytest.mark.parametrize("text", BAD, ids=["empty", "blank", "long", "nul"])
def test_a_bad_first_message_leaves_no_conversation_and_loses_no_text(
    client, mia, text
):
    client.force_login(mia)
    response = client.post(reverse("agent", args=[AGENT]), {"message": text})
    assert response.status_code == 422
    page = text_of(response)
    assert BAD[text] in page
    assert text.strip("\n ").replace("\0", "") in page.replace("\0", "")
    assert not Thread.objects.exists()


# Sending


@pytest.mark.parametrize("text", BAD, ids=["empty", "blank", "long", "nul"])
def test_a_bad_message_is_refused_in_words(client, mia, thread, text):
    client.force_login(mia)
    fragment = client.post(url(thread), {"message": text}, **HTMX)
    assert fragment.status_code == 422
    assert BAD[text] in text_of(fragment)
    # Only the refusal: what was typed is still in the field of the page.
    assert "<html" not in text_of(fragment)
    assert len(fragment.content) < 1000
    page = client.post(url(thread), {"message": text})
    assert page.status_code == 422
    assert BAD[text] in text_of(page)
    assert 'role="alert"' in text_of(page)
    assert not Run.objects.exists()


def test_without_javascript_sending_comes_back_to_the_conversation(client, mia, thread):
    client.force_login(mia)
    response = client.post(url(thread), {"message": "Hello"})
    assert response["Location"] == url(thread) + "#end"
    page = text_of(client.get(url(thread)))
    assert "Hello" in page
    assert "starts…" in page


def test_sending_through_htmx_gives_the_transcript(client, mia, thread):
    client.force_login(mia)
    response = client.post(url(thread), {"message": "<b>Hello</b>"}, **HTMX)
    assert response.status_code == 200
    page = text_of(response)
    assert "&lt;b&gt;Hello&lt;/b&gt;" in page
    assert "<html" not in page
    assert "HX-Request" in response["Vary"]


def test_a_message_while_a_request_is_open_waits_and_is_shown(
    client, mia, thread, waiting
):
    client.force_login(mia)
    before = text_of(client.get(url(thread)))
    assert "The run is paused. A new message reaches the agent after" in before
    page = text_of(client.post(url(thread), {"message": "Yes, go ahead"}, **HTMX))
    assert "Waits until the run above has ended" in page
    assert "1 message waits." in page
    waiting.refresh_from_db()
    assert waiting.status == RunStatus.WAITING
    assert not Decision.objects.exists()
    assert waiting.interrupts.open().count() == 1
    services.cancel_run(waiting.pk, actor=mia)
    conversations.after_run(waiting.pk)
    page = text_of(client.get(url(thread)))
    assert "Waits until" not in page
    assert page.index("cancelled this run") < page.index('dir="auto">Yes, go ahead')


def test_b86_titles_that_others_read_hold_no_credentials(thread, mia):
    run = conversations.send(
        thread.pk, "Delete /a?access_token=t1 " + "x" * 300, author=mia
    )
    thread.refresh_from_db()
    shown = "Delete /a?access_token=⟦hidden, 2 characters⟧ x"
    for title in (run.title, thread.title):
        assert title.startswith(shown)
        assert len(title) == 200


def test_too_many_waiting_messages(client, mia, thread, waiting):
    client.force_login(mia)
    for number in range(conversations.MAX_QUEUED):
        conversations.send(thread.pk, f"Message {number}", author=mia)
    response = client.post(url(thread), {"message": "One more"}, **HTMX)
    assert response.status_code == 409
    assert "as many waiting messages" in text_of(response)


# Showing


def test_the_request_stands_where_the_call_happened(client, mia, thread, waiting):
    interrupt = waiting.interrupts.get()
    client.force_login(mia)
    page = text_of(client.get(url(thread)))
    assert page.index("I am going to delete it.") < page.index(f"card-{interrupt.pk}")
    assert "Waiting for a person" in page
    assert "Waiting for Ops reviewers." in page
    # Who asked may not decide: no buttons.
    assert reverse("decide", args=[interrupt.pk]) not in page


def test_who_may_decide_gets_the_controls_of_the_inbox(client, rita, desk):
    Policy.objects.filter(name="Files").update(requester_may_decide=True)
    thread = conversations.open_thread(AGENT, owner=rita)
    run = conversations.send(thread.pk, "Please delete report.txt", author=rita)
    advance(run, ask=[call()])
    interrupt = run.interrupts.get()
    client.force_login(rita)
    page = text_of(client.get(url(thread)))
    assert reverse("decide", args=[interrupt.pk]) in page
    assert services.shown_digest(interrupt) in page
    data = {
        "verdict": "deny",
        "note": "Not today",
        "shown": services.shown_digest(interrupt),
        "place": "card",
    }
    response = client.post(reverse("decide", args=[interrupt.pk]), data, **HTMX)
    assert response.status_code == 200
    assert "icard-done" in text_of(response)
    assert interrupt.decisions.get().channel == "chat"


def test_a_decided_request_folds_to_one_line(client, mia, rita, thread, waiting):
    interrupt = waiting.interrupts.get()
    services.decide(
        interrupt.pk,
        ballot(interrupt, Verdict.DENY, note="Audit first"),
        reviewer=rita,
    )
    advance(waiting, told="Not executed: a reviewer denied this call.", end=True)
    client.force_login(mia)
    page = text_of(client.get(url(thread)))
    assert "Denied" in page
    assert "Rita Okafor" in page
    assert "Not run" in page
    assert ">Ran<" not in page
    assert "The agent was told" in page


def test_a_cancelled_run_says_who_and_why(client, mia, ada, thread, waiting):
    services.cancel_run(waiting.pk, actor=ada, note="Wrong folder")
    client.force_login(mia)
    page = text_of(client.get(url(thread)))
    assert "ada cancelled this run." in page
    assert "Wrong folder" in page


def test_what_agents_say_is_harmless(client, mia, thread, run):
    advance(run, say="<script>alert(1)</script> **bold** ![x](http://evil/x.png)")
    client.force_login(mia)
    page = text_of(client.get(url(thread)))
    assert "<script>alert(1)" not in page
    assert "<strong>bold</strong>" in page
    assert 'src="http://evil' not in page


MARKUP = (
    '<form action="https://evil.example/"><input name="password"></form>'
    '<img src="https://evil.example/pixel.png">'
    '<a href="https://evil.example/">Sign in again</a>'
    " ![](https://evil.example/pixel.png) [Sign in](https://evil.example/)"
)


def test_b56_what_people_and_tools_write_is_inert_on_every_page(
    client, thread, run, waiting, mia, rita, aud, ada
):
    """A denial's note, an answer and a result, each with a form, an image and a link."""
    first = waiting.interrupts.get()
    services.decide(first.pk, ballot(first, Verdict.DENY, note=MARKUP), reviewer=rita)
    advance(waiting, ask=[call(call_id="call-2", turn=2)], told=MARKUP)
    second = waiting.interrupts.open().get()
    services.decide(
        second.pk, ballot(second, Verdict.ANSWER, answer=MARKUP), reviewer=rita
    )
    Policy.objects.create(
        position=0, name="File notes", agent_pattern=AGENT, gate=Gate.ALLOW
    )
    told = call("post_note", call_id="call-3", turn=3, text=MARKUP)
    claim = services.claim_run(waiting.pk, owner="worker")
    permit = services.begin_execution(
        waiting.pk, attempt=claim.attempt, call=told, owner="worker"
    )
    services.finish_execution(permit, result=MARKUP)

    numbers = AuditEntry.objects.filter(run=waiting.pk).values_list("number", flat=True)
    pages = [
        (mia, url(thread)),
        (mia, reverse("run", args=[waiting.pk])),
        (mia, reverse("run-events", args=[waiting.pk])),
        (rita, reverse("run", args=[waiting.pk])),
        *((rita, reverse("interrupt", args=[one.pk])) for one in (first, second)),
        *((rita, reverse("card", args=[one.pk])) for one in (first, second)),
        *((aud, reverse("audit-entry", args=[number])) for number in numbers),
        *(
            (ada, reverse(f"admin:approvals_{name}_change", args=[row.pk]))
            for name, row in (
                ("decision", first.decisions.get()),
                ("decision", second.decisions.get()),
                ("toolexecution", waiting.executions.get()),
            )
        ),
    ]
    shown = 0
    for person, address in pages:
        client.force_login(person)
        response = client.get(address)
        assert response.status_code == 200, address
        page = text_of(response)
        shown += "evil.example" in page
        tags = re.findall(r"<[^>]*evil\.example[^>]*>", page)
        # A link that a reader may follow or not is all that Markdown may become.
        assert all(tag.startswith("<a ") and "nofollow" in tag for tag in tags), tags
        assert 'name="password"' not in page, address
        policy = response["Content-Security-Policy"]
        assert "form-action 'self'" in policy
        assert "img-src 'self' data:" in policy
    assert shown >= 8


def test_a_long_conversation_shows_its_end_first(client, mia, thread, monkeypatch):
    monkeypatch.setattr(chat, "SHOWN_RUNS", 2)
    for number in range(4):
        run = conversations.send(thread.pk, f"Message {number}.", author=mia)
        advance(run, end=True)
    client.force_login(mia)
    page = text_of(client.get(url(thread)))
    assert 'dir="auto">Message 1.' not in page
    assert 'dir="auto">Message 2.' in page
    assert "Show the whole conversation" in page
    page = text_of(client.get(url(thread) + "?all"))
    assert 'dir="auto">Message 0.' in page


def test_a_conversation_takes_the_same_queries_however_long_it_is(
    client, mia, thread, django_assert_max_num_queries
):
    for number in range(6):
        run = conversations.send(thread.pk, f"Message {number}.", author=mia)
        advance(run, say="Hello", end=True)
    client.force_login(mia)
    with django_assert_max_num_queries(25):
        client.get(url(thread))


def test_an_agent_that_is_gone_leaves_a_readable_conversation(
    client, mia, thread, run, monkeypatch
):
    monkeypatch.setattr(catalog, "_AGENTS", {})
    client.force_login(mia)
    page = text_of(client.get(url(thread)))
    assert "not hosted here any more" in page
    assert "Please delete report.txt" in page
    assert 'id="message"' not in page


# Retry and cancel


def test_a_failed_run_gives_its_reason_and_is_retried(client, mia, thread, run):
    advance(run, error="The model did not answer.")
    client.force_login(mia)
    page = text_of(client.get(url(thread)))
    assert "The model did not answer." in page
    assert reverse("thread-retry", args=[AGENT, thread.pk]) in page
    response = client.post(url(thread, "thread-retry"), {"run": run.pk})
    assert response["Location"] == url(thread) + "#end"
    run.refresh_from_db()
    assert run.status == RunStatus.QUEUED


def test_a_second_retry_is_refused_in_words(client, mia, thread, run):
    advance(run, error="The model did not answer.")
    client.force_login(mia)
    assert (
        client.post(url(thread, "thread-retry"), {"run": run.pk}, **HTMX).status_code
        == 200
    )
    response = client.post(url(thread, "thread-retry"), {"run": run.pk}, **HTMX)
    assert response.status_code == 409
    assert "Only a failed run can be retried." in text_of(response)


def test_retry_only_the_run_of_this_conversation(client, mia, thread, run):
    client.force_login(mia)
    for value in ("", "x", uuid.uuid4()):
        posted = client.post(url(thread, "thread-retry"), {"run": value})
        assert posted.status_code == 404
    other = conversations.open_thread(AGENT, owner=mia)
    posted = client.post(url(other, "thread-cancel"), {"run": run.pk})
    assert posted.status_code == 404
    run.refresh_from_db()
    assert run.status == RunStatus.QUEUED


def test_cancel_asks_first_and_then_ends_the_run(client, mia, thread, waiting):
    client.force_login(mia)
    page = text_of(client.get(url(thread, "thread-cancel")))
    assert 'aria-labelledby="cancel-run-title" open' in page
    waiting.refresh_from_db()
    assert waiting.status == RunStatus.WAITING
    data = {"run": waiting.pk, "note": "Never mind\0"}
    response = client.post(url(thread, "thread-cancel"), data)
    assert response["Location"] == url(thread) + "#end"
    waiting.refresh_from_db()
    assert waiting.status == RunStatus.CANCELLED
    again = client.post(url(thread, "thread-cancel"), data, **HTMX)
    assert again.status_code == 409
    assert "already ended" in text_of(again)


def test_an_outcome_that_is_unknown_leads_to_the_page_of_the_run(
    client, mia, thread, waiting
):
    Run.objects.filter(pk=waiting.pk).update(status=RunStatus.IN_DOUBT)
    client.force_login(mia)
    page = text_of(client.get(url(thread)))
    assert "Nobody knows whether" in page
    assert f'href="{reverse("run", args=[waiting.pk])}"' in page


def test_the_run_leads_back_to_its_conversation_for_its_owner(
    client, waiting, mia, rita
):
    address = reverse("thread", args=[AGENT, waiting.thread])
    for who, found in ((mia, True), (rita, False)):
        client.force_login(who)
        page = client.get(reverse("run", args=[waiting.pk])).content.decode()
        assert (address in page) is found


def test_an_agent_has_one_name_on_all_pages(client, waiting, rita):
    client.force_login(rita)
    request = waiting.interrupts.get()
    for address in (
        reverse("inbox"),
        reverse("interrupt", args=[request.pk]),
        reverse("runs"),
        reverse("run", args=[waiting.pk]),
    ):
        page = client.get(address).content.decode()
        assert "<bdi>File operations</bdi>" in page
        assert f"<bdi>{AGENT}</bdi>" not in page
