"""The pool of connections to PostgreSQL: dropped ones are replaced, lent ones come back."""

from __future__ import annotations

import asyncio
import io
from typing import Any, cast

import channels.db
import pytest
from asgiref.testing import ApplicationCommunicator
from django.contrib.auth import get_user_model
from django.core.handlers.asgi import ASGIRequest
from django.db import close_old_connections, connection, connections
from django.http import HttpRequest, StreamingHttpResponse
from django.urls import path

from approvals.http import download_lines
from hitlagents.toolcall import on_tool_thread
from hitlsite import installation
from hitlsite.handler import Handler
from tests.hitlagents.engine.conftest import eventually
from tests.hitlagents.engine.processes import drop_the_others
from tests.racing import race

pytestmark = [
    pytest.mark.postgresql,
    pytest.mark.django_db(transaction=True),
    pytest.mark.urls(__name__),
]

#: More than one caller could try in turn: the pool waits twice as long after each.
DROPPED = 8


def count(*_: Any) -> int:
    return int(get_user_model().objects.count())


def all_are_back() -> bool:
    """Whether nobody has a connection of the pool; the test itself has none."""
    connections.close_all()
    pool: Any = cast("Any", connection).pool

    def back() -> bool:
        stats = pool.get_stats()
        return bool(stats["pool_size"] == stats["pool_available"])

    # Those that the pool makes in place of dropped ones are not there at once.
    return eventually(back, seconds=10)


@pytest.fixture(autouse=True)
def closing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sockets that other tests play put nothing in the place of this while they wait;
    two of them at once leave it there."""
    monkeypatch.setattr(channels.db, "close_old_connections", close_old_connections)


def test_connections_that_were_dropped_in_the_pool_are_nobodys_error():
    opened = [connections["default"].copy() for _ in range(DROPPED)]
    for one in opened:
        one.ensure_connection()
    for one in opened:
        one.close()
    drop_the_others()
    # Whoever comes first meets them all, and the others still get one each.
    assert race([count]) == [0]
    assert race([count] * DROPPED) == [0] * DROPPED


async def pieces() -> Any:
    yield b"piece"
    await asyncio.Event().wait()


def endless(request: HttpRequest) -> StreamingHttpResponse:
    count()
    return StreamingHttpResponse(pieces())


urlpatterns = [path("endless/", endless)]


def test_a_stream_keeps_no_connection():
    async def go() -> bool:
        scope = {
            "type": "http",
            "method": "GET",
            "path": "/endless/",
            "query_string": b"",
            "headers": [(b"host", b"127.0.0.1")],
        }
        asking = ApplicationCommunicator(Handler(), scope)
        await asking.send_input({"type": "http.request", "body": b""})
        assert (await asking.receive_output(5))["status"] == 200
        assert (await asking.receive_output(5))["body"] == b"piece"
        held = await asyncio.to_thread(all_are_back)
        await asking.send_input({"type": "http.disconnect"})
        await asking.wait(5)
        return held

    assert asyncio.run(go())


def test_a_download_keeps_no_connection():
    answers = iter(["line\n", ""])

    def more() -> str:
        count()
        return next(answers)

    async def go() -> bool:
        request = ASGIRequest(
            {"type": "http", "method": "GET", "path": "/", "headers": []}, io.BytesIO()
        )
        response = download_lines(request, more, "lines.jsonl")
        assert [piece async for piece in response] == [b"line\n"]
        return await asyncio.to_thread(all_are_back)

    assert asyncio.run(go())


def test_a_tool_that_asks_the_database_keeps_no_connection():
    async def go() -> bool:
        assert await on_tool_thread(count) == 0
        return await asyncio.to_thread(all_are_back)

    assert asyncio.run(go())


def test_a_process_that_is_up_to_date_keeps_no_connection(monkeypatch, settings):
    settings.SAYSO_DEMO = False
    monkeypatch.setattr(installation.static_files, "collect_if_changed", lambda: None)
    installation.bring_up_to_date()
    assert connection.connection is None
