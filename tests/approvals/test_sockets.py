"""The live endpoint: who hears what, how long, and what it puts up with."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
import uuid
from contextlib import suppress

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.contrib.auth.models import Permission
from django.contrib.sessions.models import Session
from django.db import connection, transaction
from django.test import Client
from django.urls import reverse
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from approvals import admission, live, permissions, services
from approvals.models import Interrupt
from approvals.services import Ballot
from approvals.states import InterruptStatus, Verdict
from tests.approvals.pages import Page, open_files, serving, sign_in
from tests.plugins.cast import call

pytestmark = pytest.mark.django_db(transaction=True)

in_database = sync_to_async


@pytest.fixture
def quick(settings):
    settings.SAYSO_LIVE_CHECK_SECONDS = 0.1


def run(scenario):
    async_to_sync(scenario)()


# Who may open one


def test_nobody_listens_without_a_session(desk):
    """B73: the handshake opens nothing."""

    async def scenario():
        for session in ("", "made-up", "x" * 5000):
            page = Page(session)
            assert await page.open()
            assert await page.code() == 4401

    run(scenario)


def test_a_session_that_has_ended_is_none(rita):
    session = sign_in(rita)
    Session.objects.update(expire_date="2020-01-01T00:00:00Z")

    async def scenario():
        page = Page(session)
        assert await page.open()
        assert await page.code() == 4401

    run(scenario)


def test_somebody_inactive_is_not_let_in(rita):
    session = sign_in(rita)
    rita.is_active = False
    rita.save()

    async def scenario():
        page = Page(session)
        assert await page.open()
        assert await page.code() == 4401

    run(scenario)


@pytest.mark.parametrize(
    "origin",
    [
        "null",
        "http://127.0.0.1:8001",
        "http://127.0.0.1",
        "https://127.0.0.1:8000",
        "http://127.0.0.1.evil.example:8000",
        "http://evil.example",
        "http://localhost:8000",
        "file://",
        "\u00ff",
    ],
)
def test_a_page_from_elsewhere_is_refused(rita, origin):
    """B118: whoever's cookie the browser sends along."""
    session = sign_in(rita)

    async def scenario():
        assert not await Page(session, origin=origin).open()

    run(scenario)


def test_a_host_that_is_not_ours_is_refused_even_to_its_own_pages(rita):
    session = sign_in(rita)

    async def scenario():
        page = Page(session, host="evil.example", origin="http://evil.example")
        assert not await page.open()

    run(scenario)


def test_a_trusted_origin_and_a_proxy_with_https_fit(rita, settings):
    session = sign_in(rita)
    settings.CSRF_TRUSTED_ORIGINS = ["https://desk.example"]

    async def scenario():
        page = await Page(session, origin="https://desk.example").greeted()
        await page.leave()

    run(scenario)
    settings.SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    scope = {
        "path": "/ws/",
        "headers": [
            (b"host", b"127.0.0.1:8000"),
            (b"x-forwarded-proto", b"https"),
            (b"origin", b"https://127.0.0.1:8000"),
        ],
    }
    assert admission.origin_fits(scope)


def test_a_program_without_an_origin_needs_a_session_like_anybody(rita):
    """B118: the rule for a missing origin."""
    session = sign_in(rita)

    async def scenario():
        page = await Page(session, origin=None).greeted()
        await page.leave()
        stranger = Page("", origin=None)
        assert await stranger.open()
        assert await stranger.code() == 4401

    run(scenario)


def test_another_address_is_refused_without_a_traceback(rita, caplog):
    session = sign_in(rita)

    async def scenario():
        for path in ("/ws", "/ws/x/", "/ws/runs/1/", "/", "/ws/runs/"):
            assert not await Page(session, path=path).open()

    run(scenario)
    assert not [r for r in caplog.records if r.levelno >= logging.ERROR]


# Who hears what


def test_each_hears_what_concerns_them_and_no_content(
    make_interrupts, make_run, rita, fin, owen, eve, mia
):
    """B72: the same people as over HTTP."""
    people = {"rita": rita, "fin": fin, "owen": owen, "eve": eve, "mia": mia}
    sessions = {name: sign_in(person) for name, person in people.items()}

    async def scenario():
        pages = {name: await Page(s).greeted() for name, s in sessions.items()}
        (interrupt,) = await in_database(make_interrupts)(
            [call(filename="secret-name.txt")]
        )
        heard = {name: await everything(page) for name, page in pages.items()}
        opened = ("opened", str(interrupt.pk))
        run_told = ("run", str(interrupt.run_id))
        assert heard["rita"] == {opened}
        assert heard["fin"] == set()
        assert heard["eve"] == set()
        assert heard["owen"] == {opened, run_told}
        assert heard["mia"] == {run_told}
        for page in pages.values():
            await page.leave()

    run(scenario)


def test_b72_an_account_without_rights_hears_and_reads_nothing_of_a_request(
    make_interrupts, rita, eve
):
    sessions = {person: sign_in(person) for person in (rita, eve)}

    def decide(interrupt):
        shown = services.shown_digest(interrupt)
        services.decide(
            interrupt.pk, Ballot(verdict=Verdict.APPROVE, shown=shown), reviewer=rita
        )

    async def scenario():
        hers, nobodys = [await Page(sessions[who]).greeted() for who in (rita, eve)]
        (interrupt,) = await in_database(make_interrupts)()
        await in_database(decide)(interrupt)
        assert (await hers.next())["op"] == "opened"
        assert (await hers.next())["id"] == str(interrupt.pk)
        assert await nobodys.hears_nothing()
        closed = Page(sessions[eve], path=f"/ws/runs/{interrupt.run_id}/")
        assert await closed.open()
        assert await closed.code() == 4403
        for page in (hers, nobodys):
            await page.leave()
        return interrupt

    found = async_to_sync(scenario)()
    client = Client()
    client.force_login(eve)
    for name, pk in (
        ("interrupt", found.pk),
        ("card", found.pk),
        ("run", found.run_id),
    ):
        assert client.get(reverse(name, args=[pk])).status_code == 404


def test_b59_what_is_pushed_is_small_however_large_the_call(
    make_interrupts, rita, owen
):
    sessions = [sign_in(person) for person in (rita, owen)]

    async def scenario():
        pages = [await Page(session).greeted() for session in sessions]
        huge = call(filename="x" * 2_000_000)
        (interrupt,) = await in_database(make_interrupts)([huge])
        for page in pages:
            text = await page.socket.receive_from(timeout=30)
            assert len(text) < 200
            assert json.loads(text)["id"] in {str(interrupt.pk), str(interrupt.run_id)}
            await page.send('{"op": "ping"}')
            while (await page.next())["op"] != "pong":
                pass
            await page.leave()
        return interrupt

    found = async_to_sync(scenario)()
    for person in (rita, owen):
        client = Client()
        client.force_login(person)
        address = reverse("interrupt", args=[found.pk])
        assert address in client.get(reverse("inbox")).content.decode()


async def everything(page):
    """What a page hears until it is quiet, checked for its form."""
    heard, v = set(), 1
    while not await page.hears_nothing():
        message = await page.next()
        v += 1
        assert message.keys() == {"v", "op", "id"}
        assert message["v"] == v
        heard.add((message["op"], message["id"]))
    return heard


def test_a_run_is_heard_by_who_sees_it(make_interrupts, rita, fin, owen, eve, mia, ada):
    (interrupt,) = make_interrupts()
    path = f"/ws/runs/{interrupt.run_id}/"
    sessions = [sign_in(person) for person in (rita, owen, mia, ada)]
    others = [sign_in(person) for person in (fin, eve)]

    async def scenario():
        for session in sessions:
            page = await Page(session, path=path).greeted()
            live.publish({f"run.{interrupt.run_id}"}, delta(interrupt.run_id, 1, "Hi"))
            assert (await page.next())["text"] == "Hi"
            await page.leave()
        for session in others:
            page = Page(session, path=path)
            assert await page.open()
            assert await page.code() == 4403
        nowhere = Page(sessions[0], path=f"/ws/runs/{uuid.uuid4()}/")
        assert await nowhere.open()
        assert await nowhere.code() == 4403

    run(scenario)


def delta(run_id, seq, text):
    fields = {"op": "delta", "id": str(run_id), "attempt": 1, "message": "m"}
    return fields | {"seq": seq, "text": text}


def test_the_desk_does_not_hear_the_text_of_runs(make_interrupts, rita):
    (interrupt,) = make_interrupts()
    session = sign_in(rita)

    async def scenario():
        page = await Page(session).greeted()
        live.publish({f"run.{interrupt.run_id}"}, delta(interrupt.run_id, 1, "Hi"))
        assert await page.hears_nothing()
        await page.leave()

    run(scenario)


def test_the_bulk_rules_are_those_of_the_pages(
    make_interrupts, make_person, rita, fin, owen, aud, eve, mia, ada
):
    """B72: one answer for the same person."""
    (interrupt,) = make_interrupts()
    (other,) = make_interrupts([call("pay", amount=5, account="x")])
    gone = make_person("gone", "Ops reviewers", is_active=False)
    direct = make_person("direct")
    direct.user_permissions.add(Permission.objects.get(codename="view_all_interrupts"))
    groupless = make_person("groupless")
    groupless.user_permissions.add(Permission.objects.get(codename="view_interrupt"))
    # A group that is asked, and whose members may see no inbox.
    interrupt.review_groups.add(services.make_group("Blind"))
    blind = make_person("blind", "Blind")
    blind.groups.get().permissions.clear()
    people = [rita, fin, owen, aud, eve, mia, ada, gone, direct, groupless, blind]
    found = permissions.scopes_of([person.pk for person in people])
    audiences = permissions.audiences([interrupt.run_id, other.run_id])
    for person in people:
        scopes = found.get(person.pk, frozenset())
        assert scopes == permissions.scopes(person)
        assert ("all" in scopes) == permissions.sees_everything(person)
        if not permissions.sees_inbox(person):
            assert not any(scope.startswith("group.") for scope in scopes)
        for run_id, audience in audiences.items():
            seen = permissions.visible_runs(person).filter(pk=run_id).exists()
            assert bool(scopes & audience) == seen, person
            assert permissions.sees_run(person, run_id) == seen, person


def test_a_hundred_sockets_are_checked_with_a_few_queries(
    make_interrupts, make_person, django_assert_max_num_queries
):
    (interrupt,) = make_interrupts()
    people = [make_person(f"p{number}", "Ops reviewers") for number in range(100)]
    claims = [admission.Claim(sign_in(person), interrupt.run_id) for person in people]
    with django_assert_max_num_queries(8):
        verdicts = admission.judge(claims)
    assert all(f"run.{interrupt.run_id}" in v.scopes for v in verdicts.values())


# How long


def test_a_right_that_is_lost_is_not_heard_any_more(make_interrupts, rita, quick, desk):
    session = sign_in(rita)

    async def scenario():
        page = await Page(session).greeted()
        await in_database(rita.groups.clear)()
        assert await page.next() == {"v": 2, "op": "hello"}
        await in_database(make_interrupts)()
        assert await page.hears_nothing()
        await page.leave()

    run(scenario)


def test_a_right_that_is_gained_is_heard_without_a_new_socket(
    make_interrupts, rita, eve, quick
):
    session = sign_in(eve)

    async def scenario():
        page = await Page(session).greeted()
        await in_database(eve.groups.set)(await in_database(list)(rita.groups.all()))
        assert (await page.next())["op"] == "hello"
        await in_database(make_interrupts)()
        assert (await page.next())["op"] == "opened"
        await page.leave()

    run(scenario)


def test_a_runs_socket_is_closed_when_the_run_is_out_of_sight(
    make_interrupts, rita, quick
):
    (interrupt,) = make_interrupts()
    session = sign_in(rita)

    async def scenario():
        page = await Page(session, path=f"/ws/runs/{interrupt.run_id}/").greeted()
        await in_database(rita.groups.clear)()
        assert await page.code() == 4403
        live.publish({f"run.{interrupt.run_id}"}, delta(interrupt.run_id, 1, "Hi"))
        assert await page.hears_nothing()

    run(scenario)


def sign_out(session, person):
    Session.objects.filter(session_key=session).delete()


def deactivate(session, person):
    person.is_active = False
    person.save()


def change_password(session, person):
    person.set_password("another")
    person.save()


def delete(session, person):
    type(person).objects.filter(pk=person.pk).delete()


def somebody_else(session, person):
    """The same key, another login: cannot happen by Django, and must not matter."""
    other = type(person).objects.create(username="other")
    data = Session.objects.get(session_key=sign_in(other)).session_data
    Session.objects.filter(session_key=session).update(session_data=data)


@pytest.mark.parametrize(
    "change", [sign_out, deactivate, change_password, delete, somebody_else]
)
def test_a_socket_ends_with_the_login_it_rests_on(eve, quick, change):
    session = sign_in(eve)

    async def scenario():
        page = await Page(session).greeted()
        await asyncio.sleep(0.3)
        await in_database(change)(session, eve)
        assert await page.code() == 4401
        live.publish({f"user.{eve.pk}"}, {"op": "run", "id": "x"})
        assert await page.hears_nothing()

    run(scenario)


def test_signing_out_for_real_closes_the_socket(rita, quick, client):
    """B111: in another tab."""
    client.force_login(rita)
    session = client.cookies["sayso_session"].value

    async def scenario():
        page = await Page(session).greeted()
        await in_database(client.post)(reverse("logout"))
        assert await page.code() == 4401

    run(scenario)


def test_when_nobody_can_tell_who_may_listen_nobody_does(
    rita, quick, monkeypatch, caplog
):
    session = sign_in(rita)

    async def scenario():
        page = await Page(session).greeted()

        def broken(claims):
            raise OSError("no database")

        monkeypatch.setattr(admission, "judge", broken)
        assert await page.code() == 4503
        late = Page(session)
        assert await late.open()
        assert await late.code() == 4503

    run(scenario)
    assert "could not be checked" in caplog.text


# When it is told


def test_a_page_is_told_after_the_commit(make_run, rita, owen):
    session = sign_in(owen)
    heard = threading.Event()

    def change():
        with transaction.atomic():
            live.announce_on_commit({"all"}, "run", "x")
            # What is published now arrives, and ahead of what was announced before.
            live.publish({"all"}, {"op": "run", "id": "meanwhile"})
            assert heard.wait(5)
            ended_at = time.monotonic()
        connection.close()
        return ended_at

    async def scenario():
        page = await Page(session).greeted()
        changing = asyncio.ensure_future(
            sync_to_async(change, thread_sensitive=False)()
        )
        assert (await page.next())["id"] == "meanwhile"
        heard.set()
        assert (await page.next())["id"] == "x"
        heard_at = time.monotonic()
        assert heard_at - await changing < 0.2
        await page.leave()

    run(scenario)


def test_b99_what_a_page_hears_of_is_there(make_interrupts, rita, monkeypatch):
    """The push waits for the commit, however slow that is: nobody gets a 404 for it."""
    session = sign_in(rita)
    client = Client()
    client.force_login(rita)
    client.get(reverse("inbox"))  # So that the next page takes no time.
    announce, heard = live.announce_on_commit, threading.Event()

    def then_slowly(scopes, op, id):
        announce(scopes, op, id)
        if op == "opened":
            live.publish(scopes, {"op": "run", "id": "meanwhile"})
            assert heard.wait(5)

    monkeypatch.setattr(live, "announce_on_commit", then_slowly)

    def look(pk):
        try:
            page = client.get(reverse("interrupt", args=[pk]))
            return page.status_code, b"Approve and delete file" in page.content
        finally:
            connection.close()

    async def scenario():
        page = await Page(session).greeted()
        opening = asyncio.ensure_future(in_database(make_interrupts)())
        assert (await page.socket.receive_json_from(timeout=30))["id"] == "meanwhile"
        heard.set()
        told = await page.next()
        assert told["op"] == "opened"
        there = sync_to_async(look, thread_sensitive=False)
        assert await there(told["id"]) == (200, True)
        await opening
        await page.leave()

    run(scenario)


def test_what_is_rolled_back_is_not_told(owen):
    session = sign_in(owen)

    def change():
        with transaction.atomic():
            live.announce_on_commit({"all"}, "run", "x")
            transaction.set_rollback(True)

    async def scenario():
        page = await Page(session).greeted()
        await in_database(change)()
        assert await page.hears_nothing()
        await page.leave()

    run(scenario)


def test_a_dead_line_does_not_undo_a_decision(make_interrupts, rita, caplog):
    (interrupt,) = make_interrupts()

    def dead(scopes, message):
        raise OSError("no line")

    live.connect(dead)
    try:
        shown = services.shown_digest(interrupt)
        ballot = Ballot(verdict=Verdict.APPROVE, shown=shown)
        services.decide(interrupt.pk, ballot, reviewer=rita)
    finally:
        live.connect(None)
    interrupt = Interrupt.objects.get(pk=interrupt.pk)
    assert interrupt.status == InterruptStatus.APPROVED
    assert "Could not publish" in caplog.text


# What it puts up with


def test_a_ping_is_answered_and_anything_else_small_ignored(rita):
    session = sign_in(rita)
    nonsense = [" ", "{", "[" * 900, '"ping"', "[1]", "null", '{"op": "decide"}']
    nonsense += ['{"op": ["ping"]}', '{"op": "hello", "content": "x"}', "NaN"]

    async def scenario():
        page = await Page(session).greeted()
        for text in nonsense:
            await page.send(text)
        assert await page.hears_nothing()
        await page.send('{"op": "ping"}')
        assert await page.next() == {"v": 2, "op": "pong"}
        await page.leave()

    run(scenario)


def test_what_no_page_sends_closes_that_socket_only(rita, caplog):
    """B151: others hear on, and no traceback is written."""
    session = sign_in(rita)

    async def scenario():
        other = await Page(session).greeted()
        big = await Page(session).greeted()
        await big.send("x" * 1_000_000)
        assert await big.code() == 4413
        binary = await Page(session).greeted()
        await binary.socket.send_to(bytes_data=b"\x00\xff")
        assert await binary.code() == 4415
        flood = await Page(session).greeted()
        for _ in range(1000):
            await flood.send("{")
        assert await flood.code() == 4429
        for _ in range(1000):
            await flood.send("{")
        live.publish({f"user.{rita.pk}"}, {"op": "run", "id": "x"})
        assert (await other.next())["id"] == "x"
        assert await flood.hears_nothing()
        await other.leave()

    run(scenario)
    assert not [r for r in caplog.records if r.levelno >= logging.WARNING]


def test_three_hundred_sockets_leave_nothing_behind(make_interrupts, rita):
    """B103: also no connection to the database."""
    (interrupt,) = make_interrupts()
    session = sign_in(rita)
    path = f"/ws/runs/{interrupt.run_id}/"

    async def scenario():
        for _ in range(3):
            pages = [Page(session, path=path) for _ in range(100)]
            await asyncio.gather(*(page.greeted() for page in pages))
            await asyncio.gather(*(page.leave() for page in pages))

    run(scenario)
    before = database_connections()
    run(scenario)
    assert database_connections() <= before


def database_connections() -> int:
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT count(*) FROM pg_stat_activity"
                " WHERE datname = current_database()"
            )
            return cursor.fetchone()[0]
    name = str(connection.settings_dict["NAME"])
    return sum(name in link for link in open_files())


# On a real server


def test_a_served_socket(rita, tmp_path):
    session = sign_in(rita)
    cookie = {"Cookie": f"sayso_session={session}"}
    with serving(tmp_path) as served:
        address = served.address()

        with pytest.raises(InvalidStatus):
            connect(address, origin="http://evil.example", additional_headers=cookie)
        with pytest.raises(InvalidStatus):
            connect(served.address("/ws/x/"), additional_headers=cookie)
        assert close_code(connect(address, origin=served.origin)) == 4401
        with connect(address, additional_headers=cookie) as program:
            assert json.loads(program.recv(5)) == {"v": 1, "op": "hello"}

        for sent, code in (("x" * 1001, 4413), (b"x", 4415), ("y" * 900_000, 4413)):
            misused = connect(address, origin=served.origin, additional_headers=cookie)
            misused.recv(5)
            misused.send(sent)
            assert close_code(misused) == code

        page = connect(address, origin=served.origin, additional_headers=cookie)
        page.recv(5)
        page.send('{"op": "ping"}')
        assert json.loads(page.recv(5)) == {"v": 2, "op": "pong"}
        Session.objects.filter(session_key=session).delete()
        started = time.monotonic()
        assert close_code(page) == 4401
        assert time.monotonic() - started < 5
    assert "Traceback" not in served.log.read_text()


def close_code(socket):
    """The code the server closes with, whatever it says before."""
    with suppress(ConnectionClosed):
        while True:
            socket.recv(10)
    return socket.close_code
