"""The pages of runs: what happened, and what a person may do about it."""

from __future__ import annotations

import json

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from approvals import services
from approvals.models import Run, ToolExecution
from approvals.states import ExecutionStatus, RunStatus, Verdict
from tests.plugins.cast import ballot

HTMX = {"HX-Request": "true"}


def signed_in(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


def url(run: Run) -> str:
    return reverse("run", args=[run.pk])


@pytest.fixture
def failed(make_run) -> Run:
    run = make_run()
    claim = services.claim_run(run.pk, owner="worker")
    assert claim is not None
    return services.fail_run(
        run.pk, attempt=claim.attempt, error="The model did not answer.", retryable=True
    )


@pytest.fixture
def doubtful(interrupt, rita) -> ToolExecution:
    """A tool call whose worker died inside it."""
    services.decide(interrupt.pk, ballot(interrupt), reviewer=rita)
    claim = services.claim_run(interrupt.run_id, owner="elsewhere:1:1")
    assert claim is not None
    services.begin_execution(
        interrupt.run_id,
        attempt=claim.attempt,
        call=claim.answers[0].call,
        owner="elsewhere:1:1",
    )
    services.release_run(interrupt.run_id, attempt=claim.attempt)
    assert services.claim_run(interrupt.run_id, owner="worker") is None
    return ToolExecution.objects.get(interrupt=interrupt)


def test_the_list_shows_runs_one_may_see(rita, mia, eve, interrupt):
    for who in (rita, mia):
        assert (
            url(interrupt.run) in signed_in(who).get(reverse("runs")).content.decode()
        )
    assert (
        url(interrupt.run) not in signed_in(eve).get(reverse("runs")).content.decode()
    )


def test_the_list_filters_and_pages(mia, make_run, monkeypatch):
    monkeypatch.setattr("approvals.views.runs.PAGE", 2)
    made = [make_run(title=f"run {n}") for n in range(5)]
    client = signed_in(mia)
    seen: list[str] = []
    query = ""
    for _ in range(3):
        page = client.get(reverse("runs") + query)
        seen += [item["run"].title for item in page.context["runs"]]
        query = f"?before={page.context['before']}".replace("+", "%2B")
    assert seen == [f"run {n}" for n in reversed(range(len(made)))]
    page = client.get(reverse("runs"), {"status": "finished"}).content.decode()
    assert "No run is in this state." in page
    assert (
        client.get(reverse("runs"), {"before": "nonsense", "status": "x"}).status_code
        == 200
    )


def test_a_run_tells_its_story(rita, interrupt):
    page = signed_in(rita).get(url(interrupt.run)).content.decode()
    assert ">Asked " in page
    assert reverse("interrupt", args=[interrupt.pk]) in page
    fragment = signed_in(rita).get(url(interrupt.run), headers=HTMX).content.decode()
    assert "<html" not in fragment
    assert 'id="run"' in fragment


def test_who_asked_sees_the_run_without_a_way_into_the_inbox(mia, interrupt):
    page = signed_in(mia).get(url(interrupt.run)).content.decode()
    assert "Delete file-1.txt" in page
    assert reverse("interrupt", args=[interrupt.pk]) not in page


def test_strangers_see_no_run(eve, interrupt):
    client = signed_in(eve)
    assert client.get(url(interrupt.run)).status_code == 404
    for name in ("cancel-run", "retry-run"):
        assert client.post(reverse(name, args=[interrupt.run_id])).status_code == 404


# Cancelling and retrying


def test_cancelling_asks_once_more(rita, interrupt):
    client = signed_in(rita)
    cancel = reverse("cancel-run", args=[interrupt.run_id])
    assert "Cancel the run?" in client.get(cancel).content.decode()
    assert Run.objects.get(pk=interrupt.run_id).status == RunStatus.WAITING
    response = client.post(cancel, {"note": "stop", "next": reverse("inbox")})
    assert response["Location"] == reverse("inbox")
    interrupt.refresh_from_db()
    assert interrupt.status == "cancelled"
    assert client.post(cancel).status_code == 409


def test_cancelling_does_not_lead_away(rita, interrupt):
    cancel = reverse("cancel-run", args=[interrupt.run_id])
    response = signed_in(rita).post(cancel, {"next": "https://evil.example/"})
    assert response["Location"] == url(interrupt.run)


def test_watchers_cannot_cancel(owen, interrupt):
    cancel = reverse("cancel-run", args=[interrupt.run_id])
    assert signed_in(owen).post(cancel).status_code == 404


def test_a_failed_run_is_retried(mia, failed):
    client = signed_in(mia)
    page = client.get(url(failed)).content.decode()
    assert "The model did not answer." in page
    retry = reverse("retry-run", args=[failed.pk])
    assert retry in page
    assert client.get(retry).status_code == 405
    assert client.post(retry).status_code == 302
    failed.refresh_from_db()
    assert failed.status == RunStatus.QUEUED
    response = client.post(retry, headers=HTMX)
    assert response.status_code == 409
    assert "Only a failed run can be retried." in response.content.decode()


def test_a_watcher_cannot_retry(owen, failed):
    client = signed_in(owen)
    retry = reverse("retry-run", args=[failed.pk])
    assert retry not in client.get(url(failed)).content.decode()
    assert client.post(retry).status_code == 403


# Unknown outcomes


def test_an_unknown_outcome_is_settled(rita, doubtful):
    client = signed_in(rita)
    page = client.get(url(doubtful.run)).content.decode()
    assert "Did delete_file run?" in page
    settle = reverse("settle", args=[doubtful.pk])
    assert client.get(settle).status_code == 405
    response = client.post(settle, {"settlement": "ran", "note": "", "result": ""})
    assert response.status_code == 422
    assert "Say how you found out." in response.content.decode()
    response = client.post(settle, {"note": "looked"})
    assert response.status_code == 422
    assert "Choose what you found." in response.content.decode()
    response = client.post(settle, {"settlement": "ran", "note": "The file is gone."})
    assert response.status_code == 302
    doubtful.refresh_from_db()
    assert doubtful.status == ExecutionStatus.DONE
    response = client.post(settle, {"settlement": "ran", "note": "again"}, headers=HTMX)
    assert response.status_code == 409


def test_running_it_again_needs_a_dead_worker(rita, doubtful):
    settle = reverse("settle", args=[doubtful.pk])
    response = signed_in(rita).post(settle, {"settlement": "run_again", "note": "safe"})
    assert response.status_code == 409
    assert ">safe</textarea>" in response.content.decode()


def test_a_watcher_sees_the_doubt_and_cannot_settle(owen, eve, doubtful):
    page = signed_in(owen).get(url(doubtful.run)).content.decode()
    assert "Somebody with the permission" in page
    settle = reverse("settle", args=[doubtful.pk])
    data = {"settlement": "ran", "note": "x"}
    assert signed_in(owen).post(settle, data).status_code == 403
    assert signed_in(eve).post(settle, data).status_code == 404


def test_secrets_of_tool_calls_are_hidden(fin, make_interrupts):
    from tests.plugins.cast import call

    (found,) = make_interrupts([call("pay", amount=5, account="x", pin="hunter2")])
    services.decide(found.pk, ballot(found), reviewer=fin)
    claim = services.claim_run(found.run_id, owner="worker")
    assert claim is not None
    services.begin_execution(
        found.run_id, attempt=claim.attempt, call=claim.answers[0].call, owner="worker"
    )
    page = signed_in(fin).get(url(found.run)).content.decode()
    assert "hidden, 7 characters" in page
    assert "hunter2" not in page


def test_a_decided_request_tells_how_far_it_came(rita, interrupt):
    services.decide(
        interrupt.pk, ballot(interrupt, Verdict.DENY, note="no"), reviewer=rita
    )
    page = signed_in(rita).get(url(interrupt.run)).content.decode()
    assert "Rita Okafor (rita) denied this. Sending." in page


def approved_and_run(interrupt, reviewer, result, *, failed=False):
    services.decide(interrupt.pk, ballot(interrupt), reviewer=reviewer)
    claim = services.claim_run(interrupt.run_id, owner="worker")
    assert claim is not None
    permit = services.begin_execution(
        interrupt.run_id,
        attempt=claim.attempt,
        call=claim.answers[0].call,
        owner="worker",
    )
    assert isinstance(permit, services.Permit)
    services.finish_execution(permit, result=result, failed=failed)


def test_a_call_that_failed_leads_to_what_came_of_it(rita, interrupt):
    approved_and_run(interrupt, rita, "Error: no such file", failed=True)
    page = signed_in(rita).get(reverse("interrupt", args=[interrupt.pk]))
    text = page.content.decode()
    assert '<div class="note note-warn mb-3">' in text
    assert "It did not succeed." in text
    assert "See what came of it" in text


def test_json_text_of_a_result_is_shown_as_text(rita, interrupt):
    result = json.dumps({"html": "<b>", "at": str(timezone.now())})
    approved_and_run(interrupt, rita, result)
    page = signed_in(rita).get(url(interrupt.run)).content.decode()
    assert "&lt;b&gt;" in page
    assert "Rita Okafor (rita) approved this. It ran." in page
