"""What is particular to LangGraph: raw interrupts, graphs of one's own, steps, state."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import os
import pickle
from collections.abc import Sequence
from copy import deepcopy
from typing import Any, cast
from uuid import uuid4

import ormsgpack
import pytest
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.tools import StructuredTool, tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Send, interrupt
from pydantic import BaseModel

from approvals.exceptions import LostLease
from approvals.states import InterruptKind, Verdict
from hitlagents.adapters import langgraph_run
from hitlagents.adapters.base import (
    Adapter,
    AgentRunError,
    CheckpointError,
    Finished,
    Gating,
    Interrupted,
    StopRun,
    TextDelta,
    ToolCallProposed,
    ToolCallResult,
)
from hitlagents.adapters.langgraph import LangGraphAdapter
from hitlagents.adapters.langgraph_happenings import Happenings, Pieces, Turn
from hitlagents.adapters.langgraph_models import scripted
from hitlagents.adapters.langgraph_parts import (
    agent,
    call_tool,
    chat_model,
    guard_tool_call,
)
from hitlagents.demo.scripted import Item, Reply, Result
from tests.hitlagents.adapters.graphs import Log, Own, asks, noted
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
)
from tests.hitlagents.processes import run_code

pytestmark = pytest.mark.once

ONE = Reply("Working.", [call("delete", filename="a.txt")])

DEEP: dict[str, Any] = {}
_inner = DEEP
for _depth in range(40):
    _inner["deeper"] = [{"level": _depth}, {}]
    _inner = _inner["deeper"][1]


async def done(arguments: Any) -> str:
    return f"did {json.dumps(arguments, sort_keys=True)}"


# Raw interrupts


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        ("Which city?", "Which city?"),
        ("", "The agent asks for an answer."),
        (42, "The agent asks for an answer."),
        (0, "The agent asks for an answer."),
        (1.5, "The agent asks for an answer."),
        (True, "The agent asks for an answer."),
        (False, "The agent asks for an answer."),
        (None, "The agent asks for an answer."),
        (["a", 1, None], "The agent asks for an answer."),
        ([], "The agent asks for an answer."),
        ({}, "The agent asks for an answer."),
        ({"question": "Which city?", "options": ["Ulm"]}, "Which city?"),
        ({"question": "", "message": "<b>Really</b>?"}, "<b>Really</b>?"),
        ({"action_request": "odd"}, "The agent asks for an answer."),
        (DEEP, "The agent asks for an answer."),
        ("x" * 5000, "x" * 1999 + "…"),
    ],
)
def test_a_question_may_be_any_json(payload, message):
    """B44: not only objects."""
    got: list[Any] = []
    it = Own(asks(payload, got))
    paused = it.pause()
    [draft] = paused.interrupts
    assert draft.kind == InterruptKind.QUESTION
    assert draft.reason == "input_required"
    assert draft.message == message
    assert draft.call.tool == "ask"
    assert json.loads(draft.call.arguments) == payload
    assert draft.response_schema
    assert set(draft.verdicts) == {
        Verdict.ANSWER,
        Verdict.DENY,
        Verdict.CANCEL_CALL,
        Verdict.CANCEL_RUN,
    }
    assert it.host.proposed == [draft.call]
    assert isinstance(it.resume(paused, [it.answer(draft, "Ulm")]), Finished)
    assert got == ["Ulm"]
    assert it.host.results == {draft.call.call_id: "Ulm"}


ANSWERS = [
    False,
    0,
    0.0,
    "",
    [],
    {},
    None,
    True,
    1,
    "blue",
    "false",
    [None],
    {"a": None, "b": [False, 0, ""]},
    2**53 + 1,
]


@pytest.mark.parametrize("value", ANSWERS, ids=repr)
def test_an_answer_arrives_exactly_as_given(value):
    """B27: what counts as nothing is an answer too."""
    got: list[Any] = []
    it = Own(asks("?", got))
    paused = it.pause()
    done = it.resume(paused, [it.answer(paused.interrupts[0], value)])
    assert isinstance(done, Finished)
    assert got == [value]
    assert type(got[0]) is type(value)


class Chosen(BaseModel):
    city: str
    day: int = 0


def test_the_schema_of_a_question_is_shown_and_kept_to():
    got: list[Any] = []

    def ask(state: Log) -> Log:
        got.append(interrupt("Where?", response_schema=Chosen))
        return {}

    it = Own(single(ask))
    paused = it.pause()
    [draft] = paused.interrupts
    assert draft.response_schema is not None
    assert draft.response_schema["required"] == ["city"]
    # The desk checks answers; should one slip through, nothing is lost by it.
    with pytest.raises(AgentRunError):
        it.resume(paused, [it.answer(draft, {"day": 1})])
    assert got == []
    it.host.ledger.clear()
    it.resume(paused, [it.answer(draft, {"city": "Ulm"})])
    assert [value.city for value in got] == ["Ulm"]


@pytest.mark.parametrize("verdict", [Verdict.DENY, Verdict.CANCEL_CALL])
def test_m11_a_question_that_nobody_answers_gives_null(verdict):
    """Not a text: that would be taken for an answer, and one that means yes."""
    got: list[Any] = []
    it = Own(asks("Go on?", got))
    paused = it.pause()
    [draft] = paused.interrupts
    answer = it.host.decide(draft, verdict, text="Not answered: declined.")
    assert isinstance(it.resume(paused, [answer]), Finished)
    assert got == [None]
    assert it.host.results == {draft.call.call_id: "Not answered: declined."}


@pytest.mark.parametrize("schema", [None, {"type": ["string", "null"]}])
def test_a_question_whose_answer_may_be_null_can_be_denied(schema):
    it = Own(asks("Go on?", [], response_schema=schema))
    assert Verdict.DENY in it.pause().interrupts[0].verdicts


@pytest.mark.parametrize(
    "schema",
    [{"type": "string"}, {"type": "nonsense"}, {"$ref": "#/$defs/nowhere"}],
    ids=str,
)
def test_a_question_that_wants_an_answer_cannot_be_denied(schema):
    it = Own(asks("Go on?", [], response_schema=schema))
    [draft] = it.pause().interrupts
    assert draft.verdicts == (Verdict.ANSWER, Verdict.CANCEL_RUN)


@pytest.mark.parametrize("listed", [True, False])
def test_a_review_of_what_nobody_registered_can_be_ignored(listed):
    got: list[Any] = []
    it = Own(asks([review()] if listed else review(), got))
    paused = it.pause()
    [draft] = paused.interrupts
    assert draft.kind == InterruptKind.QUESTION
    answer = it.host.decide(draft, Verdict.DENY, text="No.")
    it.resume(paused, [answer])
    value = {"type": "ignore", "args": "No."}
    assert got == [[value] if listed else value]


@pytest.mark.parametrize(
    ("verdict", "schema"),
    [(Verdict.APPROVE, None), (Verdict.DENY, {"type": "string"})],
)
def test_a_question_that_gets_no_answer_it_takes_stops_the_run(verdict, schema):
    got: list[Any] = []
    it = Own(asks("Go on?", got, response_schema=schema))
    paused = it.pause()
    answer = it.host.decide(paused.interrupts[0], verdict, text="Nobody decided.")
    with pytest.raises(AgentRunError, match=r"not answered.*Nobody decided") as raised:
        it.resume(paused, [answer])
    assert not raised.value.retryable
    assert got == []


def test_a_forged_answer_does_not_arrive():
    got: list[Any] = []
    it = Own(asks("Go on?", got))
    paused = it.pause()
    answer = it.answer(paused.interrupts[0], "no")
    forged = answer.model_copy(update={"answer": "yes"})
    with pytest.raises(AgentRunError, match="not the one that was decided"):
        it.resume(paused, [forged])
    it.host.decisions.clear()
    it.host.ledger.clear()
    with pytest.raises(StopRun):
        it.resume(paused, [forged])
    assert got == []


@pytest.mark.parametrize("value", [object(), {1, 2}, Chosen(city="Ulm"), b"\xff"])
def test_a_payload_that_is_not_json_becomes_some_or_is_refused(value):
    it = Own(asks(value, []))
    try:
        [draft] = it.pause().interrupts
    except AgentRunError as error:
        assert "object at" not in str(error)  # noqa: PT017
    else:
        json.loads(draft.call.arguments)
        assert "object at" not in draft.call.arguments


def test_a_node_may_ask_again_and_again():
    got: list[Any] = []

    def ask(state: Log) -> Log:
        got.append([interrupt("first"), interrupt("second"), interrupt("third")])
        return {"log": got[-1]}

    it = Own(single(ask))
    pause = it.pause()
    told = []
    for value in (False, None, "c"):
        [draft] = pause.interrupts
        told.append(draft.message)
        outcome = it.resume(pause, [it.answer(draft, value)])
        if isinstance(outcome, Interrupted):
            pause = outcome
    assert told == ["first", "second", "third"]
    assert got == [[False, None, "c"]]
    assert len(it.host.ledger) == 3


def test_decisions_of_earlier_pauses_change_nothing():
    got: list[Any] = []

    def ask(state: Log) -> Log:
        got.append([interrupt("first"), interrupt("second")])
        return {}

    it = Own(single(ask))
    first = it.pause()
    one = it.answer(first.interrupts[0], 1)
    second = it.resume(first, [one])
    assert isinstance(second, Interrupted)
    two = it.answer(second.interrupts[0], 2)
    assert isinstance(it.resume(second, [one, two]), Finished)
    assert got == [[1, 2]]


def single(node: Any, name: str = "work") -> Any:
    def build() -> Any:
        graph = StateGraph(Log)
        graph.add_node(name, node)
        graph.add_edge(START, name)
        return graph.compile()

    return build


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_parallel_questions_get_their_own_answers_whatever_the_order(order):
    got: dict[str, Any] = {}

    def fan(state: Log) -> list[Send]:
        return [Send("ask", {"message": name}) for name in ("a", "b", "c")]

    def ask(state: Log) -> Log:
        name = state["message"]
        got[name] = interrupt({"question": name})
        return {"log": [name]}

    def build() -> Any:
        graph = StateGraph(Log)
        graph.add_node("ask", ask)
        graph.add_conditional_edges(START, fan, ["ask"])
        return graph.compile()

    it = Own(build)
    paused = it.pause()
    drafts = {draft.message: draft for draft in paused.interrupts}
    answers = [it.answer(draft, f"for {name}") for name, draft in drafts.items()]
    it.resume(paused, [answers[place] for place in order])
    assert got == {"a": "for a", "b": "for b", "c": "for c"}


def test_the_answer_is_never_the_result_of_the_tool_before_it():
    """B159: the node gets exactly what the person gave."""
    got: list[Any] = []

    async def work(state: Log) -> Log:
        result = await call_tool("lookup", {"id": 7}, done)
        got.append((result, interrupt("Which colour?")))
        return {}

    it = Own(single(work), steps=["lookup"], allowed=["lookup"])
    paused = it.pause()
    assert it.host.results == {it.host.proposed[0].call_id: 'did {"id": 7}'}
    it.resume(paused, [it.answer(paused.interrupts[0], "blue")])
    assert got == [('did {"id": 7}', "blue")]
    assert noted(it.host) == [{"id": 7}, {}] or noted(it.host)[0] == {"id": 7}
    assert [name for name, _ in it.host.entered].count("lookup") == 1


# A call shown for review

EVERYTHING = {
    "allow_accept": True,
    "allow_edit": True,
    "allow_respond": True,
    "allow_ignore": True,
}
MAIL = {"to": "dana@example.com", "subject": "Hello", "body": "Dear Dana"}


def review(config: dict[str, bool] | None = None) -> dict[str, Any]:
    return {
        "action_request": {"action": "send", "args": dict(MAIL)},
        "config": EVERYTHING if config is None else config,
        "description": "A reply to Dana.",
    }


def reviewing(got: list[Any], *, listed: bool = True) -> Own:
    async def work(state: Log) -> Log:
        asked = interrupt([review()] if listed else review())
        got.append(asked)
        answer = asked[0] if listed else asked
        if answer["type"] in {"accept", "edit"}:
            got.append(await call_tool("send", answer["args"]["args"], done))
        return {}

    return Own(single(work), steps=["send"])


def test_a_call_shown_for_review_is_an_approval_of_that_call():
    it = reviewing([])
    [draft] = it.pause().interrupts
    assert draft.kind == InterruptKind.APPROVAL
    assert draft.call.tool == "send"
    assert json.loads(draft.call.arguments) == MAIL
    assert draft.message == "A reply to Dana."
    assert set(draft.verdicts) == {
        Verdict.APPROVE,
        Verdict.RESPOND,
        Verdict.DENY,
        Verdict.CANCEL_CALL,
        Verdict.CANCEL_RUN,
    }
    assert it.host.proposed == [draft.call]


EDITED = {**MAIL, "subject": "Good morning"}


@pytest.mark.parametrize("listed", [True, False])
@pytest.mark.parametrize(
    ("verdict", "how", "value", "entered"),
    [
        (
            Verdict.APPROVE,
            {},
            {"type": "accept", "args": {"action": "send", "args": MAIL}},
            [MAIL],
        ),
        (
            Verdict.APPROVE,
            {"arguments": EDITED},
            {"type": "edit", "args": {"action": "send", "args": EDITED}},
            [EDITED],
        ),
        (
            Verdict.RESPOND,
            {"output": "Phone her instead."},
            {"type": "response", "args": "Phone her instead."},
            [],
        ),
        (Verdict.DENY, {"text": "No."}, {"type": "ignore", "args": "No."}, []),
        (Verdict.CANCEL_CALL, {"text": "Off."}, {"type": "ignore", "args": "Off."}, []),
    ],
)
def test_a_review_gives_the_node_what_was_said(listed, verdict, how, value, entered):
    got: list[Any] = []
    it = reviewing(got, listed=listed)
    paused = it.pause()
    [draft] = paused.interrupts
    answer = it.host.decide(draft, verdict, **how)
    assert isinstance(it.resume(paused, [answer]), Finished)
    assert got[0] == ([value] if listed else value)
    assert noted(it.host) == entered
    assert list(it.host.results) == [draft.call.call_id]
    assert {c.call_id for c in it.host.guarded} == {draft.call.call_id}


def test_an_edit_reaches_the_body_although_the_node_goes_by_its_own_draft():
    async def work(state: Log) -> Log:
        if interrupt(review())["type"] in {"accept", "edit"}:
            await call_tool("send", MAIL, done)
        return {}

    it = Own(single(work), steps=["send"])
    paused = it.pause()
    how = {"arguments": EDITED}
    it.resume(paused, [it.host.decide(paused.interrupts[0], Verdict.APPROVE, **how)])
    assert noted(it.host) == [EDITED]


def test_a_node_that_does_what_was_denied_is_stopped_by_the_guard():
    told: list[str] = []

    async def work(state: Log) -> Log:
        interrupt(review())
        told.append(await call_tool("send", MAIL, done))
        return {}

    it = Own(single(work), steps=["send"])
    paused = it.pause()
    it.resume(paused, [deny(it.host, paused.interrupts[0], "not her")])
    assert noted(it.host) == []
    assert told == ["Not executed: a reviewer denied this call. not her"]


def test_a_node_that_does_something_else_than_was_reviewed_asks_for_that():
    async def work(state: Log) -> Log:
        interrupt(review())
        await call_tool("send", {"to": "eve@example.com"}, done)
        return {}

    it = Own(single(work), steps=["send"])
    paused = it.pause()
    again = it.resume(paused, approve(it.host, paused))
    assert isinstance(again, Interrupted)
    [draft] = again.interrupts
    assert json.loads(draft.call.arguments) == {"to": "eve@example.com"}
    assert noted(it.host) == []


@pytest.mark.parametrize(
    ("config", "verdicts"),
    [
        ({"allow_accept": True}, {Verdict.APPROVE}),
        ({"allow_edit": True}, {Verdict.APPROVE}),
        ({"allow_ignore": True}, {Verdict.DENY, Verdict.CANCEL_CALL}),
        ({"allow_respond": True}, {Verdict.RESPOND}),
        ({}, set()),
    ],
)
def test_what_the_node_takes_is_what_is_offered(config, verdicts):
    it = Own(asks([review(config)], []), steps=["send"])
    [draft] = it.pause().interrupts
    assert set(draft.verdicts) == verdicts | {Verdict.CANCEL_RUN}


def test_a_review_without_allow_edit_is_approved_as_it_is_or_not_at_all():
    accept, edit = (
        Own(asks([review(config)], []), steps=["send"]).pause().interrupts[0]
        for config in ({"allow_accept": True}, {"allow_edit": True})
    )
    assert not accept.editable
    assert edit.editable


def test_a_review_is_demanded_by_the_graph_and_a_call_is_not():
    [draft] = reviewing([]).pause().interrupts
    assert draft.demanded
    [draft] = Own(single(step_alone), steps=["pay"]).pause().interrupts
    assert not draft.demanded


async def step_alone(state: Log) -> Log:
    await call_tool("pay", {"amount": 5}, done)
    return {}


def test_a_review_of_what_nobody_registered_is_a_question():
    got: list[Any] = []
    it = Own(asks([review()], got))
    paused = it.pause()
    [draft] = paused.interrupts
    assert draft.kind == InterruptKind.QUESTION
    assert draft.response_schema is not None
    assert draft.response_schema["properties"]["type"]["enum"] == [
        "accept",
        "edit",
        "response",
        "ignore",
    ]
    it.resume(paused, [it.answer(draft, {"type": "ignore"})])
    assert got == [[{"type": "ignore"}]]


def test_a_question_of_a_node_named_like_a_tool_is_not_that_tool():
    def ask(state: Log) -> Log:
        interrupt("?")
        return {}

    it = Own(single(ask, "send"), steps=["send"], allowed=["send"])
    [draft] = it.pause().interrupts
    assert draft.call.tool == "send (question)"


# Steps of nodes


def test_a_step_before_the_question_happens_once():
    async def work(state: Log) -> Log:
        await call_tool("count", {"n": 1}, done)
        interrupt("Go on?")
        await call_tool("count", {"n": 2}, done)
        interrupt("And on?")
        return {}

    it = Own(single(work), steps=["count"], allowed=["count"])
    first = it.pause()
    second = it.resume(first, [it.answer(first.interrupts[0], True)])
    assert isinstance(second, Interrupted)
    done_ = it.resume(second, [it.answer(second.interrupts[0], True)])
    assert isinstance(done_, Finished)
    counted = [args for name, args in it.host.entered if name == "count"]
    assert counted == [{"n": 1}, {"n": 2}]
    assert len(it.host.results) == len(it.host.proposed) == 4


def test_a_held_step_waits_for_its_decision_and_then_runs_once():
    order: list[Any] = []

    async def work(state: Log) -> Log:
        order.append(await call_tool("pay", {"amount": 5}, done))
        order.append(interrupt("Thank them?"))
        return {}

    it = Own(single(work), steps=["pay"])
    paused = it.pause()
    [draft] = paused.interrupts
    assert (draft.call.tool, draft.kind) == ("pay", InterruptKind.APPROVAL)
    asked = it.resume(paused, approve(it.host, paused))
    assert isinstance(asked, Interrupted)
    # The policy is laxer now; the answers still reach their own interrupts.
    it.allowed = ["pay"]
    it.resume(asked, [it.answer(asked.interrupts[0], "no")])
    assert order[-2:] == ['did {"amount": 5}', "no"]
    assert [name for name, _ in it.host.entered].count("pay") == 1


def test_a_step_that_is_denied_gives_the_hosts_text():
    told: list[str] = []

    async def work(state: Log) -> Log:
        told.append(await call_tool("pay", {"amount": 5}, done))
        return {}

    it = Own(single(work), steps=["pay"])
    paused = it.pause()
    it.resume(paused, [deny(it.host, paused.interrupts[0], "too much")])
    assert told == ["Not executed: a reviewer denied this call. too much"]


def test_a_step_keeps_its_key_in_another_attempt():
    """As after a crash: the ledger knows what ran, the state does not."""

    async def work(state: Log) -> Log:
        await call_tool("count", {"n": 1}, done)
        await call_tool("count", {"n": 1}, done)
        await call_tool("count", {"n": 1}, done, key="again")
        await call_tool("count", {"n": 2}, done, key="again")
        return {}

    it = Own(single(work), steps=["count"], allowed=["count"])
    for _ in range(3):
        it.start()
    assert noted(it.host) == [{"n": 1}, {"n": 1}]


def test_each_visit_of_a_node_is_a_step_of_its_own():
    async def work(state: Log) -> Log:
        await call_tool("count", {"n": 1}, done)
        return {"log": [1]}

    def build() -> Any:
        graph = StateGraph(Log)
        graph.add_node("work", work)
        graph.add_edge(START, "work")
        graph.add_conditional_edges(
            "work", lambda state: "work" if len(state["log"]) < 3 else "__end__"
        )
        return graph.compile()

    it = Own(build, steps=["count"], allowed=["count"])
    it.start()
    assert len(it.host.entered) == 3


def test_a_step_nobody_named_is_refused():
    async def work(state: Log) -> Log:
        await call_tool("secret", {}, done)
        return {}

    with pytest.raises(AgentRunError, match="secret, which the agent does not name"):
        Own(single(work)).start()


# Graphs in graphs


def nested(count: Any, gate: Any, *, by_hand: bool) -> Any:
    def build() -> Any:
        inner = StateGraph(Log)
        inner.add_node("count", count)
        inner.add_node("gate", gate)
        inner.add_edge(START, "count")
        inner.add_edge("count", "gate")
        graph = inner.compile()

        async def called(state: Log) -> Log:
            await call_tool("count", {"where": "outside"}, done)
            return {"log": (await graph.ainvoke({"log": []}))["log"]}

        outer = StateGraph(Log)
        outer.add_node("first", count)
        outer.add_node("inside", called if by_hand else graph)
        outer.add_edge(START, "first")
        outer.add_edge("first", "inside")
        return outer.compile()

    return build


@pytest.mark.parametrize("by_hand", [False, True])
def test_what_was_counted_before_the_gate_is_counted_once(by_hand):
    """B134, B136: a graph in a graph goes on where it stopped."""

    async def count(state: Log) -> Log:
        await call_tool("count", {}, done)
        return {}

    async def gate(state: Log) -> Log:
        await call_tool("count", {"where": "gate"}, done)
        return {"log": [interrupt("Go on?"), await call_tool("pay", {}, done)]}

    it = Own(
        nested(count, gate, by_hand=by_hand), steps=["count", "pay"], allowed=["count"]
    )
    paused = it.pause()
    [draft] = paused.interrupts
    assert draft.call.tool == "gate"
    paid = it.resume(paused, [it.answer(draft, True)])
    assert isinstance(paid, Interrupted)
    assert isinstance(it.resume(paid, approve(it.host, paid)), Finished)
    entered = [name for name, _ in it.host.entered if name != "gate"]
    assert entered.count("count") == (4 if by_hand else 3)
    assert entered.count("pay") == 1


def agents_in_a_graph(tools: Tools, *, free: bool = False) -> Any:
    made = [StructuredTool.from_function(f) for f in (tools.delete, tools.lookup)]

    def build() -> Any:
        graph = StateGraph(MessagesState)
        for name in ("left", "right"):
            graph.add_node(name, agent(tools=made, name=name))
            graph.add_edge(START, name)
        return graph.compile()

    return build, made


def test_two_agents_side_by_side_keep_their_calls_apart():
    tools = Tools()
    build, made = agents_in_a_graph(tools)
    calls = [call("lookup", "c1", name="x"), call("delete", "c2", filename="a")]
    it = Own(
        build,
        tools=made,
        allowed=["lookup"],
        script=plays(Reply("", calls), heard),
        intake=None,
    )
    paused = it.pause()
    assert [d.call.tool for d in paused.interrupts] == ["delete", "delete"]
    assert len({d.call.call_id for d in paused.interrupts}) == 2
    assert len({d.call.framework_ref for d in paused.interrupts}) == 2
    answers = approve(it.host, paused)
    answers[0] = deny(it.host, paused.interrupts[0], "left not")
    assert isinstance(it.resume(paused, answers), Finished)
    assert tools.effects.count("delete a") == 1
    assert tools.effects.count("lookup x") == 2
    assert len(it.host.results) == 4
    # The result of one agent may come between the words of the other.
    whole: dict[str, str] = {}
    for happening in it.host.happenings:
        if isinstance(happening, TextDelta):
            message = "-".join(happening.message_id.split("-")[:2])
            whole[message] = whole.get(message, "") + happening.delta
    assert sorted(whole.values()) == [
        "I heard: x is known | Deleted a.",
        "I heard: x is known | Not executed: a reviewer denied this call. left not",
    ]


def messages(host: FakeHost) -> list[str]:
    """The texts told, by message; each message in one piece, as pages want them."""
    found: dict[str, str] = {}
    last = ""
    for happening in host.happenings:
        now = happening.message_id if isinstance(happening, TextDelta) else ""
        assert not now or now == last or now not in found
        if isinstance(happening, TextDelta):
            found[now] = found.get(now, "") + happening.delta
        last = now
    return list(found.values())


def test_words_of_two_messages_do_not_mix():
    slow = plays(
        Reply("one two three four five six", [call("lookup", name="x")]), heard
    )

    def build() -> Any:
        graph = StateGraph(MessagesState)
        made = [StructuredTool.from_function(Tools().lookup)]
        for number in range(4):
            graph.add_node(f"n{number}", agent(tools=made, name=f"n{number}"))
            graph.add_edge(START, f"n{number}")
        return graph.compile()

    made = [StructuredTool.from_function(Tools().lookup)]
    it = Own(build, tools=made, allowed=["lookup"], script=slow, intake=None)
    it.start()
    text = "".join(messages(it.host))
    assert text.count("six") == text.count("I") == 4
    told = [type(h) for h in it.host.happenings]
    assert told.count(ToolCallProposed) == told.count(ToolCallResult) == 4


class Told:
    """As much of an advance as words need."""

    def __init__(self) -> None:
        self.last_text = ""
        self.texts: dict[str, str] = {}

    async def tell(self, delta: TextDelta) -> None:
        assert delta.message_id == self.last_text or delta.message_id not in self.texts
        self.last_text = delta.message_id
        before = self.texts.get(delta.message_id, "")
        self.texts[delta.message_id] = before + delta.delta


@pytest.mark.parametrize(
    ("steps", "texts"),
    [
        # The other one ends first, and has called nothing: it waits for the end.
        ("a:1 b:x a:2 b:y b. a:3 a.", ["123", "xy"]),
        # The one with the floor ends first: what waited comes before what follows.
        ("a:1 b:x a. b:y b.", ["1", "xy"]),
        ("a:1 b:x c:p a. b:y c:q b. c.", ["1", "xy", "pq"]),
        # Words before calls are told before them, so the message they cut goes on as two.
        ("a:1 b:x b! b. a:2 a.", ["1", "x", "2"]),
        # What a node writes comes whole, and cuts in on nobody.
        ("n:p a:1 n:x b:y n:z a:2 a. b.", ["p", "12", "x", "z", "y"]),
    ],
)
def test_words_of_several_models_are_told_whole_and_in_order(steps, texts):
    told = Told()
    happenings = Happenings(cast("Any", told))
    turns = {name: Turn(number=1, silent=False) for name in "abc"}

    async def node(text: str) -> None:
        run = uuid4()
        happenings._nodes.add(run)
        await happenings.on_chain_end({"messages": [AIMessage(text)]}, run_id=run)

    async def go() -> None:
        for step in steps.split():
            turn, what = turns.get(step[0], turns["a"]), step[1:]
            if step[0] == "n":
                await node(what[1:])
            elif what == ".":
                await happenings._end(turn)
            elif what == "!":
                turn.pieces.add({"id": "c1", "name": "lookup", "args": "{}"})
            else:
                await happenings._say(turn, what[1:])

    asyncio.run(go())
    assert list(told.texts.values()) == texts


def test_the_gated_call_may_be_the_second_of_its_turn():
    """B15: it is not overlooked."""
    calls = [call("lookup", "c1", name="x"), call("delete", "c2", filename="a")]
    tools, host = Tools(), FakeHost(allowed=FREE)
    adapter = LangGraphHarness().build(plays(Reply("", calls), heard), tools)
    paused = asyncio.run(adapter.start(start(host), host))
    assert isinstance(paused, Interrupted)
    assert [d.call.tool for d in paused.interrupts] == ["delete"]
    assert list(host.results.values()) == ["x is known"]
    job = resume(host, paused.state, approve(host, paused))
    asyncio.run(adapter.resume(job, host))
    assert host.text == "I heard: x is known | Deleted a."
    assert tools.effects == ["lookup x", "delete a"]


# Tools that ask


def asking_tool(effects: list[str]) -> Any:
    @tool
    async def book(topic: str) -> str:
        """Book a meeting at a time a person picks."""
        effects.append(f"look at {topic}")
        when = interrupt({"question": f"When is {topic}?"})
        effects.append(f"book {topic} {when}")
        return f"Booked {topic} for {when}."

    return book


@pytest.mark.parametrize("held", [False, True])
def test_a_tool_may_ask_in_its_body(held):
    effects: list[str] = []
    book = asking_tool(effects)
    it = Own(
        lambda: agent(tools=[book]),
        tools=[book],
        allowed=[] if held else ["book"],
        script=plays(Reply("", [call("book", topic="lunch")]), heard),
        intake=None,
    )
    paused = it.pause()
    if held:
        assert [d.call.tool for d in paused.interrupts] == ["book"]
        assert effects == []
        approval = approve(it.host, paused)
        outcome = it.resume(paused, approval)
        assert isinstance(outcome, Interrupted)
        paused = outcome
        # Laxer meanwhile: the approval's place in the order of answers stays.
        it.allowed = ["book"]
    [draft] = paused.interrupts
    assert draft.kind == InterruptKind.QUESTION
    assert draft.message == "When is lunch?"
    assert isinstance(it.resume(paused, [it.answer(draft, "noon")]), Finished)
    assert effects == ["look at lunch", "look at lunch", "book lunch noon"]
    assert it.host.text == "I heard: Booked lunch for noon."


def helper_tool(delete: Any) -> Any:
    helper = agent(tools=[delete], script=plays(ONE, heard))

    @tool
    async def ask_helper(wish: str) -> str:
        """Ask the helper."""
        return str((await helper.ainvoke({"messages": [wish]}))["messages"][-1].text)

    return ask_helper


def test_an_agent_used_as_a_tool_keeps_its_held_calls():
    tools = Tools()
    delete = StructuredTool.from_function(tools.delete)

    def build() -> Any:
        helper = agent(tools=[delete], script=plays(ONE, heard))

        @tool
        async def helper_tool(wish: str) -> str:
            """Ask the helper."""
            return str(
                (await helper.ainvoke({"messages": [wish]}))["messages"][-1].text
            )

        made.append(helper_tool)
        return agent(tools=[helper_tool])

    made: list[Any] = []
    build()
    it = Own(
        build,
        tools=[made[0], delete],
        allowed=["helper_tool"],
        script=plays(Reply("", [call("helper_tool", "h1", wish="clean up")]), heard),
        intake=None,
    )
    paused = it.pause()
    assert [d.call.tool for d in paused.interrupts] == ["delete"]
    assert isinstance(it.resume(paused, approve(it.host, paused)), Finished)
    assert tools.effects == ["delete a.txt"]
    assert "I heard: I heard: Deleted a.txt." in it.host.text


def test_a_stop_inside_an_agent_used_as_a_tool_reaches_the_caller():
    tools = Tools()
    delete = StructuredTool.from_function(tools.delete)
    ask_helper = helper_tool(delete)
    it = Own(
        lambda: agent(tools=[ask_helper]),
        tools=[ask_helper, delete],
        allowed=["ask_helper", "delete"],
        script=plays(Reply("", [call("ask_helper", "h1", wish="x")]), heard),
        intake=None,
    )
    stop = it.host.stops["delete"] = StopRun("because")
    with pytest.raises(StopRun) as raised:
        it.start()
    assert raised.value is stop
    assert it.host.ledger == {}


# What is told


def test_words_calls_and_results_are_told_in_the_order_they_happened():
    calls = [call("lookup", "c1", name="x"), call("lookup", "c2", name="y")]
    host = FakeHost(allowed=FREE)
    adapter = LangGraphHarness().build(
        plays(Reply("One two", calls), Reply("three", calls[:1]), heard), Tools()
    )
    asyncio.run(adapter.start(start(host), host))
    assert host.kinds() == "text call call result result text call result text"
    ids = [h.message_id for h in host.happenings if isinstance(h, TextDelta)]
    assert len(set(ids)) == 3


def test_words_in_graphs_are_told_once_and_silent_ones_never():
    async def think(state: MessagesState) -> Any:
        quiet = chat_model(plays(Reply("secret thought"))).with_config(
            tags=["nostream"]
        )
        await quiet.ainvoke(state["messages"])
        return {"messages": [await chat_model(plays(Reply("loud"))).ainvoke("x")]}

    def say(state: MessagesState) -> Any:
        return {"messages": [AIMessage("by hand")]}

    def plain(state: MessagesState) -> Any:
        return {"messages": [chat_model(plays(Reply("from a thread"))).invoke("x")]}

    def build() -> Any:
        graph = StateGraph(MessagesState)
        graph.add_sequence([think, say, plain])
        graph.add_edge(START, "think")
        inner = graph.compile()
        outer = StateGraph(MessagesState)
        outer.add_node("inner", inner)
        outer.add_edge(START, "inner")
        return outer.compile()

    it = Own(build, intake=None)
    it.start()
    assert it.host.text == "loudby handfrom a thread"
    assert (
        len({h.message_id for h in it.host.happenings if isinstance(h, TextDelta)}) == 3
    )


def test_a_lost_lease_stops_models_on_threads_too():
    def plain(state: MessagesState) -> Any:
        return {"messages": [chat_model(plays(Reply("from a thread"))).invoke("x")]}

    def build() -> Any:
        graph = StateGraph(MessagesState)
        graph.add_node("plain", plain)
        graph.add_edge(START, "plain")
        return graph.compile()

    it = Own(build, intake=None)
    lost = LostLease()
    it.host.refuses = (TextDelta, lost)
    with pytest.raises(LostLease) as raised:
        it.start()
    assert raised.value is lost


def test_a_question_is_told_as_a_call_with_its_answer():
    it = Own(asks({"question": "?"}, []))
    paused = it.pause()
    it.resume(paused, [it.answer(paused.interrupts[0], [1, None])])
    [asked, answered] = it.host.happenings
    assert isinstance(asked, ToolCallProposed)
    assert isinstance(answered, ToolCallResult)
    assert answered.content == "[1,null]"


# Chunks


def joined(*chunks: tuple[Any, Any, Any, Any]) -> list[tuple[str, str, str]]:
    pieces = Pieces()
    for index, call_id, name, text in chunks:
        pieces.add({"index": index, "id": call_id, "name": name, "args": text})
    return [(each.call_id, each.name, each.arguments) for each in pieces.calls]


def test_interleaved_chunks_are_joined_by_their_place():
    """B62: nothing is told before it is whole."""
    assert joined(
        (0, "c1", "delete", ""),
        (1, "c2", "pay", '{"a'),
        (0, None, None, '{"f": 1}'),
        (1, None, None, '": 2}'),
    ) == [("c1", "delete", '{"f": 1}'), ("c2", "pay", '{"a": 2}')]


@pytest.mark.parametrize("index", [0, None])
def test_calls_that_share_a_place_or_an_id_stay_two(index):
    assert joined(
        (index, "c1", "delete", '{"f": 1}'),
        (index, "c1", "delete", '{"f": 2}'),
        (index, "c2", "delete", '{"f": '),
        (index, None, None, "3}"),
    ) == [
        ("c1", "delete", '{"f": 1}'),
        ("c1", "delete", '{"f": 2}'),
        ("c2", "delete", '{"f": 3}'),
    ]


def test_a_name_in_every_chunk_is_one_call():
    assert joined(
        (0, "c1", "delete", '{"f"'),
        (0, "c1", "delete", ": 1}"),
        (0, "c1", "delete", ""),
    ) == [("c1", "delete", '{"f": 1}')]


def model_that_streams(*chunks: AIMessageChunk) -> Any:
    from langchain_core.outputs import ChatGenerationChunk

    from hitlagents.adapters.langgraph_scripted import ScriptedChatModel, items

    class Chunks(ScriptedChatModel):
        def _chunks(self, messages: Any) -> Any:
            if any(isinstance(item, Result) for item in items(messages)):
                yield from super()._chunks(messages)
                return
            for chunk in chunks:
                yield ChatGenerationChunk(message=chunk.model_copy(deep=True))

    return Chunks(script=plays(heard))


def own_model(own: Any, tools: Tools, **how: Any) -> Adapter:
    from contextlib import asynccontextmanager

    from hitlagents.adapters.chat_model import ChatModel

    @asynccontextmanager
    async def connect():
        yield lambda script: own

    model = ChatModel(label="chunks", connect=connect)
    return LangGraphHarness().around(model, tools, **how)


def test_an_answer_that_was_cut_off_is_not_repaired():
    piece = {"index": 0, "id": "c1", "name": "delete", "args": '{"filename": "a'}
    chunk = AIMessageChunk(
        "", tool_call_chunks=[piece], response_metadata={"model_name": "x"}
    )
    host = FakeHost()
    with pytest.raises(AgentRunError, match="was cut off") as raised:
        asyncio.run(
            own_model(model_that_streams(chunk), Tools()).start(start(host), host)
        )
    assert raised.value.retryable
    assert host.proposed == []


def test_a_model_that_does_not_stream_is_told_too():
    tools, host = Tools(), FakeHost(allowed=FREE)
    script = plays(Reply("Looking.", [call("lookup", name="x")]), heard)
    from hitlagents.adapters.langgraph_scripted import ScriptedChatModel

    model = ScriptedChatModel(script=script, disable_streaming=True)
    asyncio.run(own_model(model, tools).start(start(host), host))
    assert host.kinds() == "text call result text"
    assert host.text == "Looking.I heard: x is known"


def test_integers_of_any_size_reach_the_body():
    tools, host = Tools(), FakeHost(allowed=["transfer"])
    adapter = LangGraphHarness().build(
        plays(Reply("", [call("transfer", amount=2**70)]), heard), tools, ["transfer"]
    )
    asyncio.run(adapter.start(start(host), host))
    assert tools.effects == [f"transfer {2**70} to bob"]


# Building


def test_the_developers_tools_stay_as_they_are():
    tools = Tools()
    made = StructuredTool.from_function(tools.lookup)
    before = dict(vars(made))
    agent(tools=[made])
    assert dict(vars(made)) == before


def test_tools_and_cards_that_do_not_fit_are_refused():
    from approvals.schemas import ToolSpec

    made = StructuredTool.from_function(Tools().delete)

    def build(**how: Any) -> LangGraphAdapter:
        return LangGraphAdapter(
            name="x",
            build=lambda: agent(tools=[made]),
            model=scripted(heard),
            gating=Gating(allowed=frozenset()),
            **how,
        )

    with pytest.raises(ValueError, match="no tool named erase"):
        build(tools=[made], cards=[ToolSpec(name="erase")])
    for twice in (
        {"tools": [made, made]},
        {"tools": [made], "steps": [ToolSpec(name="delete")]},
    ):
        with pytest.raises(ValueError, match="Two tools have the same name"):
            build(**twice)


def hand_wired(**how: Any) -> Any:
    made = [StructuredTool.from_function(Tools().lookup)]

    def build() -> Any:
        async def ask(state: MessagesState) -> Any:
            return {"messages": [await chat_model().ainvoke(state["messages"])]}

        graph = StateGraph(MessagesState)
        graph.add_node("ask", ask)
        graph.add_node("tools", ToolNode(made, **how))
        graph.add_edge(START, "ask")
        graph.add_conditional_edges(
            "ask",
            lambda state: "tools" if state["messages"][-1].tool_calls else "__end__",
        )
        graph.add_edge("tools", "ask")
        return graph.compile()

    return build, made


def test_a_tool_node_without_the_guard_is_refused():
    build, made = hand_wired()
    with pytest.raises(ValueError, match="tools without the guard"):
        Own(build, tools=made, intake=None).start()


def test_a_tool_node_with_the_guard_runs_what_is_allowed_and_nothing_else():
    build, made = hand_wired(awrap_tool_call=guard_tool_call)
    script = plays(Reply("", [call("lookup", "c1", name="x")]), heard)
    it = Own(build, tools=made, allowed=["lookup"], script=script, intake=None)
    assert isinstance(it.start(), Finished)
    assert it.host.kinds() == "call result text"
    held = Own(build, tools=made, script=script, intake=None)
    with pytest.raises(StopRun):
        held.start()


def test_a_graph_with_a_checkpointer_or_without_compiling_is_refused():
    from langgraph.checkpoint.memory import InMemorySaver

    graph = StateGraph(Log)
    graph.add_node("a", lambda state: {})
    graph.add_edge(START, "a")
    with pytest.raises(ValueError, match="without a checkpointer"):
        Own(lambda: graph.compile(checkpointer=InMemorySaver())).start()
    with pytest.raises(ValueError, match="not compiled"):
        Own(lambda: graph).start()


def test_the_mode_that_asks_about_a_whole_turn_at_once_is_not_used():
    """There, a wrong number of answers breaks a thread for good, and another middleware
    can lead around the pause."""
    from langchain.agents.middleware import AgentMiddleware, AgentState, hook_config

    def jump(self: Any, state: AgentState[Any], runtime: Any) -> Any:
        if getattr(state["messages"][-1], "tool_calls", None):
            return {"jump_to": "tools"}
        return None

    class Jump(AgentMiddleware[Any, Any, Any]):
        after_model = hook_config(can_jump_to=["tools"])(jump)

    tools = Tools()
    delete = StructuredTool.from_function(tools.delete)
    two = Reply("", [call("delete", f"c{n}", filename=str(n)) for n in range(2)])
    it = Own(
        lambda: agent(tools=[delete], middleware=[Jump()]),
        tools=[delete],
        script=plays(two, heard),
        intake=None,
    )
    # One node runs both calls now, so they are asked about one after the other.
    first = it.pause()
    second = it.resume(first, [deny(it.host, first.interrupts[0])])
    assert isinstance(second, Interrupted)
    assert first.interrupts[0].call != second.interrupts[0].call
    assert tools.effects == []
    assert isinstance(it.resume(second, approve(it.host, second)), Finished)
    assert tools.effects == ["delete 1"]
    assert len(it.host.results) == 2


# Limits


def test_a_run_that_pauses_again_and_again_is_stopped():
    def again(history: Sequence[Item]) -> Reply:
        return Reply("", [call("delete", f"c{len(history)}", filename="a")])

    host = FakeHost()
    adapter = LangGraphHarness().build(again, Tools())
    paused = asyncio.run(adapter.start(start(host), host))
    state = {**paused.state, "turn": langgraph_run.MAX_TURNS_PER_RUN}
    with pytest.raises(AgentRunError, match="stopped after 100 model turns"):
        asyncio.run(adapter.resume(resume(host, state, approve(host, paused)), host))


def test_a_graph_that_runs_in_circles_is_stopped():
    def build() -> Any:
        graph = StateGraph(Log)
        graph.add_node("a", lambda state: {"log": [1]})
        graph.add_edge(START, "a")
        graph.add_edge("a", "a")
        return graph.compile()

    with pytest.raises(AgentRunError, match="stopped after 100 steps"):
        Own(build).start()


def test_a_state_without_end_is_refused():
    def build() -> Any:
        graph = StateGraph(Log)
        graph.add_node("a", lambda state: {"log": ["x" * 13_000_000]})
        graph.add_edge(START, "a")
        return graph.compile()

    with pytest.raises(AgentRunError, match="too large"):
        Own(build).start()


def test_a_break_that_nobody_can_answer_is_an_error():
    def build() -> Any:
        graph = StateGraph(Log)
        graph.add_node("a", lambda state: {"log": [1]})
        graph.add_edge(START, "a")
        return graph.compile(interrupt_before=["a"])

    with pytest.raises(AgentRunError, match="nobody can answer"):
        Own(build).start()


# The stored state


def pause() -> tuple[Adapter, FakeHost, Interrupted]:
    host = FakeHost()
    adapter = LangGraphHarness().build(plays(ONE, heard), Tools(), [])
    paused = asyncio.run(adapter.start(start(host), host))
    assert isinstance(paused, Interrupted)
    return adapter, host, paused


def typed(kind: str, raw: bytes) -> list[str]:
    return [kind, base64.b64encode(raw).decode()]


class Bomb:
    def __reduce__(self) -> Any:
        return os.mkdir, (os.environ["BOMB"],)


def constructor(path: str) -> bytes:
    """Msgpack that asks for ``os.mkdir(path)``, as the framework writes constructors."""
    call = ormsgpack.packb(("os", "mkdir", path))
    return ormsgpack.packb(ormsgpack.Ext(0, call))


@pytest.mark.parametrize("where", ["checkpoint", "metadata", "writes"])
@pytest.mark.parametrize("kind", ["pickle", "constructor", "json", "noise"])
def test_what_a_stored_state_names_is_never_called(tmp_path, monkeypatch, where, kind):
    adapter, host, paused = pause()
    answers = approve(host, paused)
    bomb = tmp_path / "bomb"
    monkeypatch.setenv("BOMB", str(bomb))
    lc = {"lc": 2, "type": "constructor", "id": ["os", "mkdir"], "args": [str(bomb)]}
    evil = {
        "pickle": typed("pickle", pickle.dumps(Bomb())),
        "constructor": typed("msgpack", constructor(str(bomb))),
        "json": typed("json", json.dumps(lc).encode()),
        "noise": typed("msgpack", b"\xc1\xff\x00"),
    }[kind]
    state = deepcopy(dict(paused.state))
    root = state["saver"][""]
    if where == "writes":
        root["writes"][0][-2:] = evil
    else:
        root[where] = evil
    with pytest.raises(CheckpointError, match=r"damaged\.$"):
        asyncio.run(adapter.resume(resume(host, state, answers), host))
    with pytest.raises(CheckpointError, match=r"damaged\.$"):
        asyncio.run(adapter.start(start(host, state=state), host))
    assert not bomb.exists()
    assert host.entered == []


@pytest.mark.parametrize(
    "damage",
    [
        lambda state: state.update(saver={"": {}}),
        lambda state: state.update(saver={"": {"id": "x"}}),
        lambda state: state["saver"][""].update(id="other"),
        lambda state: state["saver"][""].update(checkpoint=["msgpack", "%%%"]),
        lambda state: state["saver"][""].update(writes=[[1, 2]]),
        lambda state: state.update(turn=-1),
        lambda state: state.update(turn=True),
        lambda state: state.update(calls=[{}]),
        lambda state: state["calls"][0].update(extra=1),
        lambda state: state["calls"][0].update(turn="1"),
        lambda state: state["calls"][0].update(held="yes"),
        lambda state: state["calls"][0].update(arguments={}),
        lambda state: state.update(settled=[[1]]),
        lambda state: state.update(places=[]),
    ],
)
def test_a_damaged_saver_is_refused_in_words(damage):
    adapter, host, paused = pause()
    state = deepcopy(dict(paused.state))
    damage(state)
    with pytest.raises(CheckpointError, match=r"damaged\.$"):
        asyncio.run(adapter.resume(resume(host, state, approve(host, paused)), host))
    assert host.entered == []


def test_arguments_changed_in_the_state_do_not_run():
    """The text is what the guard compares; the checkpoint's own copy is never used."""
    adapter, host, paused = pause()
    answers = approve(host, paused)
    state = json.loads(json.dumps(paused.state).replace("a.txt", "passwords.txt"))
    with pytest.raises(StopRun, match="Other arguments"):
        asyncio.run(adapter.resume(resume(host, state, answers), host))
    assert host.entered == []

    state = deepcopy(dict(paused.state))
    for name in ("checkpoint", "writes"):
        text = json.dumps(state["saver"][""][name])
        assert text  # the bytes hold the arguments, too
    raw = base64.b64decode(state["saver"][""]["checkpoint"][1])
    assert b"a.txt" in raw
    changed = raw.replace(b"a.txt", b"b.txt")
    state["saver"][""]["checkpoint"][1] = base64.b64encode(changed).decode()
    asyncio.run(adapter.resume(resume(host, state, answers), host))
    assert [arguments for _, arguments in host.entered] == [{"filename": "a.txt"}]


def test_the_state_holds_the_latest_checkpoint_only():
    host = FakeHost(allowed=FREE)
    looks = [Reply("", [call("lookup", f"c{n}", name="x")]) for n in range(8)]
    adapter = LangGraphHarness().build(plays(*looks, heard), Tools())
    done = asyncio.run(adapter.start(start(host), host))
    assert list(done.state["saver"]) == [""]
    assert len(json.dumps(done.state)) < 25_000
    assert done.state["calls"] == []


def test_types_of_the_developers_own_are_kept_if_the_graph_declares_them():
    class Declared(Log):
        choice: Chosen

    got: list[Any] = []

    def ask(state: Declared) -> Any:
        interrupt("?")
        got.append(state["choice"])
        return {}

    def build() -> Any:
        graph = StateGraph(Declared)
        graph.add_node("choose", lambda state: {"choice": Chosen(city="Ulm")})
        graph.add_node("ask", ask)
        graph.add_edge(START, "choose")
        graph.add_edge("choose", "ask")
        return graph.compile()

    it = Own(build)
    paused = it.pause()
    it.resume(paused, [it.answer(paused.interrupts[0], 1)])
    assert got == [Chosen(city="Ulm")]


def test_types_nobody_declared_are_refused_before_they_are_stored():
    def build() -> Any:
        graph = StateGraph(Log)
        graph.add_node("hide", lambda state: {"log": [Chosen(city="Ulm")]})
        graph.add_edge(START, "hide")
        return graph.compile()

    with pytest.raises(AgentRunError, match=r"cannot be stored safely: .*Chosen"):
        Own(build).start()


@pytest.mark.parametrize("by_hand", [False, True])
def test_a_graph_that_lost_the_waiting_node_is_refused(by_hand):
    def build(name: str, inner: str) -> Any:
        def made() -> Any:
            graph = StateGraph(Log)
            graph.add_node(inner, lambda state: {"log": [interrupt("?")]})
            graph.add_edge(START, inner)
            if by_hand:
                return graph.compile()
            outer = StateGraph(Log)
            outer.add_node(name, graph.compile())
            outer.add_edge(START, name)
            return outer.compile()

        return made

    it = Own(build("outside", "inside"))
    paused = it.pause()
    answers = [it.answer(paused.interrupts[0], 1)]
    for other in (build("outside", "renamed"), build("renamed", "inside")):
        if by_hand and other is not None and other().nodes.keys() >= {"inside"}:
            continue
        it.build = other
        with pytest.raises(AgentRunError, match="graph was changed") as raised:
            it.resume(paused, answers)
        assert not raised.value.retryable
    it.build = build("outside", "inside")
    assert isinstance(it.resume(paused, answers), Finished)


def test_a_new_message_hears_what_was_known_of_an_abandoned_turn():
    calls = [
        call("lookup", "c1", name="x"),
        call("delete", "c2", filename="a"),
    ]
    host = FakeHost(allowed=FREE)
    adapter = LangGraphHarness().build(plays(Reply("", calls), heard), Tools())
    paused = asyncio.run(adapter.start(start(host), host))

    def tell(history: Sequence[Item]) -> Reply:
        texts = [item.text for item in history if isinstance(item, Result)]
        return Reply(" | ".join(texts))

    after = FakeHost(allowed=FREE)
    adapter = LangGraphHarness().build(plays(tell), Tools())
    asyncio.run(adapter.start(start(after, "and?", state=paused.state), after))
    assert after.text == f"x is known | {langgraph_run.ABANDONED}"


def test_results_keep_their_turns_although_ids_are_used_again():
    turns = [Reply("", [call("lookup", "c1", name=name)]) for name in ("x", "y")]
    host = FakeHost(allowed=FREE)
    adapter = LangGraphHarness().build(plays(*turns, ONE), Tools())
    paused = asyncio.run(adapter.start(start(host), host))

    def tell(history: Sequence[Item]) -> Reply:
        return Reply(" | ".join(i.text for i in history if isinstance(i, Result)))

    after = FakeHost(allowed=FREE)
    adapter = LangGraphHarness().build(plays(tell), Tools())
    asyncio.run(adapter.start(start(after, state=paused.state), after))
    assert after.text == f"x is known | y is known | {langgraph_run.ABANDONED}"


def test_a_lease_lost_while_a_question_is_told_passes_unchanged():
    it = Own(asks("?", []))
    lost = LostLease()
    it.host.refuses = (ToolCallProposed, lost)
    with pytest.raises(LostLease) as raised:
        it.start()
    assert raised.value is lost


def test_memory_of_a_subgraph_lasts_over_runs():
    def build() -> Any:
        inner = StateGraph(Log)
        inner.add_node("note", lambda state: {"log": [len(state.get("log", []))]})
        inner.add_edge(START, "note")
        outer = StateGraph(MessagesState)

        graph = inner.compile(checkpointer=True)

        async def use(state: MessagesState) -> Any:
            log = (await graph.ainvoke({"message": ""}))["log"]
            return {"messages": [AIMessage(str(len(log)))]}

        outer.add_node("use", use)
        outer.add_edge(START, "use")
        return outer.compile()

    it = Own(build, intake=None)
    first = it.start()
    it.next_run()
    it.start(state=first.state)
    assert it.host.text == "2"


# The process


def test_nothing_imports_the_framework_before_a_run():
    run_code("""
import sys
import hitlagents.adapters.langgraph
import hitlagents.adapters.langgraph_models
from hitlagents import catalog
found = {name.partition(".")[0] for name in sys.modules}
assert not found & {"langgraph", "langchain", "langchain_core", "langsmith"}, found
""")


def test_the_framework_is_strict_and_sends_no_traces():
    run_code("""
import hitlagents.adapters.langgraph_run
from langgraph.checkpoint.serde import _msgpack
from langsmith.utils import tracing_is_enabled
assert _msgpack.STRICT_MSGPACK_ENABLED
assert not tracing_is_enabled()
""")
