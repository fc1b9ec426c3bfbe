"""The OpenAI Agents SDK with a real model by environment, on the loopback."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from uuid import uuid4

import pytest

from approvals.states import Verdict
from hitlagents.adapters.base import AgentRunError, Finished, Gating, Interrupted
from hitlagents.adapters.model_choice import RealModel
from hitlagents.adapters.openai_agents import OpenAIAgentsAdapter
from hitlagents.adapters.openai_agents_models import (
    from_environment,
    openai_compatible,
)
from hitlagents.demo.scripted import Reply
from tests.hitlagents.fakes import (
    FREE,
    FakeHost,
    Tools,
    approve,
    call,
    deny,
    heard,
    plays,
    resume,
    start,
    through_json,
)
from tests.hitlagents.openai_stub import KEY, MODEL, OpenAIStub

pytestmark = pytest.mark.once

CALLS = [
    call("delete", "same", filename="a.txt"),
    call("lookup", "same2", name="x"),
    call("transfer", "c3", amount=5, to="eve"),
    call("delete", "c4", filename="b.txt"),
]
SCRIPT = plays(Reply("I will tidy up, one moment.", CALLS), heard)


@pytest.fixture
def stub() -> Iterator[OpenAIStub]:
    with OpenAIStub(SCRIPT) as server:
        yield server


def agent(stub: OpenAIStub, tools: Tools, *, key: str = KEY, retries: int = 0):
    return made(
        tools,
        openai_compatible(
            RealModel(name=MODEL, base_url=stub.base_url, key=key), retries=retries
        ),
    )


def made(tools: Tools, model) -> OpenAIAgentsAdapter:
    from agents import Agent, function_tool

    return OpenAIAgentsAdapter(
        make=lambda: Agent(
            name="tester",
            instructions="Do as you are told.",
            tools=[function_tool(function) for function in tools.functions()],
        ),
        model=model,
        gating=Gating(allowed=frozenset(FREE)),
    )


def test_mixed_answers_through_a_pause_and_json(stub):
    tools, host = Tools(), FakeHost(allowed=FREE)
    paused = asyncio.run(agent(stub, tools).start(start(host), host))
    assert isinstance(paused, Interrupted)
    drafts = list(paused.interrupts)
    assert [draft.call.tool for draft in drafts] == ["delete", "transfer", "delete"]
    assert json.loads(drafts[1].call.arguments) == {"amount": 5, "to": "eve"}
    assert drafts[0].call.framework_ref == "same"
    answers = [
        deny(host, drafts[0], "still needed 🙂"),
        host.decide(drafts[1], Verdict.APPROVE, arguments={"amount": 4, "to": "bob"}),
        host.decide(drafts[2], Verdict.RESPOND, output="It went long ago."),
    ]
    done = asyncio.run(
        agent(stub, tools).resume(resume(host, paused.state, answers), host)
    )
    assert isinstance(done, Finished)
    assert tools.effects == ["lookup x", "transfer 4 to bob"]
    for text in (
        "still needed 🙂",
        "Sent 4 to bob.",
        "It went long ago.",
        "x is known",
    ):
        assert text in host.text
    assert host.kinds().startswith("text call call call call result")

    # The next message of the thread, with the whole conversation sent along.
    stub.script = plays(Reply("You are welcome."))
    after = FakeHost(allowed=FREE)
    asyncio.run(
        agent(stub, tools).start(start(after, "Thanks", state=done.state), after)
    )
    assert after.text == "You are welcome."
    roles = [message["role"] for message in stub.requests[-1]["messages"]]
    assert roles == [
        "system", "user", "assistant", "tool", "tool", "tool", "tool", "assistant",
        "user",
    ]  # fmt: skip


def test_the_text_streams_in_pieces(stub):
    stub.script = plays(Reply("One two three four five six."))
    host = FakeHost()
    asyncio.run(agent(stub, Tools()).start(start(host), host))
    assert host.text == "One two three four five six."
    assert len(host.happenings) > 4


def test_an_abandoned_pause_leaves_a_valid_conversation(stub):
    host = FakeHost(allowed=FREE)
    paused = asyncio.run(agent(stub, Tools()).start(start(host), host))
    stub.script = plays(Reply("Hello."))
    after = FakeHost()
    done = asyncio.run(
        agent(stub, Tools()).start(start(after, "Hi", state=paused.state), after)
    )
    assert isinstance(done, Finished)
    assert after.text == "Hello."


def test_an_unknown_tool_is_answered_in_a_way_the_api_accepts(stub):
    calls = [call("format_disk", "c1", drive="c"), call("delete", "c2", filename="a")]
    stub.script = plays(Reply("", calls), heard)
    host, tools = FakeHost(), Tools()
    paused = asyncio.run(agent(stub, tools).start(start(host), host))
    assert isinstance(paused, Interrupted)
    done = asyncio.run(
        agent(stub, tools).resume(
            resume(host, paused.state, approve(host, paused)), host
        )
    )
    assert isinstance(done, Finished)
    assert "there is no tool named 'format_disk'" in host.text


def test_a_helper_and_a_handoff_speak_the_same_protocol(stub):
    from agents import Agent, function_tool

    tools = Tools()

    def make():
        helper = Agent(name="helper", tools=[function_tool(tools.delete)])
        clerk = Agent(name="clerk", tools=[helper.as_tool("ask_helper", "Ask.")])
        return Agent(name="front", handoffs=[clerk])

    def script(history):
        texts = [item.text for item in history if hasattr(item, "text")]
        if texts[0] == "tidy up":
            return plays(Reply("", [call("delete", filename="a")]), heard)(history)
        return plays(
            Reply("", [call("transfer_to_clerk", "h1")]),
            Reply("", [call("ask_helper", "h2", input="tidy up")]),
            heard,
        )(history)

    stub.script = script
    model = openai_compatible(
        RealModel(name=MODEL, base_url=stub.base_url, key=KEY), retries=0
    )
    adapter = OpenAIAgentsAdapter(
        make=make, model=model, gating=Gating(allowed=frozenset({"ask_helper"}))
    )
    host = FakeHost(allowed=["ask_helper"])
    paused = asyncio.run(adapter.start(start(host), host))
    assert isinstance(paused, Interrupted)
    job = resume(host, paused.state, approve(host, paused))
    assert isinstance(asyncio.run(adapter.resume(job, host)), Finished)
    assert tools.effects == ["delete a"]
    assert host.text == 'I heard: {"assistant": "clerk"} | I heard: Deleted a.'


def test_another_process_goes_on(stub):
    host = FakeHost(allowed=FREE)
    paused = asyncio.run(agent(stub, Tools()).start(start(host), host))
    answers = [
        deny(host, paused.interrupts[0], "no"),
        host.decide(paused.interrupts[1], Verdict.APPROVE),
        host.decide(paused.interrupts[2], Verdict.APPROVE),
    ]
    code = """
import asyncio, json, sys
from uuid import UUID
from approvals.schemas import Answer
from hitlagents.adapters.base import Resume
from hitlagents.adapters.openai_agents_models import from_environment
from tests.hitlagents.adapters.test_openai_agents_real import FakeHost, Tools, made
job = json.load(sys.stdin)
answers = [Answer.model_validate(a) for a in job["answers"]]
host = FakeHost(run_id=UUID(job["run_id"]))
host.decisions = {(a.call.turn, a.call.call_id): a for a in answers}
tools = Tools()
agent = made(tools, from_environment(None))
resume = Resume(run_id=host.run_id, thread_id=UUID(job["thread"]), state=job["state"],
                answers=answers)
asyncio.run(agent.resume(resume, host))
print(json.dumps([agent.model_label, tools.effects, host.text]))
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        input=json.dumps(
            {
                "run_id": str(host.run_id),
                "thread": str(uuid4()),
                "state": through_json(paused.state),
                "answers": [answer.model_dump(mode="json") for answer in answers],
            }
        ),
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([".", "agents"]),
            "OPENAI_BASE_URL": stub.base_url,
            "OPENAI_API_KEY": KEY,
            "SAYSO_MODEL": MODEL,
        },
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    label, effects, text = json.loads(done.stdout)
    assert label == f"stub-1 at 127.0.0.1:{stub.base_url.split(':')[2].split('/')[0]}"
    assert effects == ["transfer 5 to eve", "delete b.txt"]
    assert "denied this call. no" in text


def test_the_request_says_no_more_than_it_must(stub):
    host = FakeHost(allowed=FREE)
    asyncio.run(agent(stub, Tools()).start(start(host), host))
    request = stub.requests[0]
    assert set(request) == {"messages", "model", "stream", "tools"}
    assert request["stream"] is True
    assert request["messages"][0] == {
        "role": "system",
        "content": "Do as you are told.",
    }


def test_openai_itself_is_told_not_to_keep_the_conversation():
    model = openai_compatible(
        RealModel(name="gpt-9", base_url="https://api.openai.com/v1", key="k")
    )
    assert model.settings == {"store": False}
    elsewhere = openai_compatible(RealModel(name="gpt-9", base_url="http://box:1/v1"))
    assert elsewhere.settings == {}


@pytest.mark.parametrize(
    ("status", "told", "retryable"),
    [
        (400, "refused the request", False),
        (401, "does not accept our key", True),
        (404, "does not exist at that address", True),
        (429, "is not available now", True),
        (500, "is not available now", True),
    ],
)
def test_refusals_are_told_without_secrets(stub, status, told, retryable):
    stub.failures = [status]
    host = FakeHost()
    with pytest.raises(AgentRunError, match=told) as raised:
        asyncio.run(agent(stub, Tools()).start(start(host), host))
    assert raised.value.retryable is retryable
    assert KEY not in str(raised.value)
    assert f"HTTP {status}" in str(raised.value)


def test_a_refusal_after_the_tool_can_be_retried(stub):
    host, tools = FakeHost(allowed=FREE), Tools()
    paused = asyncio.run(agent(stub, tools).start(start(host), host))
    goes_on = resume(host, paused.state, approve(host, paused))
    stub.failures = [503]
    with pytest.raises(AgentRunError) as raised:
        asyncio.run(agent(stub, tools).resume(goes_on, host))
    assert raised.value.retryable
    host.happenings.clear()
    done = asyncio.run(agent(stub, tools).resume(goes_on, host))
    assert isinstance(done, Finished)
    assert tools.effects == [
        "lookup x",
        "delete a.txt",
        "transfer 5 to eve",
        "delete b.txt",
    ]


def test_a_passing_failure_is_ridden_out(stub):
    stub.failures = [503]
    stub.script = plays(Reply("Here I am."))
    host = FakeHost()
    done = asyncio.run(agent(stub, Tools(), retries=1).start(start(host), host))
    assert isinstance(done, Finished)


@pytest.mark.parametrize("after", [2, 12])
def test_a_broken_stream_saves_nothing(stub, after):
    stub.break_after = after  # in the middle of the text, and of the arguments
    host = FakeHost(allowed=["delete", *FREE])
    with pytest.raises(AgentRunError, match="was cut off") as raised:
        asyncio.run(agent(stub, Tools()).start(start(host), host))
    assert raised.value.retryable
    assert host.proposed == []
    assert host.guarded == []


def test_nobody_at_the_address():
    with OpenAIStub(SCRIPT) as gone:
        pass
    host = FakeHost()
    with pytest.raises(AgentRunError, match="could not be reached") as raised:
        asyncio.run(agent(gone, Tools()).start(start(host), host))
    assert raised.value.retryable


def test_without_a_model_it_is_scripted_and_says_so():
    assert from_environment(SCRIPT, {}).label == "Scripted model, no network"
    named = from_environment(SCRIPT, {"SAYSO_MODEL": "gpt-9", "OPENAI_API_KEY": "k"})
    assert named.label == "gpt-9 at api.openai.com"
    with pytest.raises(ValueError, match="OPENAI_BASE_URL"):
        from_environment(SCRIPT, {"SAYSO_MODEL": "gpt-9"})
