"""The audit pages: who may read, filters, paging, the state of the chain, the export."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import User
from django.core.cache import cache
from django.db import connection
from django.test import AsyncClient, Client
from django.urls import reverse

from approvals import audit, exports, services
from approvals.models import AuditEntry
from approvals.schemas import ClientTool, InterruptDraft
from approvals.states import Verdict
from tests.plugins.cast import ballot, call

HTMX = {"HX-Request": "true"}


def signed_in(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


@pytest.fixture
def as_aud(aud):
    cache.clear()
    return signed_in(aud)


@pytest.fixture
def decided(interrupt, rita):
    services.decide(
        interrupt.pk,
        ballot(interrupt, Verdict.DENY, note="Still needed."),
        reviewer=rita,
    )
    return interrupt


def tamper(number: int) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE approvals_auditentry SET actor = 'nobody' WHERE number = %s",
            [number],
        )


def erase(number: int) -> None:
    """Without an entry that says so."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE approvals_auditentry SET payload = NULL, salt = NULL "
            "WHERE number = %s",
            [number],
        )


def test_entries_are_listed(as_aud, decided):
    page = as_aud.get(reverse("audit")).content.decode()
    assert "Denied" in page
    assert "Rita Okafor" in page
    assert reverse("interrupt", args=[decided.pk]) in page


def test_what_was_changed_is_named_as_it_was_decided(as_aud, interrupt, rita):
    changed = {"filename": "other.txt"}
    services.decide(interrupt.pk, ballot(interrupt, arguments=changed), reviewer=rita)
    rows = as_aud.get(reverse("audit")).context["rows"]
    titles = {row["entry"].action: row["title"] for row in rows}
    assert titles["interrupt.opened"] == "Delete file-1.txt"
    assert titles["interrupt.approved"] == "Delete other.txt"


def test_a_call_to_a_page_leads_to_its_run(as_aud, make_run):
    """Nobody is asked, so no page of a request has it."""
    run = make_run()
    claim = services.claim_run(run.pk, owner="worker")
    draft = InterruptDraft(call=call("pick_colour"), verdicts=tuple(Verdict))
    tools = [ClientTool(name="pick_colour", description="", parameters={})]
    services.open_interrupts(
        run.pk, attempt=claim.attempt, drafts=[draft], client_tools=tools
    )
    page = as_aud.get(reverse("audit")).content.decode()
    assert reverse("interrupt", args=[run.interrupts.get().pk]) not in page
    link = f'<a href="{reverse("run", args=[run.pk])}"><bdi dir="auto">pick_colour on'
    assert link in page


@pytest.mark.parametrize("who", ["rita", "owen", "eve"])
def test_others_see_no_audit(who, request, decided):
    client = signed_in(request.getfixturevalue(who))
    for name in ("audit", "audit-chain", "audit-export"):
        assert client.get(reverse(name)).status_code == 404
    assert client.get(reverse("audit-entry", args=[1])).status_code == 404


@pytest.mark.parametrize("name", ["audit", "audit-export"])
def test_nothing_is_posted(name, as_aud):
    assert as_aud.post(reverse(name)).status_code == 405


def test_filters(as_aud, decided):
    def numbers(**query: str) -> list[int]:
        rows = as_aud.get(reverse("audit"), query).context["rows"]
        return [row["entry"].number for row in rows]

    everything = numbers()
    assert everything == sorted(everything, reverse=True)
    assert len(numbers(kind="decisions")) == 1
    assert len(numbers(actor="rita")) == 1
    assert numbers(about=str(decided.run_id)) == everything
    assert len(numbers(about=str(decided.pk))) == 2
    assert numbers(about="not an id") == []
    assert numbers(day="2001-01-01") == []
    assert numbers(kind="nonsense", day="x", before="y") == everything


def test_pages(as_aud, decided, monkeypatch):
    monkeypatch.setattr("approvals.views.audit.PAGE", 2)
    seen: list[int] = []
    query = ""
    for _ in range(10):
        context = as_aud.get(reverse("audit") + query).context
        seen += [row["entry"].number for row in context["rows"]]
        query = context["older"]
        if not query:
            break
    assert seen == list(AuditEntry.objects.values_list("number", flat=True))


def test_an_entry_shows_everything_its_hash_covers(as_aud, decided):
    found = AuditEntry.objects.get(action="interrupt.denied")
    page = as_aud.get(reverse("audit-entry", args=[found.number])).content.decode()
    for text in (found.hash, found.previous, found.payload_mac, "Still needed."):
        assert text in page
    assert as_aud.get(reverse("audit-entry", args=[999])).status_code == 404


def test_an_intact_chain_is_verified(as_aud, decided):
    fragment = as_aud.get(reverse("audit-chain")).content.decode()
    assert "Chain verified" in fragment
    assert "<html" not in fragment
    page = as_aud.get(reverse("audit"), {"verify": "1"}).content.decode()
    assert "Chain verified" in page


def test_a_broken_chain_is_a_banner_with_the_number(as_aud, decided):
    assert "Chain verified" in as_aud.get(reverse("audit-chain")).content.decode()
    tamper(2)
    page = as_aud.get(reverse("audit"), {"verify": "1"}).content.decode()
    assert "The chain is broken at entry 2" in page
    assert 'role="alert"' in page
    page = as_aud.get(reverse("audit-entry", args=[2])).content.decode()
    assert "does not match its hash" in page


def check_to_the_end(client, page):
    """What a browser does with a page that goes on checking; returns each answer."""
    answers = [page]
    while found := re.search(r'name="at" value="([^"]+)"', answers[-1]):
        response = client.post(reverse("audit-chain"), {"at": found[1]})
        answers.append(response.content.decode())
        assert len(answers) < 100
    return answers


@pytest.fixture
def short_steps(monkeypatch):
    """One entry each."""
    monkeypatch.setattr("approvals.views.audit.STEP", 0)


def test_m19_a_long_chain_is_checked_in_steps(as_aud, decided, short_steps):
    count = AuditEntry.objects.count()
    page = as_aud.get(reverse("audit"), {"verify": "1"}).content.decode()
    assert f"Checking: 1 of {count} entries" in page
    assert "Chain verified" not in page
    answers = check_to_the_end(as_aud, page)
    assert len(answers) == count
    assert f"Checking: 2 of {count} entries" in answers[1]
    assert "Chain verified" in answers[-1]
    assert f"{count} entries," in answers[-1]


@pytest.mark.parametrize("number", [1, 2, 4])
def test_m19_steps_find_what_was_changed(as_aud, decided, short_steps, number):
    tamper(number)
    page = as_aud.get(reverse("audit"), {"verify": "1"}).content.decode()
    last = check_to_the_end(as_aud, page)[-1]
    assert f"The chain is broken at entry {number}" in last


def test_m19_steps_find_an_entry_that_is_gone_and_a_payload_that_is(
    as_aud, decided, short_steps
):
    erase(2)
    page = as_aud.get(reverse("audit"), {"verify": "1"}).content.decode()
    last = check_to_the_end(as_aud, page)[-1]
    assert "no entry says that it was erased" in last
    services.erase_payload(3, reason="asked to", actor="operator")
    page = as_aud.get(reverse("audit"), {"verify": "1"}).content.decode()
    last = check_to_the_end(as_aud, page)[-1]
    assert "The chain is broken at entry 2" in last


def test_m19_opening_the_page_takes_one_step(as_aud, decided, short_steps):
    """And says what was found last, with its time."""
    address = reverse("audit-chain")
    assert "Not checked as a whole" in as_aud.get(address).content.decode()
    page = as_aud.get(reverse("audit"), {"verify": "1"}).content.decode()
    check_to_the_end(as_aud, page)
    assert "Chain verified" in as_aud.get(address).content.decode()
    kept = cache.get("approvals.audit.report")
    earlier = kept["checked"] - timedelta(hours=2)
    cache.set("approvals.audit.report", kept | {"checked": earlier})
    fragment = as_aud.get(address).content.decode()
    assert "Chain verified" in fragment
    assert earlier.isoformat() in fragment


def test_m19_the_list_names_what_an_entry_is_about(as_aud, aud):
    """Also beside entries that somebody damaged."""
    services.create_token(
        aud, name="my page", scopes=["see"], expires_at=None, actor=aud
    )
    assert f"my page ({aud.username})" in as_aud.get(reverse("audit")).content.decode()
    for damaged in ("{", "[]", "7"):
        with connection.cursor() as cursor:
            cursor.execute("UPDATE approvals_auditentry SET payload = %s", [damaged])
        assert as_aud.get(reverse("audit")).status_code == 200


def test_m19_an_older_check_takes_the_place_of_no_newer_one(
    as_aud, decided, short_steps, monkeypatch
):
    page = as_aud.get(reverse("audit"), {"verify": "1"}).content.decode()
    tamper(1)
    monkeypatch.setattr("approvals.views.audit.STEP", 9)
    broken = as_aud.get(reverse("audit"), {"verify": "1"}).content.decode()
    assert "The chain is broken" in broken
    assert "The chain is broken" in check_to_the_end(as_aud, page)[-1]
    assert "The chain is broken" in as_aud.get(reverse("audit-chain")).content.decode()


def test_m19_a_check_that_waited_long_begins_anew(
    as_aud, decided, short_steps, monkeypatch
):
    page = as_aud.get(reverse("audit"), {"verify": "1"}).content.decode()
    at = re.search(r'name="at" value="([^"]+)"', page)[1]
    monkeypatch.setattr("approvals.views.audit._MAX_AGE", timedelta(0))
    response = as_aud.post(reverse("audit-chain"), {"at": at})
    assert "Checking: 1 of" in response.content.decode()


@pytest.mark.parametrize("at", ["", "forged", "e30:1abcde:xyz"])
def test_m19_a_check_that_is_not_ours_begins_anew(as_aud, decided, short_steps, at):
    response = as_aud.post(reverse("audit-chain"), {"at": at})
    assert "Checking: 1 of" in response.content.decode()


def test_m19_going_on_is_for_auditors(rita, decided):
    response = signed_in(rita).post(reverse("audit-chain"), {"at": ""})
    assert response.status_code == 404


def test_the_export_verifies_without_the_site(as_aud, decided):
    response = as_aud.get(reverse("audit-export"))
    assert "attachment" in response["Content-Disposition"]
    lines = b"".join(response).decode().splitlines()
    report = audit.verify(audit.from_json_line(line) for line in lines)
    assert report.broken is None
    assert report.count == AuditEntry.objects.count() == len(lines)


def test_a_part_of_the_chain_is_exported_by_number_or_run(as_aud, decided, make_run):
    other = make_run()
    for query, wanted in (
        ({"since": "3"}, AuditEntry.objects.filter(number__gte=3)),
        ({"run": str(other.pk)}, AuditEntry.objects.filter(run=other.pk)),
        ({"run": str(other.pk), "since": "99"}, AuditEntry.objects.none()),
    ):
        response = as_aud.get(reverse("audit-export"), query)
        lines = b"".join(response).decode().splitlines()
        assert len(lines) == wanted.count()
        verifier = audit.Verifier(partial=True)
        verifier.take_all(audit.from_json_line(line) for line in lines)
        assert verifier.report().broken is None


@pytest.mark.parametrize("query", [{"since": "-1"}, {"since": "9" * 30}, {"run": "x"}])
def test_a_part_that_cannot_be_meant_is_refused(as_aud, decided, query):
    response = as_aud.get(reverse("audit-export"), query)
    assert response.status_code == 400
    assert "must be" in response.content.decode()


@pytest.mark.django_db(transaction=True)
def test_the_export_is_streamed_by_the_real_server_kind(aud, decided, monkeypatch):
    """Under ASGI the batches arrive one after the other, not all at the end."""
    monkeypatch.setattr(exports, "BATCH", 2)
    client = AsyncClient()
    client.force_login(aud)

    async def scenario():
        response = await client.get(reverse("audit-export"))
        assert response.is_async
        return [piece async for piece in response]

    pieces = async_to_sync(scenario)()
    assert len(pieces) == 3
    lines = b"".join(pieces).decode().splitlines()
    assert audit.verify(audit.from_json_line(line) for line in lines).count == 5
