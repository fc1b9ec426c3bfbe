"""One advance of one run: claim it, drive its agent, store how it came out.

Everything that is written carries the attempt number of the claim. Whatever goes wrong,
the last checkpoint stays as it was, and the ledger knows which tools ran.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from approvals import canonical, services
from approvals.exceptions import (
    ApprovalsError,
    AskAgain,
    InvalidArguments,
    LostLease,
    OutcomeUnknown,
)
from approvals.models import Interrupt
from approvals.prepared import Prepared, Slot
from approvals.schemas import ClientTool, ToolCall
from hitlagents import client_tools, events, registry, wire
from hitlagents.adapters.base import (
    ANSWER,
    Adapter,
    AgentRunError,
    Body,
    CheckpointError,
    Finished,
    Happening,
    Interrupted,
    NoResult,
    Outcome,
    OutcomeLost,
    Paused,
    Resume,
    Start,
    State,
    StopRun,
    Told,
)
from hitlagents.engine.threads import in_database, in_lease
from hitlagents.models import Checkpoint, RunInput
from hitlagents.toolcall import ToolError

logger = logging.getLogger(__name__)

#: Seconds between renewals; a third of the lease, so that two may fail.
RENEW_EVERY = services.LEASE.total_seconds() / 3

#: Tool bodies whose run was taken away while they ran; they still report to the ledger.
_bodies: set[asyncio.Task[str]] = set()


async def advance(run_id: UUID, *, owner: str) -> None:
    """Take the run if it is free, and drive it to its next pause or its end.

    Returns quietly when another worker has it or nothing is to do. Never raises for what
    an agent did; a cancelled task gives the lease back.
    """
    taken = await in_database(_take, run_id, owner)
    if taken is None:
        return
    claim = taken.claim
    work = asyncio.create_task(_drive(taken, owner))
    renewal = asyncio.create_task(_renew(run_id, claim.attempt, work))
    try:
        await work
    except asyncio.CancelledError:
        if not work.cancelled():
            work.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await work
        # Either this worker stops, or the run was taken away; then this changes nothing.
        await in_lease(services.release_run, run_id, attempt=claim.attempt)
        current = asyncio.current_task()
        if current is not None and current.cancelling():
            raise
    finally:
        renewal.cancel()


async def _renew(run_id: UUID, attempt: int, work: asyncio.Task[None]) -> None:
    """Keep the lease; stop the work once the run is no longer ours."""
    while True:
        await asyncio.sleep(RENEW_EVERY)
        try:
            ours = await in_lease(services.renew_lease, run_id, attempt=attempt)
        except Exception:
            # Unreachable database: the next try may come in time.
            logger.exception("runner: Could not renew the lease of run %s.", run_id)
            continue
        if not ours:
            work.cancel()
            return


async def _drive(taken: Taken, owner: str) -> None:
    claim, job = taken.claim, taken.job
    run, attempt = claim.run, claim.attempt
    host = RunHost(run.pk, attempt, owner, taken.seq)
    try:
        host.log.begin(wire.run_started(run.thread, run.pk))
        if isinstance(job, Exception):
            raise job
        outcome = await _ask(job, claim, host)
        rest = await host.log.drain()
        ending = host.log.seq + 1
        if isinstance(outcome, Interrupted):
            outcome = _with_words(outcome, host.log.said)
        await in_database(_save, claim, job, outcome, rest, ending)
    except StopRun:
        await _stopped(claim, host)
    except LostLease:
        logger.info("runner: Run %s was taken away from attempt %s.", run.pk, attempt)
    except AgentRunError as error:
        await _fail(claim, host, str(error), retryable=error.retryable)
    except ApprovalsError as error:
        await _fail(claim, host, error.message, retryable=False)
    # Those two also: raised in a task, they would end the loop with all that runs on it.
    except (Exception, SystemExit, KeyboardInterrupt) as error:
        logger.exception("runner: Run %s stopped.", run.pk)
        what = f"The agent stopped with an unexpected error ({type(error).__name__})."
        await _fail(claim, host, what, retryable=True)


async def _ask(job: Job, claim: services.Claim, host: RunHost) -> Outcome:
    """Start the agent, or resume it where its own state ends."""
    run = claim.run
    if job.state is None:
        start = Start(
            run_id=run.pk,
            thread_id=run.thread,
            message=job.message,
            state=job.state_before,
            client_tools=job.client_tools,
        )
        return await job.adapter.start(start, host)
    resume = Resume(
        run_id=run.pk,
        thread_id=run.thread,
        state=job.state,
        answers=claim.answers,
        client_tools=job.client_tools,
    )
    return await job.adapter.resume(resume, host)


def _with_words(paused: Interrupted, said: str) -> Interrupted:
    """Give reviewers what the agent wrote before it paused."""
    drafts = [
        draft if draft.said else draft.model_copy(update={"said": said})
        for draft in paused.interrupts
    ]
    return replace(paused, interrupts=drafts)


async def _stopped(claim: services.Claim, host: RunHost) -> None:
    """The guard stopped the run; the rows already say why, but for two cases."""
    match host.refusal:
        case AskAgain() as again:
            await in_database(
                services.ask_again,
                claim.run.pk,
                attempt=claim.attempt,
                interrupt_id=UUID(again.message),
            )
        case OutcomeUnknown() | LostLease():
            pass
        case refusal:
            what = str(refusal) if refusal else "The agent stopped for no known reason."
            await _fail(claim, host, what, retryable=False)


async def _fail(
    claim: services.Claim, host: RunHost, error: str, *, retryable: bool
) -> None:
    rest = await host.log.drain()
    ending = (host.log.seq + 1, wire.run_error(error))
    try:
        await in_database(
            _save_failure, claim, [*rest, ending], error, retryable=retryable
        )
    except LostLease:
        logger.info("runner: Run %s ended before it failed.", claim.run.pk)


class RunHost:
    """The host of one advance: what an adapter may ask for (``adapters.base.Host``)."""

    def __init__(self, run_id: UUID, attempt: int, owner: str, seq: int) -> None:
        self.run_id = run_id
        self.log = events.EventLog(run_id, attempt, seq)
        #: Why the guard stopped the run, if it did.
        self.refusal: ApprovalsError | None = None
        self._attempt = attempt
        self._owner = owner

    async def emit(self, happening: Happening) -> None:
        await self.log.happened(happening)

    async def guard(self, call: ToolCall, body: Body) -> Told:
        try:
            ticket = await in_database(
                services.begin_execution,
                self.run_id,
                attempt=self._attempt,
                call=call,
                owner=self._owner,
            )
        except ApprovalsError as refusal:
            self.refusal = refusal
            raise StopRun(str(refusal)) from refusal
        if isinstance(ticket, services.Instead):
            return Told(result=ticket.text, note=ticket.note)
        # A task of its own: a run that is taken away does not undo what its tool did,
        # and the ledger must hear of it.
        running = asyncio.create_task(_enter(ticket, call.tool, body))
        _bodies.add(running)
        running.add_done_callback(_bodies.discard)
        try:
            return Told(result=await asyncio.shield(running), note=ticket.note)
        except OutcomeLost as lost:
            self.refusal = OutcomeUnknown()
            raise StopRun(str(lost)) from lost


async def _enter(permit: services.Permit, tool: str, body: Body) -> str:
    """Run a permitted body once and store what came of it."""
    ANSWER.set(permit.answer)
    try:
        result, failed = as_text(await body(permit.arguments)), False
    except Paused:
        await in_database(services.withdraw_execution, permit)
        raise
    except OutcomeLost as lost:
        await in_database(services.doubt_execution, permit, why=str(lost))
        raise
    except ToolError as error:
        result, failed = as_text(f"Error: {error}"), True
    except NoResult as why:
        result, failed = as_text(str(why)), True
    # What would end the worker, were it raised in the task of its loop, is only a failure.
    except (Exception, SystemExit, KeyboardInterrupt) as error:
        logger.warning("runner: Tool %s raised.", tool, exc_info=True)
        what = f"Error: {tool} failed. {type(error).__name__}: {error}"
        result, failed = as_text(what), True
    await in_database(services.finish_execution, permit, result=result, failed=failed)
    return result


def as_text(value: Any) -> str:
    """A tool's result as the model is told: text as it is, other values as JSON.

    What JSON cannot hold is written as Python shows it, inside a JSON string.
    """
    if isinstance(value, str):
        # NUL and half characters, as odd file names have, cannot be stored.
        return value.encode("utf-8", "backslashreplace").decode().replace("\0", "␀")
    if isinstance(value, Mapping | list | tuple | int | float | bool | None):
        with contextlib.suppress(InvalidArguments):
            return canonical.dumps(value)
    return json.dumps(repr(value)[:20_000], ensure_ascii=False)


# Reading and writing, on database threads


#: What a later state of the same run replaces.
CHECKPOINT = ["framework", "framework_version", "schema", "attempt", "state", "created"]


@dataclass(frozen=True, kw_only=True)
class Job:
    """What an advance needs: the adapter, and where the agent goes on from."""

    adapter: Adapter
    #: State at the pause of this run; None at its start.
    state: State | None = None
    #: At its start: the message, and the state after the thread's previous run.
    message: str = ""
    state_before: State | None = None
    #: Tools of the page that began it.
    client_tools: Sequence[ClientTool] = ()


@dataclass(frozen=True, kw_only=True)
class Taken:
    """A run that is this worker's now, and what to do with it."""

    claim: services.Claim
    #: The number of the run's last stored event.
    seq: int
    #: Or why there is nothing to go on from.
    job: Job | Exception


def _take(run_id: UUID, owner: str) -> Taken | None:
    claim = services.claim_run(run_id, owner=owner)
    if claim is None:
        return None
    job: Job | Exception
    try:
        job = _load(claim)
    except Exception as error:  # noqa: BLE001 - raised where failures are handled
        job = error
    except (SystemExit, KeyboardInterrupt):
        job = AgentRunError("The agent's own code exited.", retryable=True)
    return Taken(claim=claim, seq=events.last_seq(run_id), job=job)


_CHECKPOINT = Prepared(lambda: Checkpoint.objects.filter(run=Slot(Checkpoint, "run")))
_INPUT = Prepared(lambda: RunInput.objects.filter(run=Slot(RunInput, "run")))


def _load(claim: services.Claim) -> Job:
    """Raises AgentRunError: no such agent, or a state that cannot be read."""
    run = claim.run
    adapter = registry.adapter_for(run.agent, claim.allowed)
    [given] = _INPUT.all(run=run.pk)
    brought = client_tools.stored(given.client_tools)
    client_tools.refuse_taken(brought, adapter.tools)
    if run.saved_attempt:
        own = _CHECKPOINT.first(run=run.pk)
        if own is None:
            raise CheckpointError("The saved state of this run is gone.")
        return Job(adapter=adapter, state=_state(own, adapter), client_tools=brought)
    before = _CHECKPOINT.first(run=given.after_id) if given.after_id else None
    return Job(
        adapter=adapter,
        message=given.message,
        state_before=_state(before, adapter),
        client_tools=brought,
    )


def _state(checkpoint: Checkpoint | None, adapter: Adapter) -> State | None:
    if checkpoint is None:
        return None
    if checkpoint.framework != adapter.framework:
        raise CheckpointError(
            f"The saved state was written by {checkpoint.framework}, "
            f"but this agent now runs on {adapter.framework}."
        )
    if checkpoint.schema > adapter.schema:
        raise CheckpointError(
            f"The saved state has version {checkpoint.schema}; this installation "
            f"reads up to {adapter.schema}. Run it with the newer release."
        )
    try:
        state = json.loads(checkpoint.state)
    except ValueError:
        state = None
    if not isinstance(state, dict):
        raise CheckpointError("The saved state of this run is damaged.")
    return state


def _save(
    claim: services.Claim,
    job: Job,
    outcome: Outcome,
    rest: list[events.Numbered],
    seq: int,
) -> None:
    """Checkpoint, events and the run's new status, in one transaction."""
    run, attempt, adapter = claim.run, claim.attempt, job.adapter
    with services.unit_of_work():
        services.lock_leased(run.pk, attempt)
        checkpoint = Checkpoint(
            run=run,
            framework=adapter.framework,
            framework_version=adapter.version,
            schema=adapter.schema,
            attempt=attempt,
            # In ASCII, which also holds NUL and half characters that a model wrote.
            state=json.dumps(outcome.state),
        )
        Checkpoint.objects.bulk_create(
            [checkpoint],
            update_conflicts=True,
            unique_fields=["run"],
            update_fields=CHECKPOINT,
        )
        waiting: list[Interrupt] = []
        match outcome:
            case Finished():
                services.finish_run(run.pk, attempt=attempt)
            case Interrupted(interrupts=drafts):
                services.learn_tools(run.agent, outcome.tools)
                waiting = services.open_interrupts(
                    run.pk,
                    attempt=attempt,
                    drafts=drafts,
                    client_tools=job.client_tools,
                )
        finished = wire.run_finished(run.thread, run.pk, waiting)
        events.append(run, attempt, [*rest, (seq, finished)])


def _save_failure(
    claim: services.Claim,
    rest: list[events.Numbered],
    error: str,
    *,
    retryable: bool,
) -> None:
    run, attempt = claim.run, claim.attempt
    with services.unit_of_work():
        services.lock_leased(run.pk, attempt)
        events.append(run, attempt, rest)
        services.fail_run(run.pk, attempt=attempt, error=error, retryable=retryable)
