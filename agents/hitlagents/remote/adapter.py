"""A remote AG-UI agent behind the adapter contract.

The remote runs its own tools, so the body that the guard lets in is the request that
carries the approval: the ledger has the call before it leaves, and what the remote says
of it afterwards. When the answer is lost the call is in doubt, and nothing is sent again
until a person has said what happened.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Mapping, Sequence, Set
from contextlib import aclosing
from typing import Any, ClassVar, Protocol
from uuid import UUID, uuid4

from approvals.schemas import Answer, InterruptDraft, ToolSpec
from approvals.states import InterruptKind, Verdict
from hitlagents.adapters.base import (
    AgentRunError,
    Finished,
    Happening,
    Host,
    Interrupted,
    NoResult,
    Outcome,
    Resume,
    Start,
    TextDelta,
    ToolCallProposed,
    ToolCallResult,
)
from hitlagents.adapters.failures import damaged
from hitlagents.remote import client
from hitlagents.remote.answers import Entry, dropped, entry, unfit
from hitlagents.remote.client import Endpoint, Lost, NotTaken
from hitlagents.remote.handing import Handing, Key
from hitlagents.remote.interrupts import (
    MAX_INTERRUPTS,
    OpenInterrupt,
    Pause,
    read_pause,
)
from hitlagents.remote.kept import SCHEMA, Kept
from hitlagents.remote.profiles import HABITS, Together
from hitlagents.remote.reading import Ending, Message, Reader

logger = logging.getLogger(__name__)

FRAMEWORK = "AG-UI"
PROTOCOL_VERSION = "1.0"

#: How often an agent may ask something new while it is told that nobody will answer.
MAX_DROPS = 3

#: What a reviewer should know of a request that came before.
SENT_BEFORE = (
    "An approval of exactly this was sent before, and what came of it was lost. Look at "
    "the agent's side first."
)

type Pair = tuple[OpenInterrupt, Answer]


class Journal(Protocol):
    """What was sent, so that it is not sent twice: requests that carry no approval.

    ``place``: which request of the run it is about.
    """

    async def begin(self, run_id: UUID, place: str, *, again: bool) -> bool:
        """Mark a request as sent. False: it was sent before, and must not be again.

        ``again``: one whose loss is on record may leave once more.
        """

    async def forget(self, run_id: UUID, place: str) -> None:
        """The request took no effect."""

    async def lost(self, run_id: UUID, place: str) -> None:
        """What came of the request will not be known."""

    async def heard(self, protocol_version: str) -> None:
        """The agent has answered in its protocol."""


class RemoteAdapter:
    """One remote agent, as its row was when this was made.

    ``together``: what staff said of several answers, if not what is known of the profile.
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
        together: Together | None = None,
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
        _reader, outcome = await advance.send(
            [*advance.kept.messages, said], place="start"
        )
        return outcome

    async def resume(self, resume: Resume, host: Host) -> Outcome:
        kept = Kept.of(resume.state)
        return await _Advance(self, host, resume.thread_id, kept).answer(resume.answers)


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

    # What carries no approval

    async def send(
        self,
        messages: list[Message],
        *,
        place: str,
        resume: Sequence[Mapping[str, Any]] = (),
    ) -> tuple[Reader, Outcome]:
        """Send it, unless it was sent before, and tell what the agent answers."""
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
            async with aclosing(self._answer(reader, resume)) as answer:
                async for happening in answer:
                    await self.host.emit(happening)
        except NotTaken as error:
            await journal.forget(run_id, place)
            raise AgentRunError(str(error), retryable=True) from error
        except Lost as error:
            await journal.lost(run_id, place)
            raise AgentRunError(
                f"{error} {self._what_then}", retryable=again
            ) from error
        return reader, await self._outcome(reader)

    # Answers

    async def answer(self, answers: Sequence[Answer]) -> Outcome:
        """Give every decided request its answer, in one request."""
        pairs = self._paired(answers)
        approved = [
            answer
            for each, answer in pairs
            if answer.verdict == Verdict.APPROVE and each.kind == InterruptKind.APPROVAL
        ]
        handing = Handing(self.host)
        try:
            earlier = await handing.claim(approved)
            if earlier:
                return await self._not_again(handing, earlier)
            entries = [
                entry(
                    each,
                    answer,
                    self.adapter.habits,
                    arguments=handing.arguments(each.key),
                )
                for each, answer in pairs
            ]
            resume = _merged(entries)
            if approved:
                calls = {(each.call.turn, each.call.call_id) for each in approved}
                reader, outcome = await self._hand_over(handing, calls, resume)
            else:
                reader, outcome = await self.send(
                    list(self.kept.messages), place=self.kept.run, resume=resume
                )
        except BaseException:
            handing.leave()
            raise
        await self._note_refusals(pairs, entries, reader.results)
        return outcome

    def _paired(self, answers: Sequence[Answer]) -> list[Pair]:
        """The answers with what they answer. Raises AgentRunError if one cannot be given."""
        given = {(each.call.turn, each.call.call_id): each for each in answers}
        if not given or given.keys() != {each.key for each in self.kept.open}:
            raise damaged()
        pairs = [(each, given[each.key]) for each in self.kept.open]
        for each, answer in pairs:
            problem = unfit(each, answer, self.adapter.habits)
            if problem:
                raise AgentRunError(problem, retryable=False)
        if self._cannot_be_answered:
            raise AgentRunError(
                "This agent cannot be answered while several of its calls wait. Cancel "
                "the run, and have it propose one call at a time.",
                retryable=False,
            )
        return pairs

    async def _hand_over(
        self, handing: Handing, calls: Set[Key], resume: Sequence[Mapping[str, Any]]
    ) -> tuple[Reader, Outcome]:
        """Send the approvals. Raises StopRun when what came of one is not known."""
        reader = self._reader(list(self.kept.messages))
        handing.send(
            self._answer(reader, resume), lambda: self._asked_again(reader, calls)
        )
        while (happening := await handing.next()) is not None:
            await self.host.emit(happening)
        await handing.settled()
        problem = handing.problem
        if problem is not None:
            # After a loss every approved call has its result all the same: none of them
            # will be sent again.
            raise AgentRunError(
                str(problem), retryable=isinstance(problem, NotTaken)
            ) from problem
        return reader, await self._outcome(reader)

    def _asked_again(self, reader: Reader, calls: Set[Key]) -> Set[Key]:
        """Those of the calls that the agent asks about again, in the same words."""
        try:
            pause = self._pause(reader)
        except AgentRunError:
            return set()
        asked = pause.open if pause else ()
        return {
            each.key
            for each in self.kept.open
            if each.key in calls and any(again.repeats(each) for again in asked)
        }

    async def _not_again(self, handing: Handing, earlier: Mapping[Key, str]) -> Outcome:
        """An earlier attempt has sent these approvals: end the run without sending any.

        What the ledger knows of them becomes part of the conversation.
        """
        what = "Not executed: another approval of the same request was sent before."
        handing.end(NoResult(what))
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
        lost = [each for each in self.kept.open if each.key in earlier]
        kept = Kept(
            messages=messages,
            lost=[*self.kept.lost, *lost][-MAX_INTERRUPTS:],
            run=self.kept.run,
            turn=self.kept.turn + 1,
        )
        return Finished(state=kept.to_state())

    async def _note_refusals(
        self, pairs: Sequence[Pair], entries: Sequence[Entry], results: set[str]
    ) -> None:
        """The agent has the answers that let nothing run: note that they were delivered.

        ``results``: calls of which the agent itself told what came of them.
        """
        for (each, answer), given in zip(pairs, entries, strict=True):
            if answer.verdict == Verdict.APPROVE:
                continue
            told = (await self.host.guard(answer.call, _never)).result
            if answer.verdict == Verdict.DENY and not given.carries_note:
                told = f"{told} The agent itself was only told no."
            if each.call_id not in results:
                await self.host.emit(ToolCallResult(call_id=each.call_id, content=told))

    # What is still open of a run that has ended here

    async def drop_open(self) -> None:
        """Tell the agent that nobody will answer what an ended run left open.

        Raises AgentRunError.
        """
        for _ in range(MAX_DROPS):
            shapes = [dropped(each, self.adapter.habits) for each in self.kept.open]
            told = [Entry(shape=shape) for shape in shapes if shape is not None]
            if not shapes or self._cannot_be_answered or len(told) < len(shapes):
                break
            reader = self._reader(list(self.kept.messages))
            try:
                async with aclosing(self._answer(reader, _merged(told))) as answer:
                    async for _happening in answer:
                        pass  # Of a run that has ended here.
            except (NotTaken, Lost) as error:
                # What an agent has no use for, it need not be told.
                if reader.ending is None:
                    # Saying it twice does no harm.
                    raise AgentRunError(str(error), retryable=True) from error
            self._keep(reader, self._pause(reader))
        if self.kept.open:
            raise AgentRunError(
                "The agent still waits for the answer to an earlier request, and cannot "
                "be told that none will come. Begin a new conversation.",
                retryable=False,
            )

    # What is sent, and what is kept

    @property
    def _open_ids(self) -> list[str]:
        return [each.id for each in self.kept.open]

    @property
    def _cannot_be_answered(self) -> bool:
        """Several wait, and the agent takes one answer only."""
        adapter = self.adapter
        together = adapter.habits.together_for(self._open_ids, adapter.together)
        return len(self.kept.open) > 1 and together == Together.SINGLE

    @property
    def _label(self) -> str:
        return f"{self.host.run_id}-{self.kept.turn + 1}"

    def _reader(self, messages: list[Message]) -> Reader:
        return Reader(
            turn=self.kept.turn + 1,
            messages=messages,
            label=self._label,
            known={
                **self.kept.beside,
                **{each.tool_call_id: each.call_id for each in self.kept.open},
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
            "protocolVersion": PROTOCOL_VERSION,
        }
        if resume and self.adapter.habits.by_map(self._open_ids):
            given = {each["interruptId"]: each["payload"] for each in resume}
            body["forwardedProps"] = {"command": {"resume": given}}
        elif resume:
            body["resume"] = list(resume)
        self._run = body["runId"]
        return body

    async def _answer(
        self, reader: Reader, resume: Sequence[Mapping[str, Any]] = ()
    ) -> AsyncGenerator[Happening]:
        """Make the request, and give what happens, to the end of the run there.

        Raises NotTaken, Lost; also where the agent itself says that its run broke.
        """
        body = self._body(reader, resume)
        async with aclosing(client.events(self.adapter.endpoint, body)) as stream:
            async for event in stream:
                for happening in reader.take(event):
                    yield happening
                if reader.ending is not None:
                    break
        reader.check_ended()
        assert reader.ending is not None
        await self._heard(reader)
        if reader.ending.error is None:
            return
        if reader.ending.code in self.adapter.habits.nothing_ran:
            raise NotTaken(self._told(reader.ending))
        raise Lost(self._told(reader.ending))

    async def _heard(self, reader: Reader) -> None:
        if reader.dropped:
            logger.info(
                "remote: Dropped %s events of %s that mean nothing here.",
                reader.dropped,
                self.adapter.endpoint.host,
            )
        await self.adapter.journal.heard(reader.protocol_version)

    def _pause(self, reader: Reader) -> Pause | None:
        assert reader.ending is not None
        if not reader.ending.interrupts:
            return None
        try:
            return read_pause(
                reader.ending.interrupts,
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
            beside=_beside(reader, pause) if pause else {},
            lost=self.kept.lost,
            run=self._run,
            turn=reader.turn,
        )

    async def _outcome(self, reader: Reader) -> Outcome:
        pause = self._pause(reader)
        self._keep(reader, pause)
        if pause is None:
            return Finished(state=self.kept.to_state())
        told = {call.call_id for call in reader.calls.values()}
        for draft in pause.drafts:
            if draft.call.call_id not in told:
                await self.host.emit(ToolCallProposed(call=draft.call))
        drafts = [
            self._warned(*pair) for pair in zip(pause.open, pause.drafts, strict=True)
        ]
        return Interrupted(
            interrupts=drafts, state=self.kept.to_state(), tools=pause.tools
        )

    def _warned(self, asked: OpenInterrupt, draft: InterruptDraft) -> InterruptDraft:
        """The request; it says so if it may have run already."""
        if not any(asked.repeats(lost) for lost in self.kept.lost):
            return draft
        words = f"{SENT_BEFORE} {draft.consequence}".strip()
        return draft.model_copy(update={"consequence": words})

    # Words

    @property
    def _what_then(self) -> str:
        if self.adapter.may_repost:
            return "A retry sends it again."
        return "It is not sent again; write a new message to go on."

    def _told(self, ending: Ending) -> str:
        """What the agent said of its failure, without what we had told it in secret."""
        said = " ".join((ending.error or "").split())
        for value in self.adapter.endpoint.headers.values():
            for secret in (value, value.rpartition(" ")[2]):
                if len(secret) > 3:
                    said = said.replace(secret, "…")
        return f"The agent stopped with an error: {said[:500]}"


async def _never(arguments: Mapping[str, Any]) -> Any:
    """The body of a call that was not approved, which no guard lets in."""
    raise AssertionError


def _beside(reader: Reader, pause: Pause) -> dict[str, str]:
    """The calls of which nothing is told yet and nothing is asked."""
    asked = {each.call_id for each in pause.open}
    return {
        remote_id: call.call_id
        for remote_id, call in reader.calls.items()
        if call.call_id not in reader.results | asked
    }


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
