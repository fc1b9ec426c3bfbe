"""A ``resume`` is a request to decide, by the rights of whoever sends it.

Each entry becomes one ballot and goes through the same service as a decision in the
inbox. What is refused leaves its interrupt open; the page gets it again, with the reason
in words. What was decided before is not decided again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from ag_ui.core import ResumeEntry

from approvals import canonical, permissions, services
from approvals.callers import Caller
from approvals.exceptions import (
    ApprovalsError,
    InvalidArguments,
    InvalidDecision,
    NotAllowed,
    NotFound,
)
from approvals.hiding import holds_marks, restored
from approvals.models import Decision, Interrupt
from approvals.services import Ballot
from approvals.states import InterruptKind, InterruptStatus, TokenScope, Verdict
from hitlagents.adapters.base import AgentSpec
from hitlagents.agui.frames import Notice
from hitlagents.agui.intake import Unusable
from hitlagents.agui.shapes import NOTE_KEYS, answer_keys
from hitlagents.models import Thread

CHANNEL = "agui"
MAX_NOTE = 10_000


def refuse_long_notes(thread: Thread | None, entries: Sequence[ResumeEntry]) -> None:
    """Raises Unusable, before anything is decided: half a reason may say the opposite."""
    for place, entry in enumerate(entries):
        payload = entry.payload
        if entry.status == "cancelled" or not isinstance(payload, dict):
            continue
        long = [key for key in NOTE_KEYS if len(_words_at(payload, key)) > MAX_NOTE]
        interrupt = _find(thread, entry.interrupt_id) if long else None
        if interrupt is None or interrupt.kind == InterruptKind.QUESTION:
            continue
        key = _note_key(payload, answer_keys(interrupt))
        if key in long:
            field = f"resume.{place}.payload.{key}"
            raise Unusable(
                f"{field}: it has {len(_words_at(payload, key)):,} characters; "
                f"{MAX_NOTE:,} are allowed.",
                field=field,
            )


def decide(
    thread: Thread | None,
    entries: Sequence[ResumeEntry],
    *,
    caller: Caller,
    spec: AgentSpec,
) -> list[Notice]:
    """Decide what the entries answer; returns what the person should know of it."""
    notices: list[Notice] = []
    ended_here = False
    for id, given in _by_interrupt(entries).items():
        interrupt = _find(thread, id)
        if interrupt is None:
            notices.append(
                Notice(
                    code="unknown_interrupt",
                    message="This conversation has no such request.",
                    interrupt=id,
                    spoken=False,
                )
            )
            continue
        if len(given) > 1:
            notices.append(
                _notice(
                    interrupt,
                    "two_answers",
                    "Two different answers came for one request, so neither counts.",
                )
            )
            continue
        try:
            ballot = _ballot(given[0], interrupt, spec)
            if interrupt.is_open:
                _vote(interrupt, ballot, caller)
                ended_here = ended_here or ballot.verdict == Verdict.CANCEL_RUN
            elif not _same(interrupt, ballot) and not (
                ended_here and interrupt.decision is None
            ):
                notices.append(_too_late(interrupt))
        except ApprovalsError as error:
            interrupt.refresh_from_db(fields=["status"])
            if interrupt.is_open or not _same_or_none(interrupt, given[0], spec):
                notices.append(_notice(interrupt, error.code, _words(error, interrupt)))
    return notices


def _by_interrupt(entries: Sequence[ResumeEntry]) -> dict[str, list[ResumeEntry]]:
    """The different answers to each interrupt; the same one twice is one."""
    found: dict[str, list[ResumeEntry]] = {}
    for entry in entries:
        answers = found.setdefault(entry.interrupt_id, [])
        if entry not in answers:
            answers.append(entry)
    return found


def _find(thread: Thread | None, id: str) -> Interrupt | None:
    """The request of this thread: those of other conversations do not exist here."""
    try:
        pk = UUID(id)
    except ValueError:
        return None
    if thread is None:
        return None
    of_thread = Interrupt.objects.for_people().filter(run__input__thread=thread)
    return of_thread.select_related("run", "run__requester").filter(pk=pk).first()


def _vote(interrupt: Interrupt, ballot: Ballot, caller: Caller) -> None:
    """Raises what ``services.decide`` raises, in words for whoever asked for the run."""
    try:
        if not caller.may(TokenScope.DECIDE):
            raise NotAllowed("This token does not allow deciding requests.")
        services.decide(interrupt.pk, ballot, reviewer=caller.user)
    except (NotFound, NotAllowed) as error:
        # Whoever asked for a run may end it, whoever decides about its calls.
        if ballot.verdict == Verdict.CANCEL_RUN and permissions.may_cancel(
            caller.user, interrupt.run
        ):
            services.cancel_run(interrupt.run_id, actor=caller.user, note=ballot.note)
        elif isinstance(error, NotFound):
            groups = ", ".join(map(str, permissions.deciders(interrupt)))
            raise NotAllowed(
                f"You may not decide this request. It waits for {groups}."
            ) from error
        else:
            raise


# From an entry to a ballot


def _ballot(entry: ResumeEntry, interrupt: Interrupt, spec: AgentSpec) -> Ballot:
    """Raises InvalidDecision where it cannot be told what was meant."""
    shown = _shown(entry)
    if entry.status == "cancelled":
        return Ballot(
            verdict=_cancelling(interrupt, spec), shown=shown, channel=CHANNEL
        )
    payload = entry.payload
    if interrupt.kind == InterruptKind.QUESTION:
        return Ballot(
            verdict=Verdict.ANSWER, shown=shown, answer=payload, channel=CHANNEL
        )
    if not isinstance(payload, dict):
        return Ballot(verdict=Verdict.DENY, shown=shown, channel=CHANNEL)
    keys = answer_keys(interrupt)
    note = _words_at(payload, _note_key(payload, keys))
    if payload.get("approved") is not True:
        return Ballot(verdict=Verdict.DENY, shown=shown, note=note, channel=CHANNEL)
    answer = {key: payload[key] for key in payload.keys() & keys}
    return Ballot(
        verdict=Verdict.APPROVE,
        shown=shown,
        note=note,
        arguments=_edited(payload.get("editedArgs"), interrupt),
        answer=answer or None,
        channel=CHANNEL,
    )


def _shown(entry: ResumeEntry) -> str | None:
    """The digest of what the page showed, if it says. Otherwise the answer is bound to
    the interrupt, whose arguments never change."""
    ours = (entry.metadata or {}).get("sayso")
    digest = ours.get("digest") if isinstance(ours, dict) else None
    return digest if isinstance(digest, str) else None


def _cancelling(interrupt: Interrupt, spec: AgentSpec) -> Verdict:
    """The agent's own meaning of *cancelled*, or the other where the request takes only
    that one."""
    cancels = {Verdict.CANCEL_RUN, Verdict.CANCEL_CALL} & set(interrupt.verdicts)
    return next(iter(cancels)) if len(cancels) == 1 else spec.cancel


def _note_key(payload: dict[str, Any], answer: frozenset[str]) -> str:
    """Where the note stands; empty without one."""
    said = (key for key in NOTE_KEYS if key not in answer and _words_at(payload, key))
    return next(said, "")


def _words_at(payload: dict[str, Any], key: str) -> str:
    value = payload.get(key)
    return value.strip() if isinstance(value, str) else ""


def _edited(given: Any, interrupt: Interrupt) -> dict[str, Any] | None:
    """The arguments instead; None where nothing was changed.

    A page has no secret values: what it sends back in their place stands for them.
    """
    if given is None:
        return None
    if not isinstance(given, dict):
        raise InvalidDecision(
            "The edited arguments are not an object.", field="arguments"
        )
    original = canonical.loads(interrupt.arguments)
    if not isinstance(original, dict):
        raise InvalidDecision("This call has no arguments to edit.", field="arguments")
    masked = services.redacted(interrupt)
    left_out = {
        name: value
        for name, value in original.items()
        if name not in given
        and interrupt.hiding.hides(original, name)
        # The value of a pair belongs to the name it had.
        and interrupt.hiding.hides({**given, name: value}, name)
    }
    edited = restored(given, masked, original) | left_out
    if holds_marks(edited) and not holds_marks(original):
        raise InvalidDecision(
            "The edited arguments hold words that stand for a hidden value. Leave that "
            "argument as it was, or write all of it.",
            field="arguments",
        )
    same = canonical.dumps(edited) == interrupt.arguments
    return None if same else edited


# What was decided before


def _same(interrupt: Interrupt, ballot: Ballot) -> bool:
    """Whether the decision that stands says what the ballot says."""
    decision = interrupt.decision
    if decision is None:
        # Withdrawn with its run.
        return ballot.verdict in (Verdict.CANCEL_RUN, Verdict.CANCEL_CALL)
    if decision.verdict != ballot.verdict:
        return False
    if ballot.verdict == Verdict.APPROVE:
        return _same_arguments(interrupt, decision, ballot) and _is(
            decision.answer, ballot.answer
        )
    return ballot.verdict != Verdict.ANSWER or _is(
        decision.answer, ballot.answer, null=True
    )


def _same_arguments(interrupt: Interrupt, decision: Decision, ballot: Ballot) -> bool:
    """But for secrets: whoever asks need not know them, and would learn by trying."""
    decided = canonical.loads(decision.arguments or interrupt.arguments)
    given = canonical.loads(interrupt.arguments)
    if ballot.arguments is not None:
        given = ballot.arguments
    if isinstance(decided, dict) and isinstance(given, dict):
        hidden = {
            name: None
            for each in (decided, given)
            for name in each
            if interrupt.hiding.changes(each, name)
        }
        decided, given = decided | hidden, given | hidden
    return _is(canonical.dumps(decided), given, null=True)


def _is(stored: str | None, given: Any, *, null: bool = False) -> bool:
    if given is None and not null:
        return stored is None
    try:
        return stored == canonical.dumps(given)
    except InvalidArguments:
        return False


def _same_or_none(interrupt: Interrupt, entry: ResumeEntry, spec: AgentSpec) -> bool:
    """Somebody was quicker by a moment, and said the same."""
    try:
        return _same(interrupt, _ballot(entry, interrupt, spec))
    except ApprovalsError:
        return False


# In words


def _notice(interrupt: Interrupt, code: str, message: str) -> Notice:
    return Notice(code=code, message=message, interrupt=str(interrupt.pk))


def _too_late(interrupt: Interrupt) -> Notice:
    decision: Decision | None = interrupt.decision
    if interrupt.status == InterruptStatus.EXPIRED:
        told = "Nobody decided in time, so this request expired."
    elif decision is None:
        told = "This request was withdrawn when its run ended."
    else:
        told = (
            f"{decision.by} already decided this: {interrupt.get_status_display()}. "
            "Your answer was not used."
        )
    title = services.decided_title(interrupt)
    return _notice(interrupt, "already_decided", f"{title}: {told}")


def _words(error: ApprovalsError, interrupt: Interrupt) -> str:
    told = f"{services.decided_title(interrupt)}: {error.message}"
    if isinstance(error, InvalidDecision) and error.field == "note":
        told += " Send it as “note” beside “approved”."
    return told
