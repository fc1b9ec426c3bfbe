"""file-ops with the model its environment names, a strict server on the loopback."""

from __future__ import annotations

import asyncio
import json
from uuid import uuid4

import pytest

from approvals.states import Verdict
from hitlagents.adapters.base import Finished, Gating, Interrupted
from hitlagents.demo import file_ops, scripted_file_ops
from tests.hitlagents.fakes import FakeHost, deny, resume, start
from tests.hitlagents.openai_stub import MODEL, OpenAIStub

pytestmark = pytest.mark.once

ALLOWED = frozenset({"list_files", "read_file"})


@pytest.fixture
def stub(monkeypatch):
    with OpenAIStub(scripted_file_ops.reply) as server:
        for name, value in server.environ.items():
            monkeypatch.setenv(name, value)
        yield server


def agent(root):
    return file_ops.build(Gating(allowed=ALLOWED), root=root)


def test_mixed_answers_through_a_pause_and_json(stub, tmp_path):
    host, thread_id = FakeHost(allowed=sorted(ALLOWED)), uuid4()
    job = start(
        host, "Delete report.txt, notes.md and gone.txt and list the files",
        thread_id=thread_id,
    )  # fmt: skip
    paused = asyncio.run(agent(tmp_path).start(job, host))
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
    done = asyncio.run(agent(tmp_path).resume(goes_on, host))
    assert isinstance(done, Finished)
    assert "Deleted report.txt." in host.text
    assert "the reviewer said “still needed 🙂”" in host.text
    assert "It went long ago." in host.text
    left = {path.name for path in (tmp_path / str(thread_id)).iterdir()}
    assert left == {"notes.md", "customers.csv", "q3-forecast-draft.xlsx"}
    assert host.kinds().startswith("text call call call call result result result")
    assert {tool["function"]["name"] for tool in stub.requests[0]["tools"]} == {
        "delete_file",
        "list_files",
        "read_file",
    }

    # The next message of the thread, with the whole conversation sent along.
    after = FakeHost(allowed=sorted(ALLOWED))
    job = start(after, "Thanks", thread_id=thread_id, state=done.state)
    asyncio.run(agent(tmp_path).start(job, after))
    assert after.text == "You are welcome."


def test_the_label_says_which_model_and_where(stub):
    address = stub.base_url.removeprefix("http://").removesuffix("/v1")
    assert file_ops.SPEC.model_label() == f"{MODEL} at {address}"
