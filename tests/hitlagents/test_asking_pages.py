"""The card of a question where it is asked: in the conversation and in the inbox."""

from __future__ import annotations

import json

import pytest
from django.urls import reverse

from approvals import services
from approvals.models import Decision, Interrupt, Policy, Run
from approvals.schemas import InterruptDraft, ToolCall
from approvals.states import Gate, InterruptStatus, Verdict
from hitlagents import conversations
from hitlagents.demo.scheduler import CARDS
from tests.plugins.cast import OPS, ballot

pytestmark = pytest.mark.django_db

HTMX = {"HTTP_HX_REQUEST": "true"}
ALL = (Verdict.APPROVE, Verdict.DENY, Verdict.RESPOND, Verdict.CANCEL_CALL)


@pytest.fixture
def desk(desk):
    """The scheduler's tools: calls are asked about in the chat, the rest is for Ops."""
    services.register_tools(
        "scheduler",
        [card.model_copy(update={"parameters": {"type": "object"}}) for card in CARDS],
    )
    for position, (pattern, asks) in enumerate([("book_call", True), ("*", False)]):
        policy = Policy.objects.create(
            position=position,
            name=f"scheduler {pattern}",
            agent_pattern="scheduler",
            tool_pattern=pattern,
            asks_requester=asks,
        )
        if not asks:
            policy.groups.add(services.make_group(OPS))


@pytest.fixture
def thread(mia):
    return conversations.open_thread("scheduler", owner=mia)


def ask(thread, tool: str, number: int = 1) -> Interrupt:
    """One more request of the thread's run."""
    found = thread.inputs.first()
    run = (
        found.run if found else conversations.send(thread.pk, "Go", author=thread.owner)
    )
    assert isinstance(run, Run)
    claim = services.claim_run(run.pk, owner="worker")
    assert claim is not None
    arguments = json.dumps({"topic": "Intro", "attendee": "sales"})
    draft = InterruptDraft(
        call=ToolCall(
            turn=number, call_id=f"c{number}", tool=tool, arguments=arguments
        ),
        verdicts=ALL,
    )
    services.open_interrupts(run.pk, attempt=claim.attempt, drafts=[draft])
    return run.interrupts.get(turn=number)


def chat_url(thread) -> str:
    return reverse("thread", args=[thread.agent, thread.pk])


def post(client, interrupt, verdict="answer", *, htmx=True, **data):
    data = {"verdict": verdict, "shown": services.shown_digest(interrupt), **data}
    url = reverse("decide", args=[interrupt.pk])
    return client.post(url, data, **(HTMX if htmx else {}))


def text_of(response) -> str:
    return response.content.decode()


def suggested(interrupt) -> list[str]:
    schema = json.loads(interrupt.response_schema)
    found: list[str] = schema["properties"]["chosen_time"]["examples"]
    return found


# In the conversation


def test_m10_the_person_in_the_chat_picks_a_time(client, mia, thread):
    question = ask(thread, "book_call")
    client.force_login(mia)
    page = text_of(client.get(chat_url(thread)))
    assert "Pick a time: Intro" in page
    assert "Needs your answer" in page
    first = suggested(question)[0]
    assert f'value="{first}"' in page
    assert "None of these work" in page
    response = post(client, question, place="card", **{"answer-time": first})
    assert response.status_code == 200, text_of(response)
    assert "icard-done" in text_of(response)
    decision = Decision.objects.get()
    assert (decision.reviewer, decision.channel) == (mia, "chat")
    answer = json.loads(decision.answer)
    assert answer["chosen_time"] == first
    assert set(answer) == {"chosen_time", "chosen_label"}


def test_a_decided_card_says_what_was_answered_or_noted(client, mia, rita, thread):
    """M3, M10: whoever asked sees it where the agent asked."""
    answered = ask(thread, "book_call")
    client.force_login(mia)
    first = suggested(answered)[0]
    card = text_of(post(client, answered, place="card", **{"answer-time": first}))
    assert json.loads(Decision.objects.get().answer)["chosen_label"] in card
    client.force_login(rita)
    denied = ask(thread, "schedule_meeting", 2)
    post(client, denied, "deny", place="card", note="Not this week.")
    client.force_login(mia)
    assert '“<bdi dir="auto">Not this week.</bdi>”' in text_of(
        client.get(chat_url(thread))
    )


def test_none_of_these_work_is_sent_as_an_answer(client, mia, thread):
    question = ask(thread, "book_call")
    client.force_login(mia)
    post(client, question, place="card", **{"answer-time": "none"})
    question.refresh_from_db()
    assert question.status == InterruptStatus.ANSWERED
    assert json.loads(Decision.objects.get().answer) == {"cancelled": True}


def test_an_answer_that_is_not_complete_keeps_what_was_typed(client, mia, thread):
    question = ask(thread, "book_call")
    client.force_login(mia)
    typed = {"answer-time": "other", "answer-other": "", "note": "Not before ten"}
    response = post(client, question, place="card", **typed)
    page = text_of(response)
    assert response.status_code == 422
    assert "Enter a date and a time." in page
    assert ">Not before ten</textarea>" in page
    assert 'value="other" checked' in page
    question.refresh_from_db()
    assert question.is_open


def test_without_javascript_one_comes_back_to_the_conversation(client, mia, thread):
    question = ask(thread, "book_call")
    client.force_login(mia)
    back = f'name="next" value="{chat_url(thread)}"'
    assert back in text_of(client.get(chat_url(thread)))
    typed = {"place": "card", "next": chat_url(thread)}
    response = post(client, question, htmx=False, **typed)
    assert response["Location"] == chat_url(thread)
    assert "The answer is not complete." in text_of(client.get(chat_url(thread)))
    response = post(client, question, htmx=False, **typed, **{"answer-time": "none"})
    assert response["Location"] == chat_url(thread)
    question.refresh_from_db()
    assert question.status == InterruptStatus.ANSWERED


def test_it_does_not_lead_to_another_site(client, mia, thread):
    question = ask(thread, "book_call")
    client.force_login(mia)
    typed = {"place": "card", "next": "https://evil.example/", "answer-time": "none"}
    response = post(client, question, htmx=False, **typed)
    assert response["Location"] == reverse("run", args=[question.run_id])


def test_who_may_not_answer_sees_who_can(client, mia, thread):
    meeting = ask(thread, "schedule_meeting")
    client.force_login(mia)
    page = text_of(client.get(chat_url(thread)))
    assert f"Waiting for {OPS}." in page
    assert reverse("decide", args=[meeting.pk]) not in page
    assert "None of these work" not in page


@pytest.mark.parametrize("who", ["rita", "eve"])
def test_m16_nobody_else_answers_in_their_place(client, request, thread, who):
    question = ask(thread, "book_call")
    client.force_login(request.getfixturevalue(who))
    response = post(client, question, place="card", **{"answer-time": "none"})
    assert response.status_code == 404


def test_whom_it_is_put_to_no_more_reads_who_decides_and_keeps_the_note(
    client, mia, thread, monkeypatch
):
    """It is given over while they send: their own run shows them the request all the same."""
    question = ask(thread, "book_call")
    sent = {"place": "card", "note": "Not on Mondays.", "answer-time": "none"}
    sent["shown"] = services.shown_digest(question)
    decide = services.decide

    def too_late(*args, **kwargs):
        Interrupt.objects.filter(pk=question.pk).update(asks_requester=False)
        question.review_groups.add(services.make_group(OPS))
        return decide(*args, **kwargs)

    monkeypatch.setattr(services, "decide", too_late)
    client.force_login(mia)
    response = post(client, question, **sent)
    assert response.status_code == 403
    page = text_of(response)
    assert f"You can read this. {OPS} can answer. Your answer was not sent." in page
    assert "Not on Mondays." in page
    assert f"Waiting for {OPS}." in page
    assert 'name="verdict"' not in page
    plain = post(client, question, htmx=False, **sent, next=chat_url(thread))
    assert plain["Location"] == chat_url(thread)
    assert "Your answer was not sent." in text_of(client.get(chat_url(thread)))
    assert not Decision.objects.exists()


def test_a_watcher_is_told_whose_answer_it_is(client, owen, thread):
    question = ask(thread, "book_call")
    client.force_login(owen)
    page = text_of(client.get(reverse("interrupt", args=[question.pk])))
    assert "You can read this. mia can answer." in page


# In the inbox


def test_m8_the_picker_stands_beside_an_approval(client, rita, thread):
    meeting = ask(thread, "schedule_meeting")
    client.force_login(rita)
    page = text_of(client.get(reverse("interrupt", args=[meeting.pk])))
    assert "Pick a time" in page
    assert "None of these work" not in page
    assert 'form="decide" name="answer-time"' in page
    response = post(client, meeting, "approve", place="inbox")
    assert response.status_code == 422
    assert "Pick a time." in text_of(response)
    typed = {"answer-time": "other", "answer-other": "2099-07-01T10:00"}
    post(client, meeting, "approve", place="inbox", **typed)
    answer = json.loads(Decision.objects.get().answer)
    assert answer["chosen_time"].startswith("2099-07-01T10:00:00")
    page = text_of(client.get(reverse("interrupt", args=[meeting.pk])))
    assert "Answer of Rita Okafor" in page
    assert answer["chosen_time"] in page


# Asked again


def test_a_call_that_was_denied_before_is_flagged_where_it_is_decided(
    client, rita, mia, thread
):
    for number, note in ((1, "Too early"), (2, "Still too early")):
        found = ask(thread, "schedule_meeting", number)
        services.decide(found.pk, ballot(found, Verdict.DENY, note=note), reviewer=rita)
    again = ask(thread, "schedule_meeting", 3)
    client.force_login(rita)
    page = text_of(client.get(reverse("interrupt", args=[again.pk])))
    assert "The agent has asked this 3 times in this run." in page
    flag = page.split("It was told no before:")[1].split("</ul>")[0]
    assert flag.index("Too early") < flag.index("Still too early")
    assert flag.count("Rita Okafor") == 2
    row = page.split(f'id="row-{again.pk}"')[1].split("</li>")[0]
    assert "asked 3 times" in row
    client.force_login(mia)
    page = text_of(client.get(chat_url(thread)))
    assert "The agent has asked this 3 times in this run." in page
    assert "asked 2 times" in page


def test_b147_no_page_offers_to_answer_what_a_policy_refuses_by_now(
    thread, client, mia, rita, desk
):
    policy = Policy.objects.get(tool_pattern="book_call")
    policy.groups.add(services.make_group(OPS))
    found = ask(thread, "book_call")
    pages = {mia: chat_url(thread), rita: reverse("interrupt", args=[found.pk])}

    def shown() -> list[str]:
        texts = []
        for person, address in pages.items():
            client.force_login(person)
            texts.append(text_of(client.get(address)))
        return texts

    for page in shown():
        assert 'value="answer"' in page
        assert "answer-time" in page
    Policy.objects.filter(pk=policy.pk).update(gate=Gate.REFUSE)
    for page in shown():
        assert 'value="answer"' not in page
        assert "answer-time" not in page
        assert 'value="deny"' in page
        assert "The policy “scheduler book_call” now refuses this call." in page
