"""M21: the adapter of remote agents, against servers in other processes."""

from __future__ import annotations

import asyncio
import json
import time
from copy import deepcopy
from pathlib import Path
from uuid import uuid4

import pytest
from asgiref.sync import async_to_sync

from approvals.states import InterruptKind, Verdict
from hitlagents.adapters.base import (
    AgentRunError,
    CheckpointError,
    Finished,
    Interrupted,
    StopRun,
    TextDelta,
)
from hitlagents.remote import client
from hitlagents.remote.adapter import RemoteAdapter
from hitlagents.remote.client import Endpoint, Limits
from hitlagents.remote.profiles import Profile, Together
from hitlagents.remote.reading import Reader
from tests.hitlagents.fakes import FakeHost, approve, deny, resume, start
from tests.hitlagents.remote.conftest import (
    APPROVED,
    asks,
    calls,
    failed,
    finished,
    pauses,
    result,
    says,
    sse,
    started,
)
from tests.hitlagents.remote.stub import CAPTURES, replies_of

pytestmark = pytest.mark.once

SECRET = "sk-very-secret"


class Notes:
    """A journal in memory."""

    def __init__(self):
        self.posts = {}
        self.versions = []

    async def begin(self, run_id, place, *, again):
        before = self.posts.get((run_id, place))
        if before is None or (before == "lost" and again):
            self.posts[run_id, place] = "sent"
            return True
        self.posts[run_id, place] = "lost"
        return False

    async def forget(self, run_id, place):
        del self.posts[run_id, place]

    async def lost(self, run_id, place):
        self.posts[run_id, place] = "lost"

    async def heard(self, protocol_version):
        self.versions.append(protocol_version)


def adapter(remote, profile=Profile.OTHER, *, limits=None, url=None, **options):
    endpoint = Endpoint(
        url=url or remote.url,
        headers={"Authorization": f"Bearer {SECRET}"},
        allow_private=options.pop("allow_private", True),
        limits=limits or Limits(connect=5, idle=5, total=20),
    )
    return RemoteAdapter(
        endpoint=endpoint,
        journal=options.pop("journal", None) or Notes(),
        profile=profile,
        **options,
    )


def begin(agent, host, message="please", state=None):
    return async_to_sync(agent.start)(start(host, message, state=state), host)


def go_on(agent, host, paused, answers):
    return async_to_sync(agent.resume)(resume(host, paused.state, answers), host)


def refusal(agent, host, **options):
    with pytest.raises(AgentRunError) as caught:
        begin(agent, host, **options)
    assert SECRET not in str(caught.value)
    return caught.value


# A run without interrupts


def test_m21_a_message_goes_out_and_what_is_said_comes_back(serve):
    remote = serve(
        sse(
            started(protocolVersion="1.0"),
            *says("Hello"),
            *calls("list_files", folder="x"),
            result("a.txt"),
            *says("One file.", "m2"),
            finished(outcome={"type": "success"}),
        )
    )
    host, notes = FakeHost(), Notes()
    agent = adapter(remote, journal=notes)
    outcome = begin(agent, host, "list them")
    assert isinstance(outcome, Finished)
    assert host.kinds() == "text call result text"
    assert host.text == "HelloOne file."
    assert host.results == {"1.call-1": "a.txt"}
    [request] = remote.requests
    assert request["headers"]["authorization"] == f"Bearer {SECRET}"
    assert request["headers"]["accept"] == "text/event-stream"
    body = request["body"]
    assert body["tools"] == []
    assert body["protocolVersion"] == "1.0"
    assert "resume" not in body
    assert [(m["role"], m["content"]) for m in body["messages"]] == [
        ("user", "list them")
    ]
    assert notes.versions == ["1.0"]
    assert SECRET not in repr(agent.endpoint) + json.dumps(outcome.state)


def test_m21_the_next_message_follows_the_conversation(serve):
    snapshot = [
        {"id": "u", "role": "user", "content": "one"},
        {"id": "a", "role": "assistant", "content": "two"},
    ]
    remote = serve(
        sse(
            started(),
            *says("two", "a"),
            {"type": "MESSAGES_SNAPSHOT", "messages": snapshot},
            finished(),
        ),
        sse(started(), *says("four"), finished()),
        sse(started(), finished()),
    )
    agent = adapter(remote)
    first = begin(agent, FakeHost(), "one")
    second = begin(agent, FakeHost(), "three", first.state)
    begin(agent, FakeHost(), "five", second.state)
    said = [[m["content"] for m in body["messages"]] for body in remote.bodies]
    assert said == [
        ["one"],
        ["one", "two", "three"],
        ["one", "two", "three", "four", "five"],
    ]
    runs = [body["runId"] for body in remote.bodies]
    assert len(set(runs)) == 3


def test_m21_words_that_only_the_snapshot_has_are_told_once(serve):
    snapshot = [
        {"id": "u", "role": "user", "content": "hi"},
        {"id": "a", "role": "assistant", "content": "Deleted."},
        {"id": "b", "role": "assistant", "content": "streamed"},
    ]
    remote = serve(
        sse(
            started(),
            *says("streamed", "b"),
            {"type": "MESSAGES_SNAPSHOT", "messages": snapshot},
            finished(),
        )
    )
    host = FakeHost()
    begin(adapter(remote), host)
    assert [h.delta for h in host.happenings if isinstance(h, TextDelta)] == [
        "streamed",
        "Deleted.",
    ]


def test_m21_chunks_and_unknown_events(serve):
    remote = serve(
        sse(
            started(),
            {"type": "TEXT_MESSAGE_CHUNK", "messageId": "m", "delta": "Hel"},
            {"type": "TEXT_MESSAGE_CHUNK", "delta": "lo"},
            {
                "type": "TOOL_CALL_CHUNK",
                "toolCallId": "c",
                "toolCallName": "look",
                "delta": '{"a":',
            },
            {"type": "TOOL_CALL_CHUNK", "delta": "1}"},
            {"type": "SOMETHING_NEW", "x": 1},
            {"type": "STATE_SNAPSHOT", "snapshot": {}},
            {"type": "TOOL_CALL_END", "toolCallId": "of-another-run"},
            finished(),
        )
    )
    host = FakeHost()
    begin(adapter(remote), host)
    assert host.text == "Hello"
    assert [(call.tool, call.arguments) for call in host.proposed] == [
        ("look", '{"a":1}')
    ]


def test_m21_text_no_database_takes_is_cleaned(serve):
    remote = serve(
        {
            "parts": [
                'data: {"type":"RUN_STARTED"}\n\n'
                'data: {"type":"TEXT_MESSAGE_CONTENT","messageId":"m",'
                '"delta":"a\\u0000b\\ud800c"}\n\n'
                'data: {"type":"RUN_FINISHED"}\n\n'
            ]
        }
    )
    host = FakeHost()
    begin(adapter(remote), host)
    assert host.text == "a␀b?c"


# Requests


def test_m21_a_gated_call_is_held_and_told_once(serve):
    remote = serve(
        pauses(),
        sse(started(), result("Deleted 1.txt."), *says("Done."), finished()),
    )
    host, agent = FakeHost(), adapter(remote)
    paused = begin(agent, host)
    assert isinstance(paused, Interrupted)
    [draft] = paused.interrupts
    assert draft.call.tool == "delete_file"
    assert json.loads(draft.call.arguments) == {"filename": "1.txt"}
    assert draft.call.framework_ref == "i1"
    assert [tool.name for tool in paused.tools] == ["delete_file"]
    assert len(host.proposed) == 1
    outcome = go_on(agent, host, paused, approve(host, paused))
    assert isinstance(outcome, Finished)
    assert remote.bodies[1]["resume"] == [
        {"interruptId": "i1", "status": "resolved", "payload": {"approved": True}}
    ]
    assert remote.bodies[1]["threadId"]
    assert host.ledger == {(1, draft.call.call_id): "Deleted 1.txt."}
    assert len(remote.bodies) == 2


def test_m3_a_denial_lets_nothing_run_and_is_noted_as_delivered(serve):
    remote = serve(pauses(), sse(started(), *says("All right."), finished()))
    host, agent = FakeHost(), adapter(remote)
    paused = begin(agent, host)
    assert not paused.interrupts[0].takes_note
    answer = deny(host, paused.interrupts[0], "not today")
    go_on(agent, host, paused, [answer])
    [entry] = remote.bodies[1]["resume"]
    assert entry["payload"] == {"approved": False}
    assert host.entered == []
    [told] = host.results.values()
    assert told == f"{answer.text} The agent itself was only told no."


def test_m3_the_note_goes_where_the_agent_asks_for_one(serve):
    schema = {
        "type": "object",
        "properties": {"approved": {"type": "boolean"}, "reason": {"type": "string"}},
    }
    remote = serve(pauses(responseSchema=schema), sse(started(), finished()))
    host, agent = FakeHost(), adapter(remote)
    paused = begin(agent, host)
    assert paused.interrupts[0].takes_note
    assert paused.interrupts[0].response_schema is None
    answer = deny(host, paused.interrupts[0], 'quotes " and 🙂')
    go_on(agent, host, paused, [answer])
    payload = remote.bodies[1]["resume"][0]["payload"]
    assert payload == {"approved": False, "reason": answer.text}
    assert list(host.results.values()) == [answer.text]


def test_m3_a_cancelled_call_is_told_as_cancelled_where_the_run_goes_on(serve):
    remote = serve(pauses(), sse(started(), *says("Fine."), finished()))
    host, agent = FakeHost(), adapter(remote, Profile.OPENAI_AGENTS)
    assert agent.cancel == Verdict.CANCEL_CALL
    paused = begin(agent, host)
    [draft] = paused.interrupts
    assert Verdict.CANCEL_CALL in draft.verdicts
    answer = host.decide(draft, Verdict.CANCEL_CALL, text="Cancelled.")
    go_on(agent, host, paused, [answer])
    assert remote.bodies[1]["resume"] == [{"interruptId": "i1", "status": "cancelled"}]


@pytest.mark.parametrize("profile", [Profile.AGENT_FRAMEWORK, Profile.LANGGRAPH])
def test_m3_a_call_cannot_be_cancelled_where_that_means_something_else(serve, profile):
    remote = serve(pauses())
    paused = begin(adapter(remote, profile), FakeHost())
    assert paused.interrupts[0].verdicts == (
        Verdict.APPROVE,
        Verdict.DENY,
        Verdict.CANCEL_RUN,
    )


def test_m6_the_tool_is_named_by_the_message_alone(serve):
    bare = {
        "id": "ficc_1",
        "reason": "tool_call",
        "message": "Approve running send_mail?",
        "toolCallId": "call-9",
    }
    remote = serve(
        sse(started(), finished(bare)),
        sse(started(), result("Sent.", "call-9"), finished()),
    )
    host, agent = FakeHost(), adapter(remote, Profile.DOTNET)
    paused = begin(agent, host)
    [draft] = paused.interrupts
    assert draft.call.tool == "send_mail"
    assert "did not say with which arguments" in draft.consequence
    assert [call.tool for call in host.proposed] == ["send_mail"]
    go_on(agent, host, paused, approve(host, paused))
    payload = remote.bodies[1]["resume"][0]["payload"]
    assert payload == {
        "approved": True,
        "toolCall": {"callId": "call-9", "name": "send_mail", "arguments": {}},
    }
    assert list(host.ledger.values()) == ["Sent."]


def test_m8_what_stands_beside_an_approval_goes_along(serve):
    schema = {
        "type": "object",
        "properties": {
            "approved": {"type": "boolean"},
            "chosen_time": {"type": "string"},
            "chosen_label": {"type": "string"},
        },
    }
    remote = serve(pauses(responseSchema=schema), sse(started(), finished()))
    host, agent = FakeHost(), adapter(remote, Profile.OPENAI_AGENTS)
    paused = begin(agent, host)
    [draft] = paused.interrupts
    assert set(draft.response_schema["properties"]) == {
        "approved",
        "chosen_time",
        "chosen_label",
    }
    answer = host.decide(
        draft, Verdict.APPROVE, answer={"chosen_time": "9:00", "stranger": 1}
    )
    go_on(agent, host, paused, [answer])
    payload = remote.bodies[1]["resume"][0]["payload"]
    assert payload == {"approved": True, "chosen_time": "9:00"}


EDITS = {
    "type": "object",
    "properties": {
        "approved": {"type": "boolean"},
        "filename": {"type": "string"},
        "editedArgs": {
            "type": "object",
            "properties": {"filename": {"type": "string"}},
            "required": ["filename"],
        },
    },
    "additionalProperties": False,
}


def test_m15_edits_are_a_full_replacement_and_nothing_else_goes_along(serve):
    remote = serve(pauses(responseSchema=EDITS), sse(started(), finished()))
    host, agent = FakeHost(), adapter(remote, Profile.AGENT_FRAMEWORK)
    paused = begin(agent, host)
    [draft] = paused.interrupts
    assert draft.editable
    assert draft.response_schema is None
    assert paused.tools[0].parameters["required"] == ["filename"]
    answer = host.decide(
        draft,
        Verdict.APPROVE,
        arguments={"filename": "other"},
        answer={"filename": "x"},
    )
    go_on(agent, host, paused, [answer])
    payload = remote.bodies[1]["resume"][0]["payload"]
    assert payload == {"approved": True, "editedArgs": {"filename": "other"}}


def test_m15_an_agent_that_takes_a_note_is_told_of_the_edit(serve):
    schema = deepcopy(EDITS)
    schema["properties"]["reason"] = {"type": "string"}
    remote = serve(pauses(responseSchema=schema), sse(started(), finished()))
    host, agent = FakeHost(), adapter(remote)
    paused = begin(agent, host)
    edited = {"filename": "other"}
    answer = host.decide(
        paused.interrupts[0], Verdict.APPROVE, arguments=edited, text="Changed."
    )
    go_on(agent, host, paused, [answer])
    payload = remote.bodies[1]["resume"][0]["payload"]
    assert payload == {"approved": True, "editedArgs": edited, "reason": "Changed."}


@pytest.mark.parametrize(
    ("verdict", "how", "note"),
    [
        (Verdict.APPROVE, {"note": "Half."}, "Half."),
        (Verdict.APPROVE, {}, None),
        (Verdict.DENY, {"note": "Keep it."}, "Keep it."),
        (Verdict.DENY, {}, "No reason was given."),
    ],
)
def test_m3_another_desk_is_sent_the_note_alone(serve, verdict, how, note):
    """It tells its agent by itself who decided and what was changed."""
    schema = deepcopy(EDITS)
    schema["properties"]["note"] = {"type": "string"}
    metadata = {"sayso": {"digest": "d" * 64}}
    asked = pauses(responseSchema=schema, metadata=metadata)
    remote = serve(asked, sse(started(), finished()))
    host, agent = FakeHost(), adapter(remote)
    paused = begin(agent, host)
    if verdict == Verdict.APPROVE:
        how = how | {"arguments": {"filename": "other"}}
    answer = host.decide(paused.interrupts[0], verdict, text="In our words.", **how)
    go_on(agent, host, paused, [answer])
    assert remote.bodies[1]["resume"][0]["payload"].get("note") == note


def test_m15_edits_an_agent_does_not_take_are_not_sent(serve):
    remote = serve(pauses())
    host, agent = FakeHost(), adapter(remote)
    paused = begin(agent, host)
    [draft] = paused.interrupts
    assert not draft.editable
    answer = host.decide(draft, Verdict.APPROVE, arguments={"filename": "other"})
    with pytest.raises(AgentRunError, match="takes no other arguments"):
        go_on(agent, host, paused, [answer])
    assert len(remote.bodies) == 1
    assert host.entered == []


def test_m11_a_question_gets_exactly_the_answer(serve):
    asked = {
        "id": "q",
        "reason": "langgraph:interrupt",
        "message": "How many?",
        "metadata": {"langgraph": {"raw": "How many?"}},
    }
    for value in (0, False, "", [], "blue"):
        remote = serve(sse(started(), finished(asked)), sse(started(), finished()))
        host, agent = FakeHost(), adapter(remote, Profile.LANGGRAPH)
        paused = begin(agent, host)
        [draft] = paused.interrupts
        assert draft.kind == InterruptKind.QUESTION
        assert paused.tools == []
        answer = host.decide(draft, Verdict.RESPOND, output=value)
        answer = answer.model_copy(update={"verdict": Verdict.ANSWER, "answer": value})
        go_on(agent, host, paused, [answer])
        assert remote.bodies[1]["resume"] == [
            {"interruptId": "q", "status": "resolved", "payload": value}
        ]


def test_m11_a_graph_is_never_told_cancelled_as_an_answer(serve):
    asked = {"id": "q", "reason": "input_required", "message": "How many?"}
    remote = serve(sse(started(), finished(asked)))
    host, agent = FakeHost(), adapter(remote, Profile.LANGGRAPH)
    paused = begin(agent, host)
    with pytest.raises(AgentRunError, match="Nobody answered"):
        go_on(agent, host, paused, [deny(host, paused.interrupts[0])])
    assert len(remote.bodies) == 1


def test_m11_a_question_nobody_answered_is_cancelled_elsewhere(serve):
    asked = {"id": "q", "reason": "input_required", "message": "How many?"}
    remote = serve(sse(started(), finished(asked)), sse(started(), finished()))
    host, agent = FakeHost(), adapter(remote)
    paused = begin(agent, host)
    go_on(agent, host, paused, [deny(host, paused.interrupts[0])])
    assert remote.bodies[1]["resume"] == [{"interruptId": "q", "status": "cancelled"}]


def test_m11_an_interrupt_outside_the_protocol_is_one_all_the_same(serve):
    asked = json.dumps(
        {"reason": "tool_call", "message": "Delete a.txt?", "responseSchema": APPROVED}
    )
    remote = serve(
        sse(
            started(),
            {"type": "CUSTOM", "name": "on_interrupt", "value": asked},
            finished(),
        ),
        sse(started(), finished()),
    )
    host, agent = FakeHost(), adapter(remote, Profile.LANGGRAPH)
    paused = begin(agent, host)
    [draft] = paused.interrupts
    assert draft.message == draft.title == "Delete a.txt?"
    assert "The agent asks" not in draft.consequence
    assert draft.call.tool == "unnamed tool"
    go_on(agent, host, paused, approve(host, paused))
    [entry] = remote.bodies[1]["resume"]
    assert entry["payload"] == {"approved": True}


# Several at once


def test_m3_each_of_several_has_its_own_answer(serve):
    remote = serve(pauses(2), sse(started(), result("Deleted."), finished()))
    host, agent = FakeHost(), adapter(remote)
    paused = begin(agent, host)
    first, second = paused.interrupts
    answers = [host.decide(first, Verdict.APPROVE), deny(host, second)]
    go_on(agent, host, paused, answers)
    assert [e["payload"]["approved"] for e in remote.bodies[1]["resume"]] == [
        True,
        False,
    ]
    assert [tool for tool, _ in host.entered] == ["delete_file"]


def test_m3_all_or_none_is_said_before_anybody_decides(serve):
    remote = serve(pauses(2), pauses(1))
    agent = adapter(remote, Profile.AGENT_FRAMEWORK)
    paused = begin(agent, FakeHost())
    assert len({draft.together for draft in paused.interrupts}) == 1
    for draft in paused.interrupts:
        assert draft.together
        assert "no approval beside a denial" in draft.consequence
    alone = begin(agent, FakeHost())
    assert alone.interrupts[0].together == ""
    assert alone.interrupts[0].consequence == ""


def test_m3_several_that_cannot_be_answered_can_only_be_cancelled(serve):
    remote = serve(pauses(2))
    host, agent = FakeHost(), adapter(remote, Profile.LANGGRAPH)
    paused = begin(agent, host)
    for draft in paused.interrupts:
        assert draft.verdicts == (Verdict.CANCEL_RUN,)
        assert "can only be cancelled" in draft.consequence
    # As a policy would that lets everything run.
    with pytest.raises(AgentRunError, match="one call at a time"):
        go_on(agent, host, paused, approve(host, paused))
    assert len(remote.bodies) == 1
    assert host.entered == []


def native(number):
    """An id as LangGraph makes them."""
    return f"{number:032x}"


def graph_pauses(count):
    """A graph's pause: what it asks about is told by its snapshot, and not streamed."""
    numbers = range(1, count + 1)
    tool_calls = [
        {
            "id": f"call-{n}",
            "type": "function",
            "function": {"name": "delete_file", "arguments": f'{{"filename": "{n}"}}'},
        }
        for n in numbers
    ]
    said = {"id": "a1", "role": "assistant", "content": "", "toolCalls": tool_calls}
    return sse(
        started(),
        {"type": "MESSAGES_SNAPSHOT", "messages": [said]},
        finished(*(asks(native(n), f"call-{n}") for n in numbers)),
    )


def told_in_a_snapshot(*results):
    """A graph's end: its snapshot has what came of the calls."""
    messages = [
        {"id": f"r{n}", "role": "tool", "toolCallId": f"call-{n}", "content": text}
        for n, text in enumerate(results, 1)
    ]
    return sse(
        started(), {"type": "MESSAGES_SNAPSHOT", "messages": messages}, finished()
    )


def test_m3_a_graph_gets_a_map_of_its_own_ids(serve):
    remote = serve(graph_pauses(2), told_in_a_snapshot("Deleted 1.", "Denied."))
    host, agent = FakeHost(), adapter(remote, Profile.LANGGRAPH)
    paused = begin(agent, host)
    first, second = paused.interrupts
    assert first.call.arguments == '{"filename": "1"}'
    assert first.consequence == first.together == ""
    go_on(
        agent, host, paused, [host.decide(first, Verdict.APPROVE), deny(host, second)]
    )
    assert "resume" not in remote.bodies[1]
    assert remote.bodies[1]["forwardedProps"] == {
        "command": {
            "resume": {native(1): {"approved": True}, native(2): {"approved": False}}
        }
    }
    assert next(iter(host.ledger.values())) == "Deleted 1."
    assert list(host.results.values()) == ["Deleted 1.", "Denied."]


def test_m3_a_graph_is_told_by_the_same_map_that_nobody_answers(serve):
    remote = serve(graph_pauses(2), told_in_a_snapshot(), sse(started(), finished()))
    agent = adapter(remote, Profile.LANGGRAPH)
    paused = begin(agent, FakeHost())
    begin(agent, FakeHost(), "something else", paused.state)
    given = remote.bodies[1]["forwardedProps"]["command"]["resume"]
    assert given == {native(1): {"approved": False}, native(2): {"approved": False}}


def test_m3_what_staff_said_of_several_answers_counts(serve):
    remote = serve(graph_pauses(2), pauses(2))
    agent = adapter(remote, Profile.LANGGRAPH, together=Together.SINGLE)
    [first, _] = begin(agent, FakeHost()).interrupts
    assert first.verdicts == (Verdict.CANCEL_RUN,)
    agent = adapter(remote, Profile.LANGGRAPH, together=Together.ANY)
    [first, _] = begin(agent, FakeHost()).interrupts
    assert Verdict.APPROVE in first.verdicts


def test_m11_an_event_outside_the_protocol_may_carry_the_id(serve):
    asked = {"message": "Delete a.txt?", "tool_call_id": "call-1"}
    event = {"type": "CUSTOM", "name": "on_interrupt", "value": asked}
    made_of = {"rawEvent": {"id": native(7)}}
    remote = serve(
        sse(started(), *calls(filename="a.txt"), event | made_of, finished()),
        sse(started(), finished()),
    )
    host, agent = FakeHost(), adapter(remote, Profile.LANGGRAPH)
    paused = begin(agent, host)
    [draft] = paused.interrupts
    assert draft.call.arguments == '{"filename": "a.txt"}'
    go_on(agent, host, paused, approve(host, paused))
    given = remote.bodies[1]["forwardedProps"]["command"]["resume"]
    assert given == {native(7): {"approved": True}}


def test_m6_a_call_that_ran_beside_a_held_one_gets_its_result(serve):
    free = calls("list_files", "call-2")
    remote = serve(
        sse(started(), *calls(filename="a"), *free, finished(asks())),
        sse(started(), result("Deleted."), result("a, b", "call-2"), finished()),
    )
    host, agent = FakeHost(), adapter(remote)
    paused = begin(agent, host)
    go_on(agent, host, paused, approve(host, paused))
    assert list(host.results.values()) == ["Deleted.", "a, b"]


def test_m18_the_same_question_again_is_no_result(serve):
    call = {"name": "delete_file", "arguments": {"filename": "a"}}
    about = {"metadata": {"agent_framework": {"function_call": call}}}
    remote = serve(
        pauses(2, **about),
        sse(started(), result("One."), finished(asks("i2", "call-2", **about))),
    )
    host, agent = FakeHost(), adapter(remote)
    paused = begin(agent, host)
    outcome = go_on(agent, host, paused, approve(host, paused))
    assert list(host.ledger.values()) == [
        "One.",
        "The agent told no result, and asks for the same approval again.",
    ]
    assert len(outcome.interrupts) == 1


def test_m18_what_may_have_run_is_asked_for_again_with_a_warning(serve):
    asked = pauses()
    remote = serve(asked, sse(started(), ends=False), asked)
    host, agent = FakeHost(), adapter(remote)
    paused = begin(agent, host)
    with pytest.raises(StopRun):
        go_on(agent, host, paused, approve(host, paused))
    host.ledger[host.in_doubt[0]] = "Executed; a person confirmed it."
    outcome = go_on(agent, host, paused, approve(host, paused))
    again = begin(agent, FakeHost(), "and now?", outcome.state)
    [draft] = again.interrupts
    assert draft.consequence.startswith("An approval of exactly this was sent before")


def test_m21_a_batch_is_sent_once_with_every_call_in_the_ledger(serve):
    remote = serve(
        pauses(3),
        sse(
            started(), result("One.", "call-1"), result("Three.", "call-3"), finished()
        ),
    )
    host, agent = FakeHost(), adapter(remote, Profile.AGENT_FRAMEWORK)
    paused = begin(agent, host)
    go_on(agent, host, paused, approve(host, paused))
    assert len(remote.bodies) == 2
    assert sorted(host.ledger.values()) == [
        "One.",
        "The agent took the approval, and told no result.",
        "Three.",
    ]


def test_m21_shared_ids_are_two_requests_with_one_answer(serve):
    remote = serve(
        sse(
            started(),
            *calls(call_id="call-1", filename="a"),
            *calls(call_id="call-2", filename="b"),
            finished(
                asks("same", "call-1"), asks("same", "call-2"), asks("same", "call-2")
            ),
        ),
        sse(started(), finished()),
    )
    host, agent = FakeHost(), adapter(remote)
    paused = begin(agent, host)
    first, second = paused.interrupts
    assert first.call.call_id != second.call.call_id
    assert first.call.framework_ref == second.call.framework_ref == "same"
    assert first.together == second.together == "same"
    go_on(agent, host, paused, approve(host, paused))
    assert remote.bodies[1]["resume"] == [
        {"interruptId": "same", "status": "resolved", "payload": {"approved": True}}
    ]


def test_m21_calls_with_one_id_are_told_apart(serve):
    remote = serve(
        sse(
            started(),
            *calls(call_id="c", filename="a"),
            *calls(call_id="c", filename="b"),
            finished(asks("i1", "c"), asks("i2", "c")),
        )
    )
    paused = begin(adapter(remote), FakeHost())
    assert len({draft.call.call_id for draft in paused.interrupts}) == 2


def test_m18_one_call_the_guard_stops_stops_them_all(serve):
    remote = serve(pauses(2))
    host, agent = FakeHost(), adapter(remote)
    paused = begin(agent, host)
    first, second = paused.interrupts
    answers = [
        host.decide(first, Verdict.APPROVE),
        host.decide(second, Verdict.APPROVE),
    ]
    del host.decisions[second.call.turn, second.call.call_id]
    with pytest.raises(StopRun):
        go_on(agent, host, paused, answers)
    assert len(remote.bodies) == 1
    # The first was let in, and withdrawn again.
    assert host.ledger == {}


# What goes wrong


HOSTILE = {
    "a web page": (
        {"type": "text/html", "parts": ["<html>Sign in</html>"]},
        "text/html instead of text/event-stream",
    ),
    "JSON": ({"type": "application/json", "parts": ["{}"]}, "application/json"),
    "nothing": ({"parts": []}, "is empty"),
    "comments only": ({"parts": [": beat\n\n"]}, "is empty"),
    "no first event": (sse(*says("hi"), finished()), "begins with TEXT_MESSAGE_START"),
    "no end": (sse(started(), *says("hi")), "broke off"),
    "half an event": (
        {"parts": ['data: {"type":"RUN_STARTED"}\n\ndata: {"type":"RUN_FIN']},
        "broke off",
    ),
    "a cut": (sse(started(), *says("hi"), ends=False), "broke off"),
    "no JSON": ({"parts": ["data: hello\n\n"]}, "no JSON"),
    "no type": ({"parts": ["data: {}\n\n"]}, "no type"),
    "a deep nest": ({"parts": ["data: " + "[" * 100_000 + "\n\n"]}, "no JSON"),
    "an error in the middle": (
        sse(started(), *says("hi"), failed(f"no, not with {SECRET}")),
        "stopped with an error: no, not with …",
    ),
    "an error at once": (sse(failed("Overloaded.")), "Overloaded."),
    "an unknown end": (
        sse(started(), finished(outcome={"type": "later"})),
        "not known",
    ),
    "an interrupt about nothing": (
        sse(started(), finished(outcome={"type": "interrupt", "interrupts": []})),
        "did not say what",
    ),
    "an end of no known kind": (
        sse(started(), finished(outcome={"type": []})),
        "not known",
    ),
    "interrupts that are no list": (
        sse(started(), finished(outcome={"type": "interrupt", "interrupts": 5})),
        "did not say what",
    ),
    "a server error": ({"status": 502, "type": "text/plain"}, "HTTP 502"),
    "a redirect": (
        {"status": 302, "headers": {"Location": "/elsewhere"}},
        "redirects are not followed",
    ),
    "packed bytes": (
        sse(started(), finished(), headers={"Content-Encoding": "gzip"}),
        "packed its answer",
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_m21_an_answer_that_is_none_fails_in_words(serve, name):
    reply, words = HOSTILE[name]
    remote = serve(reply)
    notes = Notes()
    error = refusal(adapter(remote, journal=notes), FakeHost())
    assert words in str(error)
    assert not error.retryable
    assert "not sent again" in str(error)
    assert list(notes.posts.values()) == ["lost"]
    assert len(remote.requests) == 1


@pytest.mark.parametrize("name", HOSTILE)
def test_m18_a_lost_answer_to_an_approval_is_in_doubt(serve, name):
    reply, words = HOSTILE[name]
    remote = serve(pauses(2), reply)
    host, agent = FakeHost(), adapter(remote)
    paused = begin(agent, host)
    with pytest.raises(StopRun, match=words.replace("…", ".")):
        go_on(agent, host, paused, approve(host, paused))
    assert len(host.in_doubt) == 2
    assert len(remote.bodies) == 2


@pytest.mark.parametrize("status", [401, 403, 404, 422, 429])
def test_m21_a_request_that_was_refused_may_be_made_again(serve, status):
    remote = serve(
        {"status": status}, pauses(), {"status": status}, sse(started(), finished())
    )
    host, agent = FakeHost(), adapter(remote)
    error = refusal(agent, host)
    assert error.retryable
    assert f"HTTP {status}" in str(error)
    paused = begin(agent, host)
    with pytest.raises(AgentRunError) as caught:
        go_on(agent, host, paused, approve(host, paused))
    assert caught.value.retryable
    assert host.ledger == {}
    assert isinstance(go_on(agent, host, paused, approve(host, paused)), Finished)


def test_m21_nobody_there_may_be_tried_again(serve):
    remote = serve()
    error = refusal(adapter(remote, url="http://127.0.0.1:1/agent"), FakeHost())
    assert error.retryable
    assert "could not be reached" in str(error)


def test_m21_a_private_address_is_not_called(serve):
    remote = serve(sse(started(), finished()))
    url = remote.url.replace("http://", "https://")
    error = refusal(adapter(remote, url=url, allow_private=False), FakeHost())
    assert "not on the public internet" in str(error)
    assert remote.requests == []


def test_m21_a_name_is_looked_up_once_and_the_checked_address_called(
    serve, monkeypatch
):
    remote = serve(sse(started(), finished()))
    looked_up = []

    def look_up(host, port):
        looked_up.append(host)
        import ipaddress

        return [ipaddress.ip_address("127.0.0.1")]

    monkeypatch.setattr("hitlagents.remote.addresses._look_up", look_up)
    url = remote.url.replace("127.0.0.1", "agents.invalid")
    begin(adapter(remote, url=url), FakeHost())
    assert looked_up == ["agents.invalid"]
    assert remote.requests[0]["headers"]["host"] == f"agents.invalid:{remote.port}"


def test_m21_proxies_and_credentials_of_the_environment_are_not_used(
    serve, monkeypatch
):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:1")
    remote = serve(sse(started(), finished()))
    assert isinstance(begin(adapter(remote), FakeHost()), Finished)


SLOW = {
    "silence": ([{"sleep": 30}], Limits(connect=5, idle=0.3, total=20), "sent nothing"),
    "only comments": (
        [{"repeat": ": beat\n\n"}],
        Limits(connect=5, idle=5, total=0.5),
        "not done within 0.5 seconds",
    ),
    "no end": (
        [
            'data: {"type":"RUN_STARTED"}\n\n',
            {"repeat": 'data: {"type":"STATE_SNAPSHOT"}\n\n'},
        ],
        Limits(connect=5, idle=5, total=0.5),
        "not done within 0.5 seconds",
    ),
    "too much": (
        ['data: {"type":"RUN_STARTED"}\n\n', {"repeat": ": " + "x" * 900 + "\n\n"}],
        Limits(connect=5, idle=5, total=20, max_run=5_000),
        "longer than the 5,000 bytes",
    ),
    "a huge event": (
        ["data: " + "x" * 5_000],
        Limits(connect=5, idle=5, total=20, max_event=2_000),
        "longer than the 2,000",
    ),
}


@pytest.mark.parametrize("name", SLOW)
def test_m21_time_and_size_have_limits(serve, name):
    parts, limits, words = SLOW[name]
    remote = serve({"parts": parts})
    before = time.monotonic()
    error = refusal(adapter(remote, limits=limits), FakeHost())
    assert words in str(error)
    assert time.monotonic() - before < 10


# Never twice


def test_m14_what_was_sent_is_not_sent_again_by_itself(serve):
    remote = serve({"status": 502}, sse(started(), finished()))
    host, agent = FakeHost(), adapter(remote)
    refusal(agent, host)
    assert "sent to the agent before" in str(refusal(agent, host))
    assert len(remote.requests) == 1


def test_m14_a_retry_may_send_again_where_that_is_allowed(serve):
    remote = serve({"status": 502}, sse(started(), finished()))
    host, agent = FakeHost(), adapter(remote, may_repost=True)
    assert refusal(agent, host).retryable
    assert isinstance(begin(agent, host), Finished)
    assert len(remote.requests) == 2


def test_m14_a_worker_that_died_sends_nothing_again_by_itself(serve):
    remote = serve(sse(started(), finished()))
    notes, host = Notes(), FakeHost()
    notes.posts[host.run_id, "start"] = "sent"
    agent = adapter(remote, journal=notes, may_repost=True)
    assert refusal(agent, host).retryable
    assert remote.requests == []
    assert isinstance(begin(agent, host), Finished)


def test_m14_an_approval_the_ledger_has_is_never_sent_again(serve):
    remote = serve(pauses(2), {"status": 502}, sse(started(), finished()))
    host, agent = FakeHost(), adapter(remote, may_repost=True)
    paused = begin(agent, host)
    answers = approve(host, paused)
    with pytest.raises(StopRun):
        go_on(agent, host, paused, answers)
    first, second = [
        (draft.call.turn, draft.call.call_id) for draft in paused.interrupts
    ]
    host.ledger[first] = "Executed. A person confirmed that it ran."
    outcome = go_on(agent, host, paused, answers)
    assert isinstance(outcome, Finished)
    assert len(remote.bodies) == 2
    assert "Nothing is sent twice" in host.text
    assert "was sent before" in host.ledger[second]
    # The conversation goes on with what is known.
    begin(agent, FakeHost(), "and now?", outcome.state)
    said = [
        m.get("content") for m in remote.bodies[2]["messages"] if m["role"] == "tool"
    ]
    assert host.ledger[first] in said
    assert "resume" not in remote.bodies[2]


def test_m18_codes_that_say_nothing_ran_leave_no_doubt(serve):
    remote = serve(
        pauses(),
        sse(started(), failed("No such interrupt.", code="APPROVAL_RESUME_NOT_FOUND")),
    )
    host, agent = FakeHost(), adapter(remote, Profile.AGENT_FRAMEWORK)
    paused = begin(agent, host)
    with pytest.raises(AgentRunError, match="No such interrupt") as caught:
        go_on(agent, host, paused, approve(host, paused))
    assert caught.value.retryable
    assert host.in_doubt == []
    assert host.ledger == {}


def test_m18_a_code_that_is_said_of_what_ran_leaves_doubt(serve):
    remote = serve(
        pauses(),
        sse(started(), failed("Indeterminate.", code="APPROVAL_RESUME_INVALID")),
    )
    host, agent = FakeHost(), adapter(remote, Profile.AGENT_FRAMEWORK)
    paused = begin(agent, host)
    with pytest.raises(StopRun):
        go_on(agent, host, paused, approve(host, paused))
    assert len(host.in_doubt) == 1


def test_m18_an_error_after_the_result_is_no_doubt_about_the_tool(serve):
    remote = serve(pauses(), sse(started(), result("Deleted."), failed("Model gone.")))
    host, agent = FakeHost(), adapter(remote)
    paused = begin(agent, host)
    with pytest.raises(AgentRunError, match="Model gone") as caught:
        go_on(agent, host, paused, approve(host, paused))
    assert not caught.value.retryable
    assert list(host.ledger.values()) == ["Deleted."]


def test_m18_a_cut_after_the_result_is_no_doubt_about_the_tool(serve):
    remote = serve(pauses(), sse(started(), result("Deleted."), ends=False))
    host, agent = FakeHost(), adapter(remote)
    paused = begin(agent, host)
    answers = approve(host, paused)
    with pytest.raises(AgentRunError, match="broke off") as caught:
        go_on(agent, host, paused, answers)
    assert not caught.value.retryable
    assert host.in_doubt == []
    assert list(host.ledger.values()) == ["Deleted."]
    assert isinstance(go_on(agent, host, paused, answers), Finished)
    assert len(remote.bodies) == 2


def test_m18_a_run_that_is_taken_away_still_hears_what_its_tool_did(serve):
    remote = serve(
        pauses(),
        {
            "parts": [
                'data: {"type":"RUN_STARTED"}\n\n',
                *sse(*says("working"))["parts"],
                {"until": "go"},
                *sse(result("Deleted."), finished())["parts"],
            ]
        },
    )
    host, agent = FakeHost(), adapter(remote)
    paused = begin(agent, host)
    answers = approve(host, paused)
    host.refuses = (TextDelta, RuntimeError("taken away"))

    async def scenario():
        with pytest.raises(RuntimeError, match="taken away"):
            await agent.resume(resume(host, paused.state, answers), host)
        assert host.ledger == {}
        remote.let("go")
        others = asyncio.all_tasks() - {asyncio.current_task()}
        await asyncio.wait(others, timeout=10)

    entered = []
    original = host.guard

    async def shielded(call, body):
        # As the real host: what was let in goes on although the run does not.
        task = asyncio.ensure_future(original(call, body))
        entered.append(task)
        return await asyncio.shield(task)

    host.guard = shielded
    asyncio.run(scenario())
    assert entered[0].result().result == "Deleted."
    assert list(host.ledger.values()) == ["Deleted."]


# What an ended run left open


def test_m3_open_requests_of_an_ended_run_are_dropped_with_the_next_message(serve):
    remote = serve(pauses(2), sse(started(), finished()), sse(started(), finished()))
    agent = adapter(remote, Profile.AGENT_FRAMEWORK)
    paused = begin(agent, FakeHost(), "delete them")
    begin(agent, FakeHost(), "something else", paused.state)
    assert remote.bodies[1]["resume"] == [
        {"interruptId": "i1", "status": "cancelled"},
        {"interruptId": "i2", "status": "cancelled"},
    ]
    assert "resume" not in remote.bodies[2]
    assert remote.bodies[2]["messages"][-1]["content"] == "something else"


def test_m3_a_graph_is_told_no_because_cancelled_would_count_as_yes(serve):
    remote = serve(pauses(), sse(started(), finished()), sse(started(), finished()))
    agent = adapter(remote, Profile.LANGGRAPH)
    paused = begin(agent, FakeHost())
    begin(agent, FakeHost(), "something else", paused.state)
    assert remote.bodies[1]["resume"][0]["payload"] == {"approved": False}


def test_m3_an_agent_that_cannot_be_told_says_so(serve):
    remote = serve(pauses(2))
    agent = adapter(remote, Profile.LANGGRAPH)
    paused = begin(agent, FakeHost())
    error = refusal(agent, FakeHost(), state=paused.state)
    assert "Begin a new conversation" in str(error)
    assert len(remote.bodies) == 1


def test_m3_an_agent_that_keeps_asking_is_given_up(serve):
    remote = serve(*[pauses()] * 10)
    agent = adapter(remote)
    paused = begin(agent, FakeHost())
    refusal(agent, FakeHost(), state=paused.state)
    assert len(remote.bodies) == 4


# States


@pytest.mark.parametrize(
    "state",
    [
        {},
        {"schema": 2},
        {"schema": 1, "messages": [1], "open": [], "run": "", "turn": 0},
        {"schema": 1, "messages": [], "open": [{}], "run": "", "turn": 0},
        {"schema": 1, "messages": [], "open": [], "run": "", "turn": -1},
    ],
)
def test_m18_a_state_that_cannot_be_read_is_refused(serve, state):
    remote = serve()
    with pytest.raises(CheckpointError):
        begin(adapter(remote), FakeHost(), state=state)
    assert remote.requests == []


def test_m18_answers_to_other_requests_are_refused(serve):
    remote = serve(pauses(2))
    host, agent = FakeHost(), adapter(remote)
    paused = begin(agent, host)
    with pytest.raises(CheckpointError):
        go_on(agent, host, paused, approve(host, paused)[:1])
    assert len(remote.bodies) == 1


# Captures of real servers

CAPTURED = sorted(
    f"{path.parent.name}/{path.stem}" for path in Path(CAPTURES).glob("*/*.jsonl")
)


@pytest.fixture(scope="module")
def replay(tmp_path_factory):
    """One server for all captures."""
    import subprocess
    import sys

    from tests.hitlagents.remote.conftest import STUB

    folder = tmp_path_factory.mktemp("replay")
    process = subprocess.Popen([sys.executable, str(STUB), str(folder)])
    deadline = time.monotonic() + 20
    while not (folder / "port").exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    yield f"http://127.0.0.1:{(folder / 'port').read_text()}/replay"
    process.kill()
    process.wait()


@pytest.mark.parametrize("capture", CAPTURED)
def test_m21_every_answer_of_a_real_server_is_read(replay, capture):
    replies = replies_of(capture)
    assert replies

    async def read(number):
        endpoint = Endpoint(url=f"{replay}/{capture}/{number}", allow_private=True)
        reader = Reader(turn=1, messages=[], label=str(uuid4()))
        happened = []
        async for event in client.events(endpoint, {}):
            happened += reader.take(event)
            if reader.ending is not None:
                break
        reader.check_ended()
        return reader, happened

    for number, reply in enumerate(replies):
        if reply["status"] != 200:
            with pytest.raises(client.NotTaken):
                asyncio.run(read(number))
            continue
        reader, happened = asyncio.run(read(number))
        assert reader.ending is not None
        text = "".join(reply["parts"])
        assert ("RUN_ERROR" in text) == (reader.ending.error is not None)
        asked = '"type": "interrupt"' in text or '"on_interrupt"' in text
        assert bool(reader.ending.interrupts) == asked
        results = text.count('"TOOL_CALL_RESULT"')
        assert len([h for h in happened if hasattr(h, "content")]) + reader.dropped >= (
            results
        )


def replayed(capture, serve):
    return serve(*replies_of(capture))


def test_m1_agent_framework_as_it_answered(serve):
    remote = replayed("agent-framework/01-interrupt-approve", serve)
    host, agent = FakeHost(), adapter(remote, Profile.AGENT_FRAMEWORK)
    paused = begin(agent, host, "please delete a.txt")
    [draft] = paused.interrupts
    assert draft.call.tool == "delete_file"
    assert json.loads(draft.call.arguments) == {"filename": "a.txt"}
    assert draft.editable
    assert draft.message == "Approve running delete_file?"
    assert draft.title == draft.consequence == ""
    # Not the call that the server makes up for its own pages.
    assert [call.tool for call in host.proposed] == ["delete_file"]
    go_on(agent, host, paused, approve(host, paused))
    assert host.text == "Results: Deleted a.txt."
    assert list(host.ledger.values()) == ["Deleted a.txt."]
    [entry] = remote.bodies[1]["resume"]
    assert entry["interruptId"].startswith("af-call-")
    assert entry["payload"] == {"approved": True}


def test_m11_a_graph_as_it_answered(serve):
    remote = replayed("langgraph/01-interrupt-approve", serve)
    host, agent = FakeHost(), adapter(remote, Profile.LANGGRAPH)
    paused = begin(agent, host, "delete a.txt")
    [draft] = paused.interrupts
    assert draft.message == "Delete a.txt?"
    assert draft.kind == InterruptKind.APPROVAL
    go_on(agent, host, paused, approve(host, paused))
    assert host.text == "Deleted a.txt."


def test_m11_a_graphs_question_as_it_was_asked(serve):
    remote = replayed("langgraph/40-text", serve)
    paused = begin(adapter(remote, Profile.LANGGRAPH), FakeHost())
    [draft] = paused.interrupts
    assert draft.message == "What is your name?"
    assert draft.kind == InterruptKind.QUESTION


def test_m21_an_interrupt_without_an_id_cannot_be_answered(serve):
    remote = serve(sse(started(), finished({"reason": "confirmation"})))
    error = refusal(adapter(remote), FakeHost())
    assert "without an id" in str(error)


def test_m21_an_address_of_the_sixth_version(serve):
    remote = serve()
    error = refusal(adapter(remote, url="http://[::1]:1/agent"), FakeHost())
    assert "could not be reached" in str(error)


@pytest.mark.parametrize("parent", ["", "one"])
def test_m21_a_great_many_calls_hold_up_nobody(parent):
    """The loop is that of every agent: these took minutes, and a whole answer hours."""
    reader = Reader(turn=1, messages=[], label=str(uuid4()))
    begun = time.process_time()
    list(reader.take({"type": "RUN_STARTED"}))
    for n in range(15_000):
        about = {"toolCallId": f"c{n}", "toolCallName": "a", "parentMessageId": parent}
        for kind in ("TOOL_CALL_START", "TOOL_CALL_END", "TOOL_CALL_RESULT"):
            list(reader.take({"type": kind, "content": "", **about}))
    assert time.process_time() - begun < 10
    assert len(reader.calls) == len(reader.results) == 15_000
