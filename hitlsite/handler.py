"""Django behind ASGI, with all of a request's work on one of a few lasting threads.

Our views and middlewares are synchronous. Django's own handler would hop to a thread and
back at every middleware, and begin each request on a new thread with a new connection to
the database: several milliseconds of every answer.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from typing import IO, Any, cast

from django.core import signals
from django.core.exceptions import RequestAborted
from django.core.handlers.asgi import ASGIHandler, get_script_prefix
from django.core.handlers.base import BaseHandler
from django.db import close_old_connections
from django.http import HttpResponse
from django.http.response import HttpResponseBase
from django.urls import set_script_prefix

type Scope = dict[str, Any]
type Receive = Callable[[], Awaitable[Mapping[str, Any]]]
type Send = Callable[[Mapping[str, Any]], Awaitable[None]]

#: Requests that are worked on at once. More wait: views use the processor and the
#: database, and one process has one of each.
THREADS = 8


class Handler(ASGIHandler):
    """``get_asgi_application()`` for synchronous views.

    A response with an asynchronous iterator is sent as it comes, and ends when its reader
    leaves; one with an ordinary iterator is a file and is sent whole.
    """

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="sayso-web")
        super().__init__()

    def load_middleware(self, is_async: bool = False) -> None:  # noqa: FBT001, FBT002
        super().load_middleware(is_async=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            body = await self.read_body(receive)
        except RequestAborted:
            return
        loop = asyncio.get_running_loop()
        answer = partial(self._answer, scope, body)
        response = await loop.run_in_executor(
            self._threads, contextvars.copy_context().run, answer
        )
        if not response.streaming:
            await self.send_response(response, send)
            return
        try:
            await self._stream(response, receive, send)
        finally:
            await loop.run_in_executor(self._threads, response.close)

    def _answer(self, scope: Scope, body: IO[bytes]) -> HttpResponseBase:
        """The response, closed already unless it streams: its text is all there."""
        with closing(body):
            set_script_prefix(get_script_prefix(scope))
            signals.request_started.send(sender=self.__class__, scope=scope)
            request, response = self.create_request(scope, body)
            if request is not None:
                response = BaseHandler.get_response(self, request)
            assert response is not None
            # The sender of request_finished.
            response._handler_class = self.__class__  # type: ignore[attr-defined]
            if response.streaming and not response.is_async:  # type: ignore[attr-defined]
                response = _whole(response)
            if response.streaming:
                # It ends on whichever thread is free then; this one has done its part.
                close_old_connections()
            else:
                response.close()
            return response

    async def _stream(
        self, response: HttpResponseBase, receive: Receive, send: Send
    ) -> None:
        sending = asyncio.create_task(self.send_response(response, send))
        leaving = asyncio.create_task(self.listen_for_disconnect(receive))
        done, pending = await asyncio.wait(
            {sending, leaving}, return_when=asyncio.FIRST_COMPLETED
        )
        for task in pending:
            task.cancel()
        await asyncio.gather(sending, leaving, return_exceptions=True)
        if sending in done:
            sending.result()


def _whole(response: HttpResponseBase) -> HttpResponse:
    """A static file, read here and now: Django would do it on a thread of its own."""
    with closing(response):
        parts = cast("Iterable[bytes]", response)
        whole = HttpResponse(b"".join(parts), status=response.status_code)
    whole.headers, whole.cookies = response.headers, response.cookies
    return whole
