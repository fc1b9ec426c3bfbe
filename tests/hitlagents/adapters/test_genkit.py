"""What is particular about Genkit."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import pytest
from genkit import FinishReason, Interrupt, Part, Role, tool
from genkit.exp.agent import AgentError
from genkit.model import Message, ModelResponse
from genkit_middleware import Artifacts, Filesystem
from pydantic import BaseModel, Field

from approvals.schemas import ToolSpec
from approvals.states import Verdict
from hitlagents.adapters import genkit_models
from hitlagents.adapters.base import (
    AgentRunError,
    Finished,
    Gating,
    Interrupted,
    StopRun,
    TextDelta,
)
from hitlagents.adapters.chat_model import ChatModel
from hitlagents.adapters.genkit import GenkitAdapter
from hitlagents.demo.scripted import Call, Reply, Result
from tests.hitlagents.adapters.harness import HARNESSES
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
    until,
)

pytestmark = pytest.mark.once


class TransferInput(BaseModel):
    amount: float
    to_account: str = Field(alias="toAccount")


class TransferOutput(BaseModel):
    success: bool
    transaction_id: str = Field(alias="transactionId")


async def transfer(input: TransferInput) -> TransferOutput:
    """Transfer money."""
    return TransferOutput(success=True, transactionId=f"txn-{input.to_account}")


def agent(script, *, allowed=(), tools=(), **how: Any) -> GenkitAdapter:
    model = script if isinstance(script, ChatModel) else genkit_models.scripted(script)
    return GenkitAdapter(
        name="tester",
        instructions="Do as you are told.",
        tools=tools,
        model=model,
        gating=Gating(allowed=frozenset(allowed)),
        **how,
    )


def begin(adapter: GenkitAdapter, host: FakeHost, **how: Any):
    return asyncio.run(adapter.start(start(host, **how), host))


def go_on(adapter: GenkitAdapter, host: FakeHost, paused, answers):
    return asyncio.run(adapter.resume(resume(host, paused.state, answers), host))


def bank(script, **how: Any) -> GenkitAdapter:
    return agent(script, tools=[tool(transfer, name="transferMoney")], **how)


PAY = Call("c1", "transferMoney", '{"amount": 500, "toAccount": "12345"}')


def messages(state: Mapping[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = state["session"]["messages"]
    return found


# Pausing


def test_m12_an_empty_list_holds_everything_and_the_state_says_so():
    host = FakeHost()
    paused = begin(bank(plays(Reply("", [PAY]), heard)), host)
    assert isinstance(paused, Interrupted)
    part = messages(paused.state)[-1]["content"][-1]
    [draft] = paused.interrupts
    assert part["toolRequest"] == {
        "name": "transferMoney",
        "ref": draft.call.call_id,
        "input": {"amount": 500, "toAccount": "12345"},
    }
    assert "interrupt" in part["metadata"]


def test_m12_restarts_and_responses_leave_in_one_resume(monkeypatch):
    calls = [PAY, PAY, PAY]
    adapter = bank(plays(Reply("", calls), heard))
    host, given = FakeHost(), []
    paused = begin(adapter, host)
    run = adapter.kit.agent.run

    async def watched(input: Any, **how: Any) -> Any:
        given.append(input)
        return await run(input, **how)

    monkeypatch.setattr(adapter.kit.agent, "run", watched)
    first, second, third = paused.interrupts
    answers = [
        deny(host, first, "no"),
        host.decide(second, Verdict.APPROVE),
        host.decide(third, Verdict.RESPOND, output="Paid yesterday."),
    ]
    assert isinstance(go_on(adapter, host, paused, answers), Finished)
    [native] = given
    assert [part.tool_response.ref for part in native.resume.respond] == [
        first.call.call_id,
        third.call.call_id,
    ]
    [restart] = native.resume.restart
    assert restart.tool_request.ref == second.call.call_id
    assert restart.metadata["resumed"] == {"tool_approved": True}
    assert host.text == (
        "I heard: Not executed: a reviewer denied this call. no | "
        "{'success': True, 'transactionId': 'txn-12345'} | Paid yesterday."
    )


def test_m12_a_resume_streams_and_loops_until_nothing_waits():
    script = plays(Reply("One.", [PAY]), Reply("Two and three.", [PAY]), heard)
    adapter, host = bank(script), FakeHost()
    outcome, rounds = begin(adapter, host), 0
    while isinstance(outcome, Interrupted):
        host.happenings.clear()
        outcome = go_on(adapter, host, outcome, approve(host, outcome))
        rounds += 1
        assert len([h for h in host.happenings if isinstance(h, TextDelta)]) > 2
    assert rounds == 2


def test_the_guard_and_the_answer_must_both_let_it_run():
    adapter, host = bank(plays(Reply("", [PAY]), heard)), FakeHost()
    paused = begin(adapter, host)
    told_to_deny = deny(host, paused.interrupts[0])
    host.decide(paused.interrupts[0], Verdict.APPROVE)
    go_on(adapter, host, paused, [told_to_deny])
    assert "decided not to run" in host.text

    host = FakeHost()
    paused = begin(adapter, host)
    told_to_run = host.decide(paused.interrupts[0], Verdict.APPROVE)
    deny(host, paused.interrupts[0], "no")
    go_on(adapter, host, paused, [told_to_run])
    assert host.entered == []
    assert "denied this call. no" in host.text


def test_a_stop_at_a_refused_call_comes_before_any_tool():
    ran = Tools()
    calls = [call("delete", "c1", filename="a"), call("archive", "c2", filename="b")]
    harness = HARNESSES["genkit"]
    adapter = harness.build(plays(Reply("", calls), heard), ran)
    host = FakeHost(allowed=FREE)
    paused = begin(adapter, host)
    answers = [
        host.decide(paused.interrupts[0], Verdict.APPROVE),
        deny(host, paused.interrupts[1]),
    ]
    stop = host.stops["archive"] = StopRun("because")
    with pytest.raises(StopRun) as raised:
        go_on(adapter, host, paused, answers)
    assert raised.value is stop
    assert ran.effects == []


# Tools


def test_a_renamed_parameter_has_one_name_everywhere():
    adapter = bank(plays(Reply("", [PAY]), heard))
    [spec] = adapter.tools
    assert set(spec.parameters["properties"]) == {"amount", "toAccount"}
    host = FakeHost()
    paused = begin(adapter, host)
    edited = host.decide(
        paused.interrupts[0],
        Verdict.APPROVE,
        arguments={"amount": 1, "to_account": "7"},
    )
    go_on(adapter, host, paused, [edited])
    assert "transferMoney has no parameter to_account." in host.text


class NoteInput(BaseModel):
    note: str | None


async def note(input: NoteInput) -> str:
    """Take a note."""
    return f"noted {input.note}"


class Nothing:
    """Something JSON cannot hold."""


async def odd() -> Any:
    """Return something odd."""
    return Nothing()


async def asks() -> str:
    """Ask in the middle."""
    raise Interrupt({"message": "Well?"})


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (odd, "It ran, but what it returned cannot be written as JSON."),
        (asks, "It asks a person itself, which is not taken up here."),
    ],
)
def test_what_a_tool_gives_that_cannot_be_used_is_said_in_words(function, told):
    made = tool(function, name="odd")
    adapter = agent(
        plays(Reply("", [call("odd")]), heard), tools=[made], allowed=["odd"]
    )
    host = FakeHost(allowed=["odd"])
    assert isinstance(begin(adapter, host), Finished)
    assert told in host.text


def test_arguments_keep_their_nulls():
    adapter = agent(
        plays(Reply("", [Call("c", "note", '{"note": null}')]), heard),
        tools=[tool(note)],
    )
    host = FakeHost()
    paused = begin(adapter, host)
    assert isinstance(go_on(adapter, host, paused, approve(host, paused)), Finished)
    assert host.text == "I heard: noted None"


def test_a_model_hears_of_no_tool_that_stands_for_missing_ones():
    seen = []

    def script(history):
        seen.append([item.tool for item in history if isinstance(item, Call)])
        return plays(Reply("", [call("format_disk", drive="c")]), heard)(history)

    names: list[str] = []

    inner = genkit_models.scripted(script)

    @asynccontextmanager
    async def connect():
        async with inner.connect() as ask:

            async def watched(request, context):
                names.extend(tool.name for tool in request.tools)
                return await ask(request, context)

            yield watched

    adapter = bank(ChatModel(label="x", connect=connect))
    host = FakeHost()
    assert isinstance(begin(adapter, host), Finished)
    assert seen == [[], ["format_disk"]]
    assert set(names) == {"transferMoney"}


def test_a_tool_that_hangs_is_left_when_the_advance_is_cancelled():
    entered = asyncio.Event()
    went_on = []

    async def hang() -> str:
        """Hang."""
        entered.set()
        await asyncio.Event().wait()
        return ""

    async def after() -> str:
        """Come later."""
        went_on.append("after")
        return ""

    script = plays(Reply("", [call("hang", "c1"), call("after", "c2")]), heard)
    allowed = ["hang", "after"]
    adapter = agent(script, tools=[tool(hang), tool(after)], allowed=allowed)

    async def scenario() -> None:
        host = FakeHost(allowed=allowed)
        task = asyncio.create_task(adapter.start(start(host), host))
        await entered.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        # The body belongs to the host, which lets it end by itself.
        await until(
            lambda: (
                not any(
                    "run_agent_loop" in str(task.get_coro())
                    for task in asyncio.all_tasks()
                )
            )
        )

    asyncio.run(asyncio.wait_for(scenario(), 60))
    assert went_on == []


def test_two_advances_at_once_do_not_mix():
    def echo(history):
        return Reply(history[-1].text)

    adapter = agent(echo)

    async def both() -> list[str]:
        hosts = [FakeHost(), FakeHost()]
        await asyncio.gather(
            *(adapter.start(start(h, str(n)), h) for n, h in enumerate(hosts))
        )
        return [host.text for host in hosts]

    assert asyncio.run(both()) == ["0", "1"]


# Models


def ends(reason: FinishReason | None, text: str = "Whole.") -> ChatModel:
    """A model that gives its answer whole, and ends for that reason."""

    async def ask(request: Any, context: Any) -> ModelResponse:
        content = [Part.from_text(text)]
        message = Message(role=Role.MODEL, content=content)
        return ModelResponse(message=message, finish_reason=reason)

    @asynccontextmanager
    async def connect():
        yield ask

    return ChatModel(label="teller", connect=connect)


def test_a_model_that_does_not_stream_is_told_whole():
    host = FakeHost()
    assert isinstance(begin(agent(ends(None)), host), Finished)
    assert host.text == "Whole."


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        (FinishReason.LENGTH, "was cut off"),
        (FinishReason.UNKNOWN, "was cut off"),
        (FinishReason.BLOCKED, "refused to answer"),
    ],
)
def test_an_answer_that_is_not_whole_is_no_answer(reason, told):
    with pytest.raises(AgentRunError, match=told):
        begin(agent(ends(reason)), FakeHost())


# Mounted middleware


def writer(script, root, *, allowed=("list_files", "read_file", "read_artifact")):
    return agent(
        script,
        allowed=allowed,
        use=[Filesystem(root_dir=str(root), allow_write_access=True), Artifacts()],
        in_session=["write_artifact"],
    )


WRITE = [
    call("write_file", "c1", file_path="a.txt", content="A"),
    call("write_artifact", "c2", name="plan.md", content="B"),
    call("list_files", "c3"),
]


def test_m12_mounted_tools_are_held_unless_allowed(tmp_path):
    host = FakeHost(allowed=["list_files"])
    paused = begin(writer(plays(Reply("", WRITE), heard), tmp_path), host)
    assert [d.call.tool for d in paused.interrupts] == ["write_file", "write_artifact"]
    assert list(tmp_path.iterdir()) == []
    answers = [
        host.decide(paused.interrupts[0], Verdict.APPROVE),
        deny(host, paused.interrupts[1]),
    ]
    done = go_on(
        writer(plays(Reply("", WRITE), heard), tmp_path), host, paused, answers
    )
    assert (tmp_path / "a.txt").read_text() == "A"
    assert "artifacts" not in done.state["session"]


def test_m12_artifacts_are_carried_over_pauses_and_runs(tmp_path):
    script = plays(Reply("", WRITE), Reply("", [WRITE[0]]), heard)
    host = FakeHost(allowed=["list_files"])
    paused = begin(writer(script, tmp_path), host)
    paused = go_on(writer(script, tmp_path), host, paused, approve(host, paused))
    assert isinstance(paused, Interrupted)
    [artifact] = paused.state["session"]["artifacts"]
    assert artifact == {"name": "plan.md", "parts": [{"text": "B"}]}
    done = go_on(writer(script, tmp_path), host, paused, approve(host, paused))
    after = FakeHost(allowed=["read_artifact"])
    read = plays(Reply("", [call("read_artifact", name="plan.md")]), heard)
    begin(writer(read, tmp_path), after, state=through_json(done.state))
    assert "'content': 'B'" in after.text or '"content": "B"' in after.text


def test_an_artifact_survives_a_model_that_fails_after_it_was_written(tmp_path):
    """The ledger knows the call ran, but the session it ran in was lost."""
    first = plays(Reply("", WRITE), ConnectionError("reset"))
    host = FakeHost(allowed=["list_files"])
    paused = begin(writer(first, tmp_path), host)
    answers = approve(host, paused)
    with pytest.raises(AgentRunError, match="could not be reached"):
        go_on(writer(first, tmp_path), host, paused, answers)
    done = go_on(
        writer(plays(Reply("", WRITE), heard), tmp_path), host, paused, answers
    )
    assert [a["name"] for a in done.state["session"]["artifacts"]] == ["plan.md"]
    assert [name for name, _ in host.entered].count("write_artifact") == 1


def test_m15_a_changed_artifact_is_told_as_changed(tmp_path):
    host = FakeHost(allowed=["list_files"])
    script = plays(Reply("", WRITE[1:2]), heard)
    paused = begin(writer(script, tmp_path), host)
    changed = {"name": "plan.md", "content": "C"}
    answer = host.decide(
        paused.interrupts[0],
        Verdict.APPROVE,
        arguments=changed,
        text="A reviewer changed it.",
    )
    done = go_on(writer(script, tmp_path), host, paused, [answer])
    assert done.state["session"]["artifacts"][0]["parts"] == [{"text": "C"}]
    [saved] = host.results.values()
    assert "saved" in saved
    assert "changed" not in saved
    assert host.text == f"I heard: {saved}\n\nA reviewer changed it."


def test_instructions_are_not_stored_with_the_conversation(tmp_path):
    state = None
    for _ in range(3):
        host = FakeHost()
        state = begin(writer(plays(Reply("Hello.")), tmp_path), host, state=state).state
    roles = [message["role"] for message in messages(state)]
    assert roles == ["user", "model"] * 3


def test_an_abandoned_pause_keeps_what_siblings_gave(tmp_path):
    host = FakeHost(allowed=["list_files"])
    paused = begin(writer(plays(Reply("", WRITE), heard), tmp_path), host)
    results: list[str] = []

    def script(history):
        results.extend(item.text for item in history if isinstance(item, Result))
        return plays(Reply("On."))(history)

    begin(writer(script, tmp_path), FakeHost(), state=paused.state)
    ended = "The run was ended before this call gave a result."
    assert results == [ended, ended, "[]"]


# Building


def test_what_cannot_be_held_is_refused():
    async def plain(text: str) -> str:
        return text

    with pytest.raises(ValueError, match="one object"):
        agent(heard, tools=[tool(plain)])
    twice = tool(transfer, name="write_artifact")
    with pytest.raises(ValueError, match="same name: write_artifact"):
        agent(heard, tools=[twice], use=[Artifacts()])
    with pytest.raises(ValueError, match="no tool named other"):
        bank(heard, cards=[ToolSpec(name="other")])
    with pytest.raises(ValueError, match="no tool named other"):
        bank(heard, in_session=["other"])


def test_the_frameworks_developer_mode_is_refused(monkeypatch):
    monkeypatch.setenv("GENKIT_ENV", "dev")
    with pytest.raises(AgentRunError, match="past the guard"):
        bank(heard)


def test_nothing_runs_without_an_advance():
    tools = Tools()
    adapter = HARNESSES["genkit"].build(
        plays(Reply("", [call("lookup", name="x")]), heard), tools
    )
    chat = adapter.kit.agent.chat()
    with pytest.raises(AgentError):
        asyncio.run(chat.send("go"))
    assert tools.effects == []


def test_a_shared_agent_does_not_grow(tmp_path):
    adapter = writer(plays(Reply("Hello.")), tmp_path)

    def registered() -> list[str]:
        return sorted(adapter.kit.ai.registry.list_values("middleware"))

    begin(adapter, FakeHost())
    before = registered()
    for _ in range(3):
        begin(adapter, FakeHost(), thread_id=uuid4())
    assert registered() == before
