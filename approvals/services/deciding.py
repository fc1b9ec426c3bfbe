"""People decide: one person, one verdict, bound to what their page showed."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

from approvals import canonical, permissions
from approvals.exceptions import (
    AlreadyDecided,
    ApprovalsError,
    Expired,
    InvalidArguments,
    InvalidDecision,
    NotAllowed,
    NotFound,
    RunEnded,
    StalePage,
)
from approvals.models import Decision, Interrupt, Vote
from approvals.policies import Ruling
from approvals.prepared import Prepared, Slot
from approvals.services.answers import companions
from approvals.services.outcomes import expire, is_past, reopen, settle
from approvals.services.rulings import (
    approvals_of,
    ruling_for,
    shown_digest,
)
from approvals.services.tools import misfit, misfit_of_answer
from approvals.services.work import (
    Work,
    lock_run_of,
    name_of,
    unit_of_work,
)
from approvals.states import (
    Gate,
    InterruptStatus,
    NoteRule,
    RunStatus,
    Verdict,
)

if TYPE_CHECKING:
    from django.contrib.auth.models import User


@dataclass(frozen=True, kw_only=True)
class Ballot:
    """What a reviewer sends. ``shown`` is the digest of what their page showed.

    ``shown`` is None only for a channel that shows nothing of its own; it is then bound
    to the interrupt, whose arguments never change.
    """

    verdict: Verdict
    shown: str | None
    note: str = ""
    arguments: dict[str, Any] | None = None
    answer: Any = None
    output: Any = None
    channel: str = "inbox"
    dwell_ms: int | None = None


def decide(interrupt_id: UUID, ballot: Ballot, *, reviewer: User) -> Interrupt:
    """Record one person's verdict; with it the request may be decided and the run resume.

    Deny, answer and cancel count at once; an approval counts when enough people have
    given it for the same effective arguments. Returns the interrupt as it now is: still
    open when more votes are needed.

    Raises NotFound, NotAllowed, AlreadyDecided, Expired, RunEnded, StalePage,
    InvalidDecision, InvalidArguments. Whatever is raised, nothing was decided, except
    that a request found past its deadline is expired first.
    """
    with unit_of_work() as work:
        interrupt = _lock_visible(interrupt_id, reviewer)
        ruling = ruling_for(interrupt)
        refusal = _why_not(work, interrupt, ballot, reviewer, ruling)
        if refusal is None:
            _count(work, interrupt, ballot, reviewer, ruling)
    # Raised after the commit, so that an expiry found on the way stays.
    if refusal is not None:
        raise refusal
    return interrupt


def _lock_visible(interrupt_id: UUID, user: User) -> Interrupt:
    """Lock the run of a request, then read the request if this person may see it."""
    run = lock_run_of(interrupt_id)
    interrupt = permissions.visible_interrupt(
        user, interrupt_id
    ) or permissions.own_question(user, interrupt_id)
    if interrupt is None:
        raise NotFound
    interrupt.run = run
    return interrupt


def _why_not(
    work: Work, interrupt: Interrupt, ballot: Ballot, reviewer: User, ruling: Ruling
) -> ApprovalsError | None:
    """The first reason against this ballot, or None."""
    run = interrupt.run
    if not permissions.may_decide(reviewer, interrupt):
        return NotAllowed("You can read this request, but you may not decide it.")
    if ballot.verdict == Verdict.CANCEL_RUN and not permissions.may_cancel(
        reviewer, run
    ):
        return NotAllowed("You may not cancel runs.")
    if interrupt.is_open and is_past(interrupt, work.now):
        expire(work, run, interrupt)
        work.record(
            "decision.refused",
            actor=name_of(reviewer),
            run=run,
            interrupt=interrupt,
            verdict=ballot.verdict,
            why="The deadline had passed.",
        )
        return Expired(f"Expired before your decision arrived ({ballot.verdict}).")
    if not interrupt.is_open:
        return _closed(interrupt)
    if run.status != RunStatus.WAITING:
        return RunEnded(f"The run is not waiting any more: {run.get_status_display()}.")
    if ballot.shown is not None and ballot.shown != shown_digest(interrupt, ruling):
        return StalePage(interrupt=interrupt)
    return _unfit(interrupt, ballot, reviewer, ruling)


def _closed(interrupt: Interrupt) -> ApprovalsError:
    decision = interrupt.decision
    if interrupt.status == InterruptStatus.EXPIRED:
        return Expired("Nobody decided in time, so this request expired.")
    if decision is None:
        return RunEnded("This request was withdrawn when its run ended.")
    return AlreadyDecided(
        f"{decision.by} already decided this: {interrupt.get_status_display()}.",
        decision=decision,
    )


def _unfit(
    interrupt: Interrupt, ballot: Ballot, reviewer: User, ruling: Ruling
) -> ApprovalsError | None:
    """Whether the verdict itself fits the request, the rules and the schemas."""
    if ballot.verdict not in interrupt.verdicts:
        return InvalidDecision(
            f"This request does not take the verdict “{ballot.verdict.label}”.",
            field="verdict",
        )
    if ruling.gate == Gate.REFUSE and ballot.verdict in (
        Verdict.APPROVE,
        Verdict.ANSWER,
    ):
        return NotAllowed(f"The policy “{ruling.policy}” now refuses this call.")
    if (
        interrupt.run.requester_id == reviewer.pk
        and not ruling.requester_may_decide
        and not permissions.is_asked(reviewer, interrupt)
        and ballot.verdict != Verdict.CANCEL_RUN
    ):
        return NotAllowed(
            f"You asked for this run, so somebody else has to decide "
            f"(policy “{ruling.policy}”)."
        )
    if ballot.verdict == Verdict.APPROVE and interrupt.together:
        refused = companions(interrupt).decided()
        refused = refused.exclude(status=InterruptStatus.APPROVED)
        if (other := refused.first()) is not None:
            return InvalidDecision(
                f"“{other.title}” was not approved, and this agent takes no approval "
                "beside a denial. Deny this one too, or cancel the run.",
                field="verdict",
            )
    if _note_missing(ruling, ballot):
        why = "Say why."
        if interrupt.takes_note:
            why = "Say why. The agent reads this note and can try another way."
        return InvalidDecision(why, field="note")
    if (
        ballot.verdict == Verdict.APPROVE
        and ruling.approvals_required > 1
        and _OWN_VOTES.all(interrupt=interrupt.pk, voter=reviewer.pk)
    ):
        return AlreadyDecided("You have already approved; another person has to, too.")
    return _bad_content(interrupt, ballot)


def _note_missing(ruling: Ruling, ballot: Ballot) -> bool:
    if ballot.note.strip():
        return False
    if ruling.note_rule == NoteRule.ALWAYS:
        return True
    return ruling.note_rule == NoteRule.ON_DENY and ballot.verdict == Verdict.DENY


def _bad_content(interrupt: Interrupt, ballot: Ballot) -> ApprovalsError | None:
    """Check edits against the tool's schema and an answer against the question's."""
    try:
        canonical.dumps(ballot.note)
        canonical.dumps([ballot.answer, ballot.output])
        if ballot.arguments is not None:
            if ballot.verdict != Verdict.APPROVE:
                return InvalidDecision(
                    "Only an approval can carry edited arguments.", field="arguments"
                )
            if not interrupt.editable:
                return InvalidDecision(
                    "The agent takes this call only as it is.", field="arguments"
                )
            text = canonical.dumps(ballot.arguments)
            problem = misfit(
                interrupt.tool_schema, text, typed=True, hiding=interrupt.hiding
            )
            if problem:
                return InvalidDecision(problem, field="arguments")
        if ballot.verdict == Verdict.ANSWER and interrupt.response_schema:
            problem = misfit_of_answer(
                interrupt.response_schema, canonical.dumps(ballot.answer)
            )
            if problem:
                return InvalidDecision(problem, field="answer")
    except InvalidArguments as error:
        return error
    return None


def _count(
    work: Work, interrupt: Interrupt, ballot: Ballot, reviewer: User, ruling: Ruling
) -> None:
    """Add the vote; decide if it is enough."""
    arguments = (
        interrupt.arguments
        if ballot.arguments is None
        else canonical.dumps(ballot.arguments)
    )
    effective = interrupt.digest_of(arguments)
    answer = _given(ballot.answer, asked=ballot.verdict == Verdict.ANSWER)
    voted = interrupt.vote_digest(arguments, answer)
    # Another verdict of the same person takes the place of their vote.
    if _OWN_VOTES.all(interrupt=interrupt.pk, voter=reviewer.pk):
        interrupt.votes.filter(voter=reviewer, void_at=None).update(void_at=work.now)
    Vote.objects.create(
        interrupt=interrupt,
        voter=reviewer,
        verdict=ballot.verdict,
        effective_digest=voted,
        shown_digest=ballot.shown or "",
        note=ballot.note,
        created=work.now,
    )
    if ballot.verdict == Verdict.APPROVE and ruling.approvals_required > 1:
        have = approvals_of(interrupt, ruling)[voted]
        if have < ruling.approvals_required:
            work.record(
                "interrupt.voted",
                actor=name_of(reviewer),
                run=interrupt.run,
                interrupt=interrupt,
                verdict=ballot.verdict,
                effective_digest=effective,
                have=have,
                need=ruling.approvals_required,
            )
            work.tell_interrupt(interrupt)
            return
    decision = Decision.objects.create(
        interrupt=interrupt,
        verdict=ballot.verdict,
        arguments=None if arguments == interrupt.arguments else arguments,
        answer=answer,
        output=_given(ballot.output, asked=ballot.verdict == Verdict.RESPOND),
        note=ballot.note,
        reviewer=reviewer,
        channel=ballot.channel,
        shown_digest=ballot.shown or "",
        effective_digest=effective,
        dwell_ms=ballot.dwell_ms,
        created=work.now,
        dispatch_at=work.now + timedelta(seconds=ruling.undo_seconds),
    )
    settle(work, interrupt, decision, name_of(reviewer), ruling)


#: What one person's votes on a request are, as far as they stand.
_OWN_VOTES = Prepared(
    lambda: (
        Vote.objects.filter(
            interrupt=Slot(Vote, "interrupt"), voter=Slot(Vote, "voter"), void_at=None
        )
        .order_by()
        .values_list("pk")
    )
)


def _given(value: Any, *, asked: bool) -> str | None:
    """Canonical text of what was given; a null counts only where it was asked for."""
    return canonical.dumps(value) if asked or value is not None else None


def undo(interrupt_id: UUID, *, actor: User) -> Interrupt:
    """Take one's own decision back while the resume has not left.

    Raises NotFound, NotAllowed, AlreadyDecided.
    """
    with unit_of_work() as work:
        interrupt = _lock_visible(interrupt_id, actor)
        run, decision = interrupt.run, interrupt.decision
        if decision is None or decision.reviewer_id != actor.pk:
            raise NotAllowed("Only the person who decided can take it back.")
        if run.status not in (RunStatus.WAITING, RunStatus.QUEUED):
            raise AlreadyDecided("The agent already has this decision.")
        if decision.dispatch_at <= work.now:
            raise AlreadyDecided("The time to undo this is over.")
        reopen(work, run, interrupt, decision)
        work.record(
            "decision.undone",
            actor=name_of(actor),
            run=run,
            interrupt=interrupt,
            verdict=decision.verdict,
        )
        return interrupt
