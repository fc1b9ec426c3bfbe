"""M10: calls of tools that a page brought, at the service: whose they are and what answers
them. Reviewers never hear of one."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import Group
from django.test import Client
from django.urls import reverse

from approvals import live, permissions, services
from approvals.exceptions import (
    InvalidArguments,
    NotDecided,
    NotFound,
    RunEnded,
    TakenBack,
)
from approvals.inbox import Inbox, View
from approvals.models import AuditEntry, Decision, Policy, Tool
from approvals.schemas import ClientTool, InterruptDraft, ToolSpec
from approvals.services import Ballot
from approvals.services.answers import PASSED_OVER
from approvals.states import (
    Delivery,
    Gate,
    InterruptKind,
    InterruptStatus,
    RunStatus,
    Verdict,
)
from tests.plugins.cast import AGENT, OPS, TOOLS, ballot, call

pytestmark = pytest.mark.django_db

PICK = ClientTool(
    name="pick_colour",
    parameters={
        "type": "object",
        "properties": {"shade": {"pattern": "^(r+)+$"}},
        "required": ["shade"],
    },
)


@pytest.fixture
def paused(make_run):
    """A run that waits for its page, and perhaps for people."""

    def make(*calls, run=None):
        run = run or make_run()
        claim = services.claim_run(run.pk, owner="worker")
        drafts = [
            InterruptDraft(call=each, verdicts=tuple(Verdict))
            for each in calls or (pick(),)
        ]
        services.open_interrupts(
            run.pk, attempt=claim.attempt, drafts=drafts, client_tools=[PICK]
        )
        run.refresh_from_db()
        return run

    return make


def pick(**fields):
    return call("pick_colour", **({"shade": "red"} | fields))


def guarded(run, proposed):
    claim = services.claim_run(run.pk, owner="worker")
    told = services.begin_execution(
        run.pk, attempt=claim.attempt, call=proposed, owner="worker"
    )
    return claim, told


def test_a_call_waits_for_the_page_and_the_answer_is_its_result(paused, mia):
    run = paused()
    [interrupt] = run.interrupts.all()
    assert run.status == RunStatus.WAITING
    assert interrupt.kind == InterruptKind.CLIENT
    assert interrupt.policy["policy"] == "The page that brought the tool answers"
    assert services.answer_client_call(interrupt.pk, "crimson", actor=mia)
    claim, told = guarded(run, pick())
    assert told == services.Instead(text="crimson")
    [answer] = claim.answers
    assert (answer.verdict, answer.answer) == (Verdict.ANSWER, "crimson")
    interrupt.refresh_from_db()
    assert interrupt.status == InterruptStatus.ANSWERED
    assert interrupt.decision.delivery == Delivery.APPLIED


def test_no_body_is_entered_for_it_whatever_was_decided(paused, mia):
    """Not even by an approval in the database that nobody could have given."""
    run = paused()
    [interrupt] = run.interrupts.all()
    services.answer_client_call(interrupt.pk, "crimson", actor=mia)
    claim = services.claim_run(run.pk, owner="worker")
    Decision.objects.update(verdict=Verdict.APPROVE)
    with pytest.raises(NotDecided):
        services.begin_execution(
            run.pk, attempt=claim.attempt, call=pick(), owner="worker"
        )


def test_the_chain_has_the_call_and_the_answer(paused, mia):
    run = paused()
    services.answer_client_call(run.interrupts.get().pk, "crimson", actor=mia)
    entries = AuditEntry.objects.filter(interrupt__isnull=False).order_by("number")
    found = [(entry.action, entry.actor) for entry in entries]
    assert found == [
        ("interrupt.opened", f"agent:{AGENT}"),
        ("interrupt.answered", "mia"),
    ]
    assert "crimson" not in "".join(entry.payload for entry in entries)


@pytest.mark.parametrize("who", ["rita", "owen", "ada", "eve"])
def test_nobody_else_answers_or_decides_it(paused, request, who):
    person = request.getfixturevalue(who)
    run = paused()
    [interrupt] = run.interrupts.all()
    with pytest.raises(NotFound):
        services.answer_client_call(interrupt.pk, "blue", actor=person)
    with pytest.raises(NotFound):
        services.pass_over_client_calls(run.pk, actor=person)
    for verdict in (Verdict.ANSWER, Verdict.APPROVE, Verdict.CANCEL_RUN):
        sent = Ballot(verdict=verdict, shown=None, answer="blue")
        with pytest.raises(NotFound):
            services.decide(interrupt.pk, sent, reviewer=person)
    assert run.interrupts.open().exists()


def test_the_owner_cannot_decide_it_either(paused, mia):
    [interrupt] = paused().interrupts.all()
    with pytest.raises(NotFound):
        services.decide(interrupt.pk, ballot(interrupt, Verdict.ANSWER), reviewer=mia)


def test_somebody_who_was_locked_out_answers_nothing(paused, mia):
    [interrupt] = paused().interrupts.all()
    mia.is_active = False
    with pytest.raises(NotFound):
        services.answer_client_call(interrupt.pk, "blue", actor=mia)


def test_an_ordinary_request_is_no_call_to_a_page(paused, mia):
    run = paused(call())
    with pytest.raises(NotFound):
        services.answer_client_call(run.interrupts.get().pk, "blue", actor=mia)
    assert services.pass_over_client_calls(run.pk, actor=mia) == 0
    assert run.interrupts.open().exists()


def test_no_inbox_has_it(paused, owen, ada, django_assert_num_queries):
    run = paused(pick(), call(call_id="call-2"))
    [asked] = run.interrupts.for_people()
    for person in (owen, ada):
        desk = Inbox(person, View())
        listed = [row.interrupt.pk for row in desk.listing().open_rows]
        assert listed == [asked.pk]
        assert desk.counts()["all"] == 1
        found = Inbox(person, View(q="pick_colour"))
        assert found.listing().open_rows == []
    [at_page] = run.interrupts.at_page()
    assert permissions.own_question(run.requester, at_page.pk) is None


def test_m11_pages_say_that_such_a_run_waits_for_its_page(paused, mia, ada):
    run = paused()
    for person, name, args in (
        (mia, "runs", []),
        (mia, "run", [run.pk]),
        (ada, "admin:approvals_run_changelist", []),
    ):
        client = Client()
        client.force_login(person)
        page = client.get(reverse(name, args=args)).content.decode()
        assert "Waiting for its page" in page, name
        assert "Waiting for a person" not in page, name


def test_m11_a_run_that_waits_for_both_waits_for_a_person(paused, mia):
    run = paused(pick(), call(call_id="call-2"))
    client = Client()
    client.force_login(mia)
    page = client.get(reverse("run", args=[run.pk])).content.decode()
    assert "Waiting for a person" in page
    request = page[page.index('id="requests-title"') :]
    assert "Waiting for its page" in request[: request.index("pick_colour")]
    page = page.replace(request, "")
    assert "Waiting for its page" not in page


def test_no_socket_but_that_of_its_run_hears_of_it(
    paused, mia, monkeypatch, django_capture_on_commit_callbacks
):
    heard = []
    monkeypatch.setattr(
        live, "announce_on_commit", lambda scopes, op, id: heard.append((op, scopes))
    )
    run = paused()
    services.answer_client_call(run.interrupts.get().pk, "crimson", actor=mia)
    of_it = [scopes for op, scopes in heard if op in ("opened", "interrupt")]
    assert of_it
    assert all(scopes == {f"run.{run.pk}"} for scopes in of_it)


@pytest.mark.parametrize("gate", Gate)
def test_no_policy_is_about_it(paused, mia, gate):
    """Nothing runs here, so there is nothing to let run or to refuse."""
    Policy.objects.create(position=0, name="All", agent_pattern="*", gate=gate)
    run = paused()
    assert run.status == RunStatus.WAITING
    assert run.interrupts.get().is_open


def test_only_the_first_answer_counts(paused, mia):
    [interrupt] = paused(pick(), call(call_id="call-2")).interrupts.at_page()
    assert services.answer_client_call(interrupt.pk, "crimson", actor=mia)
    assert not services.answer_client_call(interrupt.pk, "blue", actor=mia)
    interrupt.refresh_from_db()
    assert interrupt.decision.answer == '"crimson"'


def test_the_run_goes_on_once_both_are_there(paused, mia, rita):
    for page_first in (True, False):
        run = paused(pick(), call(call_id="call-2"))
        [at_page], [asked] = run.interrupts.at_page(), run.interrupts.for_people()

        def answer(at_page=at_page):
            services.answer_client_call(at_page.pk, "crimson", actor=mia)

        def decide(asked=asked):
            services.decide(asked.pk, ballot(asked), reviewer=rita)

        first, second = (answer, decide) if page_first else (decide, answer)
        first()
        run.refresh_from_db()
        assert run.status == RunStatus.WAITING
        second()
        run.refresh_from_db()
        assert run.status == RunStatus.QUEUED


def test_what_the_person_left_is_answered_for_them(paused, mia):
    run = paused(pick(), call(call_id="call-2"))
    assert services.pass_over_client_calls(run.pk, actor=mia) == 1
    [at_page], [asked] = run.interrupts.at_page(), run.interrupts.for_people()
    assert asked.is_open
    assert at_page.status == InterruptStatus.CANCELLED
    assert services.told_instead(at_page.decision) == PASSED_OVER
    assert services.pass_over_client_calls(run.pk, actor=mia) == 0


def test_cancelling_the_run_withdraws_it(paused, mia):
    run = paused()
    services.cancel_run(run.pk, actor=mia)
    [interrupt] = run.interrupts.all()
    assert interrupt.status == InterruptStatus.CANCELLED
    assert not services.answer_client_call(interrupt.pk, "late", actor=mia)
    with pytest.raises(RunEnded):
        services.cancel_run(run.pk, actor=mia)


def test_an_answer_that_cannot_be_stored_is_refused(paused, mia):
    [interrupt] = paused().interrupts.all()
    with pytest.raises(InvalidArguments):
        services.answer_client_call(interrupt.pk, "nul \0", actor=mia)
    interrupt.refresh_from_db()
    assert interrupt.is_open


def test_unreadable_arguments_never_reach_the_page(paused):
    run = paused(pick().model_copy(update={"arguments": "[1]"}))
    interrupt = run.interrupts.get()
    assert interrupt.decision.channel == "intake"
    told = services.told_instead(interrupt.decision)
    assert told.startswith("Not executed: ")
    assert "not an object" in told
    assert run.status == RunStatus.QUEUED


def test_the_pages_schema_is_not_tried(paused):
    """A pattern in it may take for ever, and this is inside a transaction."""
    run = paused(pick(shade="r" * 60 + "!"))
    assert run.interrupts.get().is_open


def test_m10_what_the_agents_own_tool_keeps_secret_stays_so(paused, desk):
    """The page's stands in its place, with nothing else of what the other says."""
    services.register_tools(
        AGENT, [*TOOLS, ToolSpec(name="pick_colour", secrets=("shade",), title="Hm")]
    )
    interrupt = paused(pick(shade="crimson")).interrupts.get()
    assert interrupt.secrets == ["shade"]
    assert interrupt.title == "pick_colour on the page"
    assert services.redacted(interrupt) == {"shade": "hidden, 7 characters"}
    opened = AuditEntry.objects.get(interrupt=interrupt.pk)
    assert "crimson" not in opened.payload


def test_no_agent_registers_one(db):
    spec = ToolSpec(name="pick_colour", kind=InterruptKind.CLIENT)
    with pytest.raises(ValueError, match="only a page"):
        services.register_tools(AGENT, [spec])
    assert not Tool.objects.exists()


# A question that was given over

BOOK = ClientTool(name="book_call")


@pytest.fixture
def question(desk):
    """Makes ``book_call`` a question of the agent, under a policy like this."""

    def make(**fields):
        asks = ToolSpec(name="book_call", kind=InterruptKind.QUESTION)
        services.register_tools(AGENT, [*TOOLS, asks])
        policy = Policy.objects.create(
            position=0,
            name="Calls",
            agent_pattern=AGENT,
            tool_pattern="book_call",
            **fields,
        )
        policy.groups.add(Group.objects.get(name=OPS))

    return make


@pytest.fixture
def booked(make_run):
    """What becomes of a call of it in a run that a page brought a tool of its name to."""

    def make():
        run = make_run()
        claim = services.claim_run(run.pk, owner="worker")
        proposed = call("book_call", topic="Intro")
        draft = InterruptDraft(call=proposed, verdicts=tuple(Verdict))
        services.open_interrupts(
            run.pk, attempt=claim.attempt, drafts=[draft], client_tools=[BOOK]
        )
        return run.interrupts.get()

    return make


def test_a_question_to_the_person_is_the_pages(question, booked):
    question(asks_requester=True)
    assert booked().kind == InterruptKind.CLIENT


def only_the_group_answers(interrupt, mia, rita):
    with pytest.raises(NotFound):
        services.answer_client_call(interrupt.pk, "Monday", actor=mia)
    answer = ballot(interrupt, Verdict.ANSWER, answer="Tuesday")
    services.decide(interrupt.pk, answer, reviewer=rita)
    proposed = call("book_call", topic="Intro")
    assert guarded(interrupt.run, proposed)[1] == services.Instead(text="Tuesday")


def test_a_question_that_a_policy_now_puts_to_a_group_is_theirs(
    question, booked, mia, rita
):
    """The rule may have changed since the message that brought the tool."""
    question()
    interrupt = booked()
    assert interrupt.kind == InterruptKind.QUESTION
    assert [group.name for group in interrupt.review_groups.all()] == [OPS]
    only_the_group_answers(interrupt, mia, rita)


def test_a_question_that_a_policy_refuses_is_not_the_pages(question, booked):
    question(asks_requester=True, gate=Gate.REFUSE)
    interrupt = booked()
    assert interrupt.kind == InterruptKind.QUESTION
    assert interrupt.status == InterruptStatus.DENIED


@pytest.fixture
def changed(question, booked):
    """A question that waits at its page while the policy about it becomes another."""

    def make(**fields):
        question(asks_requester=True)
        interrupt = booked()
        assert interrupt.kind == InterruptKind.CLIENT
        Policy.objects.filter(name="Calls").update(**fields)
        return interrupt

    return make


def test_m10_a_page_cannot_answer_what_a_policy_now_puts_to_a_group(changed, mia, rita):
    interrupt = changed(asks_requester=False)
    with pytest.raises(TakenBack, match=f"now waits for {OPS}, so"):
        services.answer_client_call(interrupt.pk, "Monday", actor=mia)
    interrupt.refresh_from_db()
    assert interrupt.is_open
    assert interrupt.kind == InterruptKind.QUESTION
    assert interrupt.run.status == RunStatus.WAITING
    assert interrupt.policy["policy"] == "Calls"
    only_the_group_answers(interrupt, mia, rita)
    entries = AuditEntry.objects.filter(interrupt=interrupt.pk).order_by("number")
    assert [entry.action for entry in entries] == [
        "interrupt.opened",
        "interrupt.reopened",
        "interrupt.answered",
        "execution.replaced",
    ]


def test_m10_a_page_cannot_answer_what_a_policy_now_refuses(changed, mia):
    interrupt = changed(gate=Gate.REFUSE)
    with pytest.raises(TakenBack, match="is refused by now"):
        services.answer_client_call(interrupt.pk, "Monday", actor=mia)
    interrupt.refresh_from_db()
    assert interrupt.status == InterruptStatus.DENIED
    assert interrupt.decision.answer is None
    assert interrupt.run.status == RunStatus.QUEUED
    told = services.told_instead(interrupt.decision)
    assert told.endswith("The policy “Calls” now refuses this call.")


def test_m10_a_page_answers_under_a_policy_that_still_asks_the_person(changed, mia):
    interrupt = changed(note_rule="always")
    assert services.answer_client_call(interrupt.pk, "Monday", actor=mia)


def test_m10_a_question_taken_back_takes_what_its_framework_can_hear(changed, mia):
    interrupt = changed(asks_requester=False)
    with pytest.raises(TakenBack):
        services.answer_client_call(interrupt.pk, "Monday", actor=mia)
    interrupt.refresh_from_db()
    assert {*interrupt.verdicts} == {*Verdict} - {Verdict.APPROVE, Verdict.RESPOND}
