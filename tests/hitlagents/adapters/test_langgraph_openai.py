"""A real model for LangGraph, against a strict server on the loopback."""

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
from hitlagents.adapters.base import AgentRunError, Finished, Interrupted
from hitlagents.adapters.langgraph_models import from_environment, openai_compatible
from hitlagents.adapters.model_choice import RealModel
from hitlagents.demo.scripted import Reply
from tests.hitlagents.adapters.harness import LangGraphHarness
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

MANY = Reply(
    "Working on it.",
    [
        call("delete", "same", filename="a.txt"),
        call("lookup", "same", name="x"),
        call("transfer", "c3", amount=2**53 + 1),
        call("format_disk", "c4", drive="c"),
    ],
)


@pytest.fixture
def stub() -> Iterator[OpenAIStub]:
    with OpenAIStub(plays(MANY, heard)) as server:
        yield server


def agent(stub: OpenAIStub, tools: Tools, *, key: str = KEY, retries: int = 0):
    made = LangGraphHarness().build(plays(heard), tools)
    made.model = openai_compatible(
        RealModel(name=MODEL, base_url=stub.base_url, key=key), retries=retries
    )
    made.model_label = made.model.label
    return made


def run(stub: OpenAIStub, host: FakeHost, tools: Tools | None = None, **how):
    return asyncio.run(agent(stub, tools or Tools(), **how).start(start(host), host))


def test_mixed_answers_through_a_pause_and_json(stub):
    host, tools = FakeHost(allowed=FREE), Tools()
    paused = run(stub, host, tools)
    assert isinstance(paused, Interrupted)
    assert [d.call.tool for d in paused.interrupts] == ["delete", "transfer"]
    assert host.kinds() == "text call call call call result result"
    answers = [
        deny(host, paused.interrupts[0], "still needed 🙂"),
        host.decide(paused.interrupts[1], Verdict.APPROVE),
    ]
    job = resume(host, paused.state, answers)
    done = asyncio.run(agent(stub, tools).resume(job, host))
    assert isinstance(done, Finished)
    assert tools.effects == ["lookup x", f"transfer {2**53 + 1} to bob"]
    assert host.text == (
        "Working on it.I heard: "
        "Not executed: a reviewer denied this call. still needed 🙂 | x is known | "
        f"Sent {2**53 + 1} to bob. | "
        "Not executed: there is no tool named 'format_disk'."
    )

    # The next message of the thread, with the whole conversation sent along.
    after = FakeHost(allowed=FREE)
    stub.script = plays(Reply("You are welcome."))
    job = start(after, "Thanks", state=done.state)
    asyncio.run(agent(stub, tools).start(job, after))
    assert after.text == "You are welcome."
    roles = [message["role"] for message in stub.requests[-1]["messages"]]
    assert roles == [
        "system", "user", "assistant", "tool", "tool", "tool", "tool", "assistant",
        "user",
    ]  # fmt: skip


def test_an_abandoned_pause_leaves_a_valid_conversation(stub):
    host = FakeHost(allowed=FREE)
    paused = run(stub, host)
    after = FakeHost()
    stub.script = plays(Reply("Hello again."))
    job = start(after, "Hello", state=paused.state)
    assert isinstance(asyncio.run(agent(stub, Tools()).start(job, after)), Finished)
    assert after.text == "Hello again."


def test_arguments_nobody_can_read_are_asked_about_as_they_are(stub):
    from hitlagents.demo.scripted import Call

    stub.script = plays(Reply("", [Call("c1", "delete", '{"filename": NaN}')]), heard)
    host = FakeHost()
    paused = run(stub, host)
    assert [d.call.arguments for d in paused.interrupts] == ['{"filename": NaN}']
    job = resume(host, paused.state, approve(host, paused))
    asyncio.run(agent(stub, Tools()).resume(job, host))
    assert "NaN" in host.text


def test_another_process_goes_on(stub):
    host = FakeHost(allowed=FREE)
    paused = run(stub, host)
    answers = [
        deny(host, paused.interrupts[0], "no"),
        host.decide(paused.interrupts[1], Verdict.APPROVE),
    ]
    code = """
import asyncio, json, sys
from uuid import UUID
from approvals.schemas import Answer
from hitlagents.adapters.base import Resume
from hitlagents.adapters.langgraph_models import from_environment
from tests.hitlagents.adapters.harness import LangGraphHarness
from tests.hitlagents.fakes import FREE, FakeHost, Tools, heard, plays
job = json.load(sys.stdin)
answers = [Answer.model_validate(a) for a in job["answers"]]
host = FakeHost(run_id=UUID(job["run_id"]), allowed=FREE)
host.decisions = {(a.call.turn, a.call.call_id): a for a in answers}
tools = Tools()
agent = LangGraphHarness().build(plays(heard), tools)
agent.model = from_environment(heard)
resume = Resume(run_id=host.run_id, thread_id=UUID(job["thread"]), state=job["state"],
                answers=answers)
asyncio.run(agent.resume(resume, host))
print(json.dumps([agent.model.label, tools.effects, host.text]))
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
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    label, effects, text = json.loads(done.stdout)
    assert label == f"stub-1 at 127.0.0.1:{stub.base_url.split(':')[2].split('/')[0]}"
    assert effects == [f"transfer {2**53 + 1} to bob"]
    assert "denied this call. no | x is known" in text


def test_the_request_says_no_more_than_it_must(stub):
    stub.script = plays(Reply("Hi."))
    run(stub, FakeHost())
    [request] = stub.requests
    assert request["stream"] is True
    assert request["messages"][0]["role"] == "system"
    assert len(request["tools"]) == 8
    assert "user" not in request
    assert "metadata" not in request


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
    with pytest.raises(AgentRunError, match=told) as raised:
        run(stub, FakeHost())
    assert raised.value.retryable is retryable
    assert KEY not in str(raised.value)
    assert f"HTTP {status}" in str(raised.value)


def test_a_refusal_after_the_tool_can_be_retried(stub):
    host, tools = FakeHost(allowed=FREE), Tools()
    paused = run(stub, host, tools)
    job = resume(host, paused.state, approve(host, paused))
    stub.failures = [503]
    with pytest.raises(AgentRunError) as raised:
        asyncio.run(agent(stub, tools).resume(job, host))
    assert raised.value.retryable
    host.happenings.clear()
    assert isinstance(asyncio.run(agent(stub, tools).resume(job, host)), Finished)
    assert tools.effects.count("delete a.txt") == 1


def test_a_passing_failure_is_ridden_out(stub):
    stub.failures = [503]
    stub.script = plays(Reply("Hi."))
    assert isinstance(run(stub, FakeHost(), retries=1), Finished)


def test_a_broken_stream_saves_nothing(stub):
    stub.break_after = 12  # in the middle of the arguments
    host = FakeHost(allowed=["delete", "transfer"])
    with pytest.raises(AgentRunError, match="was cut off") as raised:
        run(stub, host)
    assert raised.value.retryable
    assert host.proposed == []
    assert host.guarded == []


def test_nobody_at_the_address():
    with OpenAIStub(plays(heard)) as gone:
        pass
    with pytest.raises(AgentRunError, match="could not be reached") as raised:
        run(gone, FakeHost())
    assert raised.value.retryable


def test_which_model_is_chosen_and_said():
    assert from_environment(heard, {}).label == "Scripted model, no network"
    real = {"SAYSO_MODEL": "gpt-9", "OPENAI_BASE_URL": "http://u:p@box:11434/v1"}
    assert from_environment(heard, real).label == "gpt-9 at box:11434"
    with pytest.raises(ValueError, match="OPENAI_BASE_URL"):
        from_environment(heard, {"SAYSO_MODEL": "gpt-9"})
