"""Pauses: opened by a worker, decided by people, expired by the clock, undone, reopened."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

from django.contrib.auth.models import Group
from django.db.models import Count, Max, Prefetch, Q

from approvals import canonical, permissions, policies
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
from approvals.models import Decision, Interrupt, Run, Tool, Vote
from approvals.policies import Ruling
from approvals.schemas import Answer, InterruptDraft, ToolCall
from approvals.services.ending import close_interrupt, end_cancelled, set_delivery
from approvals.services.tools import misfit, title_of
from approvals.services.work import (
    SWEEPER,
    Work,
    agent_of,
    lock_leased,
    lock_run,
    name_of,
    queue,
    unit_of_work,
)
from approvals.states import (
    STATUS_OF_VERDICT,
    Delivery,
    Gate,
    InterruptKind,
    InterruptStatus,
    NoteRule,
    OnDeadline,
    RunStatus,
    Verdict,
)

if TYPE_CHECKING:
    from django.contrib.auth.models import User

#: What a decision needs of its request beside the row itself.
WITH_DECISION = (
    "review_groups",
    Prefetch("decisions", Decision.objects.select_related("reviewer")),
)

#: A run that has asked this often is stopped: the model is going in circles.
MAX_INTERRUPTS = 200


# Opening


def open_interrupts(
    run_id: UUID, *, attempt: int, drafts: Sequence[InterruptDraft]
) -> Run:
    """Turn a worker's pause into rows and let the run wait.

    A call that is already a row (same run, turn and call id) stays that row. A call that
    cannot be asked (unknown tool, arguments that do not fit or cannot be shown) or that a
    policy allows or refuses is decided here by the system, so that the run goes on.

    Raises LostLease.
    """
    assert drafts
    with unit_of_work() as work:
        run = lock_leased(run_id, attempt)
        rules = policies.load_rules()
        tools = {tool.name: tool for tool in Tool.objects.filter(agent=run.agent)}
        for draft in drafts:
            known = run.interrupts.filter(
                turn=draft.call.turn, call_id=draft.call.call_id
            )
            if not known.exists():
                _open(work, run, draft, tools.get(draft.call.tool), rules)
        run.status = RunStatus.WAITING
        run.saved_attempt = attempt
        run.lease_owner, run.lease_until = "", None
        run.save(
            update_fields=[
                "status",
                "saved_attempt",
                "lease_owner",
                "lease_until",
                "updated",
            ]
        )
        count = run.interrupts.open().count()
        work.record("run.waiting", actor=agent_of(run), run=run, open=count)
        work.tell_run(run)
        _resume_if_decided(work, run)
        return run


def _open(
    work: Work,
    run: Run,
    draft: InterruptDraft,
    tool: Tool | None,
    rules: Sequence[policies.Rule],
) -> None:
    call = draft.call
    ruling = policies.rule_on(
        run.agent, call.tool, rules=rules, registered=tool is not None
    )
    arguments, problem = _readable(call)
    problem = problem or _unaskable(run, draft, tool, arguments)
    interrupt = Interrupt(
        run=run,
        turn=call.turn,
        call_id=call.call_id,
        framework_ref=call.framework_ref,
        kind=draft.kind,
        reason=draft.reason,
        message=draft.message or f"Approve running {call.tool}?",
        title=title_of(tool, call.tool, arguments),
        tool=call.tool,
        arguments=arguments,
        salt=canonical.new_salt(),
        response_schema=(
            canonical.dumps(draft.response_schema) if draft.response_schema else ""
        ),
        verdicts=[verdict.value for verdict in draft.verdicts],
        created=work.now,
    )
    if tool is not None:
        interrupt.tool_schema = tool.schema
        interrupt.schema_digest = tool.schema_digest
        interrupt.risk = tool.risk
        interrupt.consequence = tool.consequence
        interrupt.approve_label = tool.approve_label
        interrupt.secrets = tool.secrets
    interrupt.arguments_digest = interrupt.digest_of(arguments)
    _apply(work, interrupt, ruling)
    work.record(
        "interrupt.opened",
        actor=agent_of(run),
        run=run,
        interrupt=interrupt,
        tool=call.tool,
        call_id=call.call_id,
        turn=call.turn,
        arguments_digest=interrupt.arguments_digest,
        arguments=redacted(interrupt),
        policy=interrupt.policy,
    )
    work.tell_interrupt(interrupt, "opened")
    if problem:
        _decide_by_system(work, interrupt, Verdict.DENY, "intake", problem)
    elif ruling.gate == Gate.ALLOW:
        _decide_by_system(work, interrupt, Verdict.APPROVE, "policy", ruling.policy)
    elif ruling.gate == Gate.REFUSE:
        note = f"The policy “{ruling.policy}” refuses this call."
        _decide_by_system(work, interrupt, Verdict.DENY, "policy", note)


def _apply(
    work: Work, interrupt: Interrupt, ruling: Ruling, *, asked_before: bool = False
) -> None:
    """Put the interrupt, as new or as asked again, under a ruling; saves it."""
    interrupt.policy = ruling.model_dump(mode="json")
    interrupt.expires_at = (
        work.now + timedelta(seconds=ruling.deadline_seconds)
        if ruling.deadline_seconds
        else None
    )
    interrupt.save()
    ids = ruling.group_ids or [
        Group.objects.get_or_create(name=name)[0].pk for name in ruling.groups
    ]
    links = Interrupt.review_groups.through.objects
    if asked_before:
        links.filter(interrupt=interrupt).delete()
    links.bulk_create(links.model(interrupt=interrupt, group_id=pk) for pk in ids)


def _readable(call: ToolCall) -> tuple[str, str]:
    """Canonical arguments, and why they cannot be asked about if they cannot.

    What has no canonical form is kept as the text it came in, visibly escaped.
    """
    try:
        return canonical.dumps(canonical.loads(call.arguments or "{}")), ""
    except InvalidArguments as error:
        shown = call.arguments[:20_000].encode("unicode_escape").decode("ascii")
        return canonical.dumps({"unreadable": shown}), str(error)


def _unaskable(
    run: Run, draft: InterruptDraft, tool: Tool | None, arguments: str
) -> str:
    """Why nobody should be asked about this call; empty if they should."""
    if run.interrupts.count() >= MAX_INTERRUPTS:
        return f"This run has already asked {MAX_INTERRUPTS} times."
    if draft.kind == InterruptKind.QUESTION:
        return ""
    if tool is None:
        return f"{run.agent} has no tool named {draft.call.tool}."
    return misfit(tool.schema, arguments)


# Deciding


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
    """Lock the run of a request this person may see, then read the request."""
    run_id = (
        permissions.visible_interrupts(user)
        .filter(pk=interrupt_id)
        .values_list("run_id", flat=True)
        .first()
    )
    if run_id is None:
        raise NotFound
    run = lock_run(run_id)
    interrupt = (
        run.interrupts.filter(pk=interrupt_id).prefetch_related(*WITH_DECISION).get()
    )
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
    if interrupt.is_open and _is_past(interrupt, work.now):
        _expire(work, run, interrupt)
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
    if ruling.gate == Gate.REFUSE and ballot.verdict == Verdict.APPROVE:
        return NotAllowed(f"The policy “{ruling.policy}” now refuses this call.")
    if (
        interrupt.run.requester_id == reviewer.pk
        and not ruling.requester_may_decide
        and ballot.verdict != Verdict.CANCEL_RUN
    ):
        return NotAllowed(
            f"You asked for this run, so somebody else has to decide "
            f"(policy “{ruling.policy}”)."
        )
    if _note_missing(ruling, ballot):
        return InvalidDecision(
            "Say why. The agent reads this note and can try another way.", field="note"
        )
    if (
        ballot.verdict == Verdict.APPROVE
        and ruling.approvals_required > 1
        and interrupt.votes.filter(voter=reviewer, void_at=None).exists()
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
            text = canonical.dumps(ballot.arguments)
            problem = misfit(interrupt.tool_schema, text, closed=True)
            if problem:
                return InvalidDecision(problem, field="arguments")
        if ballot.verdict == Verdict.ANSWER and interrupt.response_schema:
            problem = misfit(interrupt.response_schema, canonical.dumps(ballot.answer))
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
    Vote.objects.create(
        interrupt=interrupt,
        voter=reviewer,
        verdict=ballot.verdict,
        effective_digest=effective,
        shown_digest=ballot.shown or "",
        note=ballot.note,
        created=work.now,
    )
    if ballot.verdict == Verdict.APPROVE and ruling.approvals_required > 1:
        have = _approvals(interrupt, ruling)[effective]
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
        arguments=None if ballot.arguments is None else arguments,
        answer=_given(ballot.answer, asked=ballot.verdict == Verdict.ANSWER),
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
    _settle(work, interrupt, decision, name_of(reviewer), ruling)


def _given(value: Any, *, asked: bool) -> str | None:
    """Canonical text of what was given; a null counts only where it was asked for."""
    return canonical.dumps(value) if asked or value is not None else None


def _approvals(interrupt: Interrupt, ruling: Ruling) -> Counter[str]:
    """Standing approvals per effective digest, of people who may still give one."""
    count: Counter[str] = Counter()
    votes = interrupt.votes.filter(verdict=Verdict.APPROVE, void_at=None)
    for vote in votes.select_related("voter"):
        own = interrupt.run.requester_id == vote.voter_id
        if permissions.may_decide(vote.voter, interrupt) and (
            ruling.requester_may_decide or not own
        ):
            count[vote.effective_digest] += 1
    return count


def _settle(
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
        edited=decision.arguments is not None,
        answered=decision.answer is not None,
        policy=ruling.model_dump(mode="json"),
        dwell_ms=decision.dwell_ms,
    )
    if decision.verdict == Verdict.CANCEL_RUN:
        end_cancelled(work, run, actor, decision.note)
    elif run.status == RunStatus.WAITING:
        _resume_if_decided(work, run)


def _decide_by_system(
    work: Work, interrupt: Interrupt, verdict: Verdict, channel: str, note: str
) -> None:
    decision = Decision.objects.create(
        interrupt=interrupt,
        verdict=verdict,
        note=note,
        channel=channel,
        effective_digest=interrupt.arguments_digest,
        created=work.now,
        dispatch_at=work.now,
    )
    ruling = asked_ruling(interrupt)
    _settle(work, interrupt, decision, f"system:{channel}", ruling)


def _resume_if_decided(work: Work, run: Run) -> None:
    """Queue the resume once nothing of the pause is open any more.

    It leaves at the latest dispatch time of the gathered decisions, so that an undo time
    of one of them holds for all.
    """
    found = run.interrupts.aggregate(
        open=Count("pk", filter=Q(status=InterruptStatus.OPEN)),
        due=Max("decisions__dispatch_at", filter=Q(decisions__undone_at=None)),
    )
    if found["open"]:
        work.tell_run(run)
    else:
        queue(work, run, max(found["due"] or work.now, work.now))


# Undoing, expiring, asking again


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
        _reopen(work, run, interrupt, decision)
        work.record(
            "decision.undone",
            actor=name_of(actor),
            run=run,
            interrupt=interrupt,
            verdict=decision.verdict,
        )
        return interrupt


def expire_due(now: datetime, *, limit: int = 500) -> int:
    """Expire what is past its deadline, each in a transaction of its own."""
    due = Interrupt.objects.open().filter(expires_at__lte=now)
    ids = list(due.order_by("expires_at").values_list("pk", "run_id")[:limit])
    return sum(_expire_one(run_id, interrupt_id) for interrupt_id, run_id in ids)


def _expire_one(run_id: UUID, interrupt_id: UUID) -> int:
    with unit_of_work() as work:
        run = lock_run(run_id)
        interrupt = run.interrupts.get(pk=interrupt_id)
        interrupt.run = run
        if not interrupt.is_open or not _is_past(interrupt, work.now):
            return 0
        _expire(work, run, interrupt)
        return 1


def _is_past(interrupt: Interrupt, now: datetime) -> bool:
    return interrupt.expires_at is not None and interrupt.expires_at <= now


def _expire(work: Work, run: Run, interrupt: Interrupt) -> None:
    ruling = asked_ruling(interrupt)
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
        then=ruling.on_deadline,
    )
    if ruling.on_deadline == OnDeadline.CANCEL_RUN:
        end_cancelled(work, run, SWEEPER, note)
    elif run.status == RunStatus.WAITING:
        _resume_if_decided(work, run)


def decided_interrupts(run: Run) -> list[Interrupt]:
    """The run's decided requests in the order they were asked, with their decisions."""
    decided = run.interrupts.decided().prefetch_related(*WITH_DECISION)
    found = list(decided.order_by("turn", "created", "id"))
    for interrupt in found:
        interrupt.run = run
    return found


def reopen_unsatisfied(work: Work, run: Run, decided: Sequence[Interrupt]) -> bool:
    """Ask anew what was approved under rules that have become stricter since.

    Looks at every approval whose call has not been entered yet. Returns whether the
    (locked) run went back to waiting because of it.
    """
    if not decided:
        return False
    entered = set(run.executions.values_list("interrupt_id", flat=True))
    reopened = False
    for interrupt in decided:
        decision = interrupt.decision
        if interrupt.status != InterruptStatus.APPROVED or interrupt.pk in entered:
            continue
        why = unsatisfied(interrupt)
        if why and decision:
            _ask_again(work, run, interrupt, decision, why)
            reopened = True
    return reopened


def ask_again(run_id: UUID, *, attempt: int, interrupt_id: UUID) -> Run:
    """The guard found an approval that no longer satisfies the rules: let the run wait."""
    with unit_of_work() as work:
        run = lock_leased(run_id, attempt)
        interrupt = run.interrupts.prefetch_related(*WITH_DECISION).get(pk=interrupt_id)
        interrupt.run = run
        why, decision = unsatisfied(interrupt), interrupt.decision
        if why and decision:
            _ask_again(work, run, interrupt, decision, why)
        else:
            queue(work, run, work.now)
        return run


def unsatisfied(interrupt: Interrupt) -> str:
    """Why an approval is not enough under the rules and the schema of now; else empty."""
    tool = Tool.objects.filter(agent=interrupt.run.agent, name=interrupt.tool).first()
    ruling = current_ruling(interrupt.run.agent, interrupt.tool)
    asked = asked_ruling(interrupt)
    if tool is None:
        return "The agent no longer has this tool."
    if tool.schema_digest != interrupt.schema_digest:
        return "The tool's parameters were changed after it was approved."
    if ruling == asked:
        return ""
    if ruling.gate == Gate.REFUSE:
        return f"The policy “{ruling.policy}” now refuses this call."
    decision = interrupt.decision
    if ruling.gate == Gate.ALLOW or decision is None or decision.reviewer is None:
        by_policy = decision is not None and decision.channel == "policy"
        if by_policy and ruling.gate == Gate.HOLD:
            return f"The policy “{ruling.policy}” now holds this call for a person."
        return ""
    needed = policies.strictest(asked, ruling)
    have = _approvals(interrupt, needed)[decision.effective_digest]
    if have < needed.approvals_required:
        return (
            f"The policy “{ruling.policy}” now wants {needed.approvals_required} "
            f"approvals; {have} of those given still count."
        )
    return ""


def _ask_again(
    work: Work, run: Run, interrupt: Interrupt, decision: Decision, why: str
) -> None:
    tool = Tool.objects.filter(agent=run.agent, name=interrupt.tool).first()
    ruling = current_ruling(run.agent, interrupt.tool)
    if tool is not None:
        interrupt.tool_schema = tool.schema
        interrupt.schema_digest = tool.schema_digest
    _reopen(work, run, interrupt, decision)
    _apply(work, interrupt, ruling, asked_before=True)
    work.record(
        "interrupt.reopened",
        actor="system:policy",
        run=run,
        interrupt=interrupt,
        why=why,
        policy=interrupt.policy,
    )
    problem = (
        f"The agent no longer has the tool {interrupt.tool}."
        if tool is None
        else misfit(tool.schema, interrupt.arguments)
    )
    if ruling.gate == Gate.REFUSE or problem:
        _decide_by_system(work, interrupt, Verdict.DENY, "policy", problem or why)


def _reopen(work: Work, run: Run, interrupt: Interrupt, decision: Decision) -> None:
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


# Reading


def current_ruling(agent: str, tool: str) -> Ruling:
    """What the policies say of this tool at this moment."""
    rules = policies.load_rules()
    ruling = policies.rule_on(agent, tool, rules=rules)
    if (
        ruling.gate != Gate.ALLOW
        or Tool.objects.filter(agent=agent, name=tool).exists()
    ):
        return ruling
    return policies.rule_on(agent, tool, rules=rules, registered=False)


def asked_ruling(interrupt: Interrupt) -> Ruling:
    """The ruling as it was when the call was asked."""
    return Ruling.model_validate(interrupt.policy)


def ruling_for(interrupt: Interrupt) -> Ruling:
    """What a decision of now must satisfy."""
    return policies.strictest(
        asked_ruling(interrupt), current_ruling(interrupt.run.agent, interrupt.tool)
    )


def shown_digest(interrupt: Interrupt, ruling: Ruling | None = None) -> str:
    """Keyed digest of everything a page shows that a decision is about.

    Goes into every decision form; a form with another one is refused. It changes with
    the call, the tool's schema and the rules. ``ruling``: that of now, if known.
    """
    shown = {
        "interrupt": str(interrupt.pk),
        "run": str(interrupt.run_id),
        "agent": interrupt.run.agent,
        "turn": interrupt.turn,
        "call_id": interrupt.call_id,
        "kind": interrupt.kind,
        "reason": interrupt.reason,
        "message": interrupt.message,
        "title": interrupt.title,
        "tool": interrupt.tool,
        "arguments": interrupt.arguments,
        "tool_schema": interrupt.schema_digest,
        "response_schema": interrupt.response_schema,
        "verdicts": interrupt.verdicts,
        "risk": interrupt.risk,
        "consequence": interrupt.consequence,
        "policy": (ruling or ruling_for(interrupt)).model_dump(mode="json"),
    }
    return canonical.keyed_digest(
        interrupt.salt, "sayso.shown.v1", canonical.dumps(shown)
    )


def redacted(interrupt: Interrupt) -> Any:
    """The arguments for records that outlive the row: secrets replaced by their length."""
    arguments = canonical.loads(interrupt.arguments)
    if isinstance(arguments, dict):
        for name in interrupt.secrets:
            if name in arguments:
                size = len(str(arguments[name]))
                arguments[name] = f"hidden, {size} characters"
    return arguments


def answers_for(decided: Sequence[Interrupt]) -> list[Answer]:
    """What the decided interrupts say to the agent, and note them as sent."""
    answers = []
    for interrupt in decided:
        decision = interrupt.decision
        if decision is None:
            continue
        if decision.delivery == Delivery.PENDING:
            set_delivery(interrupt, Delivery.SENT)
        answers.append(_answer(interrupt, decision))
    return answers


def _answer(interrupt: Interrupt, decision: Decision) -> Answer:
    return Answer(
        interrupt_id=interrupt.pk,
        call=ToolCall(
            turn=interrupt.turn,
            call_id=interrupt.call_id,
            tool=interrupt.tool,
            arguments=interrupt.arguments,
            framework_ref=interrupt.framework_ref,
        ),
        verdict=Verdict(decision.verdict),
        text=refusal_text(interrupt, decision),
        arguments=_loaded(decision.arguments),
        answer=_loaded(decision.answer),
        output=_loaded(decision.output),
    )


def _loaded(text: str | None) -> Any:
    return None if text is None else canonical.loads(text)


def refusal_text(interrupt: Interrupt, decision: Decision) -> str:
    """What the model is told about a call that does not run; empty if it does."""
    if decision.verdict in (Verdict.APPROVE, Verdict.ANSWER, Verdict.RESPOND):
        return ""
    if decision.verdict == Verdict.CANCEL_CALL:
        told = "Not executed: the call was cancelled."
    elif interrupt.status == InterruptStatus.EXPIRED:
        told = "Not executed: nobody decided before the deadline."
    elif decision.reviewer is None:
        told = "Not executed: the call was refused."
    else:
        told = "Not executed: a reviewer denied this call."
    note = "" if interrupt.status == InterruptStatus.EXPIRED else decision.note.strip()
    return f"{told} {note}" if note else told
