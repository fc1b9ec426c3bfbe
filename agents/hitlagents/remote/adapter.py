"""A remote AG-UI agent behind the adapter contract.

The remote runs its own tools, so the body that the guard lets in is the request that
carries the approval: the ledger has the call before it leaves, and what the remote says
of it afterwards. One request answers everything that waits, so several bodies wait for
the same one. When it is lost, all of them are in doubt, and nothing is sent again until
a person has said what happened.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, ClassVar
from uuid import UUID, uuid4

from approvals.schemas import Answer, ToolSpec
from approvals.states import InterruptKind, Verdict
from hitlagents.adapters.base import (
    AgentRunError,
    Finished,
    Happening,
    Host,
    Interrupted,
    Outcome,
    OutcomeLost,
    Paused,
    Resume,
    Start,
    State,
    TextDelta,
    ToolCallProposed,
    ToolCallResult,
)
from hitlagents.adapters.failures import damaged
from hitlagents.adapters.stored import natural, plain, refuse_newer
from hitlagents.remote import client
from hitlagents.remote.answers import Entry, dropped, entry, unfit
from hitlagents.remote.client import Endpoint, Lost, NotTaken
from hitlagents.remote.interrupts import OpenInterrupt, Pause, read_pause
from hitlagents.remote.journal import Journal
from hitlagents.remote.profiles import HABITS, Together
from hitlagents.remote.reading import Ending, Message, Reader

logger = logging.getLogger(__name__)

FRAMEWORK = "AG-UI"
PROTOCOL_VERSION = "1.0"
SCHEMA = 1

#: How often an agent may ask something new while it is told that nobody will answer.
MAX_DROPS = 3

#: Requests whose run was taken away while they were under way; the ledger waits for them.
_requests: set[asyncio.Task[None]] = set()


class RemoteAdapter:
    """One remote agent, as its row was when this was made.

    ``may_repost``: whether a person's retry may send again what was lost before, unless
    it carries an approval: for that only the ledger counts.
    """

    framework: ClassVar[str] = FRAMEWORK
    version: str = PROTOCOL_VERSION
    schema: ClassVar[int] = SCHEMA
    #: Nothing runs here, and what waits is learned as it comes.
    tools: Sequence[ToolSpec] = ()

    def __init__(
        self,
        *,
        endpoint: Endpoint,
        journal: Journal,
        profile: str,
        together: Together,
        may_repost: bool = False,
    ) -> None:
        self.endpoint = endpoint
        self.journal = journal
        self.profile = profile
        self.habits = HABITS[profile]
        self.together = together
        self.may_repost = may_repost
        self.model_label = endpoint.host

    @property
    def cancel(self) -> Verdict:
        return (
            Verdict.CANCEL_RUN if self.habits.cancel_ends_run else Verdict.CANCEL_CALL
        )

    async def start(self, start: Start, host: Host) -> Outcome:
        kept = Kept.of(start.state)
        advance = _Advance(self, host, start.thread_id, kept)
        await advance.drop_open()
        said = {"id": str(start.run_id), "role": "user", "content": start.message}
        return await advance.send([*advance.kept.messages, said], place="start")

    async def resume(self, resume: Resume, host: Host) -> Outcome:
        kept = Kept.of(resume.state)
        return await _Advance(self, host, resume.thread_id, kept).answer(resume.answers)


@dataclass(kw_only=True)
class Kept:
    """What is kept of a thread between two advances."""

    messages: list[Message] = field(default_factory=list)
    open: list[OpenInterrupt] = field(default_factory=list)
    #: Our id of the last run there.
    run: str = ""
    #: How many answers have been read; the next one's calls are of the next turn.
    turn: int = 0

    @classmethod
    def of(cls, state: State | None) -> Kept:
        """Raises CheckpointError."""
        if state is None:
            return cls()
        try:
            refuse_newer(state, SCHEMA)
            messages = state["messages"]
            if not all(isinstance(message, dict) for message in messages):
                raise ValueError(messages)
            return cls(
                messages=list(messages),
                open=[OpenInterrupt.from_state(each) for each in state["open"]],
                run=str(state["run"]),
                turn=natural(state["turn"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise damaged() from error

    def to_state(self) -> State:
        return plain(
            {
                "schema": SCHEMA,
                "messages": self.messages,
                "open": [each.to_state() for each in self.open],
                "run": self.run,
                "turn": self.turn,
            }
        )


class _Advance:
    """One advance of one run of a thread."""

    def __init__(
        self, adapter: RemoteAdapter, host: Host, thread_id: UUID, kept: Kept
    ) -> None:
        self.adapter = adapter
        self.host = host
        self.thread_id = thread_id
        self.kept = kept
        #: Our id of the run that was asked for last.
        self._run = ""
        #: Calls whose result the agent has told.
        self._results: frozenset[str] = frozenset()

    # A message

    async def send(
        self,
        messages: list[Message],
        *,
        place: str,
        resume: Sequence[Mapping[str, Any]] = (),
    ) -> Outcome:
        """Send what carries no approval, and tell what the agent answers."""
        again = self.adapter.may_repost
        journal, run_id = self.adapter.journal, self.host.run_id
        if not await journal.begin(run_id, place, again=again):
            raise AgentRunError(
                "This was sent to the agent before, and what came of it is not known. "
                f"{self._what_then}",
                retryable=again,
            )
        reader = self._reader(messages)
        try:
            await self._read(reader, resume)
        except NotTaken as error:
            await journal.forget(run_id, place)
            raise AgentRunError(str(error), retryable=True) from error
        except Lost as error:
            await journal.lost(run_id, place)
            raise AgentRunError(
                f"{error} {self._what_then}", retryable=again
            ) from error
        ending = await self._ended(reader)
        if ending.error is not None:
            await self._failed(ending, place)
        return await self._outcome(reader, ending)

    async def _read(
        self, reader: Reader, resume: Sequence[Mapping[str, Any]] = ()
    ) -> None:
        """Tell the host what comes, to the end. Raises NotTaken, Lost."""
        body = self._body(reader, resume)
        async with aclosing(client.events(self.adapter.endpoint, body)) as stream:
            async for event in stream:
                for happening in reader.take(event):
                    await self.host.emit(happening)
                if reader.ending is not None:
                    return
        reader.check_ended()

    async def _failed(self, ending: Ending, place: str) -> None:
        """The agent ended its run in an error. Raises AgentRunError."""
        journal, run_id = self.adapter.journal, self.host.run_id
        if self._nothing_ran(ending):
            await journal.forget(run_id, place)
            raise AgentRunError(self._told(ending), retryable=True)
        await journal.lost(run_id, place)
        again = self.adapter.may_repost
        raise AgentRunError(f"{self._told(ending)} {self._what_then}", retryable=again)

    # Answers

    async def answer(self, answers: Sequence[Answer]) -> Outcome:
        """Give every decided request its answer, in one request."""
        waiting = {each.key: each for each in self.kept.open}
        given = {(each.call.turn, each.call.call_id): each for each in answers}
        if not waiting or waiting.keys() != given.keys():
            raise damaged()
        for key, answer in given.items():
            problem = unfit(waiting[key], answer, self.adapter.habits)
            if problem:
                raise AgentRunError(problem, retryable=False)
        if len(waiting) > 1 and self.adapter.together == Together.SINGLE:
            raise AgentRunError(
                "This agent cannot be answered while several of its calls wait. Cancel "
                "the run, and have it propose one call at a time.",
                retryable=False,
            )
        pairs = [(each, given[key]) for key, each in waiting.items()]
        approved = [
            (each, answer)
            for each, answer in pairs
            if answer.verdict == Verdict.APPROVE and each.kind == InterruptKind.APPROVAL
        ]
        if approved:
            return await self._approve(pairs, approved)
        entries = [entry(each, answer, self.adapter.habits) for each, answer in pairs]
        outcome = await self.send(
            list(self.kept.messages), place=self.kept.run, resume=_merged(entries)
        )
        await self._note_refusals(pairs, entries)
        return outcome

    async def _approve(
        self,
        pairs: Sequence[tuple[OpenInterrupt, Answer]],
        approved: Sequence[tuple[OpenInterrupt, Answer]],
    ) -> Outcome:
        """Claim every approved call in the ledger, then send the one request for all."""
        handing = _Handing(self.host)
        try:
            earlier = await handing.claim([answer for _each, answer in approved])
            if earlier:
                return await self._not_again(handing, earlier)
            entries = [
                entry(
                    each,
                    answer,
                    self.adapter.habits,
                    arguments=handing.arguments.get(each.key),
                )
                for each, answer in pairs
            ]
            reader = self._reader(list(self.kept.messages))
            ending = await self._hand_over(handing, reader, _merged(entries))
        except BaseException:
            handing.leave()
            raise
        outcome = await self._outcome(reader, ending)
        await self._note_refusals(pairs, entries)
        return outcome

    async def _hand_over(
        self,
        handing: _Handing,
        reader: Reader,
        resume: Sequence[Mapping[str, Any]],
    ) -> Ending:
        """Send the approvals. Raises StopRun when what came of them is not known."""
        request = asyncio.create_task(
            self._request(handing, reader, self._body(reader, resume))
        )
        handing.sent = True
        # Held: it goes on when this run is taken away, and the ledger hears of its end.
        _requests.add(request)
        request.add_done_callback(_requests.discard)
        while (happening := await handing.told.get()) is not None:
            await self.host.emit(happening)
        await request
        await handing.settled()
        if handing.not_taken is not None:
            raise AgentRunError(str(handing.not_taken), retryable=True)
        ending = await self._ended(reader)
        if ending.error is not None:
            # Every approved call has its result, so none of them will be sent again.
            raise AgentRunError(self._told(ending), retryable=False)
        return ending

    async def _request(
        self, handing: _Handing, reader: Reader, body: Mapping[str, Any]
    ) -> None:
        """Read the answer to its end, and tell every body what became of its call.

        Never raises: a body that is told nothing would wait for ever.
        """
        try:
            async with aclosing(client.events(self.adapter.endpoint, body)) as stream:
                async for event in stream:
                    for happening in reader.take(event):
                        handing.tell(happening)
                    if reader.ending is not None:
                        break
            reader.check_ended()
        except NotTaken as error:
            handing.withdraw(error)
        except Lost as error:
            handing.lose(str(error))
        except Exception as error:  # noqa: BLE001 - the bodies are told
            handing.lose(
                f"The agent's answer could not be read ({type(error).__name__})."
            )
        else:
            assert reader.ending is not None
            self._close(handing, reader.ending)
        finally:
            handing.told.put_nowait(None)

    def _close(self, handing: _Handing, ending: Ending) -> None:
        if ending.error is None:
            handing.finish("The agent took the approval, and told no result.")
        elif self._nothing_ran(ending):
            handing.withdraw(NotTaken(self._told(ending)))
        else:
            handing.lose(self._told(ending))

    async def _not_again(
        self, handing: _Handing, earlier: Mapping[tuple[int, str], str]
    ) -> Outcome:
        """An earlier attempt has sent these approvals: end the run without sending any.

        What the ledger knows of them becomes part of the conversation.
        """
        handing.fail("Not sent: another approval of the same request was sent before.")
        await handing.settled()
        messages = list(self.kept.messages)
        for each in self.kept.open:
            told = earlier.get(each.key, "Not executed.")
            await self.host.emit(ToolCallResult(call_id=each.call_id, content=told))
            if each.tool_call_id:
                messages.append(
                    {
                        "id": f"{self.host.run_id}-{each.call_id}",
                        "role": "tool",
                        "toolCallId": each.tool_call_id,
                        "content": told,
                    }
                )
        words = (
            "The agent's own words were lost after the approval was sent to it. Nothing "
            "is sent twice, so this run ends here."
        )
        await self.host.emit(TextDelta(message_id=self._label, delta=words))
        kept = Kept(messages=messages, run=self.kept.run, turn=self.kept.turn + 1)
        return Finished(state=kept.to_state())

    async def _note_refusals(
        self,
        pairs: Sequence[tuple[OpenInterrupt, Answer]],
        entries: Sequence[Entry],
    ) -> None:
        """The agent has the answers that let nothing run; note that they were delivered."""
        for (each, answer), given in zip(pairs, entries, strict=True):
            if answer.verdict == Verdict.APPROVE:
                continue
            told = await self.host.guard(answer.call, _never)
            if answer.verdict != Verdict.ANSWER and not given.carries_note:
                told = (
                    "Not executed: the agent was told no, without the reviewer's note."
                )
            if each.call_id not in self._results:
                await self.host.emit(ToolCallResult(call_id=each.call_id, content=told))

    # What is still open of a run that has ended here

    async def drop_open(self) -> None:
        """Tell the agent that nobody will answer what an ended run left open.

        Raises AgentRunError.
        """
        for _ in range(MAX_DROPS):
            if not self.kept.open:
                return
            shapes = [dropped(each, self.adapter.habits) for each in self.kept.open]
            told = [shape for shape in shapes if shape is not None]
            several = len(shapes) > 1 and self.adapter.together == Together.SINGLE
            if several or len(told) < len(shapes):
                break
            reader = self._reader(list(self.kept.messages))
            body = self._body(reader, _merged([Entry(shape=shape) for shape in told]))
            try:
                async with aclosing(
                    client.events(self.adapter.endpoint, body)
                ) as stream:
                    async for event in stream:
                        for _happening in reader.take(event):
                            pass  # of a run that has ended here
                        if reader.ending is not None:
                            break
                reader.check_ended()
            except (NotTaken, Lost) as error:
                # Saying it twice does no harm.
                raise AgentRunError(str(error), retryable=True) from error
            assert reader.ending is not None
            self._keep(reader, self._pause(reader, reader.ending))
        if self.kept.open:
            raise AgentRunError(
                "The agent still waits for the answer to an earlier request, and cannot "
                "be told that none will come. Begin a new conversation.",
                retryable=False,
            )

    # What is sent, and what is kept

    @property
    def _label(self) -> str:
        return f"{self.host.run_id}-{self.kept.turn + 1}"

    def _reader(self, messages: list[Message]) -> Reader:
        return Reader(
            turn=self.kept.turn + 1,
            messages=messages,
            label=self._label,
            known={
                each.tool_call_id: each.call_id
                for each in self.kept.open
                if each.tool_call_id
            },
            phantoms=self.adapter.habits.phantom_tools,
        )

    def _body(
        self, reader: Reader, resume: Sequence[Mapping[str, Any]]
    ) -> dict[str, Any]:
        body: dict[str, Any] = {
            "threadId": str(self.thread_id),
            "runId": str(uuid4()),
            "messages": list(reader.messages),
            # None of ours: a tool that is declared by a page may switch a gate off.
            "tools": [],
            "context": [],
            "state": {},
            "forwardedProps": {},
        }
        if resume:
            body["resume"] = list(resume)
        self._run = body["runId"]
        return body

    async def _ended(self, reader: Reader) -> Ending:
        assert reader.ending is not None
        self._results = frozenset(reader.results)
        if reader.dropped:
            logger.info(
                "remote: Dropped %s events of %s that mean nothing here.",
                reader.dropped,
                self.adapter.endpoint.host,
            )
        await self.adapter.journal.heard(reader.protocol_version)
        return reader.ending

    def _pause(self, reader: Reader, ending: Ending) -> Pause | None:
        if not ending.interrupts:
            return None
        try:
            return read_pause(
                ending.interrupts,
                reader.calls,
                turn=reader.turn,
                profile=self.adapter.profile,
                together=self.adapter.together,
            )
        except ValueError as error:
            raise AgentRunError(str(error), retryable=False) from error

    def _keep(self, reader: Reader, pause: Pause | None) -> None:
        self.kept = Kept(
            messages=reader.messages,
            open=list(pause.open) if pause else [],
            run=self._run,
            turn=reader.turn,
        )

    async def _outcome(self, reader: Reader, ending: Ending) -> Outcome:
        pause = self._pause(reader, ending)
        self._keep(reader, pause)
        if pause is None:
            return Finished(state=self.kept.to_state())
        told = {call.call_id for call in reader.calls.values()}
        for draft in pause.drafts:
            if draft.call.call_id not in told:
                await self.host.emit(ToolCallProposed(call=draft.call))
        return Interrupted(
            interrupts=pause.drafts, state=self.kept.to_state(), tools=pause.tools
        )

    # Words

    @property
    def _what_then(self) -> str:
        if self.adapter.may_repost:
            return "A retry sends it again."
        return "It is not sent again; write a new message to go on."

    def _nothing_ran(self, ending: Ending) -> bool:
        codes = self.adapter.habits.nothing_ran
        return bool(codes) and ending.code.startswith(codes)

    def _told(self, ending: Ending) -> str:
        """What the agent said of its failure, without what we had told it in secret."""
        said = " ".join((ending.error or "").split())
        for value in self.adapter.endpoint.headers.values():
            for secret in (value, value.rpartition(" ")[2]):
                if len(secret) > 3:
                    said = said.replace(secret, "…")
        return f"The agent stopped with an error: {said[:500]}"


class _Handing:
    """The approved calls of one request, each a body that the guard has let in."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._guards: dict[tuple[int, str], asyncio.Task[str]] = {}
        self._ends: dict[tuple[int, str], asyncio.Future[str]] = {}
        self._by_call: dict[str, tuple[int, str]] = {}
        #: What the guard has for each to run with.
        self.arguments: dict[tuple[int, str], Mapping[str, Any]] = {}
        #: What happens, as it comes; None at the end. Bounded by what a run may send.
        self.told: asyncio.Queue[Happening | None] = asyncio.Queue()
        #: The request has left, or may have.
        self.sent = False
        self.not_taken: NotTaken | None = None

    async def claim(self, answers: Sequence[Answer]) -> dict[tuple[int, str], str]:
        """Have the guard let every call in. Gives what the ledger has of those that were
        sent before: it lets no call in twice.

        Raises StopRun for the first that may not be sent; the others are then withdrawn.
        """
        earlier: dict[tuple[int, str], str] = {}
        for answer in answers:
            call = answer.call
            key = (call.turn, call.call_id)
            entered = asyncio.Event()
            end: asyncio.Future[str] = asyncio.get_running_loop().create_future()

            async def body(
                arguments: Mapping[str, Any],
                key: tuple[int, str] = key,
                end: asyncio.Future[str] = end,
                entered: asyncio.Event = entered,
            ) -> str:
                self.arguments[key] = arguments
                entered.set()
                return await end

            guard = asyncio.create_task(self._host.guard(call, body))
            waiting = asyncio.create_task(entered.wait())
            self._guards[key] = guard
            await asyncio.wait({guard, waiting}, return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
            if entered.is_set():
                self._ends[key] = end
                self._by_call[call.call_id] = key
                continue
            try:
                earlier[key] = guard.result()
            except BaseException:
                del self._guards[key]
                self._end(Paused())
                with contextlib.suppress(Exception):
                    await self.settled()
                raise
        return earlier

    def tell(self, happening: Happening) -> None:
        """Pass on what happened; a result of an approved call ends its body."""
        self.told.put_nowait(happening)
        if isinstance(happening, ToolCallResult):
            key = self._by_call.get(happening.call_id)
            if key is not None and not self._ends[key].done():
                self._ends[key].set_result(happening.content)

    def finish(self, told: str) -> None:
        """The run there has ended, so that every approval was taken."""
        for end in self._ends.values():
            if not end.done():
                end.set_result(told)

    def fail(self, why: str) -> None:
        """None of those without a result has run."""
        self._end(NotExecuted(why))

    def lose(self, why: str) -> None:
        """Nobody can say what became of those without a result."""
        self._end(OutcomeLost(why))

    def withdraw(self, error: NotTaken) -> None:
        """The request took no effect, so that the calls may be let in again."""
        self.not_taken = error
        self._end(Paused())

    def leave(self) -> None:
        """The run goes on without us. A request that has left is waited for by others;
        calls whose request has not are withdrawn."""
        if not self.sent:
            self._end(Paused())
        for guard in self._guards.values():
            guard.cancel()

    async def settled(self) -> None:
        """Until the ledger has what became of every call. Raises StopRun."""
        results = await asyncio.gather(*self._guards.values(), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException) and not isinstance(result, Paused):
                raise result

    def _end(self, error: Exception) -> None:
        for end in self._ends.values():
            if not end.done():
                end.set_exception(error)


class NotExecuted(Exception):
    """An approved call was not sent."""


async def _never(arguments: Mapping[str, Any]) -> Any:
    """The body of a call that was not approved, which no guard lets in."""
    raise AssertionError


def _merged(entries: Sequence[Entry]) -> list[dict[str, Any]]:
    """One answer for each id: where two share one, it is only yes if both are."""
    found: dict[str, dict[str, Any]] = {}
    for each in entries:
        remote_id = each.shape["interruptId"]
        if remote_id not in found or not _says_yes(each.shape):
            found[remote_id] = each.shape
    return list(found.values())


def _says_yes(shape: Mapping[str, Any]) -> bool:
    payload = shape.get("payload")
    if not isinstance(payload, Mapping):
        return bool(shape["status"] == "resolved")
    return payload.get("approved", payload.get("accepted", True)) is True
