"""Questions, repeated calls and demanded approvals on the real runner, rows and desk, with
every agent framework that is hosted."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from typing import Any

import pytest
from asgiref.sync import async_to_sync

from approvals import services
from approvals.models import Policy, ToolExecution
from approvals.schemas import ToolSpec
from approvals.services.opening import MAX_DENIALS
from approvals.states import Gate, InterruptKind, InterruptStatus, RunStatus, Verdict
from hitlagents import catalog, conversations, registry, runner
from hitlagents.adapters import openai_agents_models
from hitlagents.adapters.openai_agents import OpenAIAgentsAdapter
from hitlagents.demo import scheduler
from hitlagents.demo.scripted import Item, Reply
from hitlagents.models import Thread
from tests.hitlagents.adapters.harness import HARNESSES
from tests.hitlagents.fakes import Tools, call, heard, plays
from tests.hitlagents.reading import said
from tests.plugins.cast import OPS, ballot

pytestmark = pytest.mark.django_db(transaction=True)

AGENT = "tester"
DENIED = "Not executed: a reviewer denied this call. No."


@pytest.fixture
def host_agent(desk, monkeypatch):
    """Host what ``build`` makes, held for Ops but for the tools that are ``allowed``."""

    def host(build: Any, *allowed: str) -> None:
        for position, pattern in enumerate([*allowed, "*"]):
            policy = Policy.objects.create(
                position=position,
                name=f"tester {pattern}",
                agent_pattern=AGENT,
                tool_pattern=pattern,
                gate=Gate.HOLD if pattern == "*" else Gate.ALLOW,
            )
            policy.groups.add(services.make_group(OPS))
        spec = dataclasses.replace(scheduler.SPEC, slug=AGENT, build=build)
        monkeypatch.setattr(catalog, "get", lambda slug: spec)
        monkeypatch.setattr(registry, "_adapters", {})
        monkeypatch.setattr(registry, "_registered", set())

    return host


@pytest.fixture
def thread(mia):
    return Thread.objects.create(agent=AGENT, owner=mia)


def advance(run):
    async_to_sync(runner.advance)(run.pk, owner="worker")
    run.refresh_from_db()
    return run


def say(thread, text="go"):
    return advance(conversations.send(thread.pk, text, author=thread.owner))


def decide(run, person, verdict=Verdict.APPROVE, **fields):
    [interrupt] = run.interrupts.open()
    services.decide(interrupt.pk, ballot(interrupt, verdict, **fields), reviewer=person)
    return advance(run)


class Stubborn:
    """Proposes the same call again after every result, and gives up after ``often``."""

    def __init__(self, often: int) -> None:
        self.often = often

    def __call__(self, history: Sequence[Item]) -> Reply:
        return plays(
            *[
                Reply("I insist.", [call("delete", f"c{number}", filename="a.txt")])
                for number in range(self.often)
            ],
            heard,
        )(history)


@pytest.fixture(params=sorted(HARNESSES))
def stubborn(request, host_agent, thread):
    tools = Tools()
    harness = HARNESSES[request.param]
    host_agent(
        lambda gating: harness.build(
            Stubborn(MAX_DENIALS + 2), tools, allowed=tuple(gating.allowed)
        )
    )
    return tools


def test_a_model_that_does_not_hear_no_is_stopped_and_the_run_ends(
    stubborn, thread, rita
):
    run = say(thread)
    for number in range(MAX_DENIALS):
        assert run.status == RunStatus.WAITING, run.error
        [interrupt] = run.interrupts.open()
        assert interrupt.denied_before == number
        assert len(list(services.denials_before(interrupt))) == number
        run = decide(run, rita, Verdict.DENY, note="No.")
    # Nobody is asked any more, and the run goes on by itself.
    for _ in range(3):
        run = advance(run)
    assert run.status == RunStatus.FINISHED, run.error
    assert run.interrupts.count() == MAX_DENIALS + 2
    refused = run.interrupts.filter(denied_before__gte=MAX_DENIALS)
    assert [each.status for each in refused] == [InterruptStatus.DENIED] * 2
    assert said(run).count("nobody is asked again") == 2
    assert stubborn.effects == []
    assert not ToolExecution.objects.exists()


def test_the_same_call_in_another_run_is_asked_anew(stubborn, thread, rita, mia):
    run = decide(say(thread), rita, Verdict.DENY, note="No.")
    services.cancel_run(run.pk, actor=mia)
    [interrupt] = say(thread, "again").interrupts.open()
    assert interrupt.denied_before == 0


def test_an_approval_ends_the_insisting(stubborn, thread, rita):
    run = decide(say(thread), rita, Verdict.DENY, note="No.")
    run = decide(run, rita)
    assert stubborn.effects == ["delete a.txt"]


# What the developer's own code demands


def build_with_a_rule(gating):
    from agents import Agent, function_tool

    async def large(context: Any, arguments: dict[str, Any], call_id: str) -> bool:
        return arguments["amount"] > 10

    tools = Tools()
    calls = [
        call("transfer", "c1", amount=5, to="eve"),
        call("transfer", "c2", amount=50, to="eve"),
    ]
    return OpenAIAgentsAdapter(
        make=lambda: Agent(
            name=AGENT,
            tools=[
                function_tool(tools.transfer, needs_approval=large, strict_mode=False)
            ],
        ),
        model=openai_agents_models.scripted(plays(Reply("", calls), heard)),
        gating=gating,
    )


def test_m4_a_rule_that_wants_a_person_gets_one_whatever_the_policy_allows(
    host_agent, thread, rita
):
    host_agent(build_with_a_rule, "transfer")
    run = say(thread)
    assert run.status == RunStatus.WAITING, run.error
    [held] = run.interrupts.all()
    assert json.loads(held.arguments)["amount"] == 50
    assert "the agent's own code asks for a person" in held.policy["policy"]
    assert ToolExecution.objects.count() == 1
    run = decide(run, rita)
    assert run.status == RunStatus.FINISHED, run.error
    assert said(run) == "I heard: Sent 5 to eve. | Sent 50 to eve."


# A question in every framework


@pytest.fixture(params=sorted(HARNESSES))
def asking(request, host_agent, thread, mia):
    """``book`` registered as a question to whoever talks to the agent."""
    tools = Tools()
    harness = HARNESSES[request.param]
    question = ToolSpec(
        name="book",
        kind=InterruptKind.QUESTION,
        title="When on {day}?",
        answer={
            "type": "object",
            "properties": {"hour": {"type": "integer"}},
            "required": ["hour"],
        },
    )

    class Asking:
        """The adapter, but for what it says of one tool."""

        def __init__(self, adapter: Any) -> None:
            self.adapter = adapter

        def __getattr__(self, name: str) -> Any:
            return getattr(self.adapter, name)

        @property
        def tools(self) -> list[ToolSpec]:
            return [
                question.model_copy(update={"parameters": spec.parameters})
                if spec.name == "book"
                else spec
                for spec in self.adapter.tools
            ]

    script = plays(Reply("Asking.", [call("book", day="Friday")]), heard)
    host_agent(
        lambda gating: Asking(
            harness.build(script, tools, allowed=tuple(gating.allowed))
        ),
        "book",
    )
    Policy.objects.filter(tool_pattern="book").update(asks_requester=True)
    return tools


def test_m10_the_answer_is_the_result_in_every_framework(asking, thread, mia):
    run = say(thread)
    assert run.status == RunStatus.WAITING, run.error
    [question] = run.interrupts.all()
    assert (question.kind, question.title) == ("question", "When on Friday?")
    run = decide(run, mia, Verdict.ANSWER, answer={"hour": 9})
    assert run.status == RunStatus.FINISHED, run.error
    assert said(run) == 'Asking.I heard: {"hour":9}'
    assert asking.effects == []
    assert not ToolExecution.objects.exists()


def test_m10_a_note_beside_the_answer_reaches_the_model(asking, thread, mia):
    """The page promises that the agent reads it."""
    run = say(thread)
    run = decide(
        run, mia, Verdict.ANSWER, answer={"hour": 9}, note="Not a minute later."
    )
    assert run.status == RunStatus.FINISHED, run.error
    assert said(run) == (
        'Asking.I heard: {"hour":9}\n\nWhoever decided this noted: Not a minute later.'
    )


def test_m10_a_question_that_is_declined_is_told_and_the_run_goes_on(
    asking, thread, mia
):
    run = decide(say(thread), mia, Verdict.DENY, note="Not me.")
    assert run.status == RunStatus.FINISHED, run.error
    assert said(run).endswith("declined to answer. Not me.")
