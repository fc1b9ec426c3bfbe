"""M1 to M12 and M20 with the real JavaScript clients, of protocol 0.1 and 1.0.

The client sends what it likes, holds what comes back to its own rules, and keeps its own
idea of the conversation: that is what is looked at here, beside what was decided.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from uuid import uuid4

import pytest

from bench.served import Person
from tests import npm
from tests.clients.pages import FOLDER, Client, ClientPage
from tests.hitlagents.agui.conftest import NO, YES, Server, cancelled, resolved
from tests.served import Served

pytestmark = pytest.mark.once

#: What each demo agent is asked for one call and for two.
AGENTS = {
    "file-ops": ("Please delete report.txt", "Please delete report.txt and notes.md"),
    "scheduler": (
        "Please schedule a 1:1 with Alice",
        "Set up a demo with Carol and a retro with Bob",
    ),
    "support": (
        "Reply to Dana about invoice 1042",
        "Please answer tickets 8813 and 8820",
    ),
    "banking": (
        "Transfer $500 to account 12345 for rent.",
        "Send 80 to Electricity and 250 to Savings",
    ),
}
one_call = pytest.mark.parametrize(
    ("agent", "text"), [(agent, texts[0]) for agent, texts in AGENTS.items()]
)
two_calls = pytest.mark.parametrize(
    ("agent", "text"), [(agent, texts[1]) for agent, texts in AGENTS.items()]
)


@pytest.fixture(scope="module", params=["0.1", "1.0"])
def program(request: pytest.FixtureRequest, node: str) -> Iterator[Client]:
    npm.install(FOLDER)
    started = Client(node, f"ag-ui-client-{request.param}")
    yield started
    started.close()


@pytest.fixture
def client(program: Client) -> Iterator[Client]:
    """A client that has nothing to complain of, unless a test expects it."""
    program.complaints.clear()
    yield program
    assert program.complaints == []


@pytest.fixture
def modern(request: pytest.FixtureRequest) -> bool:
    return bool(request.node.callspec.params["program"] == "1.0")


@pytest.fixture
def page_for(demo: Served, secret: str, client: Client) -> Callable[..., ClientPage]:
    def make(agent: str, **options) -> ClientPage:
        url = f"{demo.url}/agui/{agent}/"
        return ClientPage(client, url, **{"secret": secret, **options})

    return make


@pytest.fixture(scope="module")
def members(demo: Served) -> str:
    """A token of somebody who may decide nothing."""
    return demo.manage("create_token", "member").splitlines()[-1]


@pytest.fixture
def reviewer(demo: Served) -> Iterator[Person]:
    person = Person(demo, "ops-reviewer")
    with closing(person.http):
        yield person


def results(seen) -> dict[str, str]:
    return {
        message["toolCallId"]: message["content"]
        for message in seen.messages
        if message["role"] == "tool"
    }


def agrees_after_a_reload(page, seen):
    """The client's own conversation is that of the server, in its order."""
    page.reload()
    again = page.show()
    assert again.outcome in ("success", "interrupt")
    assert again.conversation == seen.conversation
    assert again.pending == seen.pending


# M3: the endings


@one_call
def test_m1_m3_approve(page_for, agent, text):
    page = page_for(agent)
    (interrupt,) = page.say(text).pending
    seen = page.answer(resolved(interrupt, YES))
    assert (seen.outcome, seen.pending, seen.notices) == ("success", [], [])
    assert results(seen)[interrupt["toolCallId"]]
    assert seen.messages[-1]["role"] == "assistant"
    agrees_after_a_reload(page, seen)


@one_call
def test_m3_deny_with_a_note(page_for, agent, text):
    page = page_for(agent)
    (interrupt,) = page.say(text).pending
    seen = page.answer(resolved(interrupt, NO))
    assert (seen.outcome, seen.pending, seen.notices) == ("success", [], [])
    assert "Not today." in results(seen)[interrupt["toolCallId"]]
    agrees_after_a_reload(page, seen)


@one_call
def test_m3_cancel(page_for, modern, agent, text):
    page = page_for(agent)
    (interrupt,) = page.say(text).pending
    seen = page.answer(cancelled(interrupt))
    ends_the_run = agent in ("file-ops", "banking")
    assert seen.outcome == ("cancelled" if ends_the_run and modern else "success")
    assert seen.pending == []
    assert "cancelled" in results(seen)[interrupt["toolCallId"]]
    agrees_after_a_reload(page, seen)
    assert page.say("Thank you").outcome == "success"


@two_calls
def test_m3_mixed_answers(page_for, agent, text):
    page = page_for(agent)
    first, second = page.say(text).pending
    seen = page.answer(resolved(second, NO), resolved(first, YES))
    assert (seen.outcome, seen.pending, seen.notices) == ("success", [], [])
    told = results(seen)
    assert "Not today." in told[second["toolCallId"]]
    assert "Not today." not in told[first["toolCallId"]]
    agrees_after_a_reload(page, seen)


def test_m3_a_time_is_chosen_with_the_approval(page_for):
    page = page_for("scheduler")
    (interrupt,) = page.say(AGENTS["scheduler"][0]).pending
    slot = {"chosen_time": "2026-12-07T09:00:00Z", "chosen_label": "Monday 9:00 AM"}
    seen = page.answer(resolved(interrupt, YES | slot))
    assert "Monday 9:00 AM" in results(seen)[interrupt["toolCallId"]]


def test_m15_edited_arguments(page_for):
    page = page_for("support")
    (interrupt,) = page.say(AGENTS["support"][0]).pending
    call = interrupt["metadata"]["langgraph"]["function_call"]
    edited = {**call["arguments"], "subject": "About your invoice"}
    seen = page.answer(resolved(interrupt, YES | {"editedArgs": edited}))
    assert seen.outcome == "success"
    assert "About your invoice" in results(seen)[interrupt["toolCallId"]]


# M14, M20: again, late, elsewhere


@one_call
def test_m14_the_same_resume_again(page_for, agent, text):
    page = page_for(agent)
    (interrupt,) = page.say(text).pending
    first = page.answer(resolved(interrupt, YES))
    for _ in range(2):
        again = page.send(resolved(interrupt, YES))
        assert (again.outcome, again.notices) == ("success", [])
        assert again.conversation == first.conversation
    page.reload()
    again = page.send(resolved(interrupt, YES))
    assert (again.outcome, again.conversation) == ("success", first.conversation)


@one_call
def test_m14_a_late_resume_that_says_something_else(page_for, agent, text):
    page = page_for(agent)
    (interrupt,) = page.say(text).pending
    first = page.answer(resolved(interrupt, YES))
    late = page.send(resolved(interrupt, NO))
    assert (late.outcome, late.notices) == ("success", ["already_decided"])
    assert "Your answer was not used." in late.text
    agrees_after_a_reload(page, first)


@pytest.mark.parametrize("path", ["", "connect/"])
@one_call
def test_m20_reload_while_something_is_open(page_for, agent, text, path):
    page = page_for(agent)
    before = page.say(text)
    page.reload(path)
    seen = page.show()
    assert seen.conversation == before.conversation
    assert seen.pending == before.pending
    if path:
        page.reload()
        page.show()
    assert page.answer(resolved(seen.pending[0], YES)).outcome == "success"


def test_m20_two_tabs_answer_at_the_same_time(page_for):
    one = page_for("file-ops")
    (interrupt,) = one.say("Please delete report.txt").pending
    other = page_for("file-ops", thread=one.thread)
    assert other.show().pending == [interrupt]
    one.begin(answers={interrupt["id"]: {"status": "resolved", "payload": YES}})
    other.begin(answers={interrupt["id"]: {"status": "resolved", "payload": NO}})
    ends = [one.end(), other.end()]
    assert [seen.outcome for seen in ends] == ["success", "success"]
    assert sorted(len(seen.notices) for seen in ends) == [0, 1]
    (told,) = {results(seen)[interrupt["toolCallId"]] for seen in ends}
    denied = "Not today." in told
    assert ends[0 if denied else 1].notices == ["already_decided"]
    assert [seen.pending for seen in ends] == [[], []]
    agrees_after_a_reload(one, other.show())


def test_m20_a_message_while_something_is_open(page_for, client):
    page = page_for("file-ops")
    (interrupt,) = page.say("Please delete report.txt").pending
    # This client keeps it to itself until it has the answer.
    seen = page.say("What files are there?")
    assert "pending interrupt" in seen.failed
    client.complaints.clear()
    # Another tab does not know of the interrupt yet.
    other = page_for("file-ops", thread=page.thread)
    kept = other.say("And is notes.md there?")
    assert kept.pending == [interrupt]
    assert kept.notices == ["message_kept"]
    seen = page.answer(resolved(interrupt, YES))
    assert seen.outcome == "success"
    # It keeps its own message where it was typed, whatever a snapshot says.
    page.reload()
    assert sorted(page.show().conversation) == sorted(seen.conversation)
    said = [m["content"] for m in seen.messages if m["role"] == "user"]
    assert said == [
        "Please delete report.txt", "What files are there?", "And is notes.md there?"
    ]  # fmt: skip


def test_m20_decided_in_the_inbox_meanwhile(page_for, members, reviewer):
    page = page_for("file-ops", secret=members)
    first, second = page.say("Please delete report.txt and notes.md").pending
    reviewer.approve(first["id"], reviewer.form(first["id"]))
    # The client has to answer both, and its person may decide neither.
    seen = page.answer(resolved(first, YES), resolved(second, YES))
    assert [each["id"] for each in seen.pending] == [second["id"]]
    assert seen.notices == ["not_allowed"]
    reviewer.approve(second["id"], reviewer.form(second["id"]))
    seen = page.answer(resolved(second, YES))
    assert (seen.outcome, seen.pending, seen.notices) == ("success", [], [])
    assert len(results(seen)) == 2
    agrees_after_a_reload(page, seen)


def test_m20_hold(page_for, members, reviewer):
    page = page_for("file-ops", secret=members, headers={"X-Sayso-Hold": "1"})
    page.begin(say="Please delete report.txt")
    (interrupt,) = page.until("CUSTOM")["value"]["interrupts"]
    reviewer.approve(interrupt["id"], reviewer.form(interrupt["id"]))
    seen = page.end()
    assert (seen.outcome, seen.pending) == ("success", [])
    assert results(seen)[interrupt["toolCallId"]]
    agrees_after_a_reload(page, seen)


def test_m20_a_page_that_left_finds_everything_again(page_for, members, reviewer):
    page = page_for("file-ops", secret=members, headers={"X-Sayso-Hold": "1"})
    page.begin(say="Please delete report.txt")
    (interrupt,) = page.until("CUSTOM")["value"]["interrupts"]
    page.leave()
    page.reload()
    page.begin()
    page.until("CUSTOM")
    reviewer.approve(interrupt["id"], reviewer.form(interrupt["id"]))
    assert page.end().outcome == "success"


# M20: what is refused, and what fails


def test_m5_m20_a_tool_of_the_page_with_a_name_of_the_agents(page_for, client):
    page = page_for("file-ops")
    tool = {"name": "delete_file", "description": "Mine.", "parameters": {}}
    seen = page.say("Please delete report.txt", tools=[tool])
    assert seen.failed.startswith("HTTP 422: ")
    assert "Duplicate tool name: delete_file" in seen.failed
    client.complaints.clear()
    assert page.say("Please delete report.txt").outcome == "interrupt"


@pytest.mark.parametrize("secret", ["", "sayso_nobody"])
def test_m20_nobody_comes_in_without_a_token(demo, client, secret):
    seen = ClientPage(client, f"{demo.url}/agui/file-ops/", secret).say("Hello")
    assert seen.failed.startswith("HTTP 401: ")
    assert seen.events == []
    client.complaints.clear()


@pytest.fixture
def ritas_client(ritas, server: Server, client: Client) -> ClientPage:
    """The page of Rita, on the agent that does what the message says."""
    return ClientPage(client, ritas.address(), ritas.secret, thread=str(uuid4()))


def test_m20_two_tabs_follow_the_same_run(ritas_client, server):
    one = ritas_client
    one.begin(say="wait")
    one.until("TEXT_MESSAGE_CONTENT")
    other = replace(one)
    other.begin()
    other.until("TEXT_MESSAGE_CONTENT")
    (server.play / "go").touch()
    ends = [one.end(), other.end()]
    assert [seen.text for seen in ends] == ["One moment. Here."] * 2
    assert ends[0].conversation == ends[1].conversation
    assert server.heard() == ["wait"]


def test_m20_a_run_that_fails_says_so(ritas_client):
    seen = ritas_client.say("fail")
    assert seen.outcome == "RUN_ERROR"
    assert seen.events[-1]["message"] == "The run failed: The model is out."
    assert ritas_client.say("hello").text == "You said: hello"


def test_m20_a_run_that_fails_behind_an_answer_leaves_the_page_alive(ritas_client):
    """After a RUN_ERROR the client counts the interrupt as open for ever."""
    page = ritas_client
    (interrupt,) = page.say("stumble a.txt").pending
    seen = page.answer(resolved(interrupt, YES))
    assert (seen.outcome, seen.pending) == ("success", [])
    assert seen.notices == ["run_failed"]
    assert "The run failed: The model is out." in seen.text
    again = page.send(resolved(interrupt, YES))
    assert (again.outcome, again.notices) == ("success", ["run_failed"])
    assert page.say("hello").text == "You said: hello"
