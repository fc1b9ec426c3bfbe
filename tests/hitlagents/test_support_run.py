"""The agent support and graphs of one's own on the real runner, rows and desk."""

from __future__ import annotations

import json
from datetime import timedelta
from decimal import Decimal
from html import unescape
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from langgraph.types import interrupt

from approvals import services
from approvals.exceptions import InvalidDecision
from approvals.models import AuditEntry, Policy, Run, ToolExecution
from approvals.states import Delivery, Gate, InterruptKind, RunStatus, Verdict
from hitlagents import conversations, events, registry, runner
from hitlagents.adapters.langgraph_parts import agent, call_tool
from hitlagents.demo import scripted_support, support_graph
from hitlagents.demo.scripted import Reply
from hitlagents.models import Checkpoint, OutboxMail, Thread
from tests.hitlagents.adapters.graphs import Log, Own, asks
from tests.hitlagents.adapters.test_langgraph import (
    ANSWERS,
    asking_tool,
    done,
    review,
    single,
)
from tests.hitlagents.fakes import call, heard, plays
from tests.hitlagents.openai_stub import OpenAIStub
from tests.hitlagents.reading import said
from tests.plugins.cast import OPS, ballot

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def fresh(monkeypatch, desk):
    monkeypatch.setattr(registry, "_adapters", {})
    monkeypatch.setattr(registry, "_registered", set())
    monkeypatch.delenv("SAYSO_MODEL", raising=False)


def allow(agent, tool, gate=Gate.ALLOW):
    policy, _ = Policy.objects.update_or_create(
        name=f"{agent} {tool}",
        defaults={
            "position": 20,
            "agent_pattern": agent,
            "tool_pattern": tool,
            "gate": gate,
        },
    )
    policy.groups.add(services.make_group(OPS))


@pytest.fixture
def thread(mia):
    allow("support", "lookup_ticket")
    allow("support", "*", Gate.HOLD)
    return Thread.objects.create(agent="support", owner=mia)


def advance(run):
    async_to_sync(runner.advance)(run.pk, owner="worker")
    run.refresh_from_db()
    return run


def say(thread, text):
    run = advance(conversations.send(thread.pk, text, author=thread.owner))
    assert isinstance(run, Run)
    return run


def open_ones(run):
    return {
        (i.tool, json.loads(i.arguments).get("to", "")): i
        for i in run.interrupts.open()
    }


def decide(interrupt, reviewer, verdict=Verdict.APPROVE, **how):
    services.decide(interrupt.pk, ballot(interrupt, verdict, **how), reviewer=reviewer)


def test_m11_a_mail_is_sent_as_the_reviewer_left_it(thread, rita):
    run = say(thread, "Reply to Dana about invoice 1042")
    assert run.status == RunStatus.WAITING, run.error
    [asked] = run.interrupts.open()
    assert asked.kind == InterruptKind.APPROVAL
    assert asked.tool == "send_email"
    assert asked.title == "Send “About invoice 1042” to dana@whitfield.example"
    mail = json.loads(asked.arguments)
    assert mail["body"].startswith("Dear Dana,")
    assert not OutboxMail.objects.exists()

    edited = {**mail, "subject": "Your lamp", "body": "Dear Dana,\n\nsorry!"}
    decide(asked, rita, arguments=edited, note="Shorter.")
    run = advance(run)
    assert run.status == RunStatus.FINISHED, run.error
    [sent] = OutboxMail.objects.all()
    assert (sent.to, sent.subject, sent.body) == (
        "dana@whitfield.example",
        "Your lamp",
        "Dear Dana,\n\nsorry!",
    )
    assert sent.thread_id == thread.pk
    told = said(run)
    assert told.startswith(
        "Sent “Your lamp” to dana@whitfield.example. The reviewer had"
    )
    assert 'subject (was "About invoice 1042", now "Your lamp").' in told
    assert told.endswith("It was noted with it: “Shorter.”.")
    decision = asked.decisions.get()
    assert decision.delivery == Delivery.APPLIED


def test_several_at_once_end_each_in_its_own_way(thread, rita):
    run = say(
        thread,
        "Answer tickets 8812, 8813 and 8820, look up invoice 1060 and refund invoice 1042",
    )
    assert run.status == RunStatus.WAITING, run.error
    asked = open_ones(run)
    assert len(asked) == 4
    decide(asked["send_email", "dana@whitfield.example"], rita)
    decide(
        asked["send_email", "omar.reyes@mail.example"],
        rita,
        Verdict.DENY,
        note="Phone him.",
    )
    decide(
        asked["send_email", "lena@brandt.example"],
        rita,
        Verdict.RESPOND,
        output="Say that it comes on Friday.",
    )
    decide(asked["refund_invoice", ""], rita)
    run = advance(run)
    assert run.status == RunStatus.WAITING, run.error
    assert [mail.to for mail in OutboxMail.objects.order_by("to")] == [
        "dana@whitfield.example",
        "dana@whitfield.example",
    ]
    [again] = run.interrupts.open()
    assert "Say that it comes on Friday." in json.loads(again.arguments)["body"]
    decide(again, rita)
    run = advance(run)
    assert run.status == RunStatus.FINISHED, run.error
    assert OutboxMail.objects.count() == 3
    text = said(run)
    assert "Refunded invoice 1042 and wrote to dana@whitfield.example." in text
    assert "I did not write to omar.reyes@mail.example." in text
    assert "Phone him." in text
    assert "Sam O'Neil" in text
    assert ToolExecution.objects.filter(run=run, tool="send_email").count() == 2
    assert ToolExecution.objects.filter(run=run).exclude(status="done").count() == 0


def test_a_stored_state_played_again_sends_nothing_twice(thread, rita):
    run = say(thread, "Answer ticket 8812 and refund invoice 1043")
    for asked in run.interrupts.open():
        decide(asked, rita)
    stored = Checkpoint.objects.get(run=run).state
    run = advance(run)
    assert run.status == RunStatus.FINISHED
    mails = set(OutboxMail.objects.values_list("pk", flat=True))
    assert len(mails) == 2
    Checkpoint.objects.filter(run=run).update(state=stored)
    Run.objects.filter(pk=run.pk).update(status=RunStatus.QUEUED, ended_at=None)
    run = advance(run)
    assert run.status == RunStatus.FINISHED, run.error
    assert set(OutboxMail.objects.values_list("pk", flat=True)) == mails


def test_the_conversation_goes_on_after_a_cancelled_run(thread, mia, rita):
    run = say(thread, "Refund invoice 1042 and answer ticket 8812")
    services.cancel_run(run.pk, actor=mia)
    run = say(thread, "Look up ticket 8812")
    assert run.status == RunStatus.FINISHED, run.error
    assert "Dana Whitfield" in said(run)
    run = say(thread, "Refund invoice 1042")
    decide(run.interrupts.open().get(), rita)
    assert advance(run).status == RunStatus.FINISHED
    run = say(thread, "Refund invoice 1042")
    decide(run.interrupts.open().get(), rita)
    assert "was refunded before" in said(advance(run))
    assert OutboxMail.objects.count() == 1


def test_an_address_nobody_knows_is_asked_for(thread):
    run = say(thread, "Reply to Zoe")
    assert run.status == RunStatus.FINISHED, run.error
    assert "no e-mail address for Zoe" in said(run)


# Graphs of one's own, with the desk's own checks


@pytest.fixture
def own(monkeypatch, mia):
    """Host a graph of one's own; gives a function that says something to it."""

    def host(it: Own, *allowed: str) -> Any:
        allow("own", "*", Gate.HOLD)
        for tool in allowed:
            allow("own", tool)
        Policy.objects.filter(gate=Gate.ALLOW, agent_pattern="own").update(position=1)
        it.allowed = allowed
        services.register_tools("own", it.adapter.tools)
        monkeypatch.setattr(registry, "adapter_for", lambda slug, allowed: it.adapter)
        thread = Thread.objects.create(agent="own", owner=mia)
        return say(thread, "go")

    return host


@pytest.mark.parametrize("value", ANSWERS, ids=repr)
def test_b27_an_answer_of_the_desk_arrives_exactly(own, rita, value):
    got: list[Any] = []
    run = own(Own(asks("Which?", got)))
    [asked] = run.interrupts.open()
    assert asked.kind == InterruptKind.QUESTION
    decide(asked, rita, Verdict.ANSWER, answer=value)
    run = advance(run)
    assert run.status == RunStatus.FINISHED, run.error
    assert got == [value]
    assert type(got[0]) is type(value)
    assert asked.decisions.get().delivery == Delivery.APPLIED


@pytest.mark.parametrize(
    "payload", ["Which?", 42, True, None, [1], {"a": [{"b": None}]}]
)
def test_b44_any_payload_is_a_request_one_can_answer(own, rita, payload):
    run = own(Own(asks(payload, [])))
    [asked] = run.interrupts.open()
    assert json.loads(asked.arguments) == payload
    decide(asked, rita, Verdict.ANSWER, answer="ok")
    assert advance(run).status == RunStatus.FINISHED


def test_b44_odd_questions_stand_side_by_side_in_the_inbox(own, rita):
    questions = ["Which?", 42, True, None, [1], {"a": [{"b": None}]}]
    runs = [own(Own(asks(payload, []))) for payload in questions]
    client = Client()
    client.force_login(rita)
    listed = client.get(reverse("inbox")).content.decode()
    for run, payload in zip(runs, questions, strict=True):
        address = reverse("interrupt", args=[run.interrupts.get().pk])
        assert address in listed
        page = client.get(address).content.decode()
        assert 'value="answer"' in page
        assert 'name="answer-answer"' in page
        raw = page.split('id="raw-text" dir="ltr">')[1].split("</code>")[0]
        assert json.loads(unescape(raw)) == payload


def send(client, asked, text):
    """Send the answer form of its page, filled in."""
    sent = {"verdict": "answer", "shown": services.shown_digest(asked)}
    given = {"answer-answer": text} if isinstance(text, str) else text
    return client.post(reverse("decide", args=[asked.pk]), sent | given)


def test_b39_an_answer_that_does_not_fit_is_told_and_asked_for_again(own, rita):
    got: list[Any] = []
    schema = {"type": "integer", "minimum": 1, "maximum": 10}
    run = own(Own(asks("How many?", got, response_schema=schema)))
    [asked] = run.interrupts.open()
    client = Client()
    client.force_login(rita)
    for text, told in (("abc", "Enter a number."), ("11", "maximum of 10")):
        response = send(client, asked, text)
        assert response.status_code == 422
        assert told in str(response.context["answer_form"].errors["answer"])
        run = advance(run)
        assert (run.status, run.interrupts.open().get()) == (RunStatus.WAITING, asked)
    assert send(client, asked, "5").status_code == 302
    run = advance(run)
    assert run.status == RunStatus.FINISHED, run.error
    assert got == [5]


@pytest.mark.parametrize(
    ("schema", "typed", "value"),
    [
        ({"type": "boolean"}, "1", False),
        ({"type": "integer"}, "0", 0),
        ({"type": "array"}, "[]", []),
        ({"type": "array", "items": {"enum": ["a"]}}, {}, []),
    ],
)
def test_b27_a_form_gives_what_counts_as_nothing(own, rita, schema, typed, value):
    got: list[Any] = []
    run = own(Own(asks("Which?", got, response_schema=schema)))
    client = Client()
    client.force_login(rita)
    assert send(client, run.interrupts.get(), typed).status_code == 302
    run = advance(run)
    assert run.status == RunStatus.FINISHED, run.error
    assert got == [value]
    assert type(got[0]) is type(value)


def test_k70_a_run_may_ask_again_and_earlier_answers_do_no_harm(own, rita):
    got: list[Any] = []

    async def work(state: Log) -> Log:
        got.append(await call_tool("count", {}, done))
        got.append([interrupt("first"), interrupt("second")])
        got.append(await call_tool("pay", {"amount": 5}, done))
        return {}

    run = own(Own(single(work), steps=["count", "pay"]), "count")
    for answer in ("a", "b"):
        [asked] = run.interrupts.open()
        decide(asked, rita, Verdict.ANSWER, answer=answer)
        run = advance(run)
    [asked] = run.interrupts.open()
    assert asked.tool == "pay"
    decide(asked, rita, Verdict.DENY, note="No.")
    run = advance(run)
    assert run.status == RunStatus.FINISHED, run.error
    assert got[-1] == "Not executed: a reviewer denied this call. No."
    assert ["a", "b"] in got
    assert ToolExecution.objects.get().tool == "count"


def test_a_tool_that_asks_in_its_body_is_entered_again_and_leaves_one_row(own, rita):
    effects: list[str] = []
    book = asking_tool(effects)
    it = Own(
        lambda: agent(tools=[book]),
        tools=[book],
        script=plays(call_once("book", topic="lunch"), heard),
        intake=None,
    )
    run = own(it)
    decide(run.interrupts.open().get(), rita)
    run = advance(run)
    assert run.status == RunStatus.WAITING, run.error
    assert not ToolExecution.objects.exists()
    decide(run.interrupts.open().get(), rita, Verdict.ANSWER, answer="noon")
    run = advance(run)
    assert run.status == RunStatus.FINISHED, run.error
    assert effects == ["look at lunch", "look at lunch", "book lunch noon"]
    assert ToolExecution.objects.get().result == "Booked lunch for noon."
    assert AuditEntry.objects.filter(action="execution.paused").count() == 1


def call_once(tool, **arguments):
    return Reply("", [call(tool, **arguments)])


def test_m11_a_question_is_titled_by_its_words_and_may_stay_unanswered(own, rita):
    got: list[Any] = []
    run = own(Own(asks({"question": "Which city?", "options": ["Ulm"]}, got)))
    [asked] = run.interrupts.open()
    assert (asked.title, asked.message) == ("Which city?", "Which city?")
    decide(asked, rita, Verdict.DENY, note="Do not travel.")
    run = advance(run)
    assert run.status == RunStatus.FINISHED, run.error
    assert got == [None]
    told = [m["content"] for e, m in events.shown(run) if e.type == "TOOL_CALL_RESULT"]
    assert told == [
        "Not answered: the person who was asked declined to answer. Do not travel."
    ]
    assert asked.decisions.get().delivery == Delivery.APPLIED


def too_late(asked):
    asked.expires_at = timezone.now() - timedelta(seconds=1)
    asked.save(update_fields=["expires_at"])
    services.expire_due(timezone.now())


def test_a_question_that_nobody_answers_in_time_gives_none(own):
    got: list[Any] = []
    run = own(Own(asks("Go on?", got)))
    too_late(run.interrupts.get())
    run.refresh_from_db()
    assert advance(run).status == RunStatus.FINISHED
    assert got == [None]


def test_a_run_that_cannot_go_on_without_an_answer_ends_at_the_deadline(own):
    got: list[Any] = []
    run = own(Own(asks("Where?", got, response_schema={"type": "string"})))
    too_late(run.interrupts.get())
    run.refresh_from_db()
    assert run.status == RunStatus.CANCELLED
    assert got == []


def test_m11_no_policy_lets_a_review_of_the_graph_through(own, rita):
    got: list[Any] = []

    def work(state: Log) -> Log:
        got.append(interrupt(review({"allow_accept": True})))
        return {}

    run = own(Own(single(work), steps=["send"]), "send")
    assert run.status == RunStatus.WAITING, run.error
    [asked] = run.interrupts.open()
    assert not asked.editable
    with pytest.raises(InvalidDecision, match="only as it is"):
        decide(asked, rita, arguments={"to": "somebody else"})
    decide(asked, rita)
    assert advance(run).status == RunStatus.FINISHED
    assert [given["type"] for given in got] == ["accept"]


def test_a_review_that_nobody_decides_in_time_is_an_ignore(own):
    got: list[Any] = []

    def work(state: Log) -> Log:
        got.append(interrupt([review()]))
        return {}

    it = Own(single(work), steps=["send"])
    run = own(it)
    too_late(run.interrupts.get())
    run.refresh_from_db()
    run = advance(run)
    assert run.status == RunStatus.FINISHED, run.error
    assert got == [
        [
            {
                "type": "ignore",
                "args": "Not executed: nobody decided before the deadline.",
            }
        ]
    ]


def test_b52_nothing_of_a_pause_is_pythons_own_writing(own):
    run = own(Own(asks({"question": "Which?", "options": {"x"}, "n": Decimal(1)}, [])))
    assert run.status == RunStatus.WAITING, run.error
    shown = json.dumps([members for _, members in events.shown(run)])
    assert "Interrupt(" not in shown
    assert "Decimal" not in shown
    assert json.loads(run.interrupts.get().arguments)["options"] == ["x"]


@pytest.mark.parametrize("value", [object, 2**70])
def test_a_payload_that_cannot_be_kept_is_said_so(own, value):
    run = own(Own(asks({"what": value}, [])))
    assert run.status == RunStatus.FAILED
    assert run.error.startswith("The graph keeps what cannot be stored safely: ")
    assert "0x" not in run.error


# With a real model


def test_support_on_a_real_model(monkeypatch, thread, rita):
    def script(history):
        system = stub.requests[-1]["messages"][0]["content"]
        if system == support_graph.PLAN:
            return scripted_support.plan(history)
        if system == support_graph.DRAFT:
            return scripted_support.draft(history)
        assert system == support_graph.DESK
        return scripted_support.reply(history)

    with OpenAIStub(script) as stub:
        for name, value in stub.environ.items():
            monkeypatch.setenv(name, value)
        run = say(thread, "Reply to Dana about the lamp and refund invoice 1042")
        assert run.status == RunStatus.WAITING, run.error
        assert len(open_ones(run)) == 2
        for asked in run.interrupts.open():
            decide(asked, rita)
        run = advance(run)
        assert run.status == RunStatus.FINISHED, run.error
        assert OutboxMail.objects.count() == 2
        assert "Sent “About the lamp" in said(run)
        assert "Refunded invoice 1042" in said(run)
        assert "replies" not in said(run)

        run = say(thread, "Thanks")
        assert said(run) == "You are welcome."


@pytest.mark.parametrize(
    ("text", "plan"),
    [
        ("", ([], True)),
        ("No idea.", ([], True)),
        ('{"replies": "all"}', ([], True)),
        ('{"replies": [1, {}, {"to": ""}], "rest": false}', ([], False)),
        (
            'Sure:\n```json\n{"replies": [{"to": "Dana"}], "rest": false}\n```',
            ([{"to": "Dana", "about": ""}], False),
        ),
        ("{" * 50_000, ([], True)),
    ],
)
def test_what_a_model_plans_is_read_with_care(text, plan):
    assert support_graph.read_plan(text) == plan


@pytest.mark.parametrize(
    ("text", "subject", "body"),
    [
        ("Subject: Hello\n\nDear Dana", "Hello", "Dear Dana"),
        ("**Subject:** Hello\nDear", "Hello", "Dear"),
        ("Dear Dana", "Your message to us", "Dear Dana"),
        ("Subject: x", "x", "…"),
        ("", "Your message to us", "…"),
        ("Subject: " + "x" * 300 + "\nb", "x" * 200, "b"),
    ],
)
def test_a_draft_of_any_model_becomes_a_mail(text, subject, body):
    assert support_graph.read_draft(text) == (subject, body)
