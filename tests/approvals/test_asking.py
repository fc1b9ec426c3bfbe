"""What a call asks of people: questions, answers, who is asked, and how often."""

from __future__ import annotations

import json
import threading
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from django.utils import timezone

from approvals import canonical, services
from approvals.exceptions import InvalidDecision, NotAllowed, NotDecided, NotFound
from approvals.models import AuditEntry, Decision, Interrupt, Policy
from approvals.policies import Rulebook
from approvals.schemas import InterruptDraft, Suggest, ToolSpec
from approvals.services.asking import times
from approvals.services.opening import MAX_DENIALS
from approvals.states import (
    Gate,
    InterruptKind,
    InterruptStatus,
    OnDeadline,
    RunStatus,
    Verdict,
)
from tests.plugins.cast import AGENT, OPS, TOOLS, ballot, call

pytestmark = pytest.mark.django_db

ANSWER = {
    "type": "object",
    "properties": {
        "chosen_time": {
            "type": "string",
            "format": "date-time",
            "x-suggest": {"days": 2, "times": ["10:00"]},
        },
        "cancelled": {"const": True},
    },
    "anyOf": [{"required": ["chosen_time"]}, {"required": ["cancelled"]}],
    "additionalProperties": False,
}
ASK = ToolSpec(
    name="book_call",
    kind=InterruptKind.QUESTION,
    title="Pick a time: {topic}",
    parameters={
        "type": "object",
        "properties": {"topic": {"type": "string"}, "attendee": {"type": "string"}},
        "required": ["topic"],
    },
    answer=ANSWER,
    card="time-picker",
)
MEET = ToolSpec(
    name="meet",
    answer={"type": "object", "properties": {"chosen_time": {"type": "string"}}},
)
ALL = (Verdict.APPROVE, Verdict.DENY, Verdict.RESPOND, Verdict.CANCEL_CALL)
ASKED = call("book_call", topic="Intro", attendee="sales")
MONDAY = {"chosen_time": "2026-12-07T09:00:00-08:00"}


@pytest.fixture
def tools(desk):
    services.register_tools(AGENT, [*TOOLS, ASK, MEET])


@pytest.fixture
def to_requester(tools):
    return Policy.objects.create(
        position=1,
        name="In the conversation",
        agent_pattern=AGENT,
        tool_pattern="book_*",
        asks_requester=True,
    )


def opened(run, *drafts: InterruptDraft) -> list[Interrupt]:
    claim = services.claim_run(run.pk, owner="worker")
    assert claim is not None
    services.open_interrupts(run.pk, attempt=claim.attempt, drafts=drafts)
    return list(run.interrupts.order_by("created"))


def asked(run, proposed=ASKED, **fields: Any) -> Interrupt:
    fields = {"verdicts": (*ALL, Verdict.CANCEL_RUN), **fields}
    return opened(run, InterruptDraft(call=proposed, **fields))[-1]


def told(run, proposed=ASKED) -> str:
    """What the guard gives for the call once the run goes on."""
    claim = services.claim_run(run.pk, owner="worker")
    assert claim is not None
    instead = services.begin_execution(
        run.pk, attempt=claim.attempt, call=proposed, owner="worker"
    )
    assert isinstance(instead, services.Instead)
    return instead.text


# What is asked


def test_m10_a_call_of_a_question_tool_becomes_a_question(tools, make_run):
    found = asked(make_run())
    assert found.kind == InterruptKind.QUESTION
    assert found.reason == "input_required"
    assert (found.title, found.message) == (
        "Pick a time: Intro",
        "Pick a time: Intro",
    )
    assert set(found.verdicts) == {"answer", "deny", "cancel_call", "cancel_run"}
    assert found.card == "time-picker"


def test_m8_the_answer_beside_an_approval_comes_from_the_registration(tools, make_run):
    found = asked(make_run(), call("meet", x=1))
    assert found.kind == InterruptKind.APPROVAL
    schema = json.loads(found.response_schema)
    assert set(schema["properties"]) == {"approved", "chosen_time"}
    assert schema["required"] == ["approved"]
    assert asked(make_run()).kind == InterruptKind.QUESTION


def test_what_the_agent_asks_by_itself_goes_before_the_registration(tools, make_run):
    own = {"type": "object", "properties": {"why": {"type": "string"}}}
    found = asked(make_run(), call("meet", x=1), response_schema=own)
    assert json.loads(found.response_schema) == own


def test_suggested_times_become_part_of_what_is_asked(tools, make_run):
    found = asked(make_run())
    part = json.loads(found.response_schema)["properties"]["chosen_time"]
    assert "x-suggest" not in part
    assert part["examples"] == times(Suggest(days=2, times=("10:00",)), found.created)
    before = services.shown_digest(found)
    found.response_schema = found.response_schema.replace("T10:00", "T11:00")
    assert services.shown_digest(found) != before


def test_suggested_times_are_of_working_days_in_the_zone_of_the_house(settings):
    settings.TIME_ZONE = "Europe/Berlin"
    suggest = Suggest(days=3, times=("09:30", "16:00"))
    # A Thursday evening in London, already Friday in Berlin.
    asked_at = datetime(2026, 3, 26, 23, 30, tzinfo=UTC)
    assert times(suggest, asked_at) == [
        "2026-03-30T09:30:00+02:00",  # summer time began on Sunday
        "2026-03-30T16:00:00+02:00",
        "2026-03-31T09:30:00+02:00",
        "2026-03-31T16:00:00+02:00",
        "2026-04-01T09:30:00+02:00",
        "2026-04-01T16:00:00+02:00",
    ]


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ({"type": "string"}, "not an object"),
        ({"type": "object"}, "not an object"),
        ({"type": "object", "properties": {"approved": {}}}, "“approved”"),
        ({"type": "object", "properties": {"x": {"type": "nonsense"}}}, "broken"),
        ({"type": "object", "properties": {"x": {"x-suggest": {}}}}, "broken"),
        (
            {
                "type": "object",
                "properties": {"x": {"x-suggest": {"times": ["25:00"]}}},
            },
            "broken",
        ),
    ],
)
def test_an_answer_that_cannot_be_asked_for_is_not_registered(desk, answer, why):
    spec = ToolSpec(name="ask", answer=answer)
    with pytest.raises(ValueError, match=why):
        services.register_tools(AGENT, [spec])


@pytest.mark.parametrize(
    ("message", "title"),
    [
        ("Which city?", "Which city?"),
        ("Which  one\tof these?\n- a\n- b", "Which one of these?"),
        ("x" * 300, "x" * 199 + "…"),
        ("", "Answer ask_city"),
        ("a\0b \ud800?", "a␀b ??"),
    ],
)
def test_m11_a_question_of_a_node_is_titled_by_what_it_asks(
    tools, make_run, message, title
):
    found = asked(
        make_run(),
        call("ask_city", x=1),
        kind=InterruptKind.QUESTION,
        message=message,
        verdicts=(Verdict.ANSWER, Verdict.DENY),
    )
    assert found.title == title
    shown = message.replace("\0", "␀").replace("\ud800", "?")
    assert found.message == (shown or title)
    assert found.verdicts == ["answer", "deny"]


@pytest.mark.parametrize(
    ("arguments", "title"),
    [
        ({"filename": "report.txt"}, "Wipe disk: report.txt"),
        ({"to": "Ann", "amount": 2.5}, "Wipe disk: amount 2.5, to Ann"),
        ({"a": True, "b": None, "c": [1]}, "Wipe disk: a true, …"),
        ({"d": 4, "c": 3, "b": 2, "a": 1}, "Wipe disk: a 1, b 2, c 3, …"),
        ({"deep": {"x": 1}}, "Wipe disk"),
        ({"pin": "4711"}, "Wipe disk"),
        ({"pin": "4711", "disk": "sda"}, "Wipe disk: disk sda, …"),
        ({"text": "  one\n two "}, "Wipe disk: one two"),
        ({"text": "x" * 100}, f"Wipe disk: {'x' * 79}…"),
        ({name * 60: "x" * 90 for name in "abc"}, None),
        ({}, "Wipe disk"),
    ],
)
def test_m10_a_call_without_a_title_of_its_own_is_told_by_name_and_arguments(
    tools, make_run, arguments, title
):
    wipe = ToolSpec(name="wipe_disk", secrets=("pin",))
    services.register_tools(AGENT, [*TOOLS, wipe])
    found = asked(make_run(), call("wipe_disk", **arguments))
    if title is None:
        assert (len(found.title), found.title[-1]) == (200, "…")
    else:
        assert found.title == title


def test_m10_what_a_reviewer_changed_is_in_the_title_without_a_template(
    tools, make_run, rita
):
    services.register_tools(AGENT, [*TOOLS, ToolSpec(name="wipe_disk")])
    to_ops("wipe_disk")
    found = asked(make_run(), call("wipe_disk", disk="sda"))
    services.decide(found.pk, ballot(found, arguments={"disk": "sdb"}), reviewer=rita)
    found.refresh_from_db()
    assert services.decided_title(found) == "Wipe disk: sdb"


# Answering


def test_m10_the_answer_is_the_result_and_nothing_runs(tools, make_run, rita):
    run = make_run()
    to_ops("book_*")
    found = asked(run)
    services.decide(
        found.pk, ballot(found, Verdict.ANSWER, answer=MONDAY), reviewer=rita
    )
    assert json.loads(told(run)) == MONDAY
    assert not run.executions.exists()
    assert Decision.objects.get().delivery == "applied"


def to_ops(pattern: str, **fields: Any) -> Policy:
    policy = Policy.objects.create(
        position=0, name=pattern, agent_pattern=AGENT, tool_pattern=pattern, **fields
    )
    policy.groups.add(services.make_group(OPS))
    return policy


def test_none_of_these_is_an_answer_too(tools, make_run, rita):
    run = make_run()
    to_ops("book_*")
    found = asked(run)
    none = {"cancelled": True}
    services.decide(found.pk, ballot(found, Verdict.ANSWER, answer=none), reviewer=rita)
    found.refresh_from_db()
    assert found.status == InterruptStatus.ANSWERED
    assert json.loads(told(run)) == none


@pytest.mark.parametrize(
    "answer",
    [
        {},
        None,
        "Monday",
        {"cancelled": False},
        MONDAY | {"more": 1},
        {"chosen_time": 9},
        {"chosen_time": "soon"},
        {"chosen_time": "2026-12-07T09:00:00"},
        {"chosen_time": "2026-13-07T09:00:00Z"},
    ],
)
def test_m7_an_answer_that_breaks_the_schema_is_refused_and_it_stays_open(
    tools, make_run, rita, answer
):
    to_ops("book_*")
    found = asked(make_run())
    given = ballot(found, Verdict.ANSWER, answer=answer)
    with pytest.raises(InvalidDecision):
        services.decide(found.pk, given, reviewer=rita)
    found.refresh_from_db()
    assert found.is_open


def test_m7_what_stands_beside_an_approval_is_not_refused(tools, make_run, rita):
    to_ops("meet")
    found = asked(make_run(), call("meet", x=1))
    odd = ballot(found, answer={"chosen_time": 9})
    services.decide(found.pk, odd, reviewer=rita)
    found.refresh_from_db()
    assert found.status == InterruptStatus.APPROVED


@pytest.mark.parametrize(
    ("verdict", "note", "words"),
    [
        (
            Verdict.DENY,
            "Ask Ann.",
            "Not answered: the person who was asked declined to answer. Ask Ann.",
        ),
        (Verdict.CANCEL_CALL, "", "Not answered: the question was cancelled."),
    ],
)
def test_a_question_that_is_not_answered_says_so(
    tools, make_run, rita, verdict, note, words
):
    run = make_run()
    to_ops("book_*")
    found = asked(run)
    services.decide(found.pk, ballot(found, verdict, note=note), reviewer=rita)
    assert told(run) == words


def pass_deadline(found: Interrupt) -> None:
    found.expires_at = timezone.now() - timedelta(seconds=1)
    found.save(update_fields=["expires_at"])
    services.expire_due(timezone.now())


def test_a_question_that_nobody_answers_in_time_says_so(tools, make_run):
    run = make_run()
    to_ops("book_*", deadline_seconds=60)
    found = asked(run)
    pass_deadline(found)
    found.refresh_from_db()
    assert found.status == InterruptStatus.EXPIRED
    assert told(run) == "Not answered: nobody answered before the deadline."


def test_a_request_that_takes_no_denial_ends_its_run_at_the_deadline(tools, make_run):
    run = make_run()
    to_ops("ask_*", deadline_seconds=60)
    found = asked(
        run,
        call("ask_city", x=1),
        kind=InterruptKind.QUESTION,
        verdicts=(Verdict.ANSWER, Verdict.CANCEL_RUN),
    )
    ruling = services.ruling_for(found)
    assert ruling.on_deadline == OnDeadline.DENY
    assert services.at_deadline(found, ruling) == OnDeadline.CANCEL_RUN
    pass_deadline(found)
    run.refresh_from_db()
    assert run.status == RunStatus.CANCELLED
    entry = AuditEntry.objects.get(action="interrupt.expired")
    assert canonical.loads(entry.payload)["then"] == "cancel_run"


def test_a_question_cannot_be_approved_and_its_body_is_never_entered(
    tools, make_run, rita
):
    run = make_run()
    to_ops("book_*")
    found = asked(run)
    with pytest.raises(InvalidDecision):
        services.decide(found.pk, ballot(found), reviewer=rita)
    # Should such a row exist all the same, the guard refuses.
    services.decide(
        found.pk, ballot(found, Verdict.ANSWER, answer=MONDAY), reviewer=rita
    )
    Decision.objects.update(verdict=Verdict.APPROVE)
    claim = services.claim_run(run.pk, owner="worker")
    if claim is not None:
        with pytest.raises(NotDecided):
            services.begin_execution(
                run.pk, attempt=claim.attempt, call=ASKED, owner="worker"
            )
    assert not run.executions.exists()


def test_no_policy_can_let_a_question_run(tools, make_run):
    to_ops("*", gate=Gate.ALLOW)
    book = Rulebook(AGENT)
    assert "book_call" not in book.allowed()
    assert "meet" in book.allowed()
    found = asked(make_run())
    assert found.is_open
    run = make_run()
    claim = services.claim_run(run.pk, owner="worker")
    assert claim is not None
    with pytest.raises(NotDecided):
        services.begin_execution(
            run.pk, attempt=claim.attempt, call=ASKED, owner="worker"
        )


def test_a_question_with_arguments_that_do_not_fit_is_not_asked(tools, make_run):
    found = asked(make_run(), call("book_call", topic=3))
    assert found.status == InterruptStatus.DENIED
    assert "topic: 3 is not of type 'string'" in Decision.objects.get().note


# Who is asked


def test_m10_the_person_in_the_conversation_answers(to_requester, make_run, mia):
    run = make_run()
    found = asked(run)
    assert found.asks_requester
    assert not found.review_groups.exists()
    assert not mia.has_perm("approvals.decide_interrupt")
    services.decide(
        found.pk, ballot(found, Verdict.ANSWER, answer=MONDAY), reviewer=mia
    )
    assert json.loads(told(run)) == MONDAY
    assert Decision.objects.get().reviewer == mia


def test_m16_others_can_neither_answer_nor_see_it(
    to_requester, make_run, rita, eve, owen
):
    found = asked(make_run())
    given = ballot(found, Verdict.ANSWER, answer=MONDAY)
    for person in (rita, eve):
        with pytest.raises(NotFound):
            services.decide(found.pk, given, reviewer=person)
    with pytest.raises(NotAllowed):
        services.decide(found.pk, given, reviewer=owen)
    found.refresh_from_db()
    assert found.is_open


def test_a_policy_with_groups_asks_those_too(to_requester, make_run, rita, mia):
    to_requester.groups.add(services.make_group(OPS))
    for person in (rita, mia):
        found = asked(make_run())
        services.decide(
            found.pk, ballot(found, Verdict.ANSWER, answer=MONDAY), reviewer=person
        )


def test_b147_what_a_policy_refuses_by_now_is_not_answered(to_requester, make_run, mia):
    run = make_run()
    found = asked(run)
    Policy.objects.filter(pk=to_requester.pk).update(gate=Gate.REFUSE)
    with pytest.raises(NotAllowed, match="“In the conversation” now refuses this call"):
        services.decide(
            found.pk, ballot(found, Verdict.ANSWER, answer=MONDAY), reviewer=mia
        )
    found.refresh_from_db()
    assert found.is_open
    services.decide(found.pk, ballot(found, Verdict.DENY), reviewer=mia)
    assert run.interrupts.get().status == InterruptStatus.DENIED


def test_b147_an_answer_that_was_given_before_reaches_the_agent(
    to_requester, make_run, mia
):
    run = make_run()
    found = asked(run)
    services.decide(
        found.pk, ballot(found, Verdict.ANSWER, answer=MONDAY), reviewer=mia
    )
    Policy.objects.filter(pk=to_requester.pk).update(gate=Gate.REFUSE)
    assert json.loads(told(run)) == MONDAY


def test_m16_an_approval_is_never_put_to_the_requester(to_requester, make_run, mia):
    Policy.objects.filter(pk=to_requester.pk).update(tool_pattern="*")
    found = asked(make_run(), call("meet", x=1))
    assert not found.asks_requester
    assert [group.name for group in found.review_groups.all()] == ["Reviewers"]
    with pytest.raises(NotFound):
        services.decide(found.pk, ballot(found), reviewer=mia)


def test_nobody_is_behind_the_run_so_reviewers_are_asked(to_requester, make_run):
    found = asked(make_run(requester=None))
    assert not found.asks_requester
    assert [group.name for group in found.review_groups.all()] == ["Reviewers"]


def test_an_inactive_person_answers_nothing(to_requester, make_run, mia):
    found = asked(make_run())
    mia.is_active = False
    mia.save()
    with pytest.raises(NotFound):
        services.decide(
            found.pk, ballot(found, Verdict.ANSWER, answer=MONDAY), reviewer=mia
        )


# What a draft may forbid or demand


def test_a_draft_may_forbid_edits(desk, make_run, rita):
    found = asked(make_run(), call(), editable=False)
    given = ballot(found, arguments={"filename": "other.txt"})
    with pytest.raises(InvalidDecision, match="only as it is"):
        services.decide(found.pk, given, reviewer=rita)
    services.decide(found.pk, ballot(found), reviewer=rita)


def test_what_the_agents_own_code_demands_no_policy_lets_through(desk, make_run):
    run = make_run()
    note = call("post_note", text="hello")
    free, held = opened(
        run,
        InterruptDraft(call=note),
        InterruptDraft(
            call=note.model_copy(update={"call_id": "call-2"}), demanded=True
        ),
    )
    assert free.status == InterruptStatus.APPROVED
    assert held.is_open
    assert held.policy["policy"] == (
        "Notes (but the agent's own code asks for a person)"
    )


def test_a_demanded_call_runs_once_it_is_approved(desk, make_run, ada):
    run = make_run()
    note = call("post_note", text="hello")
    [held] = opened(run, InterruptDraft(call=note, demanded=True))
    services.decide(held.pk, ballot(held), reviewer=ada)
    claim = services.claim_run(run.pk, owner="worker")
    assert claim is not None
    permit = services.begin_execution(
        run.pk, attempt=claim.attempt, call=note, owner="worker"
    )
    assert isinstance(permit, services.Permit)


def test_a_demand_does_not_open_what_a_policy_refuses(desk, make_run):
    to_ops("delete_*", gate=Gate.REFUSE)
    assert asked(make_run(), call(), demanded=True).status == InterruptStatus.DENIED


# Asked again


def again(run, number: int, **fields: Any) -> Interrupt:
    proposed = call(turn=number, call_id=f"call-{number}", **fields)
    return asked(run, proposed)


def test_the_same_call_is_counted_and_in_the_end_not_asked_any_more(
    desk, make_run, rita
):
    run = make_run()
    for number in range(1, MAX_DENIALS + 1):
        found = again(run, number)
        assert found.is_open
        assert found.denied_before == number - 1
        services.decide(
            found.pk, ballot(found, Verdict.DENY, note="No."), reviewer=rita
        )
    last = again(run, MAX_DENIALS + 1)
    assert last.status == InterruptStatus.DENIED
    assert last.denied_before == MAX_DENIALS
    decision = last.decisions.get()
    assert decision.channel == "intake"
    run.refresh_from_db()
    assert run.status == RunStatus.QUEUED
    text = told(run, call(turn=4, call_id="call-4"))
    assert text.startswith(
        "Not executed: the call was refused. The same call was denied"
    )


def test_other_arguments_and_other_runs_are_other_calls(desk, make_run, rita):
    run = make_run()
    found = again(run, 1)
    services.decide(found.pk, ballot(found, Verdict.DENY, note="No."), reviewer=rita)
    assert again(run, 2, filename="other.txt").denied_before == 0
    assert again(make_run(), 1).denied_before == 0


def test_an_approval_is_no_denial(desk, make_run, rita):
    run = make_run()
    found = again(run, 1)
    services.decide(found.pk, ballot(found), reviewer=rita)
    assert again(run, 2).denied_before == 0


def test_a_passed_deadline_is_no_denial(desk, make_run, rita):
    run = make_run()
    for number in range(1, MAX_DENIALS + 1):
        found = again(run, number)
        assert found.is_open
        pass_deadline(found)
    last = again(run, MAX_DENIALS + 1)
    assert last.is_open
    assert last.denied_before == 0


def test_a_refusal_of_a_policy_is_no_denial_by_a_person(desk, make_run, rita):
    Policy.objects.filter(tool_pattern="delete_*").update(gate=Gate.REFUSE)
    run = make_run()
    for number in range(1, MAX_DENIALS + 1):
        again(run, number)
    Policy.objects.filter(tool_pattern="delete_*").update(gate=Gate.HOLD)
    assert again(run, MAX_DENIALS + 1).is_open


# Schemas that cannot be followed


@pytest.fixture
def elsewhere():
    """An address that notes who asks for it."""
    seen = []

    class Listens(BaseHTTPRequestHandler):
        def do_GET(self):
            seen.append(self.path)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *args):
            pass

    with HTTPServer(("127.0.0.1", 0), Listens) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/schema", seen
        server.shutdown()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_schema_never_makes_the_desk_fetch_an_address(
    desk, make_run, rita, elsewhere
):
    address, seen = elsewhere
    found = asked(
        make_run(),
        call(),
        kind=InterruptKind.QUESTION,
        response_schema={"$ref": address},
        verdicts=(Verdict.ANSWER, Verdict.CANCEL_RUN),
    )
    with pytest.raises(InvalidDecision):
        services.decide(
            found.pk, ballot(found, Verdict.ANSWER, answer="x"), reviewer=rita
        )
    assert seen == []


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(
    ("schema", "answer"),
    [
        ({"$ref": "#/nowhere"}, "x"),
        ({"$ref": "urn:example:nothing"}, "x"),
        ({"$ref": "#"}, "x"),
        ({"type": "number", "multipleOf": 0.01}, 10**400),
    ],
)
def test_a_schema_that_cannot_be_followed_refuses_and_it_stays_open(
    desk, make_run, rita, schema, answer
):
    found = asked(
        make_run(),
        call(),
        kind=InterruptKind.QUESTION,
        response_schema=schema,
        verdicts=(Verdict.ANSWER, Verdict.CANCEL_RUN),
    )
    with pytest.raises(InvalidDecision):
        services.decide(
            found.pk, ballot(found, Verdict.ANSWER, answer=answer), reviewer=rita
        )
    found.refresh_from_db()
    assert found.is_open


def test_an_enormous_number_is_refused_at_intake(desk, make_run):
    whole = ToolSpec(
        name="delete_some",
        parameters={
            "type": "object",
            "properties": {"share": {"type": "number", "multipleOf": 0.01}},
        },
    )
    services.register_tools(AGENT, [*TOOLS, whole])
    found = asked(make_run(), call("delete_some", share=10**400))
    assert found.status == InterruptStatus.DENIED
