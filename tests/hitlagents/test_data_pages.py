"""What agents did, as pages of a conversation: calendar, outbox and files."""

from __future__ import annotations

import dataclasses
import json
import os
import uuid
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from django.urls import reverse

from hitlagents import catalog, conversations
from hitlagents.demo import bank, calendar, file_ops, outbox
from hitlagents.demo.calendar import Slot
from hitlagents.demo.outbox import Mail
from hitlagents.demo.workspace import MAX_BYTES, SEED, Workspace
from hitlagents.models import Checkpoint, RunInput

AGENTS = ["scheduler", "support", "file-ops", "banking", "writer"]


@pytest.fixture(autouse=True)
def folder(settings, tmp_path):
    settings.SAYSO_DATA = tmp_path


@pytest.fixture
def make_thread(mia):
    def make(agent, owner=mia):
        return conversations.open_thread(agent, owner=owner)

    return make


def address(thread):
    return reverse("thread-data", args=[thread.agent, thread.pk])


def page_of(client, thread, **query):
    client.force_login(thread.owner)
    response = client.get(address(thread), query)
    assert response.status_code == 200
    return response.content.decode()


def book(thread, topic="1:1", call_id="c1", **slot):
    calendar.book(
        thread.pk,
        run_id=uuid.uuid4(),
        call_id=call_id,
        topic=topic,
        attendee="Alice",
        slot=Slot(**({"label": "Monday 9:00 AM"} | slot)),
    )


def send(thread, call_id="c1", **mail):
    outbox.send(
        Mail(**({"to": "dana@mail.example", "subject": "Hello", "body": "Hi."} | mail)),
        thread_id=thread.pk,
        run_id=uuid.uuid4(),
        call_id=call_id,
    )


def workspace(thread):
    return Workspace(file_ops.workspaces(), thread.pk)


# Who


@pytest.mark.parametrize("agent", AGENTS)
def test_a_page_exists_for_the_owner_of_the_conversation_only(
    client, make_thread, agent, mia, eve, rita, owen, ada
):
    thread = make_thread(agent)
    assert client.get(address(thread))["Location"].startswith(reverse("login"))
    for person in (eve, rita, owen, ada):
        client.force_login(person)
        assert client.get(address(thread)).status_code == 404
    client.force_login(mia)
    assert client.get(address(thread)).status_code == 200
    assert client.post(address(thread)).status_code == 405
    elsewhere = next(other for other in AGENTS if other != agent)
    assert client.get(f"/agents/{elsewhere}/{thread.pk}/data/").status_code == 404


def test_an_agent_without_a_page_has_none(client, make_thread, mia, monkeypatch):
    thread = make_thread("support")
    conversations.send(thread.pk, "Hello", author=mia)
    chat = reverse("thread", args=[thread.agent, thread.pk])
    client.force_login(mia)
    assert address(thread) in client.get(chat).content.decode()
    bare = dataclasses.replace(catalog.get("support"), page=None)
    monkeypatch.setitem(catalog._AGENTS, "support", bare)
    assert client.get(address(thread)).status_code == 404
    assert address(thread) not in client.get(chat).content.decode()
    monkeypatch.delitem(catalog._AGENTS, "support")
    assert client.get(address(thread)).status_code == 404
    assert client.get(chat).status_code == 200


@pytest.mark.parametrize(
    ("agent", "label"),
    [
        ("scheduler", "Calendar"),
        ("support", "Outbox"),
        ("file-ops", "Files"),
        ("banking", "Bank"),
        ("writer", "Writings"),
    ],
)
def test_the_conversation_leads_there_once_it_has_begun(
    client, make_thread, mia, agent, label
):
    thread = make_thread(agent)
    conversations.send(thread.pk, "Hello", author=mia)
    client.force_login(mia)
    chat = client.get(reverse("thread", args=[agent, thread.pk])).content.decode()
    assert f'<a href="{address(thread)}">{label}</a>' in chat
    assert "/data/" not in client.get(reverse("agent", args=[agent])).content.decode()
    page = page_of(client, thread)
    assert label in page
    assert reverse("thread", args=[agent, thread.pk]) in page


def test_htmx_gets_the_part_that_changes(client, make_thread, mia):
    thread = make_thread("support")
    client.force_login(mia)
    part = client.get(address(thread), HTTP_HX_REQUEST="true").content.decode()
    assert part.lstrip().startswith('<div class="page is-middle" id="data"')
    assert "<html" not in part


# Calendar


def test_the_calendar_shows_the_meetings_of_its_person_in_time(
    client, make_thread, mia, eve
):
    thread, another = make_thread("scheduler"), make_thread("scheduler")
    assert "Nothing is booked." in page_of(client, thread)
    book(thread, "Later", starts_at=datetime(2026, 4, 21, 16, tzinfo=UTC))
    book(another, "Sooner", "c2", starts_at=datetime(2026, 4, 20, 9, tzinfo=UTC))
    book(thread, "Sometime", "c3")
    book(make_thread("scheduler", eve), "Private", "c4")
    page = page_of(client, thread)
    assert page.index("Sooner") < page.index("Later") < page.index("Sometime")
    assert "Private" not in page
    assert "No exact time was given." in page


def test_the_day_of_the_week_is_computed_and_the_label_only_quoted(client, make_thread):
    thread = make_thread("scheduler")
    book(thread, label="Monday", starts_at=datetime(2026, 4, 21, 16, tzinfo=UTC))
    page = page_of(client, thread)
    assert "Tue 21 Apr 2026, 16:00 UTC" in page
    assert "Chosen as" in page


def test_a_cancelled_meeting_stays_and_says_so(client, make_thread):
    thread = make_thread("scheduler")
    book(thread)
    assert "Booked" in page_of(client, thread)
    calendar.cancel(thread.pk, "Alice")
    page = page_of(client, thread)
    assert "Cancelled" in page
    assert 'class="is-struck"' in page


# Outbox


def test_the_outbox_shows_the_mails_of_the_conversation(client, make_thread):
    thread, another = make_thread("support"), make_thread("support")
    assert "Nothing has been sent." in page_of(client, thread)
    send(thread, subject="Your lamp", body="We send\na new one.")
    send(another, "c2", subject="Elsewhere")
    refund = Mail(to="omar@mail.example", subject="Refund", body="Done.")
    outbox.refund(
        "1043", refund, thread_id=thread.pk, run_id=uuid.uuid4(), call_id="c3"
    )
    page = page_of(client, thread)
    assert page.index("Refund") < page.index("Your lamp")
    assert "We send\na new one." in page
    assert "dana@mail.example" in page
    assert "refund of invoice 1043" in page
    assert "Elsewhere" not in page


# Files


def test_the_files_show_what_is_there_and_what_is_in_one(client, make_thread):
    thread = make_thread("file-ops")
    workspace(thread)
    page = page_of(client, thread)
    for name in SEED:
        assert name in page
    assert "Ask legal" not in page
    page = page_of(client, thread, file="notes.md")
    assert "Ask legal about the retention period." in page
    workspace(thread).delete("notes.md")
    page = page_of(client, thread, file="notes.md")
    assert "There is no file named notes.md" in page
    for name in SEED:
        if name != "notes.md":
            workspace(thread).delete(name)
    assert "The workspace is empty." in page_of(client, thread)


@pytest.mark.parametrize("agent", ["file-ops", "writer"])
def test_whose_files_they_are_is_said(client, make_thread, agent):
    thread = make_thread(agent)
    assert "Each other one has files of its own." in page_of(client, thread)
    begun = client.get(reverse("agent", args=[agent])).content.decode()
    assert "Each conversation has" in begun


def test_looking_makes_no_files(client, make_thread):
    thread = make_thread("file-ops")
    assert "has not looked at its files yet" in page_of(client, thread, file="x")
    assert not file_ops.workspaces().exists()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("../other/notes.md", "is a path."),
        ("/etc/passwd", "is a path."),
        ("link", "is a link."),
        ("folder", "is a folder, not a file."),
        ("a\0b", "holds a NUL character."),
        ("x" * 300, "is too long"),
    ],
)
def test_nothing_outside_of_the_workspace_is_read(client, make_thread, name, said):
    thread = make_thread("file-ops")
    folder = workspace(thread).folder
    (folder.parent / "secret.txt").write_text("outside", encoding="utf-8")
    (folder / "link").symlink_to(folder.parent / "secret.txt")
    (folder / "folder").mkdir()
    page = page_of(client, thread, file=name)
    assert said in page
    assert "outside" not in page
    assert 'href="?file=link' not in page


def test_odd_files_break_nothing(client, make_thread):
    thread = make_thread("file-ops")
    folder = workspace(thread).folder
    (folder / "big.txt").write_text("x" * (MAX_BYTES + 10), encoding="utf-8")
    (folder / "<b>.txt").write_text("re\u202eport <script>", encoding="utf-8")
    (folder / os.fsdecode(b"half-\xff")).write_bytes(b"\xff\x00")
    page = page_of(client, thread, file="<b>.txt")
    assert "<b>.txt" not in page
    assert "<script>" not in page
    assert "⟦U+202E⟧" in page
    assert "⟦U+DCFF⟧" in page
    assert f"(only the first {MAX_BYTES} bytes)" in page_of(
        client, thread, file="big.txt"
    )


def test_what_an_agent_wrote_is_harmless_and_in_sight(client, make_thread):
    mails, meetings = make_thread("support"), make_thread("scheduler")
    send(mails, subject="<u>\u202ex", body="<script>alert(1)</script>\u200b")
    book(meetings, "<u>\u202ex", label="<i>\u2066")
    for thread in (mails, meetings):
        page = page_of(client, thread)
        for raw in ("<u>", "<i>", "<script>alert", "\u202e", "\u200b", "\u2066"):
            assert raw not in page.partition("<main")[2].partition("</main>")[0]
        assert "⟦U+202E⟧" in page


# Bank


def test_the_bank_shows_balances_and_transfers_of_its_person(client, make_thread, eve):
    thread, another = make_thread("banking"), make_thread("banking")
    page = page_of(client, thread)
    assert "opened when the agent first looks at one." in page
    assert "Nothing has been transferred." in page
    assert bank.balances(thread.owner_id) == []  # looking opens none
    for number, (owned, to) in enumerate([(thread, "777"), (another, "Landlord")], 1):
        bank.transfer(
            owned.pk,
            run_id=uuid.uuid4(),
            call_id=f"c{number}",
            amount=Decimal(1000 * number),
            to=to,
        )
    page = page_of(client, thread)
    assert page.index("2,000.00</b> to Landlord") < page.index("1,000.00</b> to Elec")
    assert "4,000.00" not in page
    assert "Nothing has been transferred." in page_of(
        client, make_thread("banking", eve)
    )


# Writings


def test_the_writings_show_files_and_artifacts(client, make_thread, make_run):
    thread = make_thread("writer")
    assert "There are none yet." in page_of(client, thread)
    run = make_run(agent="writer", thread=thread.pk)
    RunInput.objects.create(run=run, thread=thread, message="x")
    kept = [{"name": "<b>\u202e", "parts": [{"text": "<script>\nplan"}]}]
    Checkpoint.objects.create(
        run=run,
        framework="Genkit",
        framework_version="0",
        schema=1,
        attempt=1,
        state=json.dumps({"session": {"artifacts": kept}}),
    )
    workspace(thread)
    page = page_of(client, thread, file="notes.md")
    assert "Ask legal" in page
    assert "<b>\u202e" not in page
    assert "&lt;script&gt;\nplan" in page
    assert "⟦U+202E⟧" in page
