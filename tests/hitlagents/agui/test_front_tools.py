"""M10: tools that a page brings. Their calls wait for that page and for nobody else."""

from __future__ import annotations

import json
from uuid import uuid4

import httpx
import pytest
from django.conf import settings

from approvals import permissions
from approvals.models import Interrupt, Policy, Run, Tool, ToolExecution
from approvals.states import (
    Gate,
    InterruptKind,
    InterruptStatus,
    RunStatus,
    TokenScope,
)
from hitlagents.models import RunInput
from tests.approvals.pages import sign_in
from tests.hitlagents.agui.conftest import CSRF, PATIENCE, YES, cancelled, resolved
from tests.hitlagents.agui.test_doors import problem
from tests.plugins.cast import AGENT

PICK = {
    "name": "pick_colour",
    "description": "Pick a colour.",
    "parameters": {
        "type": "object",
        "properties": {"shade": {"type": "string"}},
        "required": ["shade"],
    },
}
TOOLS = [PICK]
ASKED = "both a.txt"


@pytest.fixture
def page(ritas):
    """A page of Rita, who may decide her own requests, with a tool of its own."""

    def say(text, **more):
        return type(ritas).say(ritas, text, tools=TOOLS, **more)

    ritas.ask = say
    return ritas


def told(answer):
    """The results of the last snapshot, by call."""
    return {
        message["toolCallId"]: message["content"]
        for message in answer.messages
        if message["role"] == "tool"
    }


def called(answer, tool="pick_colour"):
    """The id of the call of a tool in the last snapshot."""
    (found,) = (
        call["id"]
        for message in answer.messages
        for call in message.get("toolCalls", ())
        if call["function"]["name"] == tool
    )
    return found


# The page answers


@pytest.mark.parametrize("modern", [True, False])
def test_m10_the_answer_of_the_page_is_the_result(page, server, modern):
    page.modern = modern
    answer = page.ask("pick red")
    assert answer.outcome == "success"
    [start] = answer.of("TOOL_CALL_START")
    assert start["toolCallName"] == "pick_colour"
    [arguments] = answer.of("TOOL_CALL_ARGS")
    assert json.loads(arguments["delta"]) == {"shade": "red"}
    assert answer.of("TOOL_CALL_END")
    assert answer.pending == ([start["toolCallId"]] if modern else [])
    assert Run.objects.get().status == RunStatus.WAITING

    answer = page.answer(start["toolCallId"], "crimson", tools=TOOLS)
    assert answer.outcome == "success"
    assert answer.pending == []
    assert answer.text == "Done."
    assert told(answer) == {start["toolCallId"]: "crimson"}
    # The page said it itself, and has it from the first snapshot of this stream.
    assert not answer.of("TOOL_CALL_RESULT")
    assert Run.objects.get().status == RunStatus.FINISHED
    assert server.ran() == []
    assert not ToolExecution.objects.exists()


def test_m10_nothing_waits_in_anybodys_inbox(page, server, rita, owen, ada):
    page.ask("pick red")
    interrupt = Interrupt.objects.get()
    assert interrupt.kind == InterruptKind.CLIENT
    assert not interrupt.review_groups.exists()
    for person in (rita, owen, ada):
        assert not permissions.visible_interrupts(person).exists()
        assert permissions.visible_interrupt(person, interrupt.pk) is None
        cookies = {settings.SESSION_COOKIE_NAME: sign_in(person)}
        for address in ("/inbox/", f"/inbox/{interrupt.pk}/"):
            shown = httpx.get(server.url + address, cookies=cookies, timeout=PATIENCE)
            assert "pick_colour" not in shown.text
        assert shown.status_code == 404


def test_m10_whoever_has_a_token_to_talk_may_answer(open_page, mia):
    """It is no decision: Mia may decide nothing, and her token neither."""
    page = open_page(mia, TokenScope.AGENTS)
    call = called(page.say("pick red", tools=TOOLS))
    assert page.answer(call, "crimson").text == "Done."


def test_m10_the_run_keeps_the_tools_it_began_with(page, server):
    call = called(page.ask("pick red"))
    page.answer(call, "crimson")
    assert server.brought() == ["pick_colour", "pick_colour"]
    page.say("hello")  # from a page without any
    assert server.brought() == ["pick_colour", "pick_colour"]


@pytest.mark.parametrize(
    ("content", "result"),
    [
        ("", ""),
        ('{"a": [1]}', '{"a": [1]}'),
        ("nul \0 and half \ud800", "nul ␀ and half ?"),
        (
            [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}],
            "one\n\ntwo",
        ),
        (
            "x" * 100_001,
            "Error: the page answered with 100,001 characters; 100,000 are allowed.",
        ),
    ],
)
def test_m10_any_answer_can_be_told(page, content, result):
    call = called(page.ask("pick red"))
    answer = page.answer(call, content)
    assert answer.text == "Done."
    assert told(answer) == {call: result}


def test_m10_an_error_of_the_pages_tool_is_its_answer(page):
    call = called(page.ask("pick red"))
    failed = {
        "id": "t1",
        "role": "tool",
        "toolCallId": call,
        "content": "",
        "error": "No colours left.",
    }
    page.messages.append(failed)
    assert told(page.post()) == {call: "No colours left."}


# Beside a request


def test_m10_the_page_first_and_then_the_person(page, server):
    answer = page.ask(ASKED)
    [interrupt] = answer.interrupts
    assert interrupt["toolCallId"] == called(answer, "delete_file")
    call = called(answer)

    answer = page.answer(call, "crimson")
    assert answer.interrupts == [interrupt]
    # Without its result pages would offer the call again.
    assert told(answer) == {call: "crimson"}
    assert page.show().interrupts == [interrupt]

    answer = page.resume(resolved(interrupt, YES))
    assert answer.text == "Done."
    [result] = answer.of("TOOL_CALL_RESULT")
    assert result["toolCallId"] == interrupt["toolCallId"]
    assert told(answer)[call] == "crimson"
    assert [tool for tool, *_ in server.ran()] == ["delete_file"]


def test_m10_the_person_first_and_then_the_page(page, server):
    answer = page.ask(ASKED)
    [interrupt] = answer.interrupts
    call = called(answer)
    answer = page.resume(resolved(interrupt, YES))
    assert answer.outcome == "success"
    assert answer.pending == [call]
    assert server.ran() == []
    answer = page.answer(call, "crimson")
    assert answer.text == "Done."
    assert [tool for tool, *_ in server.ran()] == ["delete_file"]


def test_m10_both_in_one_request_as_copilotkit_sends_them(page, server):
    """It keeps the tool's answer until the interrupts are answered, too."""
    answer = page.ask(ASKED)
    [interrupt] = answer.interrupts
    call = called(answer)
    answer = page.answer(call, "crimson", resume=[resolved(interrupt, YES)])
    assert answer.text == "Done."
    assert told(answer)[call] == "crimson"
    assert len(server.ran()) == 1


def test_m10_a_decision_in_the_inbox_leaves_the_call_to_the_page(
    page, at_the_desk, ravi, server
):
    answer = page.ask(ASKED)
    [interrupt] = answer.interrupts
    at_the_desk(ravi, interrupt, "approve")
    answer = page.show()
    assert answer.outcome == "success"
    assert answer.pending == [called(answer)]
    assert page.answer(called(answer), "crimson").text == "Done."
    assert server.brought() == ["pick_colour"] * 2


def test_m10_a_held_stream_ends_where_the_page_is_to_answer(page, at_the_desk, ravi):
    page.hold = True
    answer = page.ask("pick red")
    assert answer.pending == [called(answer)]
    page.answer(called(answer), "crimson")
    with page.reading(
        messages=[{"id": "x1", "role": "user", "content": ASKED}], tools=TOOLS
    ) as events:
        for event in events:
            if event.get("name") == "sayso.held":
                [interrupt] = event["value"]["interrupts"]
                at_the_desk(ravi, interrupt, "approve")
            last = event
    assert len(last["outcome"]["pendingToolCallIds"]) == 1


# What counts


def test_m14_only_the_first_answer_counts(page, server):
    call = called(page.ask("pick red"))
    page.answer(call, "crimson")
    for content in ("crimson", "blue"):
        # As a page sends it that has not heard of the first.
        again = {"id": "t9", "role": "tool", "toolCallId": call, "content": content}
        answer = page.post(messages=[again])
        assert answer.outcome == "success"
        assert answer.notices == []
        assert told(answer) == {call: "crimson"}
        assert answer.text == ""
    assert Interrupt.objects.get().decision.answer == '"crimson"'


def test_m14_of_two_answers_in_one_request_the_first_counts(page):
    call = called(page.ask("pick red"))
    said = [
        {"id": f"t{n}", "role": "tool", "toolCallId": call, "content": f"answer {n}"}
        for n in range(2)
    ]
    assert told(page.post(messages=said)) == {call: "answer 0"}


def test_m14_a_tool_message_for_a_held_call_changes_nothing(page, server):
    answer = page.ask(ASKED)
    [interrupt] = answer.interrupts
    answer = page.answer(interrupt["toolCallId"], '{"approved": true}')
    assert answer.interrupts == [interrupt]
    assert told(answer) == {}
    assert server.ran() == []
    assert not Interrupt.objects.decided().exists()


def test_m14_another_persons_page_cannot_answer(page, open_page, mia):
    call = called(page.ask("pick red"))
    forged = {"id": "t1", "role": "tool", "toolCallId": call, "content": "blue"}
    other = open_page(mia)
    other.messages = [{"id": "m1", "role": "user", "content": "hello"}, forged]
    assert other.post().text == "You said: hello"
    other.thread = str(RunInput.objects.order_by("run__created")[0].thread_id)
    problem(other.raw(), 404, "not_found")
    assert page.answer(call, "crimson").text == "Done."


def test_m14_another_thread_cannot_answer(page):
    call, first = called(page.ask("pick red")), page.thread
    page.thread = str(uuid4())
    page.messages = []
    page.say("hello")
    page.answer(call, "blue")
    page.thread = first
    assert page.show().pending == [call]


def test_m14_the_call_is_no_interrupt_to_resume(page, server, ada):
    """Not over AG-UI, and not at the desk either."""
    answer = page.ask("pick red")
    interrupt = Interrupt.objects.get()
    for entry in (resolved(interrupt.pk, YES), cancelled({"id": str(interrupt.pk)})):
        answer = page.resume(entry)
        assert answer.notices == ["unknown_interrupt"]
        assert answer.pending == [called(answer)]
    response = httpx.post(
        f"{server.url}/inbox/{interrupt.pk}/decide/",
        data={"verdict": "answer", "shown": "x"},
        cookies={
            settings.SESSION_COOKIE_NAME: sign_in(ada),
            settings.CSRF_COOKIE_NAME: CSRF,
        },
        headers={"X-CSRFToken": CSRF, "Origin": server.url},
        timeout=PATIENCE,
    )
    assert response.status_code == 404
    interrupt.refresh_from_db()
    assert interrupt.is_open


# Nothing gets stuck


def test_m9_m10_a_new_message_goes_on_without_the_answer(page, server):
    call = called(page.ask("pick red"))
    answer = page.say("hello")
    assert answer.outcome == "success"
    assert answer.text == "Done.You said: hello"
    [result] = told(answer).values()
    assert result.startswith("Not answered: the person went on")
    assert server.heard() == ["pick red", "hello"]
    assert told(page.answer(call, "too late")) == {call: result}


def test_m9_m10_a_new_message_leaves_the_request_beside_it_open(page, server):
    answer = page.ask(ASKED)
    [interrupt] = answer.interrupts
    answer = page.say("hello")
    assert answer.interrupts == [interrupt]
    assert "message_kept" in answer.notices
    [result] = told(answer).values()
    assert result.startswith("Not answered: ")
    answer = page.resume(resolved(interrupt, YES))
    assert answer.text.endswith("You said: hello")
    assert len(server.ran()) == 1


def test_m10_a_message_that_waits_brings_its_own_tools(page, server):
    page.say("delete a.txt")
    page.ask("pick red")
    [interrupt] = page.show().interrupts
    answer = page.resume(resolved(interrupt, YES))
    assert answer.pending == [called(answer)]
    assert server.brought() == ["pick_colour"]


@pytest.mark.parametrize("path", ["", "connect/"])
def test_m10_after_a_reload_the_call_is_there_to_be_answered(page, path):
    call = called(page.ask("pick red"))
    answer = page.show(path=path, tools=TOOLS)
    assert answer.outcome == "success"
    assert answer.pending == [call]
    assert called(answer) == call
    assert told(answer) == {}
    assert page.answer(call, "crimson").text == "Done."


def test_m10_connecting_answers_nothing(page):
    call = called(page.ask("pick red"))
    assert page.answer(call, "crimson", path="connect/").pending == [call]
    assert Interrupt.objects.get().is_open


def test_m10_the_run_can_be_cancelled(page, server, rita):
    call = called(page.ask("pick red"))
    address = f"{server.url}/copilotkit/agent/{AGENT}/stop/{page.thread}"
    stopped = httpx.post(address, json={}, headers=page.headers(), timeout=PATIENCE)
    assert stopped.json() == {"stopped": True}
    assert Interrupt.objects.get().status == InterruptStatus.CANCELLED
    answer = page.answer(call, "too late")
    assert told(answer) == {call: "Not executed: the run was cancelled."}
    assert page.say("hello").text == "You said: hello"


# What a page may bring


def changed(**changes):
    return [PICK | changes]


@pytest.mark.parametrize(
    ("tools", "field"),
    [
        (changed(name="pick a colour"), "tools.0.name"),
        (changed(name=""), "tools.0.name"),
        (changed(name="x" * 65), "tools.0.name"),
        (changed(name="1st"), "tools.0.name"),
        (changed(name="-"), "tools.0.name"),
        (changed(name="\N{CYRILLIC SMALL LETTER ES}olour"), "tools.0.name"),
        (changed(description="nul \0"), "tools.0.description"),
        (changed(description="half \ud800"), "tools.0.description"),
        (changed(description=None), "tools.0.description"),
        (changed(parameters=[1]), "tools.0.parameters"),
        (changed(parameters={"type": "string"}), "tools.0.parameters"),
        (changed(parameters={"type": "object", "required": "a"}), "tools.0.parameters"),
        (changed(parameters={"title": "nul \0"}), "tools.0.parameters"),
        (changed(parameters={"properties": {"a": {"type": 5}}}), "tools.0.parameters"),
        (
            changed(parameters={"properties": {"a": {"$ref": "#"}}}),
            "tools.0.parameters",
        ),
        (changed(description="x" * 100_001), "tools"),
        ([PICK | {"name": f"tool_{n}"} for n in range(65)], "tools"),
    ],
)
def test_m10_a_tool_that_cannot_be_offered_is_refused_in_words(
    open_page, mia, server, tools, field
):
    for routes in ({}, {"root": "copilotkit/agent/{}/", "run": "run"}):
        page = open_page(mia, **routes)
        page.messages = [{"id": "m1", "role": "user", "content": "hello"}]
        error = problem(page.raw(tools=tools), 422, "invalid_input")
        assert error["field"] == field
    assert server.heard() == []


@pytest.mark.parametrize("name", ["DELETE_FILE", "Delete_File", "delete_file"])
def test_m5_m10_a_tool_of_the_page_is_not_told_from_the_agents_by_its_case(
    open_page, mia, server, name
):
    page = open_page(mia)
    page.say("hello")
    error = problem(page.raw(tools=changed(name=name)), 422, "duplicate_tool_name")
    assert error["field"] == "tools.0.name"
    both = [*TOOLS, *changed(name="Pick_Colour")]
    error = problem(page.raw(tools=both), 422, "duplicate_tool_name")
    assert error["field"] == "tools.1.name"


@pytest.mark.parametrize("parameters", [None, {}, {"properties": {}}, {"$schema": "x"}])
def test_m10_parameters_may_be_left_out(page, server, parameters):
    tool = {"name": "pick_colour", "description": "Pick."}
    if parameters is not None:
        tool["parameters"] = parameters
    page.say("hello", tools=[tool])
    assert server.brought() == ["pick_colour"]


def test_m10_a_schema_that_would_take_for_ever_is_never_tried(page):
    slow = {"type": "object", "properties": {"shade": {"pattern": "^(r+)+$"}}}
    answer = page.say("pick " + "r" * 60 + "!", tools=changed(parameters=slow))
    assert answer.pending == [called(answer)]


def asks_about_colours(page, **rule):
    """The agent has a question of its own, put to people by this rule."""
    policy = Policy.objects.create(
        position=0,
        name="Colours",
        agent_pattern=AGENT,
        tool_pattern="pick_*",
        **rule,
    )
    page.say("hello")
    Tool.objects.create(
        agent=AGENT,
        name="pick_colour",
        schema='{"type":"object"}',
        kind=InterruptKind.QUESTION,
    )
    return policy


@pytest.mark.parametrize(
    ("asks", "gate"),
    [(True, Gate.HOLD), (False, Gate.HOLD), (True, Gate.REFUSE)],
)
def test_m5_m10_a_question_to_the_person_is_given_over_to_their_page(
    page, server, asks, gate
):
    """Whoever answers is the same. One that a policy puts to reviewers stays theirs, and
    one that it refuses is refused."""
    asks_about_colours(page, asks_requester=asks, gate=gate)
    if not asks or gate == Gate.REFUSE:
        problem(page.raw(tools=TOOLS), 422, "duplicate_tool_name")
        return
    problem(page.raw(tools=changed(name="PICK_colour")), 422, "duplicate_tool_name")
    answer = page.ask("pick red")
    assert answer.pending == [called(answer)]
    assert page.answer(called(answer), "crimson").text == "Done."


def test_m10_a_question_that_a_policy_takes_back_waits_for_its_people(page, server):
    """The page hears at once why its answer was not taken."""
    policy = asks_about_colours(page, asks_requester=True)
    call = called(page.ask("pick red"))
    policy.asks_requester = False
    policy.save()
    answer = page.answer(call, "crimson")
    assert answer.notices == ["question_taken_back"]
    [interrupt] = answer.interrupts
    assert interrupt["toolCallId"] == call
    assert "now waits for Reviewers" in answer.text
    assert told(answer) == {}
    # Pages send their results again with every request.
    assert page.post().interrupts == [interrupt]
