"""M1 to M11 over AG-UI: the hosted demo agents, each on its real framework."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from tests.hitlagents.agui.conftest import (
    NO,
    YES,
    Page,
    cancelled,
    resolved,
)
from tests.served import Served

pytestmark = pytest.mark.once


@pytest.fixture
def page_for(demo: Served, secret: str) -> Callable[..., Page]:
    def make(agent: str, **options) -> Page:
        return Page(demo.url, secret, agent=agent, **options)

    return make


def result(answer) -> str:
    (found,) = answer.of("TOOL_CALL_RESULT")
    return found["content"]


@pytest.mark.parametrize("modern", [True, False])
def test_m1_m2_m3_agent_framework(page_for, modern):
    page = page_for("file-ops", modern=modern)
    answer = page.say("Please delete report.txt")
    (interrupt,) = answer.interrupts
    assert interrupt["reason"] == "tool_call"
    assert interrupt["message"] == "Approve running delete_file?"
    (start,) = answer.of("TOOL_CALL_START")
    assert interrupt["toolCallId"] == start["toolCallId"]
    function_call = interrupt["metadata"]["agent_framework"]["function_call"]
    assert function_call["arguments"] == {"filename": "report.txt"}
    answer = page.resume(resolved(interrupt, YES))
    assert answer.outcome == "success"
    assert re.search("deleted", result(answer), re.IGNORECASE)

    page = page_for("file-ops", modern=modern)
    (interrupt,) = page.say("Please delete report.txt").interrupts
    answer = page.resume(resolved(interrupt, NO))
    assert "Not today." in result(answer)
    assert answer.text

    page = page_for("file-ops", modern=modern)
    (interrupt,) = page.say("Please delete report.txt").interrupts
    answer = page.resume(cancelled(interrupt))
    assert answer.outcome == ("cancelled" if modern else "success")
    assert not answer.of("TEXT_MESSAGE_START")
    assert page.say("What files are there?").outcome == "success"


def test_m3_mixed_answers_that_break_agent_frameworks_own_adapter(page_for):
    page = page_for("file-ops")
    answer = page.say("Please delete report.txt and notes.md")
    first, second = answer.interrupts
    answer = page.resume(resolved(second, NO), resolved(first, YES))
    assert answer.outcome == "success"
    results = {r["toolCallId"]: r["content"] for r in answer.of("TOOL_CALL_RESULT")}
    assert "Not today." in results[second["toolCallId"]]
    assert "Not today." not in results[first["toolCallId"]]


def test_m7_m8_openai_agents(page_for):
    page = page_for("scheduler")
    (interrupt,) = page.say("Please schedule a 1:1 with Alice").interrupts
    assert interrupt["reason"] == "tool_approval"
    assert interrupt["metadata"]["tool_name"] == "schedule_meeting"
    assert interrupt["metadata"]["tool_input"]["attendee"] == "Alice"
    slot = {"chosen_time": "2026-12-07T09:00:00Z", "chosen_label": "Monday 9:00 AM"}
    answer = page.resume(resolved(interrupt, YES | slot))
    assert answer.outcome == "success"
    assert "Monday 9:00 AM" in result(answer)

    (interrupt,) = page.say("Please schedule a 1:1 with Bob").interrupts
    answer = page.resume(resolved(interrupt, YES))
    assert "Nothing was scheduled" in result(answer)

    (interrupt,) = page.say("Please schedule a 1:1 with Dan").interrupts
    answer = page.resume(resolved(interrupt, YES | {"chosen_time": 7}))
    assert answer.outcome == "success"
    assert result(answer)

    # Cancelled: the call is answered so, and the run goes on.
    (interrupt,) = page.say("Please schedule a 1:1 with Carol").interrupts
    answer = page.resume(cancelled(interrupt))
    assert answer.outcome == "success"
    assert result(answer) == "Not executed: the call was cancelled."
    assert answer.text


def test_m10_a_question_to_whoever_talks_is_answered_on_their_own_page(demo):
    """The card of ``book_call``, durable: the member may answer it and nothing else."""
    secret = demo.manage("create_token", "member").splitlines()[-1]
    page = Page(demo.url, secret)
    page.agent = "scheduler"
    answer = page.say("Please book an intro call with sales to discuss pricing")
    (interrupt,) = answer.interrupts
    assert interrupt["reason"] == "input_required"
    times = interrupt["responseSchema"]["properties"]["chosen_time"]["examples"]
    wrong = page.resume(resolved(interrupt, {"chosen_time": "tomorrow"}))
    assert wrong.interrupts == [interrupt]
    assert wrong.notices == ["invalid_decision"]
    answer = page.resume(resolved(interrupt, {"chosen_time": times[0]}))
    assert answer.outcome == "success"
    assert times[0] in result(answer)


@pytest.mark.parametrize(
    ("agent", "text", "tool"),
    [
        ("banking", "Transfer $500 to account 12345 for rent.", "transferMoney"),
        ("writer", "Write “Ready for review.” to status.md", "write_file"),
    ],
)
def test_m12_genkit(page_for, agent, text, tool):
    page = page_for(agent)
    (interrupt,) = page.say(text).interrupts
    function_call = interrupt["metadata"]["genkit"]["function_call"]
    assert function_call["name"] == tool
    answer = page.resume(resolved(interrupt, YES))
    assert answer.outcome == "success"
    assert result(answer)
    assert answer.text


def test_m11_langgraph(page_for):
    page = page_for("support")
    (interrupt,) = page.say("Reply to Dana about invoice 1042").interrupts
    arguments = interrupt["metadata"]["langgraph"]["function_call"]["arguments"]
    assert interrupt["responseSchema"]["properties"]["editedArgs"]
    edited = {**arguments, "subject": "About your invoice"}
    answer = page.resume(resolved(interrupt, YES | {"editedArgs": edited}))
    assert answer.outcome == "success"
    assert "About your invoice" in str(answer.messages)
    again = page.show()
    assert again.outcome == "success"
    assert [m["id"] for m in again.messages] == [m["id"] for m in answer.messages]


def test_m9_a_message_while_open_on_a_real_framework(page_for):
    page = page_for("file-ops")
    (interrupt,) = page.say("Please delete report.txt").interrupts
    kept = page.say("What files are there?")
    assert kept.interrupts == [interrupt]
    answer = page.resume(resolved(interrupt, YES))
    assert answer.outcome == "success"
    assert answer.of("TOOL_CALL_START")[-1]["toolCallName"] == "list_files"


def test_m5_a_page_that_brings_a_tool_of_the_agents(page_for):
    tool = {"name": "delete_file", "description": "", "parameters": {}}
    refused = page_for("file-ops").raw(tools=[tool])
    assert refused.status_code == 422
    assert refused.json()["error"]["message"] == "Duplicate tool name: delete_file"


BOOK_CALL = {
    "name": "book_call",
    "description": "Book a call: the person picks a slot.",
    "parameters": {
        "type": "object",
        "properties": {"topic": {"type": "string"}, "attendee": {"type": "string"}},
        "required": ["topic", "attendee"],
    },
}


@pytest.mark.parametrize("modern", [True, False])
def test_m10_a_page_brings_book_call_itself(page_for, modern):
    """Scheduler has a question of that name; it is given over to the page."""
    page = page_for("scheduler", modern=modern)
    answer = page.say(
        "Please book an intro call with sales to discuss pricing", tools=[BOOK_CALL]
    )
    assert answer.outcome == "success"
    (start,) = answer.of("TOOL_CALL_START")
    assert start["toolCallName"] == "book_call"
    assert answer.pending == ([start["toolCallId"]] if modern else [])
    picked = '{"chosen_time": "2030-01-07T09:00:00Z", "chosen_label": "Monday 9:00"}'
    answer = page.answer(start["toolCallId"], picked, tools=[BOOK_CALL])
    assert answer.outcome == "success"
    assert "Monday 9:00" in answer.text
    assert page.say("Thanks", tools=[BOOK_CALL]).text == "You are welcome."


PICK_COLOUR = {
    "name": "pick_colour",
    "description": "Let the person pick a colour.",
    "parameters": {
        "type": "object",
        "properties": {"shade": {"type": "string"}},
        "required": ["shade"],
    },
}
#: On each framework: a gated tool, and arguments it takes.
GATED = {
    "file-ops": 'delete_file with {"filename": "notes.md"}',
    "scheduler": 'cancel_meeting with {"meeting": "7"}',
    "support": 'refund_invoice with {"invoice": "1042"}',
    "banking": 'transferMoney with {"amount": 5, "toAccount": "12345"}',
    "writer": 'write_file with {"file_path": "a.md", "content": "Hello"}',
}


@pytest.mark.parametrize("agent", GATED)
def test_m10_a_tool_of_the_page_on_every_framework(page_for, agent):
    page = page_for(agent)
    tools = [PICK_COLOUR]
    answer = page.say("Use pick_colour for the roof", tools=tools)
    [call] = answer.pending
    [arguments] = answer.of("TOOL_CALL_ARGS")
    assert arguments["delta"] == '{"shade": "the roof"}'
    answer = page.answer(call, "crimson", tools=tools)
    assert answer.outcome == "success"
    assert "crimson" in answer.text

    answer = page.say(
        f'Use pick_colour with {{"shade": "red"}} and {GATED[agent]}', tools=tools
    )
    [interrupt] = answer.interrupts
    pick, gated = (start["toolCallId"] for start in answer.of("TOOL_CALL_START"))
    assert interrupt["toolCallId"] == gated
    answer = page.answer(pick, "brick", tools=tools)
    assert answer.interrupts == [interrupt]
    answer = page.resume(resolved(interrupt, YES), tools=tools)
    assert answer.outcome == "success"
    assert "brick" in answer.text

    page.say("Use pick_colour for the door", tools=tools)
    answer = page.say("Hello", tools=tools)
    assert "did not use pick_colour" in answer.text
    assert answer.pending == []
    assert "Hello" in answer.text
