"""What a tool may know of the call it serves, and the threads plain functions run on.

Adapters set it around the body; tools read it. Nothing here knows a framework.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from uuid import UUID

from django.db import close_old_connections

TOOL_THREADS = 16


@dataclass(frozen=True, kw_only=True)
class ToolContext:
    """The call that is being served."""

    run_id: UUID
    thread_id: UUID
    call_id: str


class ToolError(Exception):
    """Raised by a tool that did nothing: says why, as a sentence for the model.

    It counts as failed, as does anything else a tool raises; that is told with its type.
    """


TOOL_CONTEXT: ContextVar[ToolContext] = ContextVar("TOOL_CONTEXT")


@contextmanager
def serving(context: ToolContext) -> Iterator[None]:
    """Around a tool's body, which finds ``context`` in TOOL_CONTEXT."""
    token = TOOL_CONTEXT.set(context)
    try:
        yield
    finally:
        TOOL_CONTEXT.reset(token)


async def on_tool_thread[T](function: Callable[[], T]) -> T:
    """Run a blocking function with the caller's context variables, off the event loop.

    Not ``asyncio.to_thread``: its executor has six threads on two cores and is shared with
    everything else, so that six slow tools would stall the whole worker.
    """
    context = contextvars.copy_context()
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(_tool_threads(), context.run, _alone, function)


def _alone[T](function: Callable[[], T]) -> T:
    """A tool may have asked the database, and its connection is not the next one's."""
    try:
        return function()
    finally:
        close_old_connections()


@cache
def _tool_threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(TOOL_THREADS, thread_name_prefix="sayso-tool")
