"""The inbox in a browser without and with htmx: who sees what, deciding, losing a race."""

from __future__ import annotations

import json
import re
import uuid
from datetime import UTC, datetime, timedelta
from html import unescape
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from approvals import permissions, services
from approvals.cases import Case
from approvals.models import AuditEntry, Decision, Interrupt, Policy
from approvals.schemas import InterruptDraft, ToolSpec
from approvals.states import InterruptKind, Verdict
from approvals.templatetags.approvals_tags import icon
from tests.plugins.cast import AGENT, FINANCE, OPS, TOOLS, ballot, call

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
    page = signed_in(fin).get(url(found), {"edit": "1"}).content.decode()
    assert "hunter2" not in page
    assert "hidden, 7 characters" in page
    assert "So this cannot be changed here and stays as it is." in page
    assert 'name="argument-account"' in page
    assert 'name="argument-pin"' not in page
    edits = {"editing": "1", "argument-amount": "6", "argument-account": "x"}
    post(signed_in(fin), found, "approve", confirmed="approve", **edits)
    found.refresh_from_db()
    assert found.decision is not None
    assert json.loads(found.decision.arguments or "") == {
        "amount": 6,
        "account": "x",
        "pin": "hunter2",
    }


@pytest.mark.parametrize("name", ["decide", "undo"])
def test_only_posts_change_anything(name, as_rita, interrupt):
    assert as_rita.get(reverse(name, args=[interrupt.pk])).status_code == 405


# Deciding without JavaScript


@pytest.mark.parametrize("htmx", [False, True])
@pytest.mark.parametrize("place", ["inbox", "card"])
def test_m3_cancelling_a_call_asks_once_more(as_rita, interrupt, htmx, place):
    said = {"note": "Wrong file.", "place": place}
    response = post(as_rita, interrupt, "cancel_call", htmx=htmx, **said)
    page = response.content.decode()
    assert response.status_code == 200
    assert ">Wrong file.</textarea>" in page
    if place == "inbox":
        dialog = page[page.index('id="cancel-call"') :]
        assert dialog.startswith(
            'id="cancel-call" aria-labelledby="cancel-call-title" open>'
        )
    interrupt.refresh_from_db()
    assert interrupt.is_open
    post(as_rita, interrupt, "", confirmed="cancel_call", htmx=htmx, **said)
    interrupt.refresh_from_db()
    assert interrupt.status == "cancelled"
    assert interrupt.decision is not None
    assert interrupt.decision.note == "Wrong file."


def test_m3_the_menu_leads_to_that_question_without_javascript(as_rita, interrupt):
    """And no button of the menu sends the form of the decision by an Enter in a field."""
    page = as_rita.get(url(interrupt)).content.decode()
    menu = page[page.index('id="more"') : page.index('id="detail-title"')]
    assert f'href="{url(interrupt)}?cancel"' in menu
    assert "form=" not in menu
    asked = as_rita.get(url(interrupt), {"cancel": ""}).content.decode()
    assert 'id="cancel-call" aria-labelledby="cancel-call-title" open>' in asked
    assert 'id="cancel-call" aria-labelledby="cancel-call-title">' in page
    interrupt.refresh_from_db()
    assert interrupt.is_open


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


def test_the_next_one_is_the_oldest_that_waits_for_this_person(
    as_rita, ada, make_interrupts
):
    wanted = [
        call("pay", call_id="money", amount=1, account="x"),
        *(call(call_id=name, filename=name) for name in "nopq"),
    ]
    made = make_interrupts(wanted)
    past = timezone.now() - timedelta(seconds=9)
    for number, each in enumerate(made):
        Interrupt.objects.filter(pk=each.pk).update(
            created=past + timedelta(seconds=number)
        )
    money, first, late, second, third = made
    Interrupt.objects.filter(pk=late.pk).update(expires_at=past)
    assert post(as_rita, first, "deny", note="no")["Location"] == url(second)
    # An administrator's inbox has everything.
    assert post(signed_in(ada), second, "deny", note="no")["Location"] == url(money)
    post(signed_in(ada), money, "deny", note="no")
    assert post(as_rita, third, "deny", note="no")["Location"] == url(third)


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


@pytest.mark.parametrize("verdict", ["", "cancel_run", "respond", "nonsense"])
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
    assert "Ravi Nair (ravi) denied this" in page
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
    assert "Ravi Nair (ravi) denied this." in page


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


def test_how_many_wait_follows_where_nothing_is_open(as_rita, make_interrupts):
    first, second = (f"{each.pk}.open-0" for each in make_interrupts(2))
    assert 'name="waiting" value="2"' in as_rita.get(reverse("inbox")).content.decode()
    page = updates(as_rita, first, waiting="1")
    assert "2 requests wait for a person" in page
    assert f'id="row-{second[:36]}"' not in page
    assert "wait for a person" not in updates(as_rita, first, second, waiting="2")
    # Another page stands there: a request, or that it was withdrawn.
    for query in ({"waiting": "1", "open": first[:36]}, {}):
        assert "wait for a person" not in updates(as_rita, first, **query)


def test_the_count_of_new_ones_points_to_where_they_appear(as_rita, make_interrupts):
    first, second, third = make_interrupts(3)
    row = f"{first.pk}.open-0"

    def arrow(**query):
        found = re.search(r'id="arrivals".*?</button>', updates(as_rita, row, **query))
        assert found
        return next(
            name
            for name in ("arrow-up", "arrow-down", "plus")
            if str(icon(name)) in found[0]
        )

    assert arrow() == "arrow-down"
    soon = timezone.now() + timedelta(minutes=5)
    Interrupt.objects.filter(pk=second.pk).update(expires_at=soon)
    assert arrow() == "plus"
    Interrupt.objects.filter(pk=third.pk).update(expires_at=soon)
    assert arrow() == "arrow-up"
    # There all are urgent, in the order of their ends.
    assert arrow(view="soon") == "plus"


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


def test_rows_of_equal_titles_say_who_asked(
    as_rita, make_run, make_interrupts, make_person
):
    def asked(**fields):
        return make_interrupts([call(filename="a.txt")], run=make_run(**fields))[0]

    def rows(text):
        meta = re.findall(r'<span class="row-meta">.*?</span></span>', text)
        named = [re.search("for <bdi>(.*?)</bdi>", each) for each in meta]
        return [found and found[1] for found in named]

    def whole_page():
        with CaptureQueriesContext(connection) as seen:
            text = as_rita.get(reverse("inbox")).content.decode()
        return rows(text), len(seen)

    first = asked()
    asked(requester=make_person("ann", first_name="Ann", last_name="Lee"))
    _, few = whole_page()
    for number in range(3):
        asked(requester=make_person(f"one{number}"))
    asked(requester=None, on_behalf_of="build 7")
    last = asked(requester=None)
    listed, many = whole_page()
    assert listed == ["mia", "Ann Lee (ann)", "one0", "one1", "one2", "build 7", None]
    assert many == few

    # Also in rows that come later or are drawn again.
    shown = {"row": f"{last.pk}.open-0"}
    arrived = as_rita.get(reverse("inbox-rows"), shown).content.decode()
    assert rows(arrived) == listed
    again = updates(as_rita, f"{first.pk}.other", f"{last.pk}.open-0")
    assert rows(again) == ["mia"]


def test_titles_of_many_changed_calls_cost_one_query(rita, as_rita, make_interrupts):
    def queries():
        with CaptureQueriesContext(connection) as seen:
            as_rita.get(reverse("inbox"))
        return len(seen)

    asked = make_interrupts(6)
    for number, interrupt in enumerate(asked):
        edit = {"filename": f"changed-{number}.txt"} if number else None
        services.decide(interrupt.pk, ballot(interrupt, arguments=edit), reviewer=rita)
    page = as_rita.get(reverse("inbox")).content.decode()
    assert [page.count(f"Delete changed-{number}.txt<") for number in range(6)] == [
        0,
        1,
        1,
        1,
        1,
        1,
    ]
    many = queries()
    Decision.objects.exclude(interrupt__in=asked[:2]).update(arguments=None)
    assert queries() == many


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


def described(page: str, name: str) -> str:
    """The text of all that a field is described by."""
    field = re.search(rf'<(?:input|textarea)[^>]*name="{name}"[^>]*>', page)
    assert field is not None
    ids = re.search(r'aria-describedby="([^"]+)"', field[0])
    assert ids is not None
    assert 'aria-invalid="true"' in field[0]
    assert " autofocus" in field[0]
    parts = [
        re.search(rf'<div[^>]* id="{id}">(.*?)</div>', page) for id in ids[1].split()
    ]
    return " ".join(part[1] for part in parts if part is not None)


@pytest.mark.parametrize("place", ["inbox", "card"])
def test_b42_a_wrong_answer_is_told_in_words_at_its_field(as_rita, make_run, place):
    code = {"type": "string", "pattern": "^[A-Z]{3}$", "description": "Three capitals."}
    schema = {"type": "object", "properties": {"code": code}, "required": ["code"]}
    run = make_run()
    claim = services.claim_run(run.pk, owner="worker")
    assert claim is not None
    draft = InterruptDraft(call=call(), response_schema=schema, verdicts=tuple(Verdict))
    services.open_interrupts(run.pk, attempt=claim.attempt, drafts=[draft])
    found = run.interrupts.get()
    wrong = {"answer-code": "abc", "confirmed": "approve", "place": place}
    response = post(as_rita, found, "approve", htmx=True, **wrong)
    page = unescape(response.content.decode())
    assert response.status_code == 422
    assert "^[A-Z]" not in page
    told = described(page, "answer-code")
    assert "Three capitals." in told
    assert "“abc” does not have the form that is asked for" in told


def test_b42_a_wrong_argument_is_told_in_words_at_its_field(as_rita, make_interrupts):
    code = {"type": "string", "pattern": "^[A-Z]{3}$"}
    spec = ToolSpec(
        name="delete_odd", parameters={"type": "object", "properties": {"code": code}}
    )
    services.register_tools(AGENT, [*TOOLS, spec])
    (found,) = make_interrupts([call("delete_odd", code="ABC")])
    wrong = {"argument-code": "abc", "editing": "1"}
    response = post(as_rita, found, "approve", htmx=True, **wrong)
    page = unescape(response.content.decode())
    assert response.status_code == 422
    told = described(page, "argument-code")
    assert "“abc” does not have the form that is asked for." in told
    assert "'abc' does not match" not in page
    assert "Some arguments cannot be used." in page


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


# Who was meant, and where one comes back to


def test_b114_who_was_signed_out_comes_back_to_the_request_and_nothing_was_sent(
    rita, interrupt
):
    """The page that the form was on is shown again, not the address it was sent to."""
    client = Client()
    sent = {"confirmed": "approve", "shown": services.shown_digest(interrupt)}
    here = f"http://testserver{url(interrupt)}?q=file"
    decide = reverse("decide", args=[interrupt.pk])
    response = client.post(decide, sent, headers={"Referer": here})
    who = {"username": rita.username, "password": "secret-for-tests"}
    page = client.post(response["Location"], who, follow=True)
    assert page.redirect_chain == [(f"{url(interrupt)}?q=file", 302)]
    text = page.content.decode()
    assert "You were signed out, so nothing was sent." in text
    assert 'name="verdict" value="approve"' in text
    interrupt.refresh_from_db()
    assert interrupt.is_open
    assert not interrupt.votes.exists()


@pytest.mark.parametrize("elsewhere", ["", "https://evil.example/inbox/"])
def test_b114_a_form_of_no_known_page_leads_to_the_start_page(interrupt, elsewhere):
    decide = reverse("decide", args=[interrupt.pk])
    response = Client().post(decide, {}, headers={"Referer": elsewhere})
    assert response["Location"] == f"{reverse('login')}?next={reverse('home')}"


def test_b82_a_form_cannot_name_who_decides(
    as_rita, rita, ravi, fin, mia, make_run, make_interrupts
):
    mine, hers = (
        make_interrupts(1, run=make_run(requester=who))[0] for who in (fin, mia)
    )
    claims = dict.fromkeys(("reviewer", "user", "decided_by", "actor"), str(ravi.pk))
    for found in (mine, hers):
        post(as_rita, found, "deny", note="no", **claims)
        found.refresh_from_db()
        assert found.decision is not None
        assert found.decision.reviewer == rita
        entry = AuditEntry.objects.get(interrupt=found.pk, action="interrupt.denied")
        assert entry.actor == "rita"
    for found, who in ((mine, "fin"), (hers, "mia")):
        assert f"for <bdi>{who}</bdi>" in as_rita.get(url(found)).content.decode()


def test_b79_an_id_that_was_never_issued_is_not_found(as_rita, interrupt):
    sent = {"confirmed": "approve", "shown": services.shown_digest(interrupt)}
    response = as_rita.post(reverse("decide", args=[uuid.uuid4()]), sent)
    assert response.status_code == 404
    interrupt.refresh_from_db()
    assert interrupt.is_open


def test_b118_a_form_of_another_site_is_refused_with_a_token_too(rita, interrupt):
    client = Client(enforce_csrf_checks=True)
    client.force_login(rita)
    token = client.get(url(interrupt)).context["csrf_token"]
    given = {"note": "no", "csrfmiddlewaretoken": str(token)}
    for origin in ("null", "http://evil.example", "http://testserver:8001"):
        client.defaults["HTTP_ORIGIN"] = origin
        assert post(client, interrupt, "deny", **given).status_code == 403
    interrupt.refresh_from_db()
    assert interrupt.is_open
    client.defaults["HTTP_ORIGIN"] = "http://testserver"
    assert post(client, interrupt, "deny", **given).status_code == 302


# Late


def test_b65_a_late_denial_is_kept_as_an_attempt(as_rita, interrupt):
    """The rule: the deadline stands, and that somebody said no afterwards is recorded."""
    shown = services.shown_digest(interrupt)
    late = timezone.now() - timedelta(seconds=1)
    Interrupt.objects.filter(pk=interrupt.pk).update(expires_at=late)
    assert post(as_rita, interrupt, "deny", note="no", shown=shown).status_code == 409
    interrupt.refresh_from_db()
    assert interrupt.status == "expired"
    expired, refused = AuditEntry.objects.order_by("number")[
        AuditEntry.objects.count() - 2 :
    ]
    assert (expired.action, expired.actor) == ("interrupt.expired", "system:sweeper")
    assert (refused.action, refused.actor) == ("decision.refused", "rita")
    assert json.loads(refused.payload)["verdict"] == "deny"


@pytest.mark.parametrize("then", ["deny", "cancel_run"])
def test_b167_what_is_past_its_deadline_looks_so_before_any_sweep(
    as_rita, make_interrupts, then
):
    Policy.objects.filter(name="Destructive file tools").update(
        deadline_seconds=60, on_deadline=then
    )
    (found,) = make_interrupts(1)
    shown = services.shown_digest(found)
    past = timezone.now() - timedelta(seconds=1)
    Interrupt.objects.filter(pk=found.pk).update(expires_at=past)
    page = as_rita.get(url(found)).content.decode()
    listed, detail = page.split('id="detail"')
    for part in (listed, detail):
        assert "Expired" in part
        assert "Pending" not in part
    assert page.count(f'id="row-{found.pk}"') == 1
    assert '<span class="count" id="count">0 pending</span>' in page
    assert 'name="verdict"' not in page
    response = post(as_rita, found, "approve", confirmed="approve", shown=shown)
    assert response.status_code == 409
    assert "Expired before your decision arrived" in response.content.decode()
    run = reverse("run", args=[found.run_id])
    assert "Expired" in as_rita.get(run).content.decode()


# The same words and numbers everywhere


STATES = ("approved", "denied", "answered", "cancelled", "expired")


def test_b163_a_state_has_the_same_word_on_every_page(
    as_rita, ada, rita, make_interrupts
):
    asked = dict(zip(STATES, make_interrupts(5), strict=True))
    verdicts = {
        "approved": (Verdict.APPROVE, {}),
        "denied": (Verdict.DENY, {"note": "no"}),
        "answered": (Verdict.RESPOND, {"output": "gone"}),
        "cancelled": (Verdict.CANCEL_CALL, {}),
    }
    for state, (verdict, how) in verdicts.items():
        services.decide(
            asked[state].pk, ballot(asked[state], verdict, **how), reviewer=rita
        )
    late = timezone.now() - timedelta(seconds=1)
    Interrupt.objects.filter(pk=asked["expired"].pk).update(expires_at=late)
    services.expire_due(timezone.now())

    listed = as_rita.get(reverse("inbox")).content.decode()
    run = as_rita.get(reverse("run", args=[asked["denied"].run_id])).content.decode()
    for state, found in asked.items():
        word = f"</svg>{state.title()}</span>"
        row = listed.split(f'id="row-{found.pk}"')[1].split("</li>")[0]
        assert word in row
        detail = as_rita.get(url(found), headers=HTMX).content.decode()
        assert word in detail
        assert f">{state.title()}<" in run
        record = signed_in(ada).get(
            reverse("admin:approvals_interrupt_change", args=[found.pk])
        )
        assert state.title() in record.content.decode()


def test_b127_badge_and_list_agree_for_everybody(
    make_run, make_interrupts, rita, ravi, fin, owen, aud, ada, question
):
    for framework in ("LangGraph", "Genkit", "OpenAI Agents SDK"):
        make_interrupts(2, run=make_run(framework=framework))
    make_interrupts([call("pay", amount=5, account="x")])
    for person in (rita, ravi, fin, owen, aud, ada):
        open_ones = permissions.visible_interrupts(person).open()
        page = signed_in(person).get(reverse("inbox"))
        rows = [row.interrupt.pk for row in page.context["listing"].open_rows]
        assert sorted(rows) == sorted(open_ones.values_list("pk", flat=True))
        (badge,) = [e["count"] for e in page.context["nav"] if e["key"] == "inbox"]
        assert badge == str(len(rows) or "")
        chips = {chip["key"]: chip["n"] for chip in page.context["chips"]}
        assert chips["all"] == len(rows)
        narrow = signed_in(person).get(reverse("inbox"), {"view": "high"})
        assert chips["high"] == len(narrow.context["listing"].open_rows)
    assert {row.tool for row in Interrupt.objects.open()} == {"delete_file", "pay"}


def test_b150_tools_of_one_name_belong_to_their_agents(
    as_rita, fin, make_run, make_interrupts
):
    services.register_tools("archivist", TOOLS)
    policy = Policy.objects.create(
        position=1, name="Archive", agent_pattern="archivist", tool_pattern="delete_*"
    )
    policy.groups.add(services.make_group(FINANCE))
    (clerks,) = make_interrupts(1)
    (archivists,) = make_interrupts(1, run=make_run(agent="archivist"))
    page = as_rita.get(url(clerks)).content.decode()
    assert "<bdi>clerk</bdi>" in page
    assert ">delete_file<" in page
    assert as_rita.get(url(archivists)).status_code == 404
    as_fin = signed_in(fin)
    assert "<bdi>archivist</bdi>" in as_fin.get(url(archivists)).content.decode()
    post(as_fin, archivists, "deny", note="no")
    for found, status in ((clerks, "open"), (archivists, "denied")):
        found.refresh_from_db()
        assert found.status == status


# What the page shows is what runs


BIG = 2512292042121000001


def test_b45_every_digit_of_a_large_number_is_on_every_page(
    fin, ada, aud, make_interrupts
):
    (found,) = make_interrupts([call("pay", amount=BIG, account="7")])
    client = signed_in(fin)
    pages = {
        "list and request": url(found),
        "card": reverse("card", args=[found.pk]),
        "updates": reverse("inbox-updates"),
        "editing": f"{url(found)}?edit=1",
        "run": reverse("run", args=[found.run_id]),
    }
    for name, address in pages.items():
        assert str(BIG) in client.get(address).content.decode(), name
    post(client, found, "approve", confirmed="approve")
    as_aud = signed_in(aud)
    entry = AuditEntry.objects.get(action="interrupt.opened")
    assert (
        str(BIG)
        in as_aud.get(reverse("audit-entry", args=[entry.number])).content.decode()
    )
    exported = b"".join(as_aud.get(reverse("audit-export")).streaming_content)
    assert str(BIG) in exported.decode()
    record = reverse("admin:approvals_interrupt_change", args=[found.pk])
    assert str(BIG) in signed_in(ada).get(record).content.decode()


ODD_ADDRESS = "https://pa\u0443pal.com/\u202egnp.exe\u200b"


def test_b53_what_hides_in_arguments_is_shown_and_runs_as_it_is(
    as_rita, make_interrupts
):
    (found,) = make_interrupts([call(filename=ODD_ADDRESS)])
    page = as_rita.get(url(found)).content.decode().split("<body")[1]
    for char in ("\u202e", "\u200b"):
        assert char not in page
        assert f"\u27e6U+{ord(char):04X}\u27e7" in page
    assert "2 characters that cannot be seen" in page
    assert "look-alike" in page
    # What is copied is the value itself, its odd characters written as JSON has them.
    raw = unescape(page.split('id="raw-text" dir="ltr">')[1].split("</code>")[0])
    assert json.loads(raw) == {"filename": ODD_ADDRESS}
    post(as_rita, found, "approve", confirmed="approve")
    claim = services.claim_run(found.run_id, owner="w")
    permit = services.begin_execution(
        found.run_id,
        attempt=claim.attempt,
        call=call(filename=ODD_ADDRESS),
        owner="w",
    )
    assert permit.arguments == {"filename": ODD_ADDRESS}


def test_b57_an_argument_of_five_megabytes_is_cut_and_kept_whole(
    as_rita, make_interrupts
):
    huge = "x" * 5_000_000 + "END"
    (found,) = make_interrupts([call(filename=huge)])
    assert len(as_rita.get(reverse("inbox")).content) < 100_000
    page = as_rita.get(url(found)).content.decode()
    shown = page.split("<summary>Show all</summary>")[0]
    assert len(shown) < 100_000
    assert "5,000,003 characters" in shown
    assert "END" in page
    post(as_rita, found, "approve", confirmed="approve")
    claim = services.claim_run(found.run_id, owner="w")
    permit = services.begin_execution(
        found.run_id, attempt=claim.attempt, call=call(filename=huge), owner="w"
    )
    assert permit.arguments["filename"] == huge


def test_b69_deadlines_around_the_change_of_the_clocks(
    as_rita, make_interrupts, settings
):
    """Two instants an hour apart have the same wall time; the zone tells them apart."""
    settings.TIME_ZONE = "Europe/Berlin"
    change = datetime(2030, 10, 27, 1, 0, tzinfo=UTC)
    before, after = make_interrupts(2)
    for found, until in (
        (before, change - timedelta(minutes=30)),
        (after, change + timedelta(minutes=30)),
    ):
        Interrupt.objects.filter(pk=found.pk).update(expires_at=until)
    for found, zone in ((before, "CEST"), (after, "CET")):
        page = as_rita.get(url(found)).content.decode()
        assert f"27 Oct 2030, 02:30:00 {zone}" in page


def test_b38_one_nested_field_is_edited_and_the_rest_stays_exact(
    as_rita, make_interrupts, aud
):
    parameters = {
        "type": "object",
        "properties": {
            "mail": {
                "type": "object",
                "properties": {"to": {"type": "string"}, "cc": {}},
            },
            "reply_to": {"type": ["string", "null"]},
            "priority": {"type": "integer"},
        },
        "required": ["mail"],
    }
    odd = ToolSpec(name="delete_mail", parameters=parameters)
    services.register_tools(AGENT, [*TOOLS, odd])
    before = {"mail": {"to": "a@x.example", "cc": None}, "reply_to": None}
    (found,) = make_interrupts([call("delete_mail", **before)])
    fields = as_rita.get(url(found), {"edit": "1"}).context["edit_form"]
    typed = {f"argument-{field.name}": field.initial or "" for field in fields}
    edited = {"to": "b@x.example", "cc": None}
    typed["argument-mail"] = json.dumps(edited)
    post(as_rita, found, "approve", confirmed="approve", editing="1", **typed)
    claim = services.claim_run(found.run_id, owner="w")
    permit = services.begin_execution(
        found.run_id,
        attempt=claim.attempt,
        call=call("delete_mail", **before),
        owner="w",
    )
    assert permit.arguments == {**before, "mail": edited}
    page = as_rita.get(url(found)).content.decode()
    assert "Changed by Rita Okafor" in page
    assert "<del>a</del><ins>b</ins>" in page
    entry = AuditEntry.objects.get(action="interrupt.approved")
    payload = json.loads(entry.payload)
    assert (entry.actor, payload["edited"]) == ("rita", True)
    assert payload["arguments_digest"] != payload["effective_digest"]
