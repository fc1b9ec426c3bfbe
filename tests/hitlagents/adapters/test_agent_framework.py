"""What is particular to Microsoft Agent Framework: its chunks, its state, its settings."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from copy import deepcopy
from typing import Any

import pytest

from approvals.schemas import ToolSpec
from approvals.states import Risk, Verdict
from hitlagents.adapters.agent_framework import (
    AgentFrameworkAdapter,
    Snapshot,
)
from hitlagents.adapters.agent_framework_models import scripted
from hitlagents.adapters.base import (
    AgentRunError,
    CheckpointError,
    Finished,
    Gating,
    Interrupted,
    State,
    TextDelta,
)
from hitlagents.adapters.chat_model import ChatModel
from hitlagents.demo.scripted import Call, Item, Reply
from tests.hitlagents.adapters.harness import AgentFrameworkHarness
from tests.hitlagents.fakes import (
    FakeHost,
    Tools,
    approve,
    call,
    heard,
    plays,
    resume,
    start,
    until,
)
from tests.hitlagents.processes import run_code

pytestmark = pytest.mark.once

ONE = Reply("Working.", [call("delete", filename="a.txt")])


def chunked(*chunks: tuple[str, str, Any]) -> ChatModel:
    """A model whose first turn streams these pieces of calls: (call id, name, text)."""

    @asynccontextmanager
    async def connect() -> AsyncIterator[Any]:
        from agent_framework import ChatResponseUpdate, Content

        from hitlagents.adapters.agent_framework_scripted import ScriptedClient, items

        class Chunks(ScriptedClient):
            async def _updates(self, messages: Any, options: Any) -> AsyncIterator[Any]:
                history = items(messages)
                if any(not hasattr(item, "role") for item in history):
                    async for update in super()._updates(messages, options):
                        yield update
                    return
                for call_id, name, text in chunks:
                    content = Content.from_function_call(call_id, name, arguments=text)
                    yield ChatResponseUpdate(role="assistant", contents=[content])
                yield ChatResponseUpdate(
                    role="assistant", contents=[], finish_reason="tool_calls"
                )

        yield Chunks(plays(heard))

    return ChatModel(label="chunks", connect=connect)


def adapter(
    model: ChatModel, *, allowed: Sequence[str] = (), tools: Tools | None = None
) -> AgentFrameworkAdapter:
    return AgentFrameworkHarness().around(model, tools or Tools(), allowed)


def proposals(*chunks: tuple[str, str, Any]) -> list[tuple[str, str]]:
    """What is asked when a model streams these chunks; then everything is approved."""
    host, agent = FakeHost(), adapter(chunked(*chunks))
    paused = asyncio.run(agent.start(start(host), host))
    assert isinstance(paused, Interrupted)
    done = asyncio.run(
        agent.resume(resume(host, paused.state, approve(host, paused)), host)
    )
    assert isinstance(done, Finished)
    assert len(host.results) == len(host.proposed)
    return [(d.call.tool, d.call.arguments) for d in paused.interrupts]


# Chunks


def test_interleaved_chunks_are_joined_before_anything_is_proposed():
    """B62: nothing is told before it is whole."""
    assert proposals(
        ("c1", "delete", ""),
        ("c2", "transfer", '{"amo'),
        ("c1", "", '{"file'),
        ("c2", "", 'unt": 1'),
        ("c1", "", 'name": "a"}'),
        ("c2", "", "2}"),
    ) == [("delete", '{"filename": "a"}'), ("transfer", '{"amount": 12}')]


def test_chunks_without_an_id_go_on_with_the_call_before():
    assert proposals(
        ("c1", "delete", '{"filename"'),
        ("", "", ': "a"}'),
        ("", "delete", '{"filename": '),
        ("", "", '"b"}'),
    ) == [("delete", '{"filename": "a"}'), ("delete", '{"filename": "b"}')]


def test_a_name_repeated_in_every_chunk_is_one_call():
    assert proposals(
        ("c1", "delete", '{"filename"'),
        ("c1", "delete", ': "a"}'),
        ("c1", "delete", ""),
        ("c1", "delete", "  "),
    ) == [("delete", '{"filename": "a"}  ')]


def test_an_id_used_twice_is_two_calls_also_in_chunks():
    assert proposals(
        ("c1", "delete", '{"filename": "a"}'),
        ("c1", "delete", '{"filename": '),
        ("c1", "", '"b"}'),
    ) == [("delete", '{"filename": "a"}'), ("delete", '{"filename": "b"}')]


def test_the_same_exchange_twice_is_kept_twice() -> None:
    """The framework forgets what looks like a replay when messages have no ids."""
    seen: list[int] = []

    @asynccontextmanager
    async def connect() -> AsyncIterator[Any]:
        from agent_framework import ChatResponseUpdate, Content

        from hitlagents.adapters.agent_framework_scripted import ScriptedClient

        class WithoutIds(ScriptedClient):
            async def _updates(self, messages: Any, options: Any) -> AsyncIterator[Any]:
                seen.append(sum(message.role != "system" for message in messages))
                text = Content.from_text("Hi.")
                yield ChatResponseUpdate(
                    role="assistant", contents=[text], finish_reason="stop"
                )

        yield WithoutIds(plays(heard))

    agent = adapter(ChatModel(label="no ids", connect=connect))
    state: State | None = None
    for _ in range(3):
        host = FakeHost()
        outcome = asyncio.run(agent.start(start(host, "hello", state=state), host))
        state = outcome.state
    assert seen == [1, 3, 5]


def test_arguments_as_an_object_become_text():
    [(_, text)] = proposals(("c1", "book", {"day": "é", "type": "message"}))
    assert json.loads(text) == {"day": "é", "type": "message"}


def test_a_call_without_a_name_is_answered():
    host, agent = FakeHost(), adapter(chunked(("c1", "", '{"a": 1}')))
    assert isinstance(asyncio.run(agent.start(start(host), host)), Finished)
    assert [c.tool for c in host.proposed] == ["(no name)"]
    assert len(host.results) == 1


# Building


def test_the_developers_tools_stay_as_they_are():
    from agent_framework import tool

    free, gated = (
        tool(Tools().lookup),
        tool(approval_mode="always_require")(Tools().delete),
    )
    before = [dict(vars(function)) for function in (free, gated)]
    agent = AgentFrameworkAdapter(
        name="x",
        instructions="",
        tools=[free, gated],
        model=scripted(plays(ONE, heard)),
        gating=Gating(allowed=frozenset({"delete"})),
    )
    host = FakeHost(allowed=["delete"])
    assert isinstance(asyncio.run(agent.start(start(host), host)), Finished)
    kept = {"approval_mode", "func", "invocation_count", "name"}
    for function, was in zip((free, gated), before, strict=True):
        assert {k: vars(function)[k] for k in kept} == {k: was[k] for k in kept}


def test_cards_are_completed_from_the_tools():
    from agent_framework import tool

    agent = AgentFrameworkAdapter(
        name="x",
        instructions="",
        tools=[tool(Tools().delete)],
        model=scripted(plays(ONE)),
        gating=Gating(allowed=frozenset()),
        cards=[ToolSpec(name="delete", risk=Risk.HIGH, title="Delete {filename}")],
    )
    [spec] = agent.tools
    assert (spec.risk, spec.title) == (Risk.HIGH, "Delete {filename}")
    assert spec.description == "Delete a file."
    assert spec.parameters["required"] == ["filename"]


@pytest.mark.parametrize(
    ("names", "cards"), [(["delete"], ["erase"]), (["delete", "delete"], [])]
)
def test_cards_and_tools_that_do_not_fit_are_refused(names, cards):
    from agent_framework import tool

    with pytest.raises(ValueError, match=r"\.$"):
        AgentFrameworkAdapter(
            name="x",
            instructions="",
            tools=[tool(name=name)(Tools().delete) for name in names],
            model=scripted(plays(ONE)),
            gating=Gating(allowed=frozenset()),
            cards=[ToolSpec(name=name) for name in cards],
        )


def test_a_client_that_would_bypass_the_guard_is_refused() -> None:
    @asynccontextmanager
    async def connect() -> AsyncIterator[Any]:
        from agent_framework import BaseChatClient

        class Bare(BaseChatClient[Any]):
            def _inner_get_response(self, **kwargs: Any) -> Any:
                raise AssertionError

        yield Bare()

    host, agent = FakeHost(), adapter(ChatModel(label="bare", connect=connect))
    with pytest.raises(AgentRunError, match="Bare does not run tools"):
        asyncio.run(agent.start(start(host), host))


def test_the_framework_sends_no_name_and_no_telemetry():
    code = """
import hitlagents.catalog
import hitlagents.adapters.agent_framework_run
from agent_framework import _telemetry, observability
assert not _telemetry.IS_TELEMETRY_ENABLED
assert not _telemetry._feature_mask_enabled()
assert not observability.OBSERVABILITY_SETTINGS.ENABLED
"""
    run_code(code)


def test_nothing_imports_the_framework_before_a_run():
    run_code("""
import sys
import hitlagents.adapters.agent_framework
import hitlagents.adapters.agent_framework_models
from hitlagents import catalog
assert catalog.installed(catalog.get("file-ops"))
found = {name.partition(".")[0] for name in sys.modules}
assert not found & {"agent_framework", "agent_framework_openai", "openai"}, found
""")


def test_the_openai_agents_sdk_can_be_imported_from_here():
    """The folder agents/ has no __init__.py, so that it does not stand in the way."""
    run_code("from agents import Agent, Runner")


# Limits


def test_a_run_that_pauses_again_and_again_is_stopped():
    """The framework's own limit starts anew with every answer."""
    from hitlagents.adapters import agent_framework_run

    def again(history: Sequence[Item]) -> Reply:
        return Reply("", [call("delete", f"c{len(history)}", filename="a")])

    host, tools = FakeHost(), Tools()
    agent = adapter(scripted(again), tools=tools)
    paused = asyncio.run(agent.start(start(host), host))
    state = {**paused.state, "turn": agent_framework_run.MAX_TURNS_PER_RUN}
    with pytest.raises(AgentRunError, match="stopped after 100 model turns"):
        asyncio.run(agent.resume(resume(host, state, approve(host, paused)), host))


# The stored state


def pause() -> tuple[AgentFrameworkAdapter, FakeHost, Interrupted]:
    host, agent = FakeHost(), adapter(scripted(plays(ONE, heard)))
    paused = asyncio.run(agent.start(start(host), host))
    assert isinstance(paused, Interrupted)
    return agent, host, paused


@pytest.mark.parametrize(
    "damage",
    [
        lambda state: state.update(turn=-1),
        lambda state: state.update(turn=True),
        lambda state: state.update(calls={}),
        lambda state: state.update(calls={"x": {}}),
        lambda state: state["session"].update(state={}),
        lambda state: state["session"].pop("session_id"),
        lambda state: state["session"]["state"].update(x={"type": "message"}),
        lambda state: state["session"]["state"].update(in_memory={"messages": [{}]}),
        lambda state: state["session"]["state"].update(tool_approval=[]),
        lambda state: state["session"]["state"]["tool_approval"].update(
            pending_approval_requests=[{}]
        ),
    ],
)
def test_a_damaged_session_is_refused_in_words(damage):
    agent, host, paused = pause()
    state = deepcopy(dict(paused.state))
    damage(state)
    with pytest.raises(CheckpointError, match=r"damaged\.$"):
        asyncio.run(agent.resume(resume(host, state, approve(host, paused)), host))
    assert host.entered == []


def test_arguments_changed_in_the_state_reach_the_guard():
    """The framework would run what its state says; the host compares."""
    agent, host, paused = pause()
    answers = approve(host, paused)
    text = json.dumps(paused.state)
    state = json.loads(text.replace("a.txt", "passwords.txt"))
    with pytest.raises(Exception, match="Other arguments"):
        asyncio.run(agent.resume(resume(host, state, answers), host))
    assert "passwords.txt" in host.guarded[0].arguments
    assert host.entered == []


def test_a_decision_the_framework_does_not_take_is_an_error(monkeypatch):
    """As if an update of the framework answered the request by itself."""
    from agent_framework import Content

    agent, host, paused = pause()
    answers = approve(host, paused)
    original = Content.to_function_approval_response
    monkeypatch.setattr(
        Content, "to_function_approval_response", lambda self, _: original(self, False)
    )
    with pytest.raises(AgentRunError, match="did not take 1 of the decisions"):
        asyncio.run(agent.resume(resume(host, paused.state, answers), host))
    assert host.entered == []


def test_a_cancelled_start_leaves_no_thread_behind():
    """A run cancelled while the model streams has no state; the one before still holds."""
    host = FakeHost()

    async def scenario() -> None:
        reading = asyncio.Event()

        @asynccontextmanager
        async def connect() -> AsyncIterator[Any]:
            from hitlagents.adapters.agent_framework_scripted import ScriptedClient

            reading.set()
            yield ScriptedClient(plays(Reply("word " * 1000)), pause=0.01)

        agent = adapter(ChatModel(label="slow", connect=connect))
        task = asyncio.create_task(agent.start(start(host), host))
        await reading.wait()
        await until(lambda: any(isinstance(h, TextDelta) for h in host.happenings))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(scenario())


def test_a_state_that_is_not_json_is_refused_when_written():
    with pytest.raises(AgentRunError, match="cannot be stored"):
        Snapshot(session={"x": float("nan")}).to_state()
    with pytest.raises(AgentRunError, match="cannot be stored"):
        Snapshot(session={"x": object()}).to_state()


def test_drafts_name_every_verdict_that_works():
    _, _, paused = pause()
    assert set(paused.interrupts[0].verdicts) == set(Verdict) - {Verdict.ANSWER}


def test_a_call_keeps_the_providers_id_as_a_reference():
    _, _, paused = pause()
    call = paused.interrupts[0].call
    assert call.framework_ref == "c1"
    assert call.call_id.startswith("af-call-")


def test_huge_and_odd_arguments_leave_a_state_that_can_be_read():
    texts = ['{"amount": 1e400}', '{"amount": Infinity}', '{"to": "\\ud800\\u0000"}']
    calls = [Call(f"c{n}", "transfer", text) for n, text in enumerate(texts)]
    host, agent = FakeHost(), adapter(scripted(plays(Reply("", calls), heard)))
    paused = asyncio.run(agent.start(start(host), host))
    assert isinstance(paused, Interrupted)
    assert [d.call.arguments for d in paused.interrupts] == texts
    done = asyncio.run(
        agent.resume(resume(host, paused.state, approve(host, paused)), host)
    )
    assert isinstance(done, Finished)
