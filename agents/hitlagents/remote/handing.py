"""Handing approvals over: several calls in the ledger, one request for all of them.

Each approved call is a body that the guard has let in and that waits for the request. The
request is a task of its own, so that it comes to its end, and every body hears of it,
also when the run is taken away meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence, Set
from contextlib import aclosing
from typing import Any

from approvals.schemas import Answer, ToolCall
from hitlagents.adapters.base import (
    Happening,
    Host,
    NoResult,
    OutcomeLost,
    Paused,
    Told,
    ToolCallResult,
)
from hitlagents.remote.client import Lost, NotTaken

type Key = tuple[int, str]

#: What is told of a call whose approval was taken, when the agent tells nothing.
TAKEN = "The agent took the approval, and told no result."
#: What is told where it did not take it.
ASKED_AGAIN = "The agent told no result, and asks for the same approval again."

#: Requests under way. Held here, since their runs may have gone on without them.
_requests: set[asyncio.Task[None]] = set()


def _noted(guard: asyncio.Task[Told]) -> None:
    """Nobody waits for this guard any more; the ledger has what it found."""
    if not guard.cancelled():
        guard.exception()


class _Body:
    """One call: entered when the guard lets it in, ended when the agent has answered."""

    def __init__(self, host: Host, call: ToolCall) -> None:
        self.arguments: Mapping[str, Any] = {}
        self._entered = asyncio.Event()
        self._end: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.guard = asyncio.create_task(host.guard(call, self._enter))

    async def let_in(self) -> bool:
        """Whether the guard has let it in; if not, the guard has its say instead."""
        entered = asyncio.create_task(self._entered.wait())
        await asyncio.wait({self.guard, entered}, return_when=asyncio.FIRST_COMPLETED)
        entered.cancel()
        return self._entered.is_set()

    async def _enter(self, arguments: Mapping[str, Any]) -> str:
        self.arguments = arguments
        self._entered.set()
        return await self._end

    def end(self, outcome: str | Exception) -> None:
        """The first outcome counts."""
        if self._end.done():
            return
        if isinstance(outcome, Exception):
            self._end.set_exception(outcome)
            self._end.exception()  # Noted: a call that is never let in asks nobody.
        else:
            self._end.set_result(outcome)


class Handing:
    """The approved calls of one request."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._bodies: dict[Key, _Body] = {}
        self._by_call: dict[str, _Body] = {}
        self._sent = False
        #: Calls whose approval the agent asks for again, at the end of its answer.
        self._asked_again: Callable[[], Set[Key]] = frozenset
        #: What happens, as it comes; None at the end. Bounded by what a run may send.
        self._told: asyncio.Queue[Happening | None] = asyncio.Queue()
        #: How the request went wrong, if it did.
        self.problem: NotTaken | Lost | None = None

    async def claim(self, answers: Sequence[Answer]) -> dict[Key, str]:
        """Have the guard let every call in.

        Gives what the ledger has of those that were sent before: it lets none in twice.
        Raises StopRun for the first that may not be sent.
        """
        earlier: dict[Key, str] = {}
        for answer in answers:
            call = answer.call
            key = call.turn, call.call_id
            body = self._bodies[key] = _Body(self._host, call)
            if await body.let_in():
                self._by_call[call.call_id] = body
                continue
            del self._bodies[key]
            try:
                earlier[key] = body.guard.result().result
            except BaseException:
                await self._withdraw()
                raise
        return earlier

    def arguments(self, key: Key) -> Mapping[str, Any] | None:
        """What the ledger has for an approved call to run with."""
        body = self._bodies.get(key)
        return None if body is None else body.arguments

    def send(
        self, answer: AsyncGenerator[Happening], asked_again: Callable[[], Set[Key]]
    ) -> None:
        """Begin the request; ``answer`` makes it and gives what happens.

        ``asked_again``: asked at the end of it, which calls still wait for the approval
        that was sent.
        """
        self._sent = True
        self._asked_again = asked_again
        request = asyncio.create_task(self._request(answer))
        _requests.add(request)
        request.add_done_callback(_requests.discard)

    async def next(self) -> Happening | None:
        """What happens next; None at the end of the request."""
        return await self._told.get()

    async def settled(self) -> None:
        """Until the ledger has what became of every call. Raises StopRun."""
        guards = [body.guard for body in self._bodies.values()]
        for result in await asyncio.gather(*guards, return_exceptions=True):
            if isinstance(result, BaseException) and not isinstance(result, Paused):
                raise result

    def end(self, outcome: str | Exception) -> None:
        """What became of every call that has no result of its own yet."""
        for body in self._bodies.values():
            body.end(outcome)

    def leave(self) -> None:
        """Somebody else drives the run now. A request that has left goes on.

        No guard is cancelled: one that is about to let a call in would leave it in the
        ledger as entered.
        """
        if not self._sent:
            self.end(Paused())
        for body in self._bodies.values():
            body.guard.add_done_callback(_noted)

    async def _withdraw(self) -> None:
        """Nothing has left: the guard forgets that it let the calls in."""
        self.end(Paused())
        with contextlib.suppress(Exception):
            await self.settled()

    async def _request(self, answer: AsyncGenerator[Happening]) -> None:
        """Never raises: a body that is told nothing would wait for ever."""
        try:
            async with aclosing(answer):
                async for happening in answer:
                    self._told.put_nowait(happening)
                    if isinstance(happening, ToolCallResult):
                        self._end_one(happening)
            for key in self._asked_again() & self._bodies.keys():
                self._bodies[key].end(NoResult(ASKED_AGAIN))
            self.end(TAKEN)
        except NotTaken as error:
            self.problem = error
            self.end(Paused())
        except Lost as error:
            self.problem = error
            self.end(OutcomeLost(str(error)))
        except Exception as error:  # noqa: BLE001 - the bodies are told
            what = f"The agent's answer could not be read ({type(error).__name__})."
            self.problem = Lost(what)
            self.end(OutcomeLost(what))
        finally:
            self._told.put_nowait(None)

    def _end_one(self, result: ToolCallResult) -> None:
        body = self._by_call.get(result.call_id)
        if body is not None:
            body.end(result.content)
