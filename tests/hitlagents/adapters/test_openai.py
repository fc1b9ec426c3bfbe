"""A real model by environment, against a strict server on the loopback."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from approvals.states import Verdict
from hitlagents.adapters.agent_framework_models import (
    from_environment,
    openai_compatible,
)
from hitlagents.adapters.base import AgentRunError, Finished, Gating, Interrupted
from hitlagents.adapters.model_choice import RealModel
from hitlagents.demo import file_ops, scripted
from hitlagents.demo.scripted import Reply
from tests.hitlagents.fakes import (
    FakeHost,
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

ALLOWED = frozenset({"list_files", "read_file"})


@pytest.fixture
def stub() -> Iterator[OpenAIStub]:
    with OpenAIStub(scripted.reply) as server:
        yield server


def agent(stub: OpenAIStub, root: Path, *, key: str = KEY, retries: int = 0):
    model = openai_compatible(
        RealModel(name=MODEL, base_url=stub.base_url, key=key), retries=retries
    )
    return file_ops.build(Gating(allowed=ALLOWED), root=root, model=model)


def test_mixed_answers_through_a_pause_and_json(stub, tmp_path):
    host, thread_id = FakeHost(allowed=sorted(ALLOWED)), uuid4()
    job = start(
        host, "Delete report.txt, notes.md and gone.txt and list the files",
        thread_id=thread_id,
    )  # fmt: skip
    paused = asyncio.run(agent(stub, tmp_path).start(job, host))
    assert isinstance(paused, Interrupted)
    drafts = list(paused.interrupts)
    names = [json.loads(draft.call.arguments)["filename"] for draft in drafts]
    assert names == ["report.txt", "notes.md", "gone.txt"]
    answers = [
        host.decide(drafts[0], Verdict.APPROVE),
        deny(host, drafts[1], "still needed 🙂"),
        host.decide(drafts[2], Verdict.RESPOND, output="It went long ago."),
    ]
    goes_on = resume(host, paused.state, answers)
    object.__setattr__(goes_on, "thread_id", thread_id)
    done = asyncio.run(agent(stub, tmp_path).resume(goes_on, host))
    assert isinstance(done, Finished)
    assert "Deleted report.txt." in host.text
    assert "the reviewer said “still needed 🙂”" in host.text
    assert "It went long ago." in host.text
    left = {path.name for path in (tmp_path / str(thread_id)).iterdir()}
    assert left == {"notes.md", "customers.csv", "q3-forecast-draft.xlsx"}
    assert host.kinds().startswith("text call call call call result result result")

    # The next message of the thread, with the whole conversation sent along.
    after = FakeHost(allowed=sorted(ALLOWED))
    job = start(after, "Thanks", thread_id=thread_id, state=done.state)
    asyncio.run(agent(stub, tmp_path).start(job, after))
    assert after.text == "You are welcome."
    roles = [message["role"] for message in stub.requests[-1]["messages"]]
    assert roles == [
        "system", "user", "assistant", "tool", "tool", "tool", "tool", "assistant",
        "user",
    ]  # fmt: skip


def test_an_abandoned_pause_leaves_a_valid_conversation(stub, tmp_path):
    host = FakeHost()
    paused = asyncio.run(
        agent(stub, tmp_path).start(start(host, "Delete a.txt and b.txt"), host)
    )
    after = FakeHost()
    job = start(after, "Hello", state=paused.state)
    done = asyncio.run(agent(stub, tmp_path).start(job, after))
    assert isinstance(done, Finished)
    assert after.text == scripted.GREETING


def test_an_unknown_tool_is_denied_in_a_way_the_api_accepts(stub, tmp_path):
    calls = [
        call("format_disk", "c1", drive="c"),
        call("delete_file", "c2", filename="notes.md"),
    ]
    stub.script = plays(Reply("", calls), heard)
    host = FakeHost()
    paused = asyncio.run(agent(stub, tmp_path).start(start(host), host))
    done = asyncio.run(
        agent(stub, tmp_path).resume(
            resume(host, paused.state, approve(host, paused)), host
        )
    )
    assert isinstance(done, Finished)
    assert "there is no tool named 'format_disk'" in host.text


def test_another_process_goes_on(stub, tmp_path):
    host, thread_id = FakeHost(), uuid4()
    job = start(host, "Delete report.txt and notes.md", thread_id=thread_id)
    paused = asyncio.run(agent(stub, tmp_path).start(job, host))
    answers = [
        deny(host, paused.interrupts[0], "no"),
        host.decide(paused.interrupts[1], Verdict.APPROVE),
    ]
    code = """
import asyncio, json, sys
from pathlib import Path
from uuid import UUID
from approvals.schemas import Answer
from hitlagents.adapters.base import Gating, Resume
from hitlagents.demo import file_ops
from tests.hitlagents.fakes import FakeHost
job = json.load(sys.stdin)
answers = [Answer.model_validate(a) for a in job["answers"]]
host = FakeHost(run_id=UUID(job["run_id"]))
host.decisions = {(a.call.turn, a.call.call_id): a for a in answers}
agent = file_ops.build(Gating(allowed=frozenset()), root=Path(job["root"]))
resume = Resume(run_id=host.run_id, thread_id=UUID(job["thread"]), state=job["state"],
                answers=answers)
asyncio.run(agent.resume(resume, host))
print(json.dumps([agent.model_label, host.text]))
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        input=json.dumps(
            {
                "run_id": str(host.run_id),
                "thread": str(thread_id),
                "root": str(tmp_path),
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
    label, text = json.loads(done.stdout)
    assert label == f"stub-1 at 127.0.0.1:{stub.base_url.split(':')[2].split('/')[0]}"
    assert text == (
        "I did not delete report.txt, because the reviewer said “no”.\n\n"
        "Deleted notes.md."
    )


def test_the_request_says_no_more_than_it_must(stub, tmp_path):
    host = FakeHost(allowed=sorted(ALLOWED))
    asyncio.run(agent(stub, tmp_path).start(start(host, "list files"), host))
    request = stub.requests[0]
    assert request["stream"] is True
    assert {t["function"]["name"] for t in request["tools"]} == {
        "delete_file",
        "list_files",
        "read_file",
    }
    assert request["messages"][0]["role"] == "system"
    for headers in stub.headers:
        assert "agent-framework" not in headers["user-agent"].lower()
        assert "feat=" not in str(headers)


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
def test_refusals_are_told_without_secrets(stub, tmp_path, status, told, retryable):
    stub.failures = [status]
    host = FakeHost()
    with pytest.raises(AgentRunError, match=told) as raised:
        asyncio.run(agent(stub, tmp_path).start(start(host), host))
    assert raised.value.retryable is retryable
    assert KEY not in str(raised.value)
    assert f"HTTP {status}" in str(raised.value)


def test_a_refusal_after_the_tool_can_be_retried(stub, tmp_path):
    host, thread_id = FakeHost(), uuid4()
    job = start(host, "Delete report.txt", thread_id=thread_id)
    paused = asyncio.run(agent(stub, tmp_path).start(job, host))
    answers = approve(host, paused)
    stub.failures = [503]
    goes_on = resume(host, paused.state, answers)
    with pytest.raises(AgentRunError) as raised:
        asyncio.run(agent(stub, tmp_path).resume(goes_on, host))
    assert raised.value.retryable
    host.happenings.clear()
    done = asyncio.run(agent(stub, tmp_path).resume(goes_on, host))
    assert isinstance(done, Finished)
    assert len(host.entered) == 1


def test_a_passing_failure_is_ridden_out(stub, tmp_path):
    stub.failures = [503]
    host = FakeHost()
    job = start(host, "hello")
    done = asyncio.run(agent(stub, tmp_path, retries=1).start(job, host))
    assert isinstance(done, Finished)


def test_a_broken_stream_saves_nothing(stub, tmp_path):
    stub.break_after = 12  # in the middle of the arguments
    host = FakeHost(allowed=["delete_file"])
    job = start(host, "Delete report.txt")
    with pytest.raises(AgentRunError, match="was cut off") as raised:
        asyncio.run(agent(stub, tmp_path).start(job, host))
    assert raised.value.retryable
    assert host.proposed == []
    assert host.guarded == []


def test_nobody_at_the_address(tmp_path):
    with OpenAIStub(scripted.reply) as gone:
        pass
    host = FakeHost()
    with pytest.raises(AgentRunError, match="could not be reached") as raised:
        asyncio.run(agent(gone, tmp_path).start(start(host), host))
    assert raised.value.retryable


# Which model


def test_without_a_model_it_is_scripted_and_says_so():
    for environ in ({}, {"OPENAI_API_KEY": "x"}, {"OPENAI_BASE_URL": "http://x/v1"}):
        assert (
            from_environment(scripted.reply, environ).label
            == "Scripted model, no network"
        )


@pytest.mark.parametrize(
    ("environ", "label"),
    [
        ({"OPENAI_API_KEY": "k"}, "gpt-9 at api.openai.com"),
        ({"OPENAI_BASE_URL": "http://u:p@box:11434/v1"}, "gpt-9 at box:11434"),
        ({"OPENAI_BASE_URL": "https://x.example/v1"}, "gpt-9 at x.example"),
    ],
)
def test_a_named_model_is_real_and_says_where(environ, label):
    assert (
        from_environment(scripted.reply, {"SAYSO_MODEL": "gpt-9", **environ}).label
        == label
    )


def test_a_named_model_without_an_address_or_key_is_refused():
    with pytest.raises(ValueError, match="OPENAI_BASE_URL"):
        from_environment(scripted.reply, {"SAYSO_MODEL": "gpt-9"})
