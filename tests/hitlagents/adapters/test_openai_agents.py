"""What is particular to the OpenAI Agents SDK: helpers, handoffs, rules, its state."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from copy import deepcopy
from typing import Any
from uuid import uuid4

import pytest
from agents import (
    GuardrailFunctionOutput,
    InputGuardrail,
    MaxTurnsExceeded,
    ModelBehaviorError,
    ModelRefusalError,
    RunContextWrapper,
    ToolOutputText,
    UserError,
)
from agents.tool_context import ToolContext

from approvals.schemas import ToolSpec
from approvals.states import Risk, Verdict
from hitlagents.adapters import openai_agents_models
from hitlagents.adapters.base import (
    AgentRunError,
    CheckpointError,
    Finished,
    Gating,
    Interrupted,
    StopRun,
    TextDelta,
)
from hitlagents.adapters.chat_model import ChatModel
from hitlagents.adapters.openai_agents import OpenAIAgentsAdapter, Snapshot
from hitlagents.adapters.openai_agents_run import worded
from hitlagents.demo.scripted import Call, Item, Reply, Result, Said, Script
from tests.hitlagents.adapters.harness import OpenAIAgentsHarness
from tests.hitlagents.fakes import (
    ALL_TOOLS,
    FakeHost,
    Tools,
    approve,
    call,
    check_history,
    deny,
    heard,
    plays,
    resume,
    start,
    through_json,
    until,
)
from tests.hitlagents.processes import run_code

pytestmark = pytest.mark.once

ONE = Reply("Working.", [call("delete", filename="a.txt")])


def build(
    make: Callable[[], Any], script: Script, *, allowed: Iterable[str] = (), **how: Any
) -> OpenAIAgentsAdapter:
    return OpenAIAgentsAdapter(
        make=make,
        model=openai_agents_models.scripted(script),
        gating=Gating(allowed=frozenset(allowed)),
        **how,
    )


def single(*functions: Any, **how: Any) -> Callable[[], Any]:
    """Makes one agent with these functions or tools."""

    def make() -> Any:
        from agents import Agent, FunctionTool, function_tool

        tools: list[Any] = [
            f if isinstance(f, FunctionTool) else function_tool(f) for f in functions
        ]
        return Agent(name="tester", tools=tools, **how)

    return make


def begin(agent: OpenAIAgentsAdapter, host: FakeHost, message: str = "go", **how: Any):
    return asyncio.run(agent.start(start(host, message, **how), host))


def pause(agent: OpenAIAgentsAdapter, host: FakeHost) -> Interrupted:
    outcome = begin(agent, host)
    assert isinstance(outcome, Interrupted)
    return outcome


def go_on(agent: OpenAIAgentsAdapter, host: FakeHost, paused: Any, answers: Any):
    return asyncio.run(agent.resume(resume(host, paused.state, answers), host))


# Agents used as tools


class Family:
    """A lead whose helper deletes and looks up, and a helper of that helper."""

    def __init__(self) -> None:
        self.tools = Tools()
        self.conversations: list[list[Item]] = []

    def make(self) -> Any:
        from agents import Agent, function_tool

        helper = Agent(
            name="helper",
            tools=[
                function_tool(self.tools.delete, needs_approval=True),
                function_tool(self.tools.lookup),
            ],
        )
        as_tool = helper.as_tool("ask_helper", "Ask the helper.")
        own = function_tool(self.tools.transfer, strict_mode=False)
        return Agent(name="lead", tools=[as_tool, own])

    def script(self, history: Sequence[Item]) -> Reply:
        check_history(history)
        self.conversations.append(list(history))
        first = history[0]
        assert isinstance(first, Said)
        results = [item.text for item in history if isinstance(item, Result)]
        if first.text == "go":
            if not results:
                calls = [
                    call("ask_helper", "h1", input="clean up"),
                    call("transfer", "t1", amount=1),
                ]
                return Reply("I will ask.", calls)
            return Reply("I heard: " + " | ".join(results))
        if not results:
            calls = [call("delete", "d1", filename="x"), call("lookup", "l1", name="y")]
            return Reply(f"I was told: {first.text}.", calls)
        return Reply("Helper says: " + " | ".join(results))

    def build(self, allowed: Iterable[str] = ("ask_helper", "lookup")) -> Any:
        return build(self.make, self.script, allowed=allowed)


def test_calls_inside_a_helper_surface_and_survive_json():
    family, host = Family(), FakeHost(allowed=["ask_helper", "lookup"])
    paused = pause(family.build(), host)
    assert [d.call.tool for d in paused.interrupts] == ["transfer", "delete"]
    assert [d.call.turn for d in paused.interrupts] == [1, 2]
    assert family.tools.effects == ["lookup y"]
    answers = approve(host, paused)
    done = go_on(family.build(), host, paused, answers)
    assert isinstance(done, Finished)
    assert family.tools.effects == ["lookup y", "delete x", "transfer 1 to bob"]
    helped = "Helper says: Deleted x. | y is known"
    assert host.text == f"I will ask.I heard: {helped} | Sent 1 to bob."
    by_tool = {c.tool: host.results[c.call_id] for c in host.proposed}
    assert by_tool == {
        "ask_helper": helped,
        "delete": "Deleted x.",
        "lookup": "y is known",
        "transfer": "Sent 1 to bob.",
    }
    assert len(host.entered) == 4  # the helper is entered once, not once a resume


def test_a_denial_inside_a_helper_is_heard_by_the_helper():
    family, host = Family(), FakeHost(allowed=["ask_helper", "lookup"])
    paused = pause(family.build(), host)
    outer, inner = paused.interrupts
    answers = [deny(host, inner, 'no: "x"\n🙅'), host.decide(outer, Verdict.APPROVE)]
    assert isinstance(go_on(family.build(), host, paused, answers), Finished)
    told = 'Not executed: a reviewer denied this call. no: "x"\n🙅'
    assert f"Helper says: {told} | y is known" in host.text
    assert family.tools.effects == ["lookup y", "transfer 1 to bob"]


def test_a_helper_may_be_held_itself():
    family, host = Family(), FakeHost(allowed=["lookup"])
    paused = pause(family.build(["lookup"]), host)
    assert [d.call.tool for d in paused.interrupts] == ["ask_helper", "transfer"]
    assert len(family.conversations) == 1
    answers = [
        host.decide(
            paused.interrupts[0],
            Verdict.APPROVE,
            arguments={"input": "only look"},
            text="A reviewer changed it.",
        ),
        deny(host, paused.interrupts[1]),
    ]
    second = go_on(family.build(["lookup"]), host, paused, answers)
    assert isinstance(second, Interrupted)
    assert family.conversations[1] == [Said("user", "only look")]
    assert [d.call.tool for d in second.interrupts] == ["delete"]
    done = go_on(family.build(["lookup"]), host, second, approve(host, second))
    assert isinstance(done, Finished)
    assert family.tools.effects == ["lookup y", "delete x"]
    assert "denied this call" in host.text
    helped = "Helper says: Deleted x. | y is known"
    assert f"I heard: {helped}\n\nA reviewer changed it. | Not executed" in host.text
    assert helped in host.results.values()


@pytest.mark.parametrize(
    ("verdict", "how"),
    [
        (Verdict.DENY, {"text": "No helpers."}),
        (Verdict.RESPOND, {"output": "No helpers."}),
        (Verdict.CANCEL_CALL, {"text": "No helpers."}),
    ],
)
def test_a_refused_helper_never_starts(verdict, how):
    family, host = Family(), FakeHost()
    paused = pause(family.build([]), host)
    answers = [
        host.decide(paused.interrupts[0], verdict, **how),
        deny(host, paused.interrupts[1]),
    ]
    assert isinstance(go_on(family.build([]), host, paused, answers), Finished)
    assert [str(history[0].text) for history in family.conversations] == ["go", "go"]
    assert "I heard: No helpers. |" in host.text


def test_a_replay_with_a_helper_repeats_no_effect():
    family, host = Family(), FakeHost(allowed=["ask_helper", "lookup"])
    paused = pause(family.build(), host)
    answers = approve(host, paused)
    for _ in range(3):
        assert isinstance(go_on(family.build(), host, paused, answers), Finished)
    assert family.tools.effects == ["lookup y", "delete x", "transfer 1 to bob"]


def test_a_stop_inside_a_helper_reaches_the_caller():
    family, host = Family(), FakeHost(allowed=["ask_helper", "lookup"])
    paused = pause(family.build(), host)
    answers = approve(host, paused)
    stop = host.stops["delete"] = StopRun("because")
    with pytest.raises(StopRun) as raised:
        go_on(family.build(), host, paused, answers)
    assert raised.value is stop
    assert family.tools.effects == ["lookup y"]


def test_a_helper_whose_model_fails_fails_the_run():
    family, host = Family(), FakeHost(allowed=["ask_helper", "lookup"])
    script = family.script

    def failing(history: Sequence[Item]) -> Reply:
        if history[0] == Said("user", "clean up"):
            raise ConnectionError("sk-secret")
        return script(history)

    agent = build(family.make, failing, allowed=["ask_helper"])
    with pytest.raises(AgentRunError, match="could not be reached") as raised:
        begin(agent, host)
    assert raised.value.retryable
    host.happenings.clear()
    # The ledger knows that the helper began; a retry asks it again.
    paused = pause(family.build(), host)
    assert {d.call.tool for d in paused.interrupts} == {"delete", "transfer"}


def test_no_sibling_starts_after_a_helper_failed():
    family, host = Family(), FakeHost(allowed=["ask_helper", "transfer"])
    script = family.script

    def failing(history: Sequence[Item]) -> Reply:
        if history[0] == Said("user", "clean up"):
            raise ConnectionError("sk-secret")
        return script(history)

    agent = build(family.make, failing, allowed=["ask_helper", "transfer"])
    with pytest.raises(AgentRunError, match="could not be reached"):
        begin(agent, host)
    assert [c.tool for c in host.guarded] == ["ask_helper"]
    assert family.tools.effects == []


def test_an_abandoned_pause_inside_a_helper_leaves_a_valid_conversation():
    family, host = Family(), FakeHost(allowed=["ask_helper", "lookup"])
    paused = pause(family.build(), host)
    after = FakeHost()
    script = plays(Reply("On we go."))
    agent = build(family.make, script, allowed=["ask_helper", "lookup"])
    assert isinstance(begin(agent, after, "else", state=paused.state), Finished)
    assert after.text == "On we go."


def test_a_helper_its_developer_listens_to_is_guarded_too():
    family, host = Family(), FakeHost(allowed=["ask_helper", "lookup"])
    heard_events = []

    def make() -> Any:
        lead = family.make()
        helper = lead.tools[0]._agent_instance
        lead.tools[0] = helper.as_tool(
            "ask_helper", "Ask the helper.", on_stream=heard_events.append
        )
        return lead

    agent = build(make, family.script, allowed=["ask_helper", "lookup"])
    paused = pause(agent, host)
    assert [d.call.tool for d in paused.interrupts] == ["transfer", "delete"]
    assert isinstance(go_on(agent, host, paused, approve(host, paused)), Finished)
    assert family.tools.effects == ["lookup y", "delete x", "transfer 1 to bob"]
    assert heard_events


# Handoffs


class Desk:
    """A front agent that hands over to a clerk, and the clerk back."""

    def __init__(self) -> None:
        self.tools = Tools()

    def make(self, clerk_name: str = "clerk") -> Any:
        from agents import Agent, function_tool, handoff

        clerk: Agent[Any] = Agent(
            name=clerk_name,
            tools=[function_tool(self.tools.delete), function_tool(self.tools.lookup)],
        )
        front = Agent(
            name="front", handoffs=[handoff(clerk, tool_name_override="to_clerk")]
        )
        clerk.handoffs = [front]
        return front

    def build(self, script: Script, **how: Any) -> OpenAIAgentsAdapter:
        return build(self.make, script, allowed=["lookup"], **how)


HAND_OVER = Reply("One moment.", [call("to_clerk", "h1")])


def test_a_call_after_a_handoff_is_held_and_resumed():
    desk, host = Desk(), FakeHost(allowed=["lookup"])
    script = plays(HAND_OVER, ONE, heard)
    paused = pause(desk.build(script), host)
    [draft] = paused.interrupts
    assert (draft.call.tool, draft.call.turn) == ("delete", 2)
    assert [c.tool for c in host.proposed] == ["delete"]  # a handoff is no tool call
    done = go_on(desk.build(script), host, paused, approve(host, paused))
    assert isinstance(done, Finished)
    assert desk.tools.effects == ["delete a.txt"]
    assert host.text.startswith("One moment.Working.I heard: ")
    assert done.state["agent"] == "clerk"

    # The clerk takes the next message, with its own tools.
    after = FakeHost(allowed=["lookup"])
    again = begin(desk.build(plays(ONE, heard)), after, "more", state=done.state)
    assert isinstance(again, Interrupted)
    assert again.state["starting"] == "clerk"
    assert isinstance(
        go_on(desk.build(plays(ONE, heard)), after, again, approve(after, again)),
        Finished,
    )


def test_a_handoff_beside_a_held_call_closes_every_call():
    desk, host = Desk(), FakeHost(allowed=["lookup"])
    both = Reply(
        "", [call("delete", "d1", filename="a"), call("transfer_to_front", "h")]
    )
    script = plays(HAND_OVER, both, heard)
    paused = pause(desk.build(script), host)
    answers = [deny(host, paused.interrupts[0])]
    assert isinstance(go_on(desk.build(script), host, paused, answers), Finished)
    assert desk.tools.effects == []


def test_an_agent_that_was_renamed_stops_the_resume_in_words():
    desk, host = Desk(), FakeHost(allowed=["lookup"])
    script = plays(HAND_OVER, ONE, heard)
    paused = pause(desk.build(script), host)
    answers = approve(host, paused)
    renamed = build(lambda: desk.make("officer"), script)
    with pytest.raises(AgentRunError, match="'clerk' was at work") as raised:
        go_on(renamed, host, paused, answers)
    assert not raised.value.retryable
    assert desk.tools.effects == []
    assert host.guarded == []

    # The conversation itself can go on.
    after = FakeHost()
    agent = build(lambda: desk.make("officer"), plays(Reply("Hello again.")))
    assert isinstance(begin(agent, after, "hi", state=paused.state), Finished)


# Whether a call pauses


def rule(answer: Any) -> Any:
    from agents import function_tool

    seen: list[Any] = []

    async def asks(context: Any, arguments: dict[str, Any], call_id: str) -> bool:
        seen.append((dict(context.context), arguments, call_id))
        if isinstance(answer, Exception):
            raise answer
        return answer(arguments) if callable(answer) else answer

    tools = Tools()
    tool = function_tool(tools.transfer, needs_approval=asks, strict_mode=False)
    return tool, tools, seen


def test_a_rule_of_the_developer_adds_pauses():
    tool, tools, seen = rule(lambda arguments: arguments["amount"] > 10)
    calls = [
        call("transfer", "c1", amount=5, to="eve"),
        call("transfer", "c2", amount=50, to="eve"),
    ]
    agent = build(single(tool), plays(Reply("", calls), heard), allowed=["transfer"])
    host = FakeHost(allowed=["transfer"])
    paused = pause(agent, host)
    assert [json.loads(d.call.arguments)["amount"] for d in paused.interrupts] == [50]
    assert tools.effects == ["transfer 5 to eve"]
    context, arguments, call_id = seen[0]
    assert set(context) == {"run_id", "thread_id"}
    assert context["run_id"] == str(host.run_id)
    assert arguments == {"amount": 5, "to": "eve"}
    assert call_id == host.proposed[0].call_id
    assert isinstance(go_on(agent, host, paused, approve(host, paused)), Finished)
    assert tools.effects == ["transfer 5 to eve", "transfer 50 to eve"]


def test_a_rule_cannot_open_what_no_policy_allows():
    tool, tools, seen = rule(False)
    agent = build(single(tool), plays(Reply("", [call("transfer", amount=5)]), heard))
    pause(agent, FakeHost())
    assert tools.effects == []
    assert seen == []


@pytest.mark.parametrize(
    "text", ["nonsense", '{"amount": 5}', '{"amount": "5", "to": "eve"}', '{"to": "x"}']
)
def test_arguments_a_rule_cannot_trust_pause(text):
    tool, tools, _ = rule(False)
    script = plays(Reply("", [Call("c1", "transfer", text)]), heard)
    agent = build(single(tool), script, allowed=["transfer"])
    paused = pause(agent, FakeHost(allowed=["transfer"]))
    assert [d.call.arguments for d in paused.interrupts] == [text]
    assert tools.effects == []


def test_a_rule_that_raises_fails_the_run_and_runs_nothing():
    tool, tools, _ = rule(RuntimeError("sk-secret"))
    script = plays(Reply("", [call("transfer", amount=5, to="eve")]), heard)
    agent = build(single(tool), script, allowed=["transfer"])
    with pytest.raises(AgentRunError, match="RuntimeError") as raised:
        begin(agent, FakeHost(allowed=["transfer"]))
    assert "secret" not in str(raised.value)
    assert tools.effects == []


def test_b34_a_context_does_not_make_an_approved_call_pause_again():
    from agents import function_tool

    seen = []

    def whose(ctx: RunContextWrapper[Any], name: str) -> str:
        """Say whose run this is."""
        seen.append(dict(ctx.context))
        return "yours"

    tool = function_tool(whose, needs_approval=True)
    agent = build(single(tool), plays(Reply("", [call("whose", name="x")]), heard))
    host = FakeHost()
    paused = pause(agent, host)
    job = resume(host, paused.state, approve(host, paused))
    assert isinstance(asyncio.run(agent.resume(job, host)), Finished)
    assert seen == [{"run_id": str(host.run_id), "thread_id": str(job.thread_id)}]
    assert len(host.guarded) == 1


# Tools of every kind


def run_once(tool: Any, allowed: str, **arguments: Any) -> FakeHost:
    script = plays(Reply("", [call(allowed, **arguments)]), heard)
    host = FakeHost(allowed=[allowed])
    assert isinstance(
        begin(build(single(tool), script, allowed=[allowed]), host), Finished
    )
    return host


def test_strict_tools_keep_their_defaults():
    host = run_once(Tools().transfer, "transfer", amount=3)
    assert host.text == "I heard: Sent 3 to bob."


def test_a_tool_that_is_no_decorated_function_is_guarded_too():
    from agents import FunctionTool

    seen = []

    async def invoke(context: Any, arguments: str) -> str:
        seen.append((arguments, context.tool_arguments))
        return "done"

    schema = {
        "type": "object",
        "properties": {"n": {"type": "integer"}},
        "required": ["n"],
        "additionalProperties": False,
    }
    tool = FunctionTool("count", "Count.", schema, invoke)
    agent = build(single(tool), plays(Reply("", [call("count", n=1)]), heard))
    host = FakeHost()
    paused = pause(agent, host)
    assert seen == []
    answer = host.decide(paused.interrupts[0], Verdict.APPROVE, arguments={"n": 2})
    assert isinstance(go_on(agent, host, paused, [answer]), Finished)
    assert seen == [('{"n": 2}', '{"n": 2}')]


def test_a_tool_that_reads_its_context_sees_what_was_approved():
    def peek(ctx: ToolContext[Any], name: str) -> str:
        """Look at the context."""
        return f"{name} {ctx.tool_arguments}"

    agent = build(single(peek), plays(Reply("", [call("peek", name="a")]), heard))
    host = FakeHost()
    paused = pause(agent, host)
    answer = host.decide(paused.interrupts[0], Verdict.APPROVE, arguments={"name": "b"})
    go_on(agent, host, paused, [answer])
    assert host.text == 'I heard: b {"name": "b"}'


def test_a_slow_tool_is_given_up_in_words():
    from agents import function_tool

    async def hang() -> str:
        """Hang."""
        await asyncio.Event().wait()
        return ""

    host = run_once(function_tool(hang, timeout=0.05), "hang")
    assert "no result after 0.05 s" in host.text


def test_results_of_the_sdks_own_types_are_text():
    def speak() -> ToolOutputText:
        """Speak."""
        return ToolOutputText(text="spoken")

    assert run_once(speak, "speak").text == "I heard: spoken"


def test_a_refusal_of_the_sdk_itself_is_told():
    from agents import (
        ToolGuardrailFunctionOutput,
        ToolInputGuardrail,
        function_tool,
    )

    def never(data: Any) -> Any:
        return ToolGuardrailFunctionOutput.reject_content("Not with these words.")

    tools = Tools()
    tool = function_tool(tools.lookup)
    tool.tool_input_guardrails = [ToolInputGuardrail(never)]
    host = run_once(tool, "lookup", name="x")
    assert tools.effects == []
    assert list(host.results.values()) == ["Not with these words."]


def test_an_agent_that_stops_at_its_first_tool_still_tells_the_result():
    tools = Tools()
    agent = build(
        single(tools.lookup, tool_use_behavior="stop_on_first_tool"),
        plays(Reply("", [call("lookup", name="x")])),
        allowed=["lookup"],
    )
    host = FakeHost(allowed=["lookup"])
    done = begin(agent, host)
    assert isinstance(done, Finished)
    assert list(host.results.values()) == ["x is known"]
    after = FakeHost()
    check = build(single(tools.lookup), plays(Reply("Fine.")), allowed=["lookup"])
    assert isinstance(begin(check, after, "and", state=done.state), Finished)


# Building


def test_the_developers_tools_stay_as_they_are():
    from agents import function_tool

    free, gated = (
        function_tool(Tools().lookup),
        function_tool(Tools().delete, needs_approval=True),
    )
    before = [dict(vars(tool)) for tool in (free, gated)]
    for allowed in ([], ["delete"], ["lookup", "delete"]):
        build(single(free, gated), plays(ONE), allowed=allowed)
    assert [dict(vars(tool)) for tool in (free, gated)] == before


def test_one_tool_may_belong_to_two_agents():
    from agents import Agent, function_tool

    tool = function_tool(Tools().lookup)

    def make() -> Any:
        clerk = Agent(name="clerk", tools=[tool])
        return Agent(name="front", tools=[tool], handoffs=[clerk])

    assert [spec.name for spec in build(make, plays(ONE)).tools] == ["lookup"]


def hosted() -> Any:
    from agents import WebSearchTool

    return WebSearchTool()


def agents_of(names: Sequence[str]) -> Callable[[], Any]:
    def make() -> Any:
        from agents import Agent

        others = [Agent(name=name) for name in names[1:]]
        return Agent(name=names[0], handoffs=list(others))

    return make


def with_servers() -> Any:
    from agents import Agent

    return Agent(name="x", mcp_servers=[object()])  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: single(Tools().lookup, Tools().lookup)(), "Two tools"),
        (agents_of(["a", "b", "b"]), "Two agents"),
        (with_servers, "MCP servers"),
    ],
)
def test_agents_that_cannot_be_held_are_refused(make, told):
    with pytest.raises(ValueError, match=told):
        build(make, plays(ONE))


def test_a_tool_that_runs_at_the_provider_is_refused():
    from agents import Agent

    with pytest.raises(ValueError, match="runs elsewhere"):
        build(lambda: Agent(name="x", tools=[hosted()]), plays(ONE))


def test_agents_made_only_once_are_refused():
    shared = single(Tools().lookup)()
    build(lambda: shared, plays(ONE))
    with pytest.raises(ValueError, match="make new agents each time"):
        build(lambda: shared, plays(ONE))


def test_no_model_is_asked_with_an_unguarded_tool():
    """An agent that only turns up while the run goes on is out of the builder's sight."""
    from agents import Agent, Handoff, function_tool

    hidden = Agent(name="hidden", tools=[function_tool(Tools().delete)])

    async def invoke(context: Any, arguments: str) -> Any:
        return hidden

    over = Handoff(
        tool_name="to_hidden",
        tool_description="",
        input_json_schema={},
        on_invoke_handoff=invoke,
        agent_name="hidden",
    )
    script = plays(Reply("", [call("to_hidden")]), ONE)
    agent = build(lambda: Agent(name="front", handoffs=[over]), script)
    with pytest.raises(AgentRunError, match="'delete' is not behind the guard"):
        begin(agent, FakeHost())


def test_a_guarded_tool_does_not_run_by_itself():
    agent = build(single(Tools().lookup), plays(ONE))
    [tool] = agent.team.starting.tools
    with pytest.raises(LookupError):
        asyncio.run(tool.on_invoke_tool(None, '{"name": "x"}'))


def test_cards_are_completed_and_strangers_refused():
    cards = [ToolSpec(name="delete", risk=Risk.HIGH, title="Delete {filename}")]
    [spec] = build(single(Tools().delete), plays(ONE), cards=cards).tools
    assert (spec.risk, spec.title) == (Risk.HIGH, "Delete {filename}")
    assert spec.description == "Delete a file."
    assert spec.parameters["additionalProperties"] is False
    with pytest.raises(ValueError, match="no tool named erase"):
        build(single(Tools().delete), plays(ONE), cards=[ToolSpec(name="erase")])


def test_drafts_say_what_may_be_answered():
    agent = build(
        single(Tools().delete, Tools().lookup),
        plays(Reply("", [*ONE.calls, call("lookup", "c2", name="x")])),
    )
    first, _second = pause(agent, FakeHost()).interrupts
    assert first.reason == "tool_approval"
    assert set(first.verdicts) == set(Verdict) - {Verdict.ANSWER}
    assert first.call.framework_ref == "c1"
    assert first.call.call_id.startswith("call_")
    assert agent.cancel == Verdict.CANCEL_CALL


def test_nothing_imports_the_sdk_before_an_agent_is_built():
    run_code("""
import sys
import hitlagents.adapters.openai_agents
import hitlagents.adapters.openai_agents_models
found = {name.partition(".")[0] for name in sys.modules}
assert not found & {"agents", "openai"}, found
""")


def test_no_trace_leaves_the_house():
    run_code("""
import asyncio
from tests.hitlagents.adapters.test_openai_agents import ONE, FakeHost, begin, build
from tests.hitlagents.adapters.test_openai_agents import plays, single, Tools
from agents import tracing
from agents.tracing import get_trace_provider
sent = []
class Ear(tracing.TracingProcessor):
    def on_trace_start(self, trace): sent.append(trace)
    def on_trace_end(self, trace): sent.append(trace)
    def on_span_start(self, span): sent.append(span)
    def on_span_end(self, span): sent.append(span)
    def shutdown(self): pass
    def force_flush(self): pass
tracing.set_trace_processors([Ear()])
begin(build(single(Tools().delete), plays(ONE)), FakeHost())
assert sent == [], sent
""")


# Limits


def test_a_run_that_pauses_again_and_again_is_stopped():
    from hitlagents.adapters import openai_agents_run

    def again(history: Sequence[Item]) -> Reply:
        return Reply("", [call("delete", f"c{len(history)}", filename="a")])

    host = FakeHost()
    agent = build(single(Tools().delete), again)
    outcome = pause(agent, host)
    for _ in range(openai_agents_run.MAX_TURNS - 1):
        outcome = go_on(agent, host, outcome, approve(host, outcome))
    with pytest.raises(AgentRunError, match="stopped after 50 model turns") as raised:
        go_on(agent, host, outcome, approve(host, outcome))
    assert not raised.value.retryable


def test_a_long_conversation_stays_quick():
    """Every resume reads the whole state."""
    tools, state = Tools(), None
    agent = build(single(tools.delete), plays(ONE, heard))
    for _ in range(20):
        host = FakeHost()
        paused = begin(agent, host, "word " * 400, state=state)
        began = time.process_time()
        state = go_on(agent, host, paused, approve(host, paused)).state
    assert time.process_time() - began < 2


@pytest.mark.parametrize(
    ("error", "told", "retryable"),
    [
        (MaxTurnsExceeded("sk-secret"), "stopped after 50 model turns", False),
        (ModelBehaviorError("sk-secret"), "cannot use", True),
        (ModelRefusalError("sk-secret"), "refused to answer", False),
        (UserError("sk-secret"), "failed: UserError", True),
    ],
)
def test_failures_of_the_sdk_are_told_in_a_sentence(error, told, retryable):
    found = worded(error, "gpt at host")
    assert told in str(found)
    assert str(found).endswith(".")
    assert "secret" not in str(found)
    assert found.retryable is retryable


def test_a_guardrail_of_the_agent_ends_the_run_in_words():
    def never(context: Any, agent: Any, given: Any) -> GuardrailFunctionOutput:
        return GuardrailFunctionOutput(output_info="sk", tripwire_triggered=True)

    agent = build(
        single(Tools().delete, input_guardrails=[InputGuardrail(never)]), plays(ONE)
    )
    host = FakeHost()
    with pytest.raises(AgentRunError, match="A guardrail of the agent") as raised:
        begin(agent, host)
    assert not raised.value.retryable
    assert host.guarded == []


# The stored state


def paused_run() -> tuple[OpenAIAgentsAdapter, FakeHost, Interrupted, Tools]:
    tools, host = Tools(), FakeHost()
    agent = build(single(tools.delete), plays(ONE, heard))
    return agent, host, pause(agent, host), tools


@pytest.mark.parametrize(
    "damage",
    [
        lambda state: state.update(turn=-1),
        lambda state: state.update(turn=True),
        lambda state: state.update(calls={}),
        lambda state: state.update(calls={"x": {}}),
        lambda state: state.update(history=[1]),
        lambda state: state.update(run=None),
        lambda state: state.update(run={}),
        lambda state: state["run"].update({"$schemaVersion": "x"}),
        lambda state: state["run"].pop("$schemaVersion"),
        lambda state: state["run"].pop("context"),
        lambda state: state["run"].update(current_agent={"name": "x"}),
        lambda state: state["run"].update(current_step=None),
        lambda state: state["run"].update(generated_items="x"),
        lambda state: state["run"].update(last_processed_response=[]),
    ],
)
def test_a_damaged_state_is_refused_in_words(damage):
    agent, host, paused, tools = paused_run()
    state = deepcopy(dict(paused.state))
    damage(state)
    with pytest.raises(CheckpointError, match=r"damaged\.$"):
        go_on(agent, host, Finished(state=state), approve(host, paused))
    assert tools.effects == []
    assert host.guarded == []


@pytest.mark.parametrize("version", ["1.22", "1.100", "2.0"])
def test_a_state_of_a_newer_sdk_is_refused_in_words(version):
    agent, host, paused, tools = paused_run()
    state = deepcopy(dict(paused.state))
    state["run"]["$schemaVersion"] = version
    with pytest.raises(CheckpointError, match="newer version of the OpenAI Agents SDK"):
        go_on(agent, host, Finished(state=state), approve(host, paused))
    assert tools.effects == []


def test_arguments_changed_in_the_state_run_nothing():
    agent, host, paused, tools = paused_run()
    answers = approve(host, paused)
    text = json.dumps(paused.state).replace("a.txt", "passwords.txt")
    with pytest.raises(CheckpointError, match="damaged"):
        go_on(agent, host, Finished(state=json.loads(text)), answers)
    assert tools.effects == []


def test_an_approval_written_into_the_state_opens_nothing():
    """The SDK takes its state's word for an approval; the guard does not."""
    agent, host, paused, tools = paused_run()
    answers = approve(host, paused)
    host.decisions.clear()
    state = deepcopy(dict(paused.state))
    approvals = state["run"]["context"]["approvals"]
    approvals["delete"] = {"approved": True, "rejected": []}
    with pytest.raises(StopRun, match="No decision"):
        go_on(agent, host, Finished(state=state), answers)
    assert tools.effects == []


def test_a_decision_the_framework_does_not_take_is_an_error(monkeypatch):
    """As if an update of the SDK answered the call by itself."""
    from agents import RunState

    agent, host, paused, tools = paused_run()
    answers = approve(host, paused)
    monkeypatch.setattr(RunState, "approve", RunState.reject)
    with pytest.raises(AgentRunError, match="did not take 1 of the decisions"):
        go_on(agent, host, paused, answers)
    assert tools.effects == []


def test_the_state_holds_ids_and_no_context_but_that():
    _, host, paused, _ = paused_run()
    context = paused.state["run"]["context"]["context"]
    assert set(context) == {"run_id", "thread_id"}
    assert context["run_id"] == str(host.run_id)


def test_a_state_that_is_not_json_is_refused_when_written():
    for item in ({"x": float("nan")}, {"x": object()}):
        with pytest.raises(AgentRunError, match="cannot be stored"):
            Snapshot(history=[item], agent="x", starting="x").to_state()


def test_a_cancelled_start_ends_at_once_in_the_middle_of_a_word():
    host = FakeHost()

    async def scenario() -> None:
        reading = asyncio.Event()

        @asynccontextmanager
        async def connect():
            from hitlagents.adapters.openai_agents_scripted import ScriptedModel

            reading.set()
            yield ScriptedModel(plays(Reply("word " * 1000)), pause=0.01)

        agent = build(single(Tools().lookup), plays(ONE))
        agent.model = ChatModel(label="slow", connect=connect)
        task = asyncio.create_task(agent.start(start(host), host))
        await reading.wait()
        await until(lambda: any(isinstance(h, TextDelta) for h in host.happenings))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        told = len(host.happenings)
        await asyncio.sleep(0.1)
        assert len(host.happenings) == told

    asyncio.run(scenario())


def test_huge_and_odd_arguments_leave_a_state_that_can_be_read():
    texts = ['{"amount": 1e400}', '{"amount": Infinity}', '{"to": "\\ud800\\u0000"}']
    calls = [Call(f"c{n}", "transfer", text) for n, text in enumerate(texts)]
    host = FakeHost()
    agent = OpenAIAgentsHarness().build(plays(Reply("", calls), heard), Tools(), [])
    paused = asyncio.run(agent.start(start(host), host))
    assert isinstance(paused, Interrupted)
    texts[2] = '{"to": "\ufffd\\u0000"}'  # half a character is none
    assert [d.call.arguments for d in paused.interrupts] == texts
    done = asyncio.run(
        agent.resume(resume(host, paused.state, approve(host, paused)), host)
    )
    assert isinstance(done, Finished)


def test_a_nested_pause_goes_on_in_another_process():
    family, host = Family(), FakeHost(allowed=["ask_helper", "lookup"])
    paused = pause(family.build(), host)
    outer, inner = paused.interrupts
    answers = [deny(host, outer, "broke"), host.decide(inner, Verdict.APPROVE)]
    code = """
import asyncio, json, sys
from uuid import UUID
from approvals.schemas import Answer
from hitlagents.adapters.base import Resume
from tests.hitlagents.adapters.test_openai_agents import Family, FakeHost
job = json.load(sys.stdin)
answers = [Answer.model_validate(a) for a in job["answers"]]
host = FakeHost(run_id=UUID(job["run_id"]), allowed=["ask_helper", "lookup"])
host.decisions = {(a.call.turn, a.call.call_id): a for a in answers}
host.ledger = {(turn, key): text for turn, key, text in job["ledger"]}
family = Family()
resume = Resume(run_id=host.run_id, thread_id=UUID(job["thread_id"]),
                state=job["state"], answers=answers)
asyncio.run(family.build().resume(resume, host))
print(json.dumps([family.tools.effects, host.text]))
"""
    job = {
        "run_id": str(host.run_id),
        "thread_id": str(uuid4()),
        "state": through_json(paused.state),
        "answers": [answer.model_dump(mode="json") for answer in answers],
        "ledger": [[*key, text] for key, text in host.ledger.items()],
    }
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        input=json.dumps(job),
        env={**os.environ, "PYTHONPATH": os.pathsep.join([".", "agents"])},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    effects, text = json.loads(done.stdout)
    assert effects == ["delete x"]
    assert text == (
        "I heard: Helper says: Deleted x. | y is known | "
        "Not executed: a reviewer denied this call. broke"
    )


def test_what_a_policy_allows_meanwhile_does_not_change_what_was_asked():
    family, host = Family(), FakeHost(allowed=["ask_helper", "lookup"])
    paused = pause(family.build(), host)
    answers = [deny(host, draft) for draft in paused.interrupts]
    assert isinstance(
        go_on(family.build([*ALL_TOOLS, "ask_helper"]), host, paused, answers), Finished
    )
    assert family.tools.effects == ["lookup y"]
