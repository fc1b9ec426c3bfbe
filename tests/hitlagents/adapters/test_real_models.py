"""What any adapter must do with a real model, which is a strict server on the loopback.

Every test runs for every framework.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from approvals.states import Verdict
from hitlagents.adapters import model_choice
from hitlagents.adapters.base import Adapter, AgentRunError, Finished
from hitlagents.adapters.model_choice import RealModel
from hitlagents.demo.scripted import LABEL, Call, Reply
from tests.hitlagents.adapters.bench import Bench
from tests.hitlagents.adapters.elsewhere import resume_elsewhere
from tests.hitlagents.adapters.harness import HARNESSES, Harness
from tests.hitlagents.fakes import (
    ALL_TOOLS,
    FREE,
    FakeHost,
    Tools,
    approve,
    call,
    deny,
    heard,
    plays,
)
from tests.hitlagents.openai_stub import KEY, MODEL, OpenAIStub

pytestmark = pytest.mark.once

LARGE = 2**53 + 1
CALLS = [
    call("delete", "same", filename="a.txt"),
    call("lookup", "same", name="x"),
    call("transfer", "c3", amount=LARGE, to="eve"),
    call("format_disk", "c4", drive="c"),
    call("delete", "c5", filename="b.txt"),
]
SCRIPT = plays(Reply("I will tidy up, one moment.", CALLS), heard)

#: Where Genkit keeps its sessions says nothing of its models.
FRAMEWORKS = sorted(HARNESSES.keys() - {"genkit_store"})


@dataclass
class Real(Bench):
    """One agent with the server as its model."""

    harness: Harness
    stub: OpenAIStub
    tools: Tools = field(default_factory=Tools)
    host: FakeHost = field(default_factory=lambda: FakeHost(allowed=FREE))
    retries: int = 0

    @property
    def adapter(self) -> Adapter:
        real = RealModel(name=MODEL, base_url=self.stub.base_url, key=KEY)
        model = self.harness.models.openai_compatible(real, retries=self.retries)
        return self.harness.around(model, self.tools)


@pytest.fixture(params=FRAMEWORKS)
def harness(request: pytest.FixtureRequest) -> Harness:
    return HARNESSES[request.param]


@pytest.fixture
def stub() -> Iterator[OpenAIStub]:
    with OpenAIStub(SCRIPT) as server:
        yield server


@pytest.fixture
def it(harness: Harness, stub: OpenAIStub) -> Real:
    return Real(harness, stub)


def told(text: str) -> set[str]:
    """The results a model heard of, in whatever order its framework sent them."""
    return set(text.removeprefix("I heard: ").split(" | "))


# A pause, and what comes after


def test_mixed_answers_through_a_pause_and_json(it):
    paused = it.pause()
    drafts = list(paused.interrupts)
    assert [draft.call.tool for draft in drafts] == ["delete", "transfer", "delete"]
    assert json.loads(drafts[1].call.arguments) == {"amount": LARGE, "to": "eve"}
    assert drafts[0].call.framework_ref == "same"
    answers = [
        deny(it.host, drafts[0], "still needed 🙂"),
        it.host.decide(
            drafts[1], Verdict.APPROVE, arguments={"amount": LARGE + 2, "to": "bob"}
        ),
        it.host.decide(drafts[2], Verdict.RESPOND, output="It went long ago."),
    ]
    done = it.resume(paused, answers)
    assert isinstance(done, Finished)
    assert it.tools.effects == ["lookup x", f"transfer {LARGE + 2} to bob"]
    assert told(it.host.text.removeprefix("I will tidy up, one moment.")) == {
        "Not executed: a reviewer denied this call. still needed 🙂",
        "x is known",
        f"Sent {LARGE + 2} to bob.",
        "Not executed: there is no tool named 'format_disk'.",
        "It went long ago.",
    }
    assert it.host.kinds().startswith("text call call call call call result")

    # The next message of the thread, with the whole conversation sent along.
    it.stub.script = plays(Reply("You are welcome."))
    after = it.next_run()
    it.start("Thanks", state=done.state)
    assert after.text == "You are welcome."
    roles = [message["role"] for message in it.stub.requests[-1]["messages"]]
    if it.harness.name == "genkit":
        # Its plugin sends what was said before calls as a message of its own.
        roles.remove("assistant")
    assert roles == [
        "system", "user", "assistant", *["tool"] * 5, "assistant", "user",
    ]  # fmt: skip


def test_b143_nothing_of_an_approval_is_left_in_later_requests(it):
    """The server takes calls and their results, and nothing an approval is made of."""
    it.stub.script = plays(Reply("", [call("delete", filename="a.txt")]), heard)
    paused = it.pause()
    state = it.resume(paused, approve(it.host, paused)).state
    it.stub.script = plays(Reply("Fine."))
    for _ in range(2):
        host = it.next_run()
        after = it.start("And now?", state=state)
        assert (type(after), host.text) == (Finished, "Fine.")
        state = after.state
    kinds = {"role", "content", "tool_calls", "tool_call_id", "name"}
    messages = it.stub.requests[-1]["messages"]
    assert set().union(*messages) <= kinds
    assert "approv" not in json.dumps(messages)
    assert [m["content"] for m in messages if m["role"] == "tool"] == ["Deleted a.txt."]


def test_b62_a_call_is_told_once_it_is_whole(it):
    """Two calls in interleaved pieces, each valid JSON before its last piece comes."""
    texts = ['{"filename": "a.txt"}' + " " * 20, '{"filename": "b.txt"}' + " " * 9]
    calls = [Call(f"c{n}", "delete", text) for n, text in enumerate(texts)]
    it.stub.script = plays(Reply("", calls), heard)
    paused = it.pause()
    drafts = [json.loads(draft.call.arguments) for draft in paused.interrupts]
    assert drafts == [{"filename": "a.txt"}, {"filename": "b.txt"}]
    assert [draft.call for draft in paused.interrupts] == it.host.proposed
    it.resume(paused, approve(it.host, paused))
    assert it.tools.effects == ["delete a.txt", "delete b.txt"]


def test_an_abandoned_pause_leaves_a_valid_conversation(it):
    paused = it.pause()
    it.stub.script = plays(Reply("Hello."))
    after = it.next_run()
    assert isinstance(it.start("Hi", state=paused.state), Finished)
    assert after.text == "Hello."


def test_tools_may_be_called_after_the_first_one_has_answered(it):
    again = Reply("", [call("delete", filename="b.txt")])
    it.stub.script = plays(Reply("", [call("lookup", name="x")]), again, heard)
    paused = it.pause()
    it.resume(paused, approve(it.host, paused))
    assert it.tools.effects == ["lookup x", "delete b.txt"]
    # Left alone, one framework's plugin forbids all calls from then on.
    choices = {request.get("tool_choice", "auto") for request in it.stub.requests}
    assert choices == {"auto"}


def test_another_process_goes_on(it):
    paused = it.pause()
    answers = [
        deny(it.host, paused.interrupts[0], "no"),
        it.host.decide(paused.interrupts[1], Verdict.APPROVE),
        it.host.decide(paused.interrupts[2], Verdict.APPROVE),
    ]
    ended = resume_elsewhere(it.harness, it.host, paused, answers, **it.stub.environ)
    siblings = ["lookup x"] if it.harness.siblings_wait else []
    address = it.stub.base_url.removeprefix("http://").removesuffix("/v1")
    assert ended["finished"]
    assert ended["model"] == f"stub-1 at {address}"
    assert ended["effects"] == [
        *siblings,
        f"transfer {LARGE} to eve",
        "delete b.txt",
    ]
    assert told(ended["text"]) == {
        "Not executed: a reviewer denied this call. no",
        "x is known",
        f"Sent {LARGE} to eve.",
        "Not executed: there is no tool named 'format_disk'.",
        "Deleted b.txt.",
    }


# What goes over the wire


def test_the_text_streams_in_pieces(it):
    it.stub.script = plays(Reply("One two three four five six."))
    it.start()
    assert it.host.text == "One two three four five six."
    assert len(it.host.happenings) > 4


#: What a request holds beside ``messages``, ``model``, ``stream`` and ``tools``.
BESIDE = {
    "agent_framework": {"stream_options", "tool_choice"},
    "genkit": {"stream_options", "tool_choice"},
    "langgraph": set[str](),
    "openai_agents": set[str](),
}


def test_the_request_says_no_more_than_it_must(it):
    it.start()
    [request], [headers] = it.stub.requests, it.stub.headers
    beside = request.keys() - {"messages", "model", "stream", "tools"}
    assert beside == BESIDE[it.harness.name]
    assert request["stream"] is True
    assert request["messages"][0] == {
        "role": "system",
        "content": "Do as you are told.",
    }
    offered = [tool["function"]["name"] for tool in request["tools"]]
    assert sorted(offered) == sorted(ALL_TOOLS)
    assert "agent-framework" not in headers["user-agent"].lower()
    assert "feat=" not in str(headers)


def test_openai_itself_is_told_not_to_keep_the_conversation(it, monkeypatch):
    monkeypatch.setattr(model_choice, "OPENAI", it.stub.base_url)
    paused = it.pause()
    it.resume(paused, approve(it.host, paused))
    assert [request["store"] for request in it.stub.requests] == [False, False]


# Failures


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
def test_refusals_are_told_without_secrets(it, status, told, retryable):
    it.stub.failures = [status]
    with pytest.raises(AgentRunError, match=told) as raised:
        it.start()
    assert raised.value.retryable is retryable
    assert KEY not in str(raised.value)
    assert f"HTTP {status}" in str(raised.value)


def test_a_refusal_after_the_tool_can_be_retried(it):
    paused = it.pause()
    answers = approve(it.host, paused)
    it.stub.failures = [503]
    with pytest.raises(AgentRunError) as raised:
        it.resume(paused, answers)
    assert raised.value.retryable
    it.host.happenings.clear()
    assert isinstance(it.resume(paused, answers), Finished)
    assert sorted(it.tools.effects) == [
        "delete a.txt",
        "delete b.txt",
        "lookup x",
        f"transfer {LARGE} to eve",
    ]


def test_a_passing_failure_is_ridden_out(it):
    it.stub.failures = [503]
    it.stub.script = plays(Reply("Here I am."))
    it.retries = 1
    assert isinstance(it.start(), Finished)


@pytest.mark.parametrize("after", [2, 14])
def test_a_broken_stream_saves_nothing(it, after):
    it.stub.break_after = after  # in the middle of the text, and of the arguments
    it.host.allowed.add("delete")
    unreadable = it.harness.name == "genkit" and after > 2
    why = "arguments cannot be read" if unreadable else "was cut off"
    with pytest.raises(AgentRunError, match=why) as raised:
        it.start()
    assert raised.value.retryable
    assert it.host.proposed == []
    assert it.host.guarded == []


def test_arguments_nobody_can_read_are_asked_about_as_they_are(it):
    it.stub.script = plays(
        Reply("", [Call("c1", "delete", '{"filename": NaN}')]), heard
    )
    paused = it.pause()
    assert [d.call.arguments for d in paused.interrupts] == ['{"filename": NaN}']
    it.resume(paused, approve(it.host, paused))
    assert "NaN" in it.host.text


def test_nobody_at_the_address(harness):
    with OpenAIStub(SCRIPT) as gone:
        pass
    with pytest.raises(AgentRunError, match="could not be reached") as raised:
        Real(harness, gone).start()
    assert raised.value.retryable


# Which model


@pytest.mark.parametrize(
    "environ", [{}, {"OPENAI_API_KEY": "x"}, {"OPENAI_BASE_URL": "http://x/v1"}]
)
def test_without_a_model_it_is_scripted_and_says_so(harness, environ):
    assert harness.models.from_environment(heard, environ).label == LABEL


@pytest.mark.parametrize(
    ("environ", "label"),
    [
        ({"OPENAI_API_KEY": "k"}, "gpt-9 at api.openai.com"),
        ({"OPENAI_BASE_URL": "http://u:p@box:11434/v1"}, "gpt-9 at box:11434"),
        ({"OPENAI_BASE_URL": "https://x.example/v1"}, "gpt-9 at x.example"),
    ],
)
def test_a_named_model_is_real_and_says_where(harness, environ, label):
    named = {"SAYSO_MODEL": "gpt-9", **environ}
    assert harness.models.from_environment(heard, named).label == label


def test_a_named_model_without_an_address_or_key_is_refused(harness):
    with pytest.raises(AgentRunError, match="OPENAI_BASE_URL"):
        harness.models.from_environment(heard, {"SAYSO_MODEL": "gpt-9"})
