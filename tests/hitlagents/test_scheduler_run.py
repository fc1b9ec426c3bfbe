"""The agent scheduler in one process: the real SDK, runner, rows and calendar."""

from __future__ import annotations

import dataclasses
import json

import pytest

from approvals import services
from approvals.models import Decision, ToolExecution
from approvals.states import RunStatus, Verdict
from hitlagents import conversations, events, registry
from hitlagents.adapters import openai_agents_models
from hitlagents.adapters.base import AgentRunError
from hitlagents.demo import calendar, scheduler
from hitlagents.demo.scripted import Item, Reply, Result, Said
from hitlagents.models import CalendarEntry, Checkpoint, Thread
from tests.hitlagents.driving import advance, decide, results, rules, yes
from tests.hitlagents.fakes import call
from tests.hitlagents.reading import said

pytestmark = pytest.mark.django_db(transaction=True)

MONDAY = {"chosen_time": "2026-12-07T09:00:00-08:00", "chosen_label": "Monday 9:00 AM"}


@pytest.fixture
def thread(mia, fresh):
    rules("scheduler", "list_meetings")
    return Thread.objects.create(agent="scheduler", owner=mia)


@pytest.fixture
def say(thread, mia):
    return lambda text: advance(conversations.send(thread.pk, text, author=mia))


def test_m8_the_chosen_time_reaches_the_tool_and_the_calendar(say, rita, mia):
    run = say("Please schedule a 1:1 with Alice")
    assert run.status == RunStatus.WAITING, run.error
    assert not CalendarEntry.objects.exists()
    run = decide(run, rita, yes(answer=MONDAY))
    assert run.status == RunStatus.FINISHED, run.error
    entry = CalendarEntry.objects.get()
    assert (entry.owner, entry.topic, entry.attendee) == (mia, "1:1", "Alice")
    assert entry.label == "Monday 9:00 AM"
    assert entry.starts_at.isoformat() == "2026-12-07T17:00:00+00:00"
    assert said(run).endswith("Booked “1:1” with Alice, Monday 9:00 AM.")
    assert Decision.objects.get().delivery == "applied"


@pytest.mark.parametrize(
    ("answer", "booked"),
    [
        ({"chosen_time": "2026-12-07T09:00:00Z"}, "2026-12-07T09:00:00Z"),
        ({"chosen_label": "Soon", "chosen_time": "never"}, "Soon"),
        ({"chosen_label": "", "chosen_time": ""}, None),
        ({}, None),
        (None, None),
        ("Monday", None),
        ({"chosen_label": 9}, None),
    ],
)
def test_m8_label_or_else_time_and_with_neither_nothing(say, rita, answer, booked):
    run = decide(say("Schedule a 1:1 with Alice"), rita, yes(answer=answer))
    assert run.status == RunStatus.FINISHED, run.error
    labels = list(CalendarEntry.objects.values_list("label", flat=True))
    assert labels == ([booked] if booked else [])
    if booked is None:
        assert "Nothing was scheduled" in said(run)


def test_m7_the_interrupt_says_what_pages_for_the_sdk_look_for(say):
    run = say("Please schedule an intro call with sales to discuss pricing")
    shown = {event.type: members for event, members in events.shown(run)}
    (shape,) = shown["RUN_FINISHED"]["outcome"]["interrupts"]
    assert shape["reason"] == "tool_approval"
    assert shape["message"] == "Approve running schedule_meeting?"
    assert shape["metadata"]["tool_name"] == "schedule_meeting"
    arguments = {"topic": "Intro call to discuss pricing", "attendee": "sales"}
    assert shape["metadata"]["tool_input"] == arguments
    assert shape["toolCallId"] == shown["TOOL_CALL_START"]["toolCallId"]
    assert set(shape["responseSchema"]["properties"]) == {
        "approved",
        "chosen_time",
        "chosen_label",
    }
    assert shape["responseSchema"]["required"] == ["approved"]


def test_m3_a_cancelled_call_is_answered_and_the_run_goes_on(say, rita):
    run = say("Schedule a demo with Bob and a retro with Carol")
    run = decide(run, rita, (Verdict.CANCEL_CALL, {}), yes(answer=MONDAY))
    assert run.status == RunStatus.FINISHED, run.error
    assert [entry.attendee for entry in CalendarEntry.objects.all()] == ["Carol"]
    first, second = results(run)
    assert first.startswith("Not executed: ")
    assert second == "Booked “Retro” with Carol, Monday 9:00 AM."


def test_every_answer_at_once_and_the_words_reach_the_model(say, rita):
    run = say(
        "schedule a 1:1 with Ann, a demo with Bob, a retro with Cem, lunch with Dan "
        "and a chat with Eve"
    )
    note = 'No: "why"?\n🙅 <b>'
    run = decide(
        run,
        rita,
        yes(answer=MONDAY),
        (Verdict.DENY, {"note": note}),
        yes(answer=MONDAY, arguments={"topic": "Retrospective", "attendee": "Cem Ö"}),
        (Verdict.RESPOND, {"output": "Dan is on leave."}),
        (Verdict.CANCEL_CALL, {}),
    )
    assert run.status == RunStatus.FINISHED, run.error
    told = results(run)
    assert told[0] == "Booked “1:1” with Ann, Monday 9:00 AM."
    assert told[1].endswith(note)
    assert told[2] == "Booked “Retrospective” with Cem Ö, Monday 9:00 AM."
    assert told[3] == "Dan is on leave."
    assert told[4].startswith("Not executed: ")
    assert CalendarEntry.objects.count() == 2
    history = json.loads(Checkpoint.objects.get(run=run).state)["history"]
    outputs = [item["output"] for item in history if "output" in item]
    assert told[2] in outputs[2]
    assert "A reviewer changed the arguments of this call" in outputs.pop(2)
    assert outputs == told[:2] + told[3:]


def test_b34_an_approved_call_is_not_asked_again(say, rita):
    run = decide(say("Schedule a 1:1 with Alice"), rita, yes(answer=MONDAY))
    assert run.interrupts.count() == 1
    assert ToolExecution.objects.count() == 1


def test_follow_ups_and_the_calendar_itself(say, rita):
    decide(say("Schedule a 1:1 with Alice"), rita, yes(answer=MONDAY))
    run = decide(say("and another with Dana"), rita, yes(answer=MONDAY))
    assert run.status == RunStatus.FINISHED, run.error
    first = CalendarEntry.objects.earliest("pk")
    run = say("What is on my calendar?")
    assert run.status == RunStatus.FINISHED, run.error
    assert f"- #{first.pk} “1:1” with Alice, Monday 9:00 AM\n" in said(run)
    run = say(f"cancel the meeting with Dana, then cancel #{first.pk}")
    run = decide(run, rita, yes())
    run = decide(run, rita, yes())
    assert run.status == RunStatus.FINISHED, run.error
    assert not CalendarEntry.objects.filter(cancelled_at=None).exists()
    run = say("cancel the meeting with Dana")
    run = decide(run, rita, yes())
    assert "There is no meeting “Dana” in the calendar." in said(run)


def test_a_meeting_of_somebody_else_is_not_there(say, rita, mia, eve):
    theirs = Thread.objects.create(agent="scheduler", owner=eve)
    other = CalendarEntry.objects.create(
        owner=eve, run_id=theirs.pk, call_id="c", topic="Secret", label="Monday"
    )
    assert said(say("list my meetings")).endswith("The calendar is empty.")
    run = decide(say(f"cancel #{other.pk}"), rita, yes())
    assert f"There is no meeting “{other.pk}”" in said(run)
    other.refresh_from_db()
    assert other.cancelled_at is None


def test_m9_a_message_while_it_waits_is_kept_and_delivered(say, thread, mia, rita):
    run = say("Schedule a 1:1 with Alice")
    conversations.send(thread.pk, "yes, go ahead", author=mia)
    assert not CalendarEntry.objects.exists()
    run = decide(run, rita, yes(answer=MONDAY))
    assert run.status == RunStatus.FINISHED, run.error
    after = thread.inputs.order_by("-run__created").first().run
    assert after.pk != run.pk
    assert advance(after).status == RunStatus.FINISHED
    assert thread.inputs.count() == 2


def test_the_conversation_goes_on_after_a_cancelled_run(say, mia):
    run = say("Schedule a 1:1 with Alice")
    services.cancel_run(run.pk, actor=mia)
    run = say("What is on my calendar?")
    assert run.status == RunStatus.FINISHED, run.error
    assert said(run).endswith("The calendar is empty.")
    history = json.loads(Checkpoint.objects.get(run=run).state)["history"]
    assert "The run was ended" in json.dumps(history)


def test_a_model_that_fails_after_the_tool_leaves_one_meeting(
    say, rita, monkeypatch, thread
):
    """B08, on the OpenAI Agents SDK."""
    run = say("Schedule a 1:1 with Alice")
    built = scheduler.build

    def failing(history):
        raise ConnectionError("reset")

    def spec(gating):
        return built(gating, model=openai_agents_models.scripted(failing))

    monkeypatch.setattr(registry, "_adapters", {})
    monkeypatch.setattr(registry.catalog, "get", lambda slug: replaced(spec))
    run = decide(run, rita, yes(answer=MONDAY))
    assert run.status == RunStatus.FAILED
    assert "could not be reached" in run.error
    assert CalendarEntry.objects.count() == 1
    monkeypatch.setattr(registry, "_adapters", {})
    monkeypatch.setattr(registry.catalog, "get", lambda slug: scheduler.SPEC)
    services.retry_run(run.pk, actor=rita)
    run = advance(run)
    assert run.status == RunStatus.FINISHED, run.error
    assert CalendarEntry.objects.count() == 1


def replaced(build):
    return dataclasses.replace(scheduler.SPEC, build=build)


@pytest.mark.parametrize("change", ["renamed", "removed"])
def test_b10_an_agent_that_changed_while_it_waits_says_so(
    say, rita, mia, monkeypatch, change
):
    run = say("Schedule a 1:1 with Alice")

    def build(gating):
        def make():
            agent = scheduler.make()
            if change == "renamed":
                agent.name = "planner"
            else:
                del agent.tools[0]
            return agent

        from hitlagents.adapters.openai_agents import OpenAIAgentsAdapter

        model = openai_agents_models.scripted(lambda history: Reply("Hm."))
        return OpenAIAgentsAdapter(make=make, model=model, gating=gating)

    monkeypatch.setattr(registry, "_adapters", {})
    monkeypatch.setattr(registry.catalog, "get", lambda slug: replaced(build))
    run = decide(run, rita, yes(answer=MONDAY))
    assert run.status == RunStatus.FAILED
    assert (
        "'scheduler' was at work" if change == "renamed" else "any more"
    ) in run.error
    assert not CalendarEntry.objects.exists()
    assert not ToolExecution.objects.exists()
    # The person can talk on; the call that was left open is closed in the history.
    assert say("hello").status == RunStatus.FINISHED


# An agent used as a tool, on the real ledger


class Office:
    """A lead that has a helper book a room; the helper's model may fail once."""

    def __init__(self) -> None:
        self.booked: list[str] = []
        self.failures = 0

    def make(self):
        from agents import Agent, function_tool

        def book_room(room: str) -> str:
            """Book a room."""
            self.booked.append(room)
            return f"Room {room} is yours."

        helper = Agent(name="helper", tools=[function_tool(book_room)])
        return Agent(
            name="lead", tools=[helper.as_tool("ask_helper", "Ask the helper.")]
        )

    def script(self, history: list[Item]) -> Reply:
        heard = [item.text for item in history if isinstance(item, Result)]
        if heard:
            return Reply(f"Heard: {heard[-1]}")
        if history[0] == Said("user", "a room"):
            if self.failures:
                self.failures -= 1
                raise ConnectionError("reset")
            return Reply("", [call("book_room", room="7")])
        return Reply("", [call("ask_helper", input="a room")])

    def spec(self):
        from hitlagents.adapters.openai_agents import OpenAIAgentsAdapter

        def build(gating):
            return OpenAIAgentsAdapter(
                make=self.make,
                model=openai_agents_models.scripted(self.script),
                gating=gating,
            )

        return dataclasses.replace(replaced(build), slug="office")


@pytest.fixture
def office(fresh, mia, monkeypatch):
    office = Office()
    monkeypatch.setattr(registry.catalog, "get", lambda slug: office.spec())
    office.thread = Thread.objects.create(agent="office", owner=mia)
    office.say = lambda: advance(
        conversations.send(office.thread.pk, "Book me a room", author=mia)
    )
    return office


def test_a_helpers_call_waits_and_runs_once(office, rita):
    rules("office", "ask_helper")
    run = office.say()
    assert run.status == RunStatus.WAITING, run.error
    assert [i.tool for i in run.interrupts.open()] == ["book_room"]
    run = decide(run, rita, yes())
    assert run.status == RunStatus.FINISHED, run.error
    assert office.booked == ["7"]
    assert said(run) == "Heard: Heard: Room 7 is yours."
    assert ToolExecution.objects.filter(run=run, status="done").count() == 2


def test_a_held_helper_starts_with_what_was_approved(office, rita):
    rules("office")
    run = office.say()
    assert [i.tool for i in run.interrupts.open()] == ["ask_helper"]
    run = decide(run, rita, yes())
    assert [i.tool for i in run.interrupts.open()] == ["book_room"]
    assert office.booked == []
    run = decide(run, rita, (Verdict.DENY, {"note": "Full."}))
    assert run.status == RunStatus.FINISHED, run.error
    assert office.booked == []
    assert "Full." in said(run)


def test_a_helper_that_failed_is_asked_again_on_a_retry(office, mia):
    """The retried turn gives its call a new id; the ledger knows the helper had begun."""
    rules("office", "ask_helper", "book_room")
    office.failures = 1
    run = office.say()
    assert run.status == RunStatus.FAILED
    services.retry_run(run.pk, actor=mia)
    run = advance(run)
    assert run.status == RunStatus.FINISHED, run.error
    assert office.booked == ["7"]
    assert said(run).endswith("Heard: Heard: Room 7 is yours.")


def test_the_calendar_refuses_what_is_not_clear(mia):
    thread = Thread.objects.create(agent="scheduler", owner=mia)
    slot = calendar.Slot(label="Monday")
    for number in range(2):
        calendar.book(
            thread.pk,
            run_id=thread.pk,
            call_id=str(number),
            topic="1:1",
            attendee="Alice",
            slot=slot,
        )
    with pytest.raises(calendar.CalendarError, match="several meetings: #"):
        calendar.cancel(thread.pk, "alice")
    with pytest.raises(calendar.CalendarError, match="“1:1 with Alice” names several"):
        calendar.cancel(thread.pk, "1:1 with Alice")
    with pytest.raises(calendar.CalendarError, match="no meeting “”"):
        calendar.cancel(thread.pk, "\0 ")
    again = calendar.book(
        thread.pk, run_id=thread.pk, call_id="0", topic="x", attendee="y", slot=slot
    )
    assert again == "Booked “1:1” with Alice, Monday."
    assert CalendarEntry.objects.count() == 2


def test_without_the_sdk_the_agent_says_how_to_get_it(fresh, monkeypatch):
    monkeypatch.setattr(registry.catalog, "installed", lambda spec: False)
    with pytest.raises(AgentRunError, match="pip install openai-agents"):
        registry.adapter_for("scheduler", frozenset())
