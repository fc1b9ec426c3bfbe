"""M10: tools of a page through the runner and on our own pages, which can only show them."""

from __future__ import annotations

import pytest
from asgiref.sync import async_to_sync
from django.urls import reverse

from approvals import services
from approvals.models import Run
from approvals.schemas import ClientTool, ToolSpec
from approvals.states import InterruptKind, RunStatus
from hitlagents import client_tools, conversations, events, registry, runner
from hitlagents.adapters.base import AgentRunError
from hitlagents.models import QueuedMessage, RunInput
from tests.hitlagents.play import DELETE, Play
from tests.plugins.cast import TOOLS

PICK = ClientTool(
    name="pick_colour",
    description="Pick a colour.",
    parameters={
        "type": "object",
        "properties": {"shade": {"type": "string", "description": "Roughly."}},
        "required": ["shade"],
    },
)
PROPOSED = ("pick_colour", {"shade": "red"})
SLUG = "file-ops"

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def thread(mia):
    services.register_tools(SLUG, TOOLS)
    return conversations.open_thread(SLUG, owner=mia)


@pytest.fixture
def play(monkeypatch):
    def host(*turns, **options):
        adapter = Play(turns, **options)
        monkeypatch.setattr(registry, "adapter_for", lambda slug, allowed: adapter)
        return adapter

    return host


@pytest.fixture
def waiting(thread, mia, play):
    """A run that waits for its page."""
    play([PROPOSED])
    return advance(send(thread, mia))


def send(thread, person, text="Pick me a colour", tools=(PICK,)):
    sent = conversations.send(thread.pk, text, author=person, tools=tools)
    assert isinstance(sent, Run)
    return sent


def advance(run):
    async_to_sync(runner.advance)(run.pk, owner="worker")
    run.refresh_from_db()
    return run


def endings(run):
    return [
        members["outcome"]
        for event, members in events.shown(run)
        if event.type == "RUN_FINISHED"
    ]


# The runner


def test_a_run_that_waits_for_its_page_only_ends_its_piece_well(waiting):
    assert waiting.status == RunStatus.WAITING
    assert endings(waiting) == [{"type": "success", "pendingToolCallIds": ["call-1-1"]}]


def test_a_request_beside_it_makes_an_interrupt_of_the_ending(thread, mia, play):
    play([PROPOSED, DELETE])
    [outcome] = endings(advance(send(thread, mia)))
    assert outcome["type"] == "interrupt"
    assert [each["toolCallId"] for each in outcome["interrupts"]] == ["call-1-2"]


def test_tools_come_back_as_they_were(thread, mia):
    run = send(thread, mia)
    given = RunInput.objects.get(run=run)
    assert client_tools.stored(given.client_tools) == (PICK,)
    assert client_tools.to_store([]) == ""
    assert client_tools.stored("") == ()


def test_a_waiting_message_keeps_its_tools(waiting, thread, mia):
    services.pass_over_client_calls(waiting.pk, actor=mia)
    conversations.send(thread.pk, "And now?", author=mia, tools=[PICK])
    assert QueuedMessage.objects.get().client_tools
    advance(waiting)
    following = RunInput.objects.get(run__created__gt=waiting.created)
    assert client_tools.stored(following.client_tools) == (PICK,)


def test_a_message_from_our_own_page_goes_on_without_the_answer(
    waiting, thread, mia, client
):
    client.force_login(mia)
    client.post(url(thread), {"message": "Never mind"})
    waiting.refresh_from_db()
    assert waiting.status == RunStatus.QUEUED
    assert not waiting.interrupts.open().exists()


def test_a_tool_that_the_agent_got_since_is_not_run_in_the_pages_place(
    thread, mia, play
):
    """The endpoint refuses it (M5); the agent may change while a message waits."""
    adapter = play([PROPOSED])
    adapter.tools = [*adapter.tools, ToolSpec(name="pick_colour")]
    run = advance(send(thread, mia))
    assert run.status == RunStatus.FAILED
    assert run.error == "Duplicate tool name: pick_colour"
    assert not run.retryable


def test_a_question_of_the_agent_may_be_the_pages():
    question = ToolSpec(name="pick_colour", kind=InterruptKind.QUESTION)
    client_tools.refuse_taken([PICK], [question, ToolSpec(name="other")])
    with pytest.raises(AgentRunError):
        client_tools.refuse_taken([PICK], [ToolSpec(name="pick_colour")])


# Our own pages


def url(thread, name="thread"):
    return reverse(name, args=[thread.agent, thread.pk])


def read(client, person, address):
    client.force_login(person)
    response = client.get(address)
    assert response.status_code == 200
    return response.content.decode()


def test_our_own_chat_says_what_it_waits_for(waiting, thread, mia, client):
    page = read(client, mia, url(thread))
    assert "Waits for its page" in page
    assert "This waits for the page that brought this tool." in page
    assert "A new message goes on without its answer." in page
    assert "Cancel run" in page
    assert 'name="verdict"' not in page


def test_m11_badges_of_conversations_say_it_too(waiting, thread, mia, client):
    for address in (
        url(thread),
        reverse("agents"),
        reverse("run-events", args=[waiting.pk]),
    ):
        page = read(client, mia, address)
        assert "Waiting for its page" in page, address
        assert "Waiting for a person" not in page, address


def test_our_own_chat_shows_what_the_page_answered(waiting, thread, mia, client):
    interrupt = waiting.interrupts.get()
    services.answer_client_call(interrupt.pk, "crimson", actor=mia)
    advance(waiting)
    page = read(client, mia, url(thread))
    assert "crimson" in page
    assert "Answered" in page
    assert "Waits for its page" not in page


def test_our_own_chat_asks_for_what_is_beside_it(thread, mia, rita, play, client):
    play([PROPOSED, DELETE])
    advance(send(thread, mia))
    page = read(client, mia, url(thread))
    assert "A new message reaches the agent after the request" in page
    assert "Waits for its page" in page


def test_the_page_of_the_run_says_what_it_waits_for(waiting, mia, owen, client):
    address = reverse("run", args=[waiting.pk])
    interrupt = waiting.interrupts.get()
    for person in (mia, owen):
        page = read(client, person, address)
        assert "Waiting for the page that brought the tool" in page
        assert reverse("interrupt", args=[interrupt.pk]) not in page
    services.answer_client_call(interrupt.pk, "crimson", actor=mia)
    assert "The page answered." in read(client, mia, address)
    for person in (mia, owen):
        client.force_login(person)
        one = client.get(reverse("interrupt", args=[interrupt.pk]))
        assert one.status_code == 404


def test_the_page_of_the_run_says_that_the_person_went_on(waiting, mia, client):
    services.pass_over_client_calls(waiting.pk, actor=mia)
    page = read(client, mia, reverse("run", args=[waiting.pk]))
    assert "mia went on without answering." in page


def test_the_list_of_runs_counts_requests_only(waiting, owen, client):
    page = read(client, owen, reverse("runs"))
    assert "Pick me a colour" in page
    assert "1 open" not in page


def test_what_one_answered_on_a_page_is_no_decision_of_today(waiting, ada, client):
    Run.objects.update(requester=ada)
    services.answer_client_call(waiting.interrupts.get().pk, "crimson", actor=ada)
    client.force_login(ada)
    assert client.get(reverse("inbox")).context["decided_today"] == 0


def test_m13_the_inspector_shows_the_front_end_tools_of_ones_own_page(
    waiting, thread, mia, eve, client
):
    address = reverse("inspector", args=[SLUG])
    page = read(client, mia, address)
    part = page[page.index('id="front-end-title"') :]
    assert "pick_colour" in part
    assert "Pick a colour." in part
    assert "Roughly." in part
    assert url(thread) in part
    assert 'id="front-end-schema-1"' in part
    assert "front-end-title" not in read(client, eve, address)
