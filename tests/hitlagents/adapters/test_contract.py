"""What any adapter must do, whatever its framework. Every test runs for every harness."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Annotated, Any
from uuid import uuid4

import pytest
from pydantic import AfterValidator, StringConstraints

from approvals.exceptions import LostLease
from approvals.schemas import ClientTool, ToolCall
from approvals.states import Verdict
from hitlagents.adapters.base import (
    Adapter,
    AgentRunError,
    CheckpointError,
    Finished,
    Interrupted,
    StopRun,
    TextDelta,
    Told,
    ToolCallProposed,
    ToolCallResult,
)
from hitlagents.demo.scripted import LABEL, Call, Item, Reply, Said, Script
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
    resume,
    start,
)

pytestmark = pytest.mark.once

LARGE = 2**53 + 1


@dataclass
class Scripted(Bench):
    """One agent that plays a script."""

    harness: Harness
    script: Script
    tools: Tools
    host: FakeHost
    allowed: Sequence[str] = FREE

    @property
    def adapter(self) -> Adapter:
        return self.harness.build(self.script, self.tools, self.allowed)

    @property
    def deleted(self) -> list[str]:
        """What the held tool did; siblings may have run before."""
        return [effect for effect in self.tools.effects if effect.startswith("delete")]


@pytest.fixture(params=sorted(HARNESSES))
def harness(request: pytest.FixtureRequest) -> Harness:
    return HARNESSES[request.param]


@pytest.fixture
def bench(harness: Harness):
    def make(*turns: Any, allowed: Sequence[str] = FREE) -> Scripted:
        host = FakeHost(allowed=allowed)
        return Scripted(harness, plays(*turns), Tools(), host, allowed)

    return make


TWO = Reply(
    "Working.",
    [
        call("delete", "c1", filename="a.txt"),
        call("lookup", "c2", name="x"),
        call("delete", "c3", filename="b.txt"),
    ],
)
ONE = Reply("Working.", [call("delete", filename="a.txt")])


# Without a pause


def test_text_is_told_word_by_word_in_its_order(bench):
    it = bench(Reply("One two  three\nfour."))
    outcome = it.start()
    assert isinstance(outcome, Finished)
    assert it.host.text == "One two  three\nfour."
    assert len(it.host.happenings) == 4
    ids = {h.message_id for h in it.host.happenings if isinstance(h, TextDelta)}
    assert len(ids) == 1
    assert ids != {""}
    assert it.host.guarded == []


def test_the_next_message_sees_the_conversation(bench):
    def count(history: Sequence[Item]) -> Reply:
        said = [item.text for item in history if isinstance(item, Said)]
        return Reply(json.dumps(said))

    it = bench(count)
    first = it.start("hello")
    host = it.next_run()
    it.start("hello", state=first.state)  # the same words are said twice
    assert json.loads(host.text) == ["hello", '["hello"]', "hello"]


def test_an_empty_reply_is_an_end(bench):
    it = bench(Reply(""))
    assert isinstance(it.start(), Finished)
    assert it.host.happenings == []


def test_an_allowed_call_runs_through_the_guard(bench):
    it = bench(Reply("Looking.", [call("lookup", name="x")]), heard)
    assert isinstance(it.start(), Finished)
    assert [c.tool for c in it.host.guarded] == ["lookup"]
    assert it.host.guarded == it.host.proposed
    assert it.tools.effects == ["lookup x"]
    assert it.host.kinds() == "text call result text"
    assert it.host.text == "Looking.I heard: x is known"


def test_a_tool_that_raises_is_the_hosts_affair(bench):
    it = bench(Reply("", [call("broken", name="luck")]), heard)
    assert isinstance(it.start(), Finished)
    told = "Error: broken failed. RuntimeError: no luck today"
    assert it.host.text == f"I heard: {told}"
    assert list(it.host.results.values()) == [told]


def test_tools_know_their_thread_and_run_off_the_loop(bench):
    it = bench(Reply("", [call("where")]), heard)
    thread_id = uuid4()
    it.start(thread_id=thread_id)
    assert f"{thread_id} on sayso-tool" in it.host.text


def test_slow_tools_do_not_wait_for_each_other(bench):
    it = bench(Reply("", [call("meet")]), heard)
    adapter = it.adapter
    hosts = [FakeHost(allowed=FREE) for _ in range(10)]

    async def ten() -> None:
        await asyncio.gather(*(adapter.start(start(h), h) for h in hosts))

    asyncio.run(ten())
    assert {host.text for host in hosts} == {"I heard: met"}


# The pause


def test_a_held_call_pauses_with_its_exact_arguments(bench):
    text = '{"filename" : "caf\\u00e9 <b>\\u202e.txt"}'
    it = bench(Reply("Working.", [Call("c1", "delete", text)]))
    outcome = it.pause()
    [draft] = outcome.interrupts
    assert draft.call.tool == "delete"
    assert draft.call.arguments == text
    assert draft.call.turn == 1
    assert draft.call.call_id
    assert Verdict.APPROVE in draft.verdicts
    assert Verdict.DENY in draft.verdicts
    assert it.host.proposed == [draft.call]
    assert it.host.kinds() == "text call"
    assert it.host.guarded == []
    assert it.tools.effects == []


def test_a_call_is_told_before_anything_is_asked_about_it(bench):
    it = bench(TWO, heard)
    it.host.allowed = set(ALL_TOOLS)
    it.allowed = ALL_TOOLS
    it.start()
    told = [type(h) for h in it.host.happenings if not isinstance(h, TextDelta)]
    assert told == [ToolCallProposed] * 3 + [ToolCallResult] * 3


def test_what_the_developer_marked_runs_free_when_a_policy_allows_it(bench):
    it = bench(ONE, heard, allowed=[*FREE, "delete"])
    assert isinstance(it.start(), Finished)
    assert it.tools.effects == ["delete a.txt"]


def test_what_nobody_allowed_is_held_although_the_developer_did_not_mark_it(bench):
    it = bench(Reply("", [call("lookup", name="x")]), heard, allowed=())
    paused = it.pause()
    assert [draft.call.tool for draft in paused.interrupts] == ["lookup"]


VERDICTS: dict[str, tuple[str, dict[str, Any], list[str], str]] = {
    "approve": (Verdict.APPROVE, {}, ["transfer 5 to eve"], "Sent 5 to eve."),
    "edit": (
        Verdict.APPROVE,
        {"arguments": {"amount": 4}},
        ["transfer 4 to bob"],
        "Sent 4 to bob.",
    ),
    "edit with a name the tool does not have": (
        Verdict.APPROVE,
        {"arguments": {"amount": 4, "now": True}},
        [],
        "Error: transfer failed. ArgumentsError: transfer has no parameter now.",
    ),
    "edit that does not fit": (
        Verdict.APPROVE,
        {"arguments": {"amount": "many"}},
        [],
        "Error: transfer failed. ArgumentsError: The arguments do not fit transfer. "
        "amount: Input should be a valid integer, unable to parse string as an integer.",
    ),
    "deny": (Verdict.DENY, {"text": 'No: "why?"\n🙅 <b>'}, [], 'No: "why?"\n🙅 <b>'),
    "respond": (Verdict.RESPOND, {"output": "Already paid."}, [], "Already paid."),
    "answer": (Verdict.ANSWER, {"answer": {"day": 5}}, [], '{"day":5}'),
    "cancel the call": (Verdict.CANCEL_CALL, {"text": "Cancelled."}, [], "Cancelled."),
    "expired": (Verdict.DENY, {"text": "Nobody decided."}, [], "Nobody decided."),
}


@pytest.mark.parametrize("name", VERDICTS)
def test_a_verdict_does_what_it_says(bench, name):
    verdict, how, effects, told = VERDICTS[name]
    it = bench(Reply("", [call("transfer", amount=5, to="eve")]), heard)
    paused = it.pause()
    answer = it.host.decide(paused.interrupts[0], Verdict(verdict), **how)
    assert isinstance(it.resume(paused, [answer]), Finished)
    assert it.tools.effects == effects
    assert it.host.text == f"I heard: {told}"
    assert it.host.results == {answer.call.call_id: told}
    assert [c.arguments for c in it.host.guarded] == [answer.call.arguments]


def test_what_is_told_beside_a_result_reaches_the_model_and_not_the_page(bench):
    """A reviewer changed the arguments: the model reads it, also when the framework
    resumes a second time. Pages read data in a result, so it stays as the tool gave it."""
    it = bench(Reply("", [call("transfer", amount=5), call("lookup", "c2", name="x")]))
    it.script = plays(it.script([Said("user", "go")]), heard)
    paused = it.pause()
    note = 'A reviewer changed amount (was 5, now 4) "<b>\n🙅'
    answer = it.host.decide(
        paused.interrupts[0], Verdict.APPROVE, arguments={"amount": 4}, text=note
    )
    for _ in range(2):
        it.host.happenings.clear()
        assert isinstance(it.resume(paused, [answer]), Finished)
        assert f"I heard: Sent 4 to bob.\n\n{note} | x is known" in it.host.text
        assert it.host.results[answer.call.call_id] == "Sent 4 to bob."
    assert it.tools.effects.count("transfer 4 to bob") == 1


def test_an_answer_beside_an_approval_reaches_the_tool(bench):
    it = bench(Reply("", [call("book", day="monday")]), heard)
    paused = it.pause()
    answer = it.host.decide(paused.interrupts[0], Verdict.APPROVE, answer="10:30")
    it.resume(paused, [answer])
    assert it.tools.effects == ["book monday 10:30"]


def test_an_async_tool_runs_too(bench):
    it = bench(Reply("", [call("archive", filename="a.txt")]), heard)
    paused = it.pause()
    it.resume(paused, approve(it.host, paused))
    assert it.tools.effects == ["archive a.txt"]


def test_mixed_answers_reach_their_own_calls(bench):
    """B141: each call has exactly one result."""
    calls = [
        call("delete", "c1", filename="a"),
        call("lookup", "c2", name="x"),
        call("transfer", "c3", amount=1),
        call("delete", "c4", filename="b"),
        call("book", "c5", day="friday"),
        call("delete", "c6", filename="c"),
    ]
    it = bench(Reply("Many.", calls), heard)
    paused = it.pause()
    drafts = list(paused.interrupts)
    assert [d.call.tool for d in drafts] == [
        "delete",
        "transfer",
        "delete",
        "book",
        "delete",
    ]
    answers = [
        it.host.decide(drafts[4], Verdict.APPROVE),
        deny(it.host, drafts[0], "keep it"),
        it.host.decide(drafts[1], Verdict.APPROVE, arguments={"amount": 2}),
        it.host.decide(drafts[2], Verdict.RESPOND, output="gone already"),
        it.host.decide(drafts[3], Verdict.APPROVE, answer="noon"),
    ]
    assert isinstance(it.resume(paused, answers), Finished)
    expected = [
        "Not executed: a reviewer denied this call. keep it",
        "x is known",
        "Sent 2 to bob.",
        "gone already",
        "Booked friday noon.",
        "Deleted c.",
    ]
    assert it.host.text == "Many.I heard: " + " | ".join(expected)
    assert sorted(it.tools.effects) == [
        "book friday noon",
        "delete c",
        "lookup x",
        "transfer 2 to bob",
    ]
    assert sorted(it.host.results.values()) == sorted(expected)


def test_an_allowed_sibling_runs_although_all_others_are_denied(bench):
    it = bench(TWO, heard)
    paused = it.pause()
    if it.harness.siblings_wait:
        assert it.tools.effects == []
    answers = [deny(it.host, draft) for draft in paused.interrupts]
    assert isinstance(it.resume(paused, answers), Finished)
    assert it.tools.effects == ["lookup x"]
    assert len(it.host.results) == 3


def test_a_run_may_pause_again(bench):
    second = Reply("Next.", [call("delete", "c2", filename="b.txt")])
    it = bench(ONE, second, heard)
    first_pause = it.pause()
    second_pause = it.resume(first_pause, approve(it.host, first_pause))
    assert isinstance(second_pause, Interrupted)
    assert [d.call.turn for d in first_pause.interrupts] == [1]
    assert [d.call.turn for d in second_pause.interrupts] == [2]
    assert isinstance(it.resume(second_pause, approve(it.host, second_pause)), Finished)
    assert it.tools.effects == ["delete a.txt", "delete b.txt"]
    keys = [(c.turn, c.call_id) for c in it.host.guarded]
    assert keys == [(c.turn, c.call_id) for c in it.host.proposed]


def test_turns_are_counted_anew_in_the_next_run(bench):
    it = bench(ONE, heard)
    paused = it.pause()
    done = it.resume(paused, approve(it.host, paused))
    host = it.next_run()
    it.start(state=done.state)
    assert [c.turn for c in host.proposed] == [1]


def test_another_process_goes_on_from_the_stored_state(bench):
    """B162: through JSON, with nothing else in common."""
    it = bench(TWO)
    paused = it.pause()
    answers = [
        deny(it.host, paused.interrupts[0], "keep it"),
        it.host.decide(paused.interrupts[1], Verdict.APPROVE),
    ]
    ended = resume_elsewhere(it.harness, it.host, paused, answers)
    siblings = ["lookup x"] if it.harness.siblings_wait else []
    assert ended == {
        "finished": True,
        "model": LABEL,
        "effects": [*siblings, "delete b.txt"],
        "text": "I heard: Not executed: a reviewer denied this call. keep it | "
        "x is known | Deleted b.txt.",
    }


# Stopping


def test_a_replay_of_a_pause_asks_the_guard_again(bench):
    """B05: the host's ledger has the last word."""
    it = bench(ONE, heard)
    paused = it.pause()
    answers = approve(it.host, paused)
    for _ in range(3):
        it.resume(paused, answers)
    assert len(it.host.guarded) == 3
    assert len(set(it.host.guarded)) == 1
    assert it.tools.effects == ["delete a.txt"]  # the host's ledger sees to that


def test_a_forged_approval_runs_nothing(bench):
    """B79: an answer that no decision stands behind."""
    it = bench(ONE, heard)
    paused = it.pause()
    answers = approve(it.host, paused)
    it.host.decisions.clear()
    with pytest.raises(StopRun, match="No decision"):
        it.resume(paused, answers)
    assert it.tools.effects == []


def test_a_stop_at_the_guard_reaches_the_caller_and_no_sibling_starts(bench):
    calls = [call("lookup", f"c{n}", name=str(n)) for n in range(3)]
    it = bench(Reply("", [call("broken", "c9", name="y"), *calls]), heard)
    stop = it.host.stops["broken"] = StopRun("because")
    with pytest.raises(StopRun) as raised:
        it.start()
    assert raised.value is stop
    assert it.tools.effects == []
    assert [c.tool for c in it.host.guarded] == ["broken"]
    assert it.host.results == {}


def test_a_stop_on_resume_reaches_the_caller(bench):
    it = bench(TWO, heard)
    paused = it.pause()
    answers = approve(it.host, paused)
    stop = it.host.stops["delete"] = StopRun("because")
    with pytest.raises(StopRun) as raised:
        it.resume(paused, answers)
    assert raised.value is stop
    assert "delete a.txt" not in it.tools.effects
    assert "delete b.txt" not in it.tools.effects
    it.host.stops.clear()
    assert isinstance(it.resume(paused, answers), Finished)


@pytest.mark.parametrize("kind", [TextDelta, ToolCallProposed, ToolCallResult])
def test_a_lost_lease_passes_unchanged(bench, kind):
    it = bench(Reply("Looking.", [call("lookup", name="x")]), heard)
    lost = LostLease()
    it.host.refuses = (kind, lost)
    with pytest.raises(LostLease) as raised:
        it.start()
    assert raised.value is lost
    assert it.tools.effects == (["lookup x"] if kind is ToolCallResult else [])


def test_a_cancelled_advance_ends_at_once(bench):
    it = bench(Reply("", [call("archive", filename="x")]), heard, allowed=ALL_TOOLS)
    entered = asyncio.Event()

    class Hanging(FakeHost):
        async def guard(self, call: ToolCall, body: Any) -> Told:
            entered.set()
            await asyncio.Event().wait()
            raise AssertionError

    async def cancel() -> None:
        host = Hanging()
        adapter = it.harness.build(it.script, it.tools, ALL_TOOLS)
        task = asyncio.create_task(adapter.start(start(host), host))
        await entered.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(asyncio.wait_for(cancel(), 10))


# Failing


def test_a_model_that_fails_at_once_is_told_without_its_words(bench):
    it = bench(RuntimeError("sk-secret at https://user:pass@host"))
    with pytest.raises(AgentRunError, match="RuntimeError") as raised:
        it.start()
    assert raised.value.retryable
    assert "secret" not in str(raised.value)
    assert "pass" not in str(raised.value)


def test_a_model_that_fails_after_the_tool_can_be_retried(bench):
    """B08: and the tool does not run again."""
    it = bench(TWO, ConnectionError("reset"))
    paused = it.pause()
    answers = approve(it.host, paused)
    with pytest.raises(AgentRunError, match="could not be reached") as raised:
        it.resume(paused, answers)
    assert raised.value.retryable
    it.script = plays(TWO, heard)
    it.host.happenings.clear()
    assert isinstance(it.resume(paused, answers), Finished)
    assert sorted(it.tools.effects) == ["delete a.txt", "delete b.txt", "lookup x"]
    assert it.host.text == "I heard: Deleted a.txt. | x is known | Deleted b.txt."


def test_a_model_without_an_end_is_stopped(bench):
    def again(history: Sequence[Item]) -> Reply:
        return Reply("", [call("lookup", f"c{len(history)}", name="x")])

    it = bench(again)
    with contextlib.suppress(AgentRunError):
        it.start()  # may end by itself or with an error, but it ends
    assert 5 < len(it.tools.effects) <= 100


def test_one_adapter_serves_many_runs_at_once(bench):
    it = bench(ONE, heard)
    adapter = it.adapter

    async def scenario(number: int) -> None:
        host = FakeHost(allowed=it.allowed)
        paused = await adapter.start(start(host, f"run {number}"), host)
        answers = approve(host, paused)
        await adapter.resume(resume(host, paused.state, answers), host)
        assert host.text == "Working.I heard: Deleted a.txt."
        assert len(host.guarded) == 1

    async def all_of_them() -> None:
        await asyncio.gather(*(scenario(number) for number in range(20)))

    asyncio.run(all_of_them())
    assert len(it.tools.effects) == 20


# Tools of the page


PICK = ClientTool(
    name="pick_colour",
    description="Pick a colour.",
    parameters={
        "type": "object",
        "properties": {"shade": {"type": "string", "pattern": "^red"}},
        "required": ["shade"],
    },
)
BOTH = Reply(
    "Working.",
    [
        call("pick_colour", "c1", shade="red"),
        call("lookup", "c2", name="x"),
        call("delete", "c3", filename="a.txt"),
    ],
)


@pytest.fixture
def with_page(bench):
    """An agent in a run whose page brought a tool."""

    def make(*turns: Any, allowed: Sequence[str] = FREE) -> Scripted:
        it: Scripted = bench(*turns, allowed=allowed)
        it.client_tools = [PICK]
        return it

    return make


def test_m10_a_tool_of_the_page_is_offered_to_the_model_and_waits(with_page):
    it = with_page(Reply("unused"))
    paused = it.pause('use pick_colour with {"shade": "red"}')
    [draft] = paused.interrupts
    assert draft.call.tool == "pick_colour"
    assert json.loads(draft.call.arguments) == {"shade": "red"}
    assert it.host.proposed == [draft.call]
    assert it.host.guarded == []
    answer = it.host.decide(draft, Verdict.ANSWER, answer="crimson")
    assert isinstance(it.resume(paused, [answer]), Finished)
    assert "crimson" in it.host.text
    assert it.host.results == {draft.call.call_id: "crimson"}
    assert it.host.entered == []


def test_m10_nobody_offers_it_in_a_run_of_another_page(with_page):
    it = with_page(Reply("There is none."))
    adapter = it.adapter

    async def scenario() -> tuple[Any, Any]:
        """One adapter, as the runner shares it."""
        hosts = [FakeHost(allowed=FREE) for _ in range(2)]
        said = 'use pick_colour with {"shade": "red"}'
        return await asyncio.gather(
            adapter.start(start(hosts[0], said, client_tools=[PICK]), hosts[0]),
            adapter.start(start(hosts[1], said), hosts[1]),
        )

    mine, other = asyncio.run(scenario())
    assert isinstance(mine, Interrupted)
    assert isinstance(other, Finished)
    assert [spec.name for spec in adapter.tools if spec.name == "pick_colour"] == []


def test_m10_a_call_to_the_page_pauses_together_with_a_held_one(with_page):
    it = with_page(BOTH, heard)
    paused = it.pause()
    assert [d.call.tool for d in paused.interrupts] == ["pick_colour", "delete"]
    pick, delete = paused.interrupts
    answers = [
        it.host.decide(delete, Verdict.APPROVE),
        it.host.decide(pick, Verdict.ANSWER, answer="crimson"),
    ]
    assert isinstance(it.resume(paused, answers), Finished)
    assert it.host.text == "Working.I heard: crimson | x is known | Deleted a.txt."
    assert it.deleted == ["delete a.txt"]


def test_m10_another_process_takes_the_answer_of_the_page(with_page):
    it = with_page(BOTH)
    paused = it.pause()
    pick, delete = paused.interrupts
    answers = [
        it.host.decide(pick, Verdict.ANSWER, answer="crimson"),
        deny(it.host, delete, "keep it"),
    ]
    ended = resume_elsewhere(it.harness, it.host, paused, answers, client_tools=[PICK])
    assert ended["finished"]
    assert ended["text"] == (
        "I heard: crimson | x is known | "
        "Not executed: a reviewer denied this call. keep it"
    )


def test_m10_a_call_that_the_page_left_is_told_so_and_the_run_goes_on(with_page):
    it = with_page(Reply("", [call("pick_colour", shade="red")]), heard)
    paused = it.pause()
    told = "Not answered: the person went on."
    answer = it.host.decide(paused.interrupts[0], Verdict.CANCEL_CALL, text=told)
    done = it.resume(paused, [answer])
    assert isinstance(done, Finished)
    assert it.host.text == f"I heard: {told}"
    it.next_run()
    it.client_tools = []
    it.script = plays(Reply("Still here."))
    assert isinstance(it.start("and now?", state=done.state), Finished)


def test_m10_a_run_that_was_cancelled_at_the_page_leaves_the_thread_whole(with_page):
    it = with_page(Reply("", [call("pick_colour", shade="red")]))
    paused = it.pause()
    it.next_run()
    it.script = plays(Reply("Hello again."))
    assert isinstance(it.start("hello", state=paused.state), Finished)
    assert it.host.text == "Hello again."


def test_m10_arguments_that_break_the_pages_schema_are_the_pages_affair(with_page):
    """Its schema may hold a pattern that takes for ever, so nobody here looks."""
    it = with_page(Reply("", [call("pick_colour", shade="blue", more=1)]), heard)
    paused = it.pause()
    answer = it.host.decide(paused.interrupts[0], Verdict.ANSWER, answer="No such.")
    assert isinstance(it.resume(paused, [answer]), Finished)
    assert it.host.text == "I heard: No such."


def test_m10_references_in_the_pages_schema_are_left_as_they_are(with_page):
    """Resolved, this one would be a hundred million schemas."""
    parts: dict[str, Any] = {"d0": {"type": "string"}}
    for n in range(1, 9):
        parts[f"d{n}"] = {"allOf": [{"$ref": f"#/$defs/d{n - 1}"}] * 10}
    schema = {
        "type": "object",
        "properties": {"shade": {"$ref": "#/$defs/d8"}},
        "$defs": parts,
    }
    it = with_page(Reply("unused"))
    it.client_tools = [PICK.model_copy(update={"parameters": schema})]
    paused = it.pause('use pick_colour with {"shade": "red"}')
    assert [d.call.tool for d in paused.interrupts] == ["pick_colour"]


@pytest.mark.parametrize("name", ["tool_that_does_not_exist", "__proto__", "_"])
def test_m10_no_name_a_page_may_give_means_anything_to_the_framework(with_page, name):
    it = with_page(Reply("", [call(name, shade="red")]), heard)
    it.client_tools = [PICK.model_copy(update={"name": name})]
    paused = it.pause()
    answer = it.host.decide(paused.interrupts[0], Verdict.ANSWER, answer="crimson")
    assert isinstance(it.resume(paused, [answer]), Finished)
    assert it.host.text == "I heard: crimson"


def test_m10_a_tool_of_the_agent_is_given_over_to_the_page_for_the_run(with_page):
    """The host sees to which may be: only questions, for which nothing runs."""
    it = with_page(Reply("", [call("lookup", name="x")]), heard)
    it.client_tools = [PICK.model_copy(update={"name": "lookup"})]
    paused = it.pause()
    [draft] = paused.interrupts
    answer = it.host.decide(draft, Verdict.ANSWER, answer="from the page")
    assert isinstance(it.resume(paused, [answer]), Finished)
    assert it.host.text == "I heard: from the page"
    assert it.tools.effects == []


# What models get wrong


def test_missing_and_repeated_ids_become_calls_of_their_own(bench):
    """B22: one approval never opens two of them."""
    calls = [
        call("delete", "same", filename="a"),
        call("delete", "same", filename="b"),
        call("lookup", "same", name="x"),
        call("delete", "", filename="c"),
        call("delete", "", filename="d"),
    ]
    it = bench(Reply("", calls), heard)
    paused = it.pause()
    assert [json.loads(d.call.arguments)["filename"] for d in paused.interrupts] == [
        "a",
        "b",
        "c",
        "d",
    ]
    assert len({d.call.call_id for d in paused.interrupts}) == 4
    answers = approve(it.host, paused)
    answers[1] = deny(it.host, paused.interrupts[1], "not b")
    assert isinstance(it.resume(paused, answers), Finished)
    assert sorted(it.tools.effects) == ["delete a", "delete c", "delete d", "lookup x"]
    assert it.host.text == (
        "I heard: Deleted a. | Not executed: a reviewer denied this call. not b | "
        "x is known | Deleted c. | Deleted d."
    )


def test_ids_may_be_used_again_in_the_next_turn(bench):
    it = bench(ONE, Reply("", [call("delete", filename="b.txt")]), heard)
    first = it.pause()
    second = it.resume(first, approve(it.host, first))
    it.resume(second, approve(it.host, second))
    assert it.tools.effects == ["delete a.txt", "delete b.txt"]
    assert it.host.text == "Working.I heard: Deleted a.txt. | Deleted b.txt."


def test_an_unknown_tool_is_answered_and_the_run_goes_on(bench):
    it = bench(Reply("", [call("format_disk", drive="c")]), heard)
    assert isinstance(it.start(), Finished)
    [told] = it.host.results.values()
    assert "format_disk" in told
    assert it.host.guarded == []
    assert it.host.text == f"I heard: {told}"


def test_an_unknown_tool_beside_a_held_one_asks_nobody(bench):
    calls = [call("format_disk", "c1", drive="c"), call("delete", "c2", filename="a")]
    it = bench(Reply("", calls), heard)
    paused = it.pause()
    assert [d.call.tool for d in paused.interrupts] == ["delete"]
    assert isinstance(it.resume(paused, approve(it.host, paused)), Finished)
    unknown, known = (it.host.results[c.call_id] for c in it.host.proposed)
    assert "format_disk" in unknown
    assert "user" not in unknown  # nobody rejected it
    assert known == "Deleted a."
    assert it.host.text == f"I heard: {unknown} | {known}"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"filename": "a"', "not valid JSON"),
        ('{"filename": NaN}', "NaN"),
        ('{"filename": "a", "filename": "b"}', "twice"),
        ("nonsense", "not valid JSON"),
    ],
)
def test_unreadable_arguments_come_through_as_they_are(bench, text, problem):
    it = bench(Reply("", [Call("c1", "delete", text)]), heard)
    paused = it.pause()
    assert [d.call.arguments for d in paused.interrupts] == [text]
    assert isinstance(it.resume(paused, approve(it.host, paused)), Finished)
    assert problem in it.host.text
    assert it.tools.effects == []


def test_no_arguments_at_all_are_an_empty_object(bench):
    it = bench(Reply("", [Call("c1", "where", "")]), heard)
    it.start()
    assert [c.arguments for c in it.host.guarded] == ["{}"]
    assert "sayso-tool" in it.host.text


def test_large_integers_stay_exact(bench):
    """B45: up to the tool."""
    it = bench(Reply("", [call("transfer", amount=LARGE)]), heard)
    paused = it.pause()
    assert json.loads(paused.interrupts[0].call.arguments) == {"amount": LARGE}
    it.resume(paused, approve(it.host, paused))
    assert it.tools.effects == [f"transfer {LARGE} to bob"]


def test_a_megabyte_of_arguments_passes(bench):
    name = "x" * 1_000_000
    it = bench(Reply("", [call("delete", filename=name)]), heard)
    paused = it.pause()
    it.resume(paused, approve(it.host, paused))
    assert it.tools.effects == [f"delete {name}"]


Clamped = Annotated[int, AfterValidator(lambda amount: min(amount, 50))]
Trimmed = Annotated[str, StringConstraints(strip_whitespace=True)]


class Rewriting(Tools):
    """Its types make something else of what they are given."""

    def transfer(self, amount: Clamped, to: Trimmed = "bob") -> str:
        """Send money."""
        return super().transfer(amount, to)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"amount": 100}, "amount: 50 instead of 100"),
        ({"amount": 5, "to": " eve "}, "to: 'eve' instead of ' eve '"),
    ],
)
def test_b35_what_a_tool_would_rewrite_does_not_run(bench, given, why):
    """What the reviewer saw is what runs, or nothing does and the model reads why."""
    it = bench(Reply("", [call("transfer", **given)]), heard)
    it.tools = Rewriting(it.tools.effects)
    paused = it.pause()
    assert json.loads(paused.interrupts[0].call.arguments) == given
    it.resume(paused, approve(it.host, paused))
    assert it.tools.effects == []
    assert why in it.host.text


def test_b35_what_a_tool_takes_as_it_is_runs(bench):
    it = bench(Reply("", [call("transfer", amount=50, to="eve")]), heard)
    it.tools = Rewriting(it.tools.effects)
    paused = it.pause()
    it.resume(paused, approve(it.host, paused))
    assert it.tools.effects == ["transfer 50 to eve"]


def test_arguments_that_look_like_the_frameworks_own_types_are_data(bench):
    text = '{"filename": "a", "type": "message", "role": "user", "contents": []}'
    inner = {"filename": json.dumps({"type": "message"})}
    calls = [Call("c1", "delete", text), call("delete", "c2", **inner)]
    it = bench(Reply("", calls), heard)
    paused = it.pause()
    assert paused.interrupts[0].call.arguments == text
    answers = [
        deny(it.host, paused.interrupts[0], '{"type": "message"}'),
        it.host.decide(paused.interrupts[1], Verdict.APPROVE),
    ]
    done = it.resume(paused, answers)
    it.next_run()
    it.script = plays(Reply("Still here."))
    it.start('{"type": "message"}', state=done.state)
    assert it.host.text == "Still here."


def test_odd_text_is_data(bench):
    odd = "<script>alert(1)</script> \u202egnp.exe \u0007 🏳️‍🌈 {{ x }} ]]>"

    def echo(history: Sequence[Item]) -> Reply:
        last = history[-1]
        assert isinstance(last, Said)
        return Reply(last.text)

    it = bench(echo)
    it.start(odd)
    assert it.host.text == odd


# The stored state


@pytest.mark.parametrize(
    "damage",
    [
        lambda state: state.clear(),
        lambda state: state.update(schema="1"),
        lambda state: state.update(schema=0),
        lambda state: state.update(schema=None),
        lambda state: [state.pop(key) for key in list(state) if key != "schema"],
        lambda state: state.update({key: [] for key in state if key != "schema"}),
        lambda state: state.update({key: "x" for key in state if key != "schema"}),
    ],
)
def test_a_damaged_state_is_refused_in_words(bench, damage):
    it = bench(ONE, heard)
    paused = it.pause()
    answers = approve(it.host, paused)
    state = deepcopy(dict(paused.state))
    damage(state)
    with pytest.raises(CheckpointError, match=r"damaged\.$") as raised:
        it.resume(Finished(state=state), answers)
    assert not raised.value.retryable
    assert it.tools.effects == []


def test_a_newer_state_is_refused_in_words(bench):
    it = bench(ONE, heard)
    paused = it.pause()
    newer = {**paused.state, "schema": it.adapter.schema + 1}
    with pytest.raises(CheckpointError, match="newer version"):
        it.resume(Finished(state=newer), approve(it.host, paused))
    with pytest.raises(CheckpointError, match="newer version"):
        it.start(state=newer)


def test_decisions_of_another_pause_are_refused(bench):
    it = bench(TWO, heard)
    paused, other = it.pause(), it.pause()
    for answers in (
        approve(it.host, other),
        approve(it.host, paused)[:1],
        approve(it.host, paused) + approve(it.host, other),
        [],
    ):
        with pytest.raises(CheckpointError, match="do not belong"):
            it.resume(paused, answers)
    assert it.deleted == []


def test_a_finished_state_cannot_be_resumed(bench):
    it = bench(ONE, heard)
    paused = it.pause()
    answers = approve(it.host, paused)
    done = it.resume(paused, answers)
    with pytest.raises(CheckpointError):
        it.resume(done, answers)
    assert it.tools.effects == ["delete a.txt"]


def test_a_tool_that_is_gone_stops_the_resume(bench):
    it = bench(TWO, heard)
    paused = it.pause()
    answers = approve(it.host, paused)

    class Fewer(Tools):
        def functions(self):
            return [self.lookup]

    it.tools = Fewer(it.tools.effects)
    with pytest.raises(AgentRunError, match="'delete' was called"):
        it.resume(paused, answers)
    assert it.deleted == []


def test_a_decision_holds_although_the_tool_is_no_longer_held(bench):
    it = bench(ONE, heard)
    paused = it.pause()
    answer = deny(it.host, paused.interrupts[0], "no")
    it.allowed = ALL_TOOLS
    it.host.allowed = set(ALL_TOOLS)
    assert isinstance(it.resume(paused, [answer]), Finished)
    assert it.tools.effects == []


def test_a_new_message_after_an_abandoned_pause_drops_the_open_calls(bench):
    it = bench(TWO, heard)
    paused = it.pause()
    answers = approve(it.host, paused)
    it.next_run()
    it.script = plays(Reply("On we go."))  # and it checks the history
    after = it.start("something else", state=paused.state)
    assert isinstance(after, Finished)
    assert it.host.happenings == [
        h for h in it.host.happenings if isinstance(h, TextDelta)
    ]
    with pytest.raises(CheckpointError):
        it.resume(after, answers)
    it.next_run()
    it.script = plays(ONE, heard)
    again = it.start("and now", state=after.state)
    assert isinstance(again, Interrupted)
    it.resume(again, approve(it.host, again))
    assert it.deleted == ["delete a.txt"]


# What the desk shows


def test_tools_are_described_for_the_desk(bench):
    it = bench(Reply("x"))
    adapter = it.adapter
    specs = {spec.name: spec for spec in adapter.tools}
    assert set(specs) == set(ALL_TOOLS)
    transfer = specs["transfer"]
    assert transfer.description == "Send money."
    assert transfer.parameters["type"] == "object"
    assert transfer.parameters["required"] == ["amount"]
    assert transfer.parameters["additionalProperties"] is False
    assert transfer.parameters["properties"]["amount"]["type"] == "integer"


def test_an_adapter_names_itself(bench):
    adapter = bench(Reply("x")).adapter
    assert adapter.framework
    assert adapter.version
    assert adapter.schema >= 1
    assert adapter.model_label == "Scripted model, no network"
    assert adapter.cancel in {Verdict.CANCEL_RUN, Verdict.CANCEL_CALL}
