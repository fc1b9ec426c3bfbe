"""What follows once a request is decided: its status, its entry, the resume of its run."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from django.db.models import Count, Max, Q

from approvals import canonical
from approvals.models import AuditEntry, Decision, Interrupt, Run
from approvals.policies import Ruling
from approvals.prepared import Prepared, Slot
from approvals.services.ending import close_interrupt, end_cancelled
from approvals.services.rulings import asked_ruling
from approvals.services.work import (
    SWEEPER,
    Work,
    queue,
)
from approvals.states import (
    STATUS_OF_VERDICT,
    InterruptStatus,
    OnDeadline,
    RunStatus,
    Verdict,
)

if TYPE_CHECKING:
    from django.contrib.auth.models import User


def settle(
    work: Work, interrupt: Interrupt, decision: Decision, actor: str, ruling: Ruling
) -> None:
    """A decision stands: close the request, and see what follows for the run."""
    run = interrupt.run
    status = STATUS_OF_VERDICT[Verdict(decision.verdict)]
    close_interrupt(work, interrupt, status)
    work.record(
        f"interrupt.{status.value}",
        actor=actor,
        run=run,
        interrupt=interrupt,
        verdict=decision.verdict,
        note=decision.note,
        channel=decision.channel,
        shown_digest=decision.shown_digest,
        arguments_digest=interrupt.arguments_digest,
        effective_digest=decision.effective_digest,
        own_request=decision.reviewer_id is not None
        and decision.reviewer_id == run.requester_id,
        edited=decision.arguments is not None,
        answered=decision.answer is not None,
        answer_digest=_said_digest(interrupt, "sayso.answer.v1", decision.answer),
        output_digest=_said_digest(interrupt, "sayso.output.v1", decision.output),
        policy=ruling.model_dump(mode="json"),
        dwell_ms=decision.dwell_ms,
    )
    if decision.verdict == Verdict.CANCEL_RUN:
        end_cancelled(work, run, actor, decision.note)
    elif run.status == RunStatus.WAITING:
        resume_if_decided(work, run)


def _said_digest(interrupt: Interrupt, domain: str, text: str | None) -> str | None:
    """Binds what was said to the entry without keeping it there."""
    return (
        None if text is None else canonical.keyed_digest(interrupt.salt, domain, text)
    )


OPENED = "interrupt.opened"
#: What is recorded where a request ends, or is open again.
TURNS = (
    *(f"interrupt.{status}" for status in InterruptStatus if status != "open"),
    "interrupt.withdrawn",
    "interrupt.reopened",
    "decision.undone",
)


def fits_record(decision: Decision) -> bool:
    """Whether a decision is the last thing the audit has of its request, and still says
    what stands there: the tool, its arguments, its answer and its output. What was erased
    there cannot be compared any more."""
    interrupt = decision.interrupt
    status = STATUS_OF_VERDICT[Verdict(decision.verdict)]
    entries = RECORDED.all(interrupt=interrupt.pk)
    if not entries or entries[-1].action != f"interrupt.{status.value}":
        return False
    opened = (entry for entry in entries if entry.action == OPENED)
    if not all(_says(entry, tool=interrupt.tool) for entry in opened):
        return False
    arguments = decision.arguments or interrupt.arguments
    return _says(
        entries[-1],
        verdict=decision.verdict,
        effective_digest=interrupt.digest_of(arguments),
        answer_digest=_said_digest(interrupt, "sayso.answer.v1", decision.answer),
        output_digest=_said_digest(interrupt, "sayso.output.v1", decision.output),
    )


def _says(entry: AuditEntry, **found: str | None) -> bool:
    if entry.payload is None:
        return True
    recorded = canonical.loads(entry.payload)
    return all(recorded.get(name) == value for name, value in found.items())


RECORDED = Prepared(
    lambda: AuditEntry.objects.filter(
        interrupt=Slot(AuditEntry, "interrupt"),
        action__in=(OPENED, *TURNS),
    ).order_by("number")
)


def decide_by_system(
    work: Work, interrupt: Interrupt, verdict: Verdict, channel: str, note: str
) -> None:
    """A rule decides."""
    actor = f"system:{channel}"
    decide_unvoted(work, interrupt, verdict, actor=actor, channel=channel, note=note)


def decide_unvoted(
    work: Work,
    interrupt: Interrupt,
    verdict: Verdict,
    *,
    actor: str,
    channel: str,
    reviewer: User | None = None,
    answer: str | None = None,
    note: str = "",
) -> None:
    """A decision that nobody votes on counts at once, by the rule it was asked under.

    ``answer``: canonical JSON.
    """
    decision = Decision.objects.create(
        interrupt=interrupt,
        verdict=verdict,
        answer=answer,
        note=note,
        reviewer=reviewer,
        channel=channel,
        effective_digest=interrupt.arguments_digest,
        created=work.now,
        dispatch_at=work.now,
    )
    settle(work, interrupt, decision, actor, asked_ruling(interrupt))


def resume_if_decided(work: Work, run: Run) -> None:
    """Queue the resume once nothing of the pause is open any more.

    It leaves at the latest dispatch time of the gathered decisions, so that an undo time
    of one of them holds for all.
    """
    [(open_ones, due)] = OPEN_AND_DUE.all(run=run.pk)
    if open_ones:
        work.tell_run(run)
    else:
        queue(work, run, max(due or work.now, work.now))


OPEN_AND_DUE = Prepared(
    lambda: (
        Interrupt.objects.filter(run=Slot(Interrupt, "run"))
        .order_by()
        .values("run")
        .annotate(
            open=Count("pk", filter=Q(status=InterruptStatus.OPEN)),
            due=Max("decisions__dispatch_at", filter=Q(decisions__undone_at=None)),
        )
        .values_list("open", "due")
    )
)


def is_past(interrupt: Interrupt, now: datetime) -> bool:
    return interrupt.expires_at is not None and interrupt.expires_at <= now


def expire(work: Work, run: Run, interrupt: Interrupt) -> None:
    """Close a request that nobody decided in time, and do what its rule says then."""
    then = at_deadline(interrupt, asked_ruling(interrupt))
    note = "Nobody decided before the deadline."
    close_interrupt(work, interrupt, InterruptStatus.EXPIRED)
    Decision.objects.create(
        interrupt=interrupt,
        verdict=Verdict.DENY,
        note=note,
        channel="deadline",
        effective_digest=interrupt.arguments_digest,
        created=work.now,
        dispatch_at=work.now,
    )
    work.record(
        "interrupt.expired",
        actor=SWEEPER,
        run=run,
        interrupt=interrupt,
        deadline=interrupt.expires_at.isoformat() if interrupt.expires_at else None,
        then=then,
    )
    if then == OnDeadline.CANCEL_RUN:
        end_cancelled(work, run, SWEEPER, note)
    elif run.status == RunStatus.WAITING:
        resume_if_decided(work, run)


def at_deadline(interrupt: Interrupt, ruling: Ruling) -> OnDeadline:
    """What follows when nobody decides: a request that cannot be denied has no other way
    to go on than to end its run."""
    if Verdict.DENY not in interrupt.verdicts:
        return OnDeadline.CANCEL_RUN
    return ruling.on_deadline


def reopen(work: Work, run: Run, interrupt: Interrupt, decision: Decision) -> None:
    """Void the decision and its votes; the request is open again and the run waits."""
    decision.undone_at = work.now
    decision.save(update_fields=["undone_at"])
    interrupt.votes.filter(void_at=None).update(void_at=work.now)
    interrupt.status = InterruptStatus.OPEN
    interrupt.decided_at = None
    interrupt.save()
    run.status = RunStatus.WAITING
    run.lease_owner, run.lease_until = "", None
    run.save(update_fields=["status", "lease_owner", "lease_until", "updated"])
    work.tell_interrupt(interrupt, "opened")
    work.tell_run(run)
