"""The raw events of a run: all of them, in order, exact, and without secrets."""

from __future__ import annotations

import json
import re
from html import unescape

import pytest
from asgiref.sync import async_to_sync
from django.test import AsyncClient
from django.urls import reverse

from approvals import services
from approvals.models import Tool
from approvals.schemas import InterruptDraft
from approvals.states import Source, Verdict
from hitlagents import events, raw_events, wire
from hitlagents.adapters.base import ToolCallProposed, ToolCallResult
from hitlagents.models import Checkpoint, RunEvent
from tests.plugins.cast import call

PIN = "4711-0815"
STATE = '{"what the agent": "remembers"}'


@pytest.fixture
def run(make_run):
    return make_run()


def happen(run, *told, attempt=1):
    """Store events as a worker would."""
    with services.unit_of_work():
        numbered = enumerate(told, events.last_seq(run.pk) + 1)
        events.append(run, attempt, list(numbered))


def proposed(one):
    return wire.tool_call(ToolCallProposed(call=one))


def result(call_id, content):
    return wire.tool_result(ToolCallResult(call_id=call_id, content=content))


def ask(run, one):
    claim = services.claim_run(run.pk, owner="worker")
    draft = InterruptDraft(call=one, verdicts=tuple(Verdict))
    services.open_interrupts(run.pk, attempt=claim.attempt, drafts=[draft])


def address(run, name="run-events"):
    return reverse(name, args=[run.pk])


def page_of(client, run, person, query=""):
    client.force_login(person)
    response = client.get(address(run) + query)
    assert response.status_code == 200
    return response.content.decode()


def copied(page):
    """The events of a page as somebody copies them."""
    found = re.findall(r'<code id="json-\d+"[^>]*>(.*?)</code>', page, re.DOTALL)
    return [json.loads(unescape(re.sub(r"<[^>]+>", "", text))) for text in found]


def numbers(page):
    return [int(seq) for seq in re.findall(r'<li id="event-(\d+)"', page)]


def downloaded(client, run, person):
    client.force_login(person)
    response = client.get(address(run, "run-events-download"))
    assert response.status_code == 200
    return b"".join(response.streaming_content).decode()


# Who


@pytest.mark.parametrize("name", ["run-events", "run-events-download"])
def test_m16_only_who_may_see_the_run(
    client, run, mia, rita, owen, ada, fin, eve, name
):
    happen(run, *proposed(call()))
    ask(run, call())
    for person, status in [
        (mia, 200),
        (rita, 200),
        (owen, 200),
        (ada, 200),
        (fin, 404),
        (eve, 404),
    ]:
        client.force_login(person)
        assert client.get(address(run, name)).status_code == status, person
    client.logout()
    assert client.get(address(run, name))["Location"].startswith(reverse("login"))


@pytest.mark.parametrize("name", ["run-events", "run-events-download"])
def test_nothing_but_reading(client, run, mia, name):
    client.force_login(mia)
    assert client.post(address(run, name)).status_code == 405
    assert client.delete(address(run, name)).status_code == 405
    assert client.get(f"/runs/{run.thread}/events/").status_code == 404


def test_it_is_linked_from_the_run_of_a_hosted_agent_only(client, run, make_run, ada):
    client.force_login(ada)
    assert address(run) in client.get(reverse("run", args=[run.pk])).content.decode()
    other = make_run(source=Source.API)
    page = client.get(reverse("run", args=[other.pk])).content.decode()
    assert address(other) not in page


def test_a_run_without_events_says_so(client, run, mia):
    page = page_of(client, run, mia)
    assert "No events are stored for this run." in page
    assert address(run, "run-events-download") not in page
    assert downloaded(client, run, mia) == ""


# What


def test_m13_events_are_shown_in_order_and_copied_as_ag_ui_has_them(client, run, mia):
    told = [
        wire.run_started(run.thread, run.pk),
        wire.text_start("m1"),
        wire.text_content("m1", "Hello <b>\n„world“ 1e400 0.10"),
        wire.text_end("m1"),
        *proposed(call()),
        wire.run_finished(run.thread, run.pk, []),
    ]
    happen(run, *told)
    page = page_of(client, run, mia)
    expected = [{"type": type, **members} for type, members in told]
    assert numbers(page) == list(range(1, len(told) + 1))
    assert copied(page) == expected
    assert "<b>\\n" not in page
    assert page.count("attempt 1") == len(told)
    lines = [json.loads(line) for line in downloaded(client, run, mia).splitlines()]
    assert [line["event"] for line in lines] == expected
    assert [line["seq"] for line in lines] == list(range(1, len(told) + 1))
    assert {line["attempt"] for line in lines} == {1}
    stored = [row.created.isoformat() for row in run.events.all()]
    assert [line["time"] for line in lines] == stored


def test_what_cannot_be_seen_is_marked_and_still_copied_as_it_is(client, run, mia):
    text = "re\u202eport.txt \u200b\u0430pple paypal"
    happen(run, wire.text_content("m1\u2066", text))
    page = page_of(client, run, mia)
    for char in "\u202e\u200b\u2066":
        assert char not in page
    assert '<mark class="hid" title="right-to-left override">\\u202e</mark>' in page
    assert '<mark class="odd">' in page
    assert copied(page)[0]["delta"] == text
    assert "2 characters" not in page
    assert "3 characters that cannot be seen are marked." in page
    assert downloaded(client, run, mia).isascii()


def test_a_very_long_event_is_cut_on_the_page_and_whole_in_the_download(
    client, run, mia
):
    long = "x" * (raw_events.LONGEST + 5)
    happen(run, wire.text_content("m1", long))
    page = page_of(client, run, mia)
    assert long not in page
    assert "Cut off after" in page
    assert long in downloaded(client, run, mia)


def test_events_of_an_attempt_that_was_played_again_are_marked(client, run, mia):
    happen(run, wire.text_start("lost"), attempt=1)
    happen(run, wire.text_start("kept"), attempt=2)
    page = page_of(client, run, mia)
    assert page.count("cut off and played again") == 1
    lost, kept = page.split('<li id="event-')[1:]
    assert "cut off and played again" in lost
    assert "kept" in kept


# Secrets


def test_values_of_secret_parameters_are_hidden_everywhere(client, run, mia, ada):
    paying = call("pay", amount=5, account="bob", pin=PIN)
    happen(
        run,
        *proposed(paying),
        result("call-1", f"Paid with {PIN}, thanks."),
        wire.text_content("m1", f"I used {PIN}."),
    )
    for person in (mia, ada):
        page = page_of(client, run, person)
        lines = downloaded(client, run, person)
        assert PIN not in page + lines
        arguments = json.loads(copied(page)[1]["delta"])
        assert arguments == {
            "amount": 5,
            "account": "bob",
            "pin": "hidden, 9 characters",
        }
        assert copied(page)[3]["content"] == "Paid with ⟦hidden, 9 characters⟧, thanks."
        assert len(lines.splitlines()) == 5


def test_b86_what_looks_like_a_secret_is_hidden_everywhere(client, run, mia, ada):
    posting = call("post_note", text="x", api_key=PIN, maxTokens=512)
    happen(
        run,
        *proposed(posting),
        result("call-1", f"Used {PIN} and Bearer abc-123."),
    )
    for person in (mia, ada):
        page = page_of(client, run, person)
        lines = downloaded(client, run, person)
        assert PIN not in page + lines
        assert "abc-123" not in page + lines
        arguments = json.loads(copied(page)[1]["delta"])
        assert arguments["api_key"] == "hidden, 9 characters"
        assert arguments["maxTokens"] == 512


def test_a_secret_is_hidden_also_when_its_tool_is_gone(client, run, mia):
    ask(run, call("pay", amount=5, account="bob", pin=PIN))
    happen(run, *proposed(call("pay", amount=5, account="bob", pin=PIN)))
    Tool.objects.all().delete()
    assert PIN not in page_of(client, run, mia)


def test_arguments_that_cannot_be_read_are_hidden_whole(client, run, mia):
    paying = call("pay").model_copy(update={"arguments": f'{{"pin": "{PIN}", "a'})
    happen(run, *proposed(paying))
    page = page_of(client, run, mia)
    assert PIN not in page
    assert copied(page)[1]["delta"].startswith("hidden, ")


@pytest.mark.parametrize(
    "pin",
    [12345678, 'line\nbreak and "quote"', "ünï-cödé", ["first-half", {"a": "other"}]],
)
def test_secrets_of_any_kind_are_found_again_in_a_result(client, run, mia, pin):
    happen(run, *proposed(call("pay", amount=1, account="b", pin=pin)))
    told = json.dumps({"used": pin}, ensure_ascii=False)
    happen(run, result("call-1", told))
    (content,) = [
        event["content"]
        for event in copied(page_of(client, run, mia))
        if "role" in event
    ]
    for secret in ("12345678", "break", "cödé", "first-half", "other"):
        assert secret not in content
    assert "hidden, " in content


def test_a_short_secret_does_not_blot_out_the_rest(client, run, mia):
    happen(run, *proposed(call("pay", amount=5, account="b 1", pin="1")))
    page = page_of(client, run, mia)
    arguments = json.loads(copied(page)[1]["delta"])
    assert arguments["account"] == "b 1"
    assert arguments["pin"] == "hidden, 1 characters"


def test_looking_for_secrets_takes_a_fixed_number_of_questions(
    client, run, mia, django_assert_max_num_queries
):
    happen(run, *(wire.text_content("m1", "x") for _ in range(300)))
    client.force_login(mia)
    with django_assert_max_num_queries(20):
        client.get(address(run))


# Filters and pages


@pytest.fixture
def many(run, monkeypatch):
    monkeypatch.setattr(raw_events, "PAGE", 3)
    monkeypatch.setattr(raw_events, "BATCH", 2)
    happen(run, *(wire.text_content("m1", str(n)) for n in range(1, 8)))
    happen(run, wire.text_end("m1"))
    return run


def test_pages_forwards_and_backwards(client, many, mia):
    assert numbers(page_of(client, many, mia)) == [1, 2, 3]
    assert numbers(page_of(client, many, mia, "?after=3")) == [4, 5, 6]
    assert numbers(page_of(client, many, mia, "?after=6")) == [7, 8]
    assert numbers(page_of(client, many, mia, "?before=7")) == [4, 5, 6]
    assert numbers(page_of(client, many, mia, "?before=9")) == [6, 7, 8]
    first, last = page_of(client, many, mia), page_of(client, many, mia, "?before=9")
    assert "after=3" in first
    assert "before=9" in first
    assert "Earlier" not in first
    assert "before=6" in last
    assert "Later" not in last


def test_one_type_alone(client, many, mia):
    page = page_of(client, many, mia, "?type=TEXT_MESSAGE_END")
    assert numbers(page) == [8]
    assert '<a class="chip" href="?type=TEXT_MESSAGE_END" aria-current="true">' in page
    page = page_of(client, many, mia, "?type=TEXT_MESSAGE_CONTENT&after=6")
    assert numbers(page) == [7]
    assert "type=TEXT_MESSAGE_CONTENT&amp;before=7" in page


@pytest.mark.parametrize(
    "query",
    ["?type=NOTHING", "?after=x", "?before=-1", "?after=99999999999", "?type=%00"],
)
def test_odd_addresses_show_the_first_page(client, many, mia, query):
    assert numbers(page_of(client, many, mia, query)) == [1, 2, 3]


def test_a_download_is_read_piece_by_piece(client, many, mia):
    client.force_login(mia)
    response = client.get(address(many, "run-events-download"))
    pieces = list(response.streaming_content)
    assert len(pieces) == 4
    assert response["Content-Type"] == "application/x-ndjson; charset=utf-8"
    assert f"sayso-events-{many.pk}.jsonl" in response["Content-Disposition"]
    seqs = [json.loads(line)["seq"] for line in b"".join(pieces).splitlines()]
    assert seqs == list(range(1, 9))


@pytest.mark.django_db(transaction=True)
def test_the_server_sends_it_as_it_reads(many, mia):
    async def fetch():
        client = AsyncClient()
        await client.aforce_login(mia)
        response = await client.get(address(many, "run-events-download"))
        return [piece async for piece in response.streaming_content]

    assert len(async_to_sync(fetch)()) == 4


# The saved state


@pytest.fixture
def saved(run):
    return Checkpoint.objects.create(
        run=run,
        framework="Some Framework",
        framework_version="9.8.7",
        schema=3,
        attempt=1,
        state=STATE,
    )


def test_staff_learns_who_wrote_the_saved_state_and_nobody_what_is_in_it(
    client, run, saved, mia, owen, ada, make_person
):
    RunEvent.objects.all().delete()
    page = page_of(client, run, ada)
    assert "Some Framework 9.8.7" in page
    assert f"{len(STATE)} characters" in page
    assert "remembers" not in page
    helper = make_person("helper", is_staff=True)
    run.requester = helper
    run.save()
    for person in (owen, helper):
        page = page_of(client, run, person)
        assert "Saved state" not in page
        assert "9.8.7" not in page
        assert "remembers" not in page


def test_staff_is_told_when_nothing_was_saved(client, run, ada):
    assert "No state has been saved yet." in page_of(client, run, ada)
