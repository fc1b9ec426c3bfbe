"""HTTP on lasting threads: what reaches a view, what comes back, and who cleans up."""

from __future__ import annotations

import asyncio
import io
import threading
from typing import Any

import pytest
from asgiref.testing import ApplicationCommunicator
from django.core.signals import request_finished
from django.http import FileResponse, HttpRequest, HttpResponse, StreamingHttpResponse
from django.urls import path
from django.views.decorators.csrf import csrf_exempt

from hitlsite.handler import THREADS, Handler

pytestmark = pytest.mark.urls(__name__)

ended = threading.Event()
#: Threads that answered, each as often as it did.
answered_by: list[str] = []


@csrf_exempt
def echo(request: HttpRequest) -> HttpResponse:
    answered_by.append(threading.current_thread().name)
    return HttpResponse(f"{request.method} ".encode() + request.body)


def broken(request: HttpRequest) -> HttpResponse:
    raise RuntimeError("as the test wants it")


def endless(request: HttpRequest) -> StreamingHttpResponse:
    async def pieces() -> Any:
        try:
            while True:
                yield b"piece"
                await asyncio.sleep(0.01)
        finally:
            ended.set()

    return StreamingHttpResponse(pieces())


def few(request: HttpRequest) -> StreamingHttpResponse:
    async def pieces() -> Any:
        yield b"one "
        yield b"two"

    return StreamingHttpResponse(pieces())


def file(request: HttpRequest) -> FileResponse:
    return FileResponse(io.BytesIO(b"file" * 100_000), content_type="text/x-test")


urlpatterns = [
    path("echo/", echo),
    path("broken/", broken),
    path("endless/", endless),
    path("few/", few),
    path("file/", file),
]


@pytest.fixture(scope="module")
def handler() -> Handler:
    return Handler()


def asked(handler: Handler, where: str, method: str = "GET") -> ApplicationCommunicator:
    scope = {
        "type": "http",
        "method": method,
        "path": where,
        "query_string": b"",
        "headers": [(b"host", b"127.0.0.1")],
    }
    return ApplicationCommunicator(handler, scope)


async def read(asking: ApplicationCommunicator) -> tuple[int, bytes]:
    start = await asking.receive_output(5)
    body = b""
    while True:
        message = await asking.receive_output(5)
        body += message.get("body", b"")
        if not message.get("more_body"):
            return start["status"], body


async def get(handler: Handler, where: str) -> tuple[int, bytes]:
    asking = asked(handler, where)
    await asking.send_input({"type": "http.request", "body": b""})
    answer = await read(asking)
    await asking.wait(5)
    return answer


def test_a_body_that_comes_in_pieces_reaches_the_view(handler):
    async def go() -> tuple[int, bytes]:
        asking = asked(handler, "/echo/", "PUT")
        for piece, more in ((b"a", True), (b"b", False)):
            await asking.send_input(
                {"type": "http.request", "body": piece, "more_body": more}
            )
        return await read(asking)

    assert asyncio.run(go()) == (200, b"PUT ab")


def test_many_requests_share_a_few_threads(handler):
    answered_by.clear()

    async def go() -> None:
        await asyncio.gather(*(get(handler, "/echo/") for _ in range(40)))

    asyncio.run(go())
    assert len(answered_by) == 40
    assert len(set(answered_by)) <= THREADS


def test_a_view_that_raises_answers_500(handler):
    assert asyncio.run(get(handler, "/broken/"))[0] == 500


def test_a_reader_who_leaves_before_the_body_is_complete_harms_nothing(handler):
    async def go() -> None:
        asking = asked(handler, "/echo/")
        await asking.send_input({"type": "http.disconnect"})
        await asking.wait(5)

    answered_by.clear()
    asyncio.run(go())
    assert answered_by == []


def test_a_stream_is_sent_to_its_end_and_then_closed(handler):
    finished: list[str] = []

    def heard(**signal: Any) -> None:
        finished.append(threading.current_thread().name)

    request_finished.connect(heard)
    try:
        assert asyncio.run(get(handler, "/few/")) == (200, b"one two")
    finally:
        request_finished.disconnect(heard)
    assert len(finished) == 1
    assert finished[0].startswith("sayso-web")


def test_a_stream_ends_when_its_reader_leaves(handler):
    ended.clear()

    async def go() -> None:
        asking = asked(handler, "/endless/")
        await asking.send_input({"type": "http.request", "body": b""})
        assert (await asking.receive_output(5))["status"] == 200
        assert (await asking.receive_output(5))["body"] == b"piece"
        await asking.send_input({"type": "http.disconnect"})
        await asking.wait(5)

    asyncio.run(go())
    assert ended.is_set()


def test_a_file_is_sent_whole_with_its_headers(handler, recwarn):
    async def go() -> tuple[dict[bytes, bytes], bytes]:
        asking = asked(handler, "/file/")
        await asking.send_input({"type": "http.request", "body": b""})
        start = await asking.receive_output(5)
        body = b""
        while (message := await asking.receive_output(5)).get("more_body"):
            body += message["body"]
        return dict(start["headers"]), body + message["body"]

    headers, body = asyncio.run(go())
    assert body == b"file" * 100_000
    assert headers[b"Content-Type"] == b"text/x-test"
    assert headers[b"Content-Length"] == b"400000"
    assert not recwarn
