"""The inbox in a browser without and with htmx: who sees what, deciding, losing a race."""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from approvals import services
from approvals.cases import Case
from approvals.models import Interrupt, Policy
from approvals.schemas import InterruptDraft, ToolSpec
from approvals.states import InterruptKind, Verdict
from tests.plugins.cast import AGENT, OPS, TOOLS, ballot, call

HTMX = {"HX-Request": "true"}


def signed_in(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


@pytest.fixture
def as_rita(rita):
    return signed_in(rita)


def post(
    client: Client,
    interrupt: Interrupt,
    verdict: str,
    *,
    htmx: bool = False,
    **data: Any,
):
    data = {"verdict": verdict, "shown": services.shown_digest(interrupt), **data}
    headers = HTMX if htmx else {}
    return client.post(reverse("decide", args=[interrupt.pk]), data, headers=headers)


def url(interrupt: Interrupt) -> str:
    return reverse("interrupt", args=[interrupt.pk])


# Seeing


def test_the_list_and_the_request(as_rita, interrupt):
    page = as_rita.get(reverse("inbox")).content.decode()
    assert url(interrupt) in page
    assert "Delete file-1.txt" in page
    page = as_rita.get(url(interrupt)).content.decode()
    assert "<html" in page
    assert services.shown_digest(interrupt) in page
    assert "Approve and delete file" in page


def test_htmx_gets_the_request_alone(as_rita, interrupt):
    response = as_rita.get(url(interrupt), headers=HTMX)
    assert "<html" not in response.content.decode()
    assert "Delete file-1.txt?" in response.content.decode()
    assert "HX-Request" in response["Vary"]


def test_going_back_in_the_history_gets_the_whole_page(as_rita, interrupt):
    headers = HTMX | {"HX-History-Restore-Request": "true"}
    assert "<html" in as_rita.get(url(interrupt), headers=headers).content.decode()


def test_a_watcher_may_read_and_is_told_who_decides(owen, interrupt):
    page = signed_in(owen).get(url(interrupt)).content.decode()
    assert f"You can read this. {OPS} can decide." in page
    assert 'name="verdict"' not in page
    assert (
        post(signed_in(owen), interrupt, "approve", confirmed="approve").status_code
        == 403
    )
    interrupt.refresh_from_db()
    assert interrupt.is_open


@pytest.mark.parametrize("who", ["eve", "fin", "mia"])
def test_what_one_may_not_see_does_not_exist(who, request, interrupt):
    client = signed_in(request.getfixturevalue(who))
    assert client.get(url(interrupt)).status_code == 404
    assert post(client, interrupt, "approve", confirmed="approve").status_code == 404
    assert client.post(reverse("undo", args=[interrupt.pk])).status_code == 404
    page = client.get(reverse("inbox"))
    assert page.status_code == 404 or "Delete file-1.txt" not in page.content.decode()


def test_strangers_sign_in_first(interrupt):
    response = Client().get(url(interrupt))
    assert response.status_code == 302
    assert reverse("login") in response["Location"]


def test_the_first_page_depends_on_the_person(rita, mia):
    assert signed_in(rita).get("/")["Location"] == reverse("inbox")
    assert signed_in(mia).get("/")["Location"] != reverse("inbox")


def test_filters_are_in_the_url(as_rita, interrupt):
    assert url(interrupt) in as_rita.get("/inbox/?view=high&q=file-1").content.decode()
    page = as_rita.get("/inbox/?q=nothing-like-it").content.decode()
    assert url(interrupt) not in page
    assert "No request matches" in page


def test_agent_text_is_harmless(as_rita, make_interrupts):
    (found,) = make_interrupts(
        [call(filename="<script>alert(1)</script>\u202egpj.exe")]
    )
    page = as_rita.get(url(found)).content.decode()
    assert "<script>alert" not in page
    assert "\u202e" not in page  # nor in the title, which would turn a tab around
    assert "⟦U+202E⟧" in page


def test_what_was_approved_is_named_as_it_was_changed(rita, as_rita, interrupt):
    services.decide(
        interrupt.pk,
        ballot(interrupt, arguments={"filename": "other.txt"}),
        reviewer=rita,
    )
    inbox = as_rita.get(reverse("inbox")).content.decode()
    row = inbox[inbox.index(f"row-{interrupt.pk}") :]
    assert "Delete other.txt" in row
    assert "edited" in row
    assert "Delete file-1.txt" not in row
    page = as_rita.get(url(interrupt)).content.decode()
    assert "<title>Delete other.txt \u2013 Sayso</title>" in page
    struck = page[page.index("<s>") : page.index("</s>")]
    assert "Delete file-1.txt" in struck
    run = as_rita.get(reverse("run", args=[interrupt.run_id])).content.decode()
    assert "Delete other.txt" in run


def test_the_toast_names_what_was_approved(as_rita, interrupt):
    form = {"editing": "1", "confirmed": "approve", "argument-filename": "other.txt"}
    toast = post(as_rita, interrupt, "approve", htmx=True, **form).content.decode()
    assert "Approved “Delete other.txt”." in toast[toast.index("toast-x") :]


def test_a_decided_row_tells_when_it_was_decided(as_rita, rita, interrupt):
    Interrupt.objects.filter(pk=interrupt.pk).update(
        created=timezone.now() - timedelta(hours=3)
    )
    assert ">3h</time>" in as_rita.get(reverse("inbox")).content.decode()
    services.decide(interrupt.pk, ballot(interrupt), reviewer=rita)
    page = as_rita.get(reverse("inbox")).content.decode()
    assert ">3h</time>" not in page
    assert ">now</time>" in page


def test_only_approvals_of_one_answer_count_together(interrupt, rita, ravi, as_rita):
    """Two people who approve with different answers have approved nothing yet."""
    Policy.objects.filter(name="Destructive file tools").update(approvals_required=2)
    for who, answer in ((rita, {"when": "now"}), (ravi, {"when": "later"})):
        services.decide(interrupt.pk, ballot(interrupt, answer=answer), reviewer=who)
    interrupt.refresh_from_db()
    assert interrupt.is_open
    case = Case(interrupt, rita)
    assert case.have == 1
    assert case.hint == "1 of 2 approvals given for the same answer."
    assert case.why_not == "You approved. 1 more approval is needed."


def test_secrets_are_hidden(fin, make_interrupts):
    (found,) = make_interrupts([call("pay", amount=5, account="x", pin="hunter2")])
    page = signed_in(fin).get(url(found)).content.decode()
    assert "hunter2" not in page
    assert "hidden, 7 characters" in page


@pytest.mark.parametrize("name", ["decide", "undo"])
def test_only_posts_change_anything(name, as_rita, interrupt):
    assert as_rita.get(reverse(name, args=[interrupt.pk])).status_code == 405


# Deciding without JavaScript


def test_approving_a_risky_call_asks_once_more(as_rita, interrupt):
    response = post(as_rita, interrupt, "approve", note="fine")
    page = response.content.decode()
    assert response.status_code == 200
    assert 'name="confirmed"' in page
    assert ">fine</textarea>" in page
    interrupt.refresh_from_db()
    assert interrupt.is_open
    data = {
        "confirmed": "approve",
        "shown": services.shown_digest(interrupt),
        "note": "fine",
    }
    response = as_rita.post(reverse("decide", args=[interrupt.pk]), data, follow=True)
    assert "Approved “Delete file-1.txt”" in response.content.decode()
    interrupt.refresh_from_db()
    assert interrupt.status == "approved"
    assert interrupt.decision is not None
    assert (interrupt.decision.note, interrupt.decision.channel) == ("fine", "inbox")


def test_deny_wants_a_note_where_the_policy_says_so(as_rita, interrupt):
    response = post(as_rita, interrupt, "deny", note="  ")
    assert response.status_code == 422
    assert "Say why." in response.content.decode()
    interrupt.refresh_from_db()
    assert interrupt.is_open
    response = post(as_rita, interrupt, "deny", note="still needed")
    assert response.status_code == 302
    interrupt.refresh_from_db()
    assert interrupt.status == "denied"


def test_afterwards_the_next_one_opens(as_rita, make_interrupts):
    first, second = make_interrupts(2)
    response = post(as_rita, first, "deny", note="no")
    assert response["Location"] == url(second)
    page = as_rita.get(url(first)).content.decode()
    assert "Waits for 1 other request in this run" in page
    response = post(as_rita, second, "deny", note="no")
    assert response["Location"] == url(second)


@pytest.mark.parametrize("verdict", ["", "cancel_run", "nonsense"])
def test_an_unknown_verdict_is_a_bad_request(verdict, as_rita, interrupt):
    assert post(as_rita, interrupt, verdict).status_code == 400


def test_a_form_of_another_page_is_refused(as_rita, interrupt):
    response = post(as_rita, interrupt, "deny", note="my words", shown="0" * 64)
    page = response.content.decode()
    assert response.status_code == 409
    assert "Read it again, then decide. Your denial was not sent." in page
    assert ">my words</textarea>" in page
    interrupt.refresh_from_db()
    assert interrupt.is_open


def test_a_rule_that_changed_meanwhile_makes_the_page_stale(as_rita, interrupt):
    shown = services.shown_digest(interrupt)
    Policy.objects.filter(name="Destructive file tools").update(approvals_required=2)
    response = post(as_rita, interrupt, "approve", confirmed="approve", shown=shown)
    assert response.status_code == 409


def test_the_second_decision_is_told_who_was_faster(as_rita, ravi, interrupt):
    shown = services.shown_digest(interrupt)
    services.decide(
        interrupt.pk,
        ballot(interrupt, Verdict.DENY, note="It is needed."),
        reviewer=ravi,
    )
    response = post(
        as_rita, interrupt, "approve", confirmed="approve", note="my words", shown=shown
    )
    page = response.content.decode()
    assert response.status_code == 409
    assert "Ravi Nair denied this" in page
    assert "Your approval was not sent." in page
    assert "It is needed." in page
    assert "my words" in page
    assert 'role="alert"' in page


def test_too_late_is_told(as_rita, interrupt):
    shown = services.shown_digest(interrupt)
    Interrupt.objects.filter(pk=interrupt.pk).update(
        expires_at=timezone.now() - timedelta(seconds=1)
    )
    response = post(as_rita, interrupt, "deny", note="no", shown=shown)
    assert response.status_code == 409
    assert "Expired" in response.content.decode()
    interrupt.refresh_from_db()
    assert interrupt.status == "expired"


def test_ones_own_request_is_for_somebody_else(rita, make_run, make_interrupts):
    (found,) = make_interrupts(1, run=make_run(requester=rita))
    page = signed_in(rita).get(url(found)).content.decode()
    assert "somebody else" in page
    assert 'value="approve"' not in page
    response = post(signed_in(rita), found, "approve", confirmed="approve")
    assert response.status_code == 403


def test_two_approvals(as_rita, ravi, interrupt):
    Policy.objects.filter(name="Destructive file tools").update(approvals_required=2)
    page = as_rita.get(url(interrupt)).content.decode()
    assert "0 of 2 approvals given." in page
    post(as_rita, interrupt, "approve", confirmed="approve")
    page = as_rita.get(url(interrupt)).content.decode()
    assert "You approved. 1 more approval is needed." in page
    response = post(as_rita, interrupt, "approve", confirmed="approve")
    assert response.status_code == 409
    post(signed_in(ravi), interrupt, "approve", confirmed="approve")
    interrupt.refresh_from_db()
    assert interrupt.status == "approved"


# Deciding with htmx


def test_htmx_gets_the_next_request_and_a_toast(as_rita, make_interrupts):
    first, second = make_interrupts(2)
    rows = [f"{first.pk}.open-0", f"{second.pk}.open-0"]
    response = post(as_rita, first, "deny", htmx=True, note="no", row=rows)
    page = response.content.decode()
    assert response.status_code == 200
    assert response["HX-Push-Url"] == url(second)
    assert "<html" not in page
    assert f'hx-target="#row-{first.pk}"' in page
    assert "Denied “Delete file-1.txt”" in page
    assert "Delete file-2.txt?" in page


def test_htmx_is_told_when_nothing_is_left(as_rita, interrupt):
    response = post(as_rita, interrupt, "deny", htmx=True, note="no")
    assert "Nothing is waiting for you" in response.content.decode()
    assert response["HX-Push-Url"] == reverse("inbox")


def test_htmx_gets_the_conflict_as_the_same_fragment(as_rita, ravi, interrupt):
    services.decide(
        interrupt.pk, ballot(interrupt, Verdict.DENY, note="no"), reviewer=ravi
    )
    response = post(as_rita, interrupt, "approve", htmx=True, confirmed="approve")
    page = response.content.decode()
    assert response.status_code == 409
    assert "<html" not in page
    assert 'role="alert"' in page
    assert "autofocus" in page


def test_an_error_page_for_htmx_is_a_short_fragment(eve, interrupt):
    response = signed_in(eve).get(url(interrupt), headers=HTMX)
    assert response.status_code == 404
    assert response.content.decode().startswith('<div class="note')


# Editing the arguments


def test_arguments_are_edited_on_the_way(as_rita, interrupt):
    page = as_rita.get(url(interrupt)).content.decode()
    assert "?edit=1" in page
    page = as_rita.get(url(interrupt), {"edit": "1"}).content.decode()
    assert 'name="argument-filename"' in page
    response = post(
        as_rita,
        interrupt,
        "approve",
        confirmed="approve",
        editing="1",
        **{"argument-filename": "other.txt"},
    )
    assert response.status_code == 302
    interrupt.refresh_from_db()
    assert interrupt.decision is not None
    assert interrupt.decision.arguments == '{"filename":"other.txt"}'
    page = as_rita.get(url(interrupt)).content.decode()
    assert "Changed by Rita Okafor" in page
    assert "<ins>other</ins>" in page


def test_sending_the_arguments_back_unchanged_is_no_edit(as_rita, interrupt):
    typed = {"argument-filename": "file-1.txt"}
    post(as_rita, interrupt, "approve", confirmed="approve", editing="1", **typed)
    interrupt.refresh_from_db()
    assert interrupt.decision is not None
    assert interrupt.decision.arguments is None


def test_the_confirmation_keeps_the_edits(as_rita, interrupt):
    typed = {"argument-filename": "other.txt"}
    response = post(as_rita, interrupt, "approve", editing="1", **typed)
    page = response.content.decode()
    assert 'name="confirmed"' in page
    assert ">\nother.txt</textarea>" in page


def test_arguments_that_do_not_fit_are_refused(fin, make_interrupts):
    (found,) = make_interrupts([call("pay", amount=5, account="x")])
    client = signed_in(fin)
    typed = {"argument-amount": "much", "argument-account": "mine"}
    response = post(client, found, "approve", editing="1", **typed)
    page = response.content.decode()
    assert response.status_code == 422
    assert "Enter a number." in page
    assert ">\nmine</textarea>" in page
    found.refresh_from_db()
    assert found.is_open


def test_no_edits_where_several_must_agree(as_rita, interrupt):
    Policy.objects.filter(name="Destructive file tools").update(approvals_required=2)
    page = as_rita.get(url(interrupt), {"edit": "1"}).content.decode()
    assert "argument-filename" not in page


def test_an_edit_in_progress_is_not_drawn_over(as_rita, interrupt):
    row = f"{interrupt.pk}.open-0"
    page = updates(as_rita, row, open=str(interrupt.pk), seen="old", editing="1")
    assert 'hx-target="#detail"' not in page


# Undoing


def test_undo_takes_the_decision_back(as_rita, interrupt):
    Policy.objects.filter(name="Destructive file tools").update(undo_seconds=30)
    interrupt.policy["undo_seconds"] = 30
    interrupt.save()
    response = post(as_rita, interrupt, "deny", htmx=True, note="no")
    undo = reverse("undo", args=[interrupt.pk])
    assert undo in response.content.decode()
    response = as_rita.post(undo, headers=HTMX)
    assert response.status_code == 200
    assert response["HX-Push-Url"] == url(interrupt)
    interrupt.refresh_from_db()
    assert interrupt.is_open


def test_undo_that_comes_too_late_is_refused(as_rita, interrupt):
    post(as_rita, interrupt, "deny", note="no")
    undo = reverse("undo", args=[interrupt.pk])
    response = as_rita.post(undo, headers=HTMX)
    assert response.status_code == 409
    assert "over" in response.content.decode()
    assert as_rita.post(undo).status_code == 302


def test_others_cannot_undo(as_rita, ravi, interrupt):
    post(as_rita, interrupt, "deny", note="no")
    undo = reverse("undo", args=[interrupt.pk])
    assert signed_in(ravi).post(undo, headers=HTMX).status_code == 403


# Questions


@pytest.fixture
def question(make_run) -> Interrupt:
    run = make_run()
    claim = services.claim_run(run.pk, owner="worker")
    assert claim is not None
    schema = {
        "type": "object",
        "properties": {
            "chosen_time": {
                "oneOf": [
                    {
                        "const": "2026-11-30T10:00:00-08:00",
                        "title": "Tomorrow 10:00 AM",
                    },
                    {"const": "2026-11-30T14:00:00-08:00", "title": "Tomorrow 2:00 PM"},
                ]
            }
        },
        "required": ["chosen_time"],
    }
    draft = InterruptDraft(
        call=call("delete_file", filename="a"),
        kind=InterruptKind.QUESTION,
        response_schema=schema,
        message="When?",
        verdicts=(Verdict.ANSWER, Verdict.DENY),
    )
    services.open_interrupts(run.pk, attempt=claim.attempt, drafts=[draft])
    return run.interrupts.get()


def test_a_question_is_answered(as_rita, question):
    page = as_rita.get(url(question)).content.decode()
    assert "Tomorrow 10:00 AM" in page
    assert "checked" not in page.split('class="slots"')[1].split("</fieldset>")[0]
    response = post(as_rita, question, "answer", **{"answer-chosen_time": "1"})
    assert response.status_code == 302
    question.refresh_from_db()
    assert question.status == "answered"
    assert question.decision is not None
    assert question.decision.answer == '{"chosen_time":"2026-11-30T14:00:00-08:00"}'


def test_an_answer_without_a_choice_is_asked_for(as_rita, question):
    response = post(as_rita, question, "answer", note="hm")
    page = response.content.decode()
    assert response.status_code == 422
    assert "This field is required." in page
    assert ">hm</textarea>" in page


# What changed since


def updates(client: Client, *rows: str, **query: Any) -> str:
    response = client.get(reverse("inbox-updates"), {"row": rows, **query})
    assert response.status_code == 200
    return response.content.decode()


def test_arrivals_are_counted_and_move_nothing(as_rita, make_interrupts):
    first, second = make_interrupts(2)
    page = updates(as_rita, f"{first.pk}.open-0")
    assert 'data-n="1"' in page
    assert f'id="row-{second.pk}"' not in page
    assert f'id="row-{first.pk}"' not in page


def test_a_row_that_changed_is_drawn_in_its_place(as_rita, interrupt, ravi):
    services.decide(
        interrupt.pk, ballot(interrupt, Verdict.DENY, note="no"), reviewer=ravi
    )
    page = updates(
        as_rita, f"{interrupt.pk}.open-0", open=str(interrupt.pk), seen="old"
    )
    assert f'hx-target="#row-{interrupt.pk}"' in page
    assert 'hx-target="#detail" hx-swap="innerMorph"' in page
    assert "Ravi Nair denied this." in page


def test_a_row_that_is_gone_is_taken_away(as_rita, rita, interrupt):
    interrupt.review_groups.clear()
    page = updates(as_rita, f"{interrupt.pk}.open-0", open=str(interrupt.pk))
    assert f'hx-target="#row-{interrupt.pk}" hx-swap="delete"' in page
    assert "not here for you any more" in page


def test_an_empty_list_fills_by_itself(as_rita, interrupt):
    assert f'id="row-{interrupt.pk}"' in updates(as_rita)


def test_a_list_of_decided_ones_fills_by_itself_too(as_rita, rita, make_interrupts):
    first, second = make_interrupts(2)
    services.decide(first.pk, ballot(first, Verdict.DENY, note="no"), reviewer=rita)
    first.refresh_from_db()
    assert first.decided_at is not None
    page = updates(as_rita, f"{first.pk}.denied-{int(first.decided_at.timestamp())}")
    assert f'id="row-{second.pk}"' in page
    assert 'data-n="0"' in page
    assert "1 request waits for a person" in page


def test_nonsense_from_the_page_is_ignored(as_rita, interrupt):
    page = updates(as_rita, "nonsense", "", f"{uuid.uuid4()}.x", open="x", seen="y")
    assert "arrivals" in page


def test_new_rows_are_pulled_in_and_marked(as_rita, make_interrupts):
    first, second = make_interrupts(2)
    response = as_rita.get(reverse("inbox-rows"), {"row": f"{first.pk}.open-0"})
    page = response.content.decode()
    assert page.count("is-new") == 1
    assert f'id="row-{second.pk}"' in page


def test_updates_are_for_people_with_an_inbox(eve):
    for name in ("inbox-updates", "inbox-rows"):
        assert signed_in(eve).get(reverse(name)).status_code == 404


# Cards in conversations


def test_the_card_decides_too(as_rita, interrupt):
    card = reverse("card", args=[interrupt.pk])
    assert 'name="place" value="card"' in as_rita.get(card).content.decode()
    response = post(as_rita, interrupt, "deny", htmx=True, note="no", place="card")
    assert response.status_code == 200
    assert f'id="card-{interrupt.pk}"' in response.content.decode()
    interrupt.refresh_from_db()
    assert interrupt.decision is not None
    assert interrupt.decision.channel == "chat"


def test_who_asked_sees_the_card_and_who_is_waited_for(mia, interrupt):
    page = signed_in(mia).get(reverse("card", args=[interrupt.pk])).content.decode()
    assert f"Waiting for {OPS}" in page
    assert 'name="verdict"' not in page


def test_the_card_of_a_stranger_does_not_exist(eve, interrupt):
    client = signed_in(eve)
    assert client.get(reverse("card", args=[interrupt.pk])).status_code == 404
    response = post(client, interrupt, "deny", note="no", place="card")
    assert response.status_code == 404


def test_many_rows_cost_few_queries(
    as_rita, make_interrupts, django_assert_max_num_queries
):
    make_interrupts(30)
    with django_assert_max_num_queries(14):
        as_rita.get(reverse("inbox"))


def test_the_agent_is_named(as_rita, interrupt):
    assert AGENT in as_rita.get(url(interrupt)).content.decode()


def test_a_forged_post_is_refused(rita, interrupt):
    client = Client(enforce_csrf_checks=True)
    client.force_login(rita)
    response = post(client, interrupt, "deny", htmx=True, note="no")
    assert response.status_code == 403
    assert response["HX-Reswap"] == "none"
    assert "too old to send from" in response["HX-Trigger"]
    assert "<html" not in response.content.decode()
    response = post(client, interrupt, "deny", note="no")
    assert "<html" in response.content.decode()
    interrupt.refresh_from_db()
    assert interrupt.is_open


@pytest.mark.parametrize(
    ("field", "typed"),
    [("n", "1e400"), ("o", '"\\u0000"'), ("o", '"\\ud800"'), ("o", '{"a":1e999}')],
)
def test_edits_that_no_record_can_hold_are_told_at_the_form(
    as_rita, make_interrupts, field, typed
):
    parameters = {"type": "object", "properties": {"n": {"type": "number"}, "o": {}}}
    odd = ToolSpec(name="delete_odd", parameters=parameters)
    services.register_tools(AGENT, [*TOOLS, odd])
    (found,) = make_interrupts([call("delete_odd", n=1, o={})])
    given = {"argument-n": "1", "argument-o": "{}", f"argument-{field}": typed}
    response = post(as_rita, found, "approve", editing="1", **given)
    assert response.status_code == 422
    found.refresh_from_db()
    assert found.is_open


def test_b53_nothing_hides_in_the_words_of_a_form_or_a_toast(as_rita, make_run):
    odd = "pay\u202e\u200b"
    schema = {
        "type": "object",
        "properties": {"who": {"type": "string", "title": odd, "description": odd}},
    }
    run = make_run()
    claim = services.claim_run(run.pk, owner="worker")
    assert claim is not None
    draft = InterruptDraft(
        call=call(filename=odd), response_schema=schema, verdicts=tuple(Verdict)
    )
    services.open_interrupts(run.pk, attempt=claim.attempt, drafts=[draft])
    found = run.interrupts.get()
    page = as_rita.get(url(found)).content.decode()
    form = page[page.index('name="answer-who"') - 500 :]
    toast = post(as_rita, found, "deny", htmx=True, note="No.").content.decode()
    toast = toast[toast.index("toast-x") :]
    for text in (form, toast):
        assert "\u202e" not in text
        assert "\u200b" not in text
