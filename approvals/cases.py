"""A request as one person sees it: what it shows, what they may do, what came of it."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING
from uuid import UUID

from django.contrib.auth import get_user_model
from django.db.models import Count
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from approvals import (
    audit,
    canonical,
    cards,
    display,
    hosts,
    permissions,
    services,
    wording,
)
from approvals.exceptions import AlreadyDecided, ApprovalsError, Expired
from approvals.models import AuditEntry, Decision, Interrupt, Vote
from approvals.policies import Ruling
from approvals.prepared import Prepared, Slot
from approvals.states import (
    Delivery,
    ExecutionStatus,
    Gate,
    InterruptKind,
    InterruptStatus,
    NoteRule,
    OnDeadline,
    Risk,
    RunStatus,
    Source,
    Verdict,
)

if TYPE_CHECKING:
    from approvals.permissions import Person


@dataclass(frozen=True, kw_only=True)
class Happened:
    """One line of a history."""

    words: str
    actor: str
    time: datetime
    action: str
    interrupt: UUID | None = None


def actor_words(actor: str, people: Mapping[str, str], agents: hosts.Names) -> str:
    kind, _colon, rest = actor.partition(":")
    if kind == "system":
        return {
            "sweeper": _("the clock"),
            "worker": _("the worker"),
            "policy": _("the policy"),
            "intake": _("the intake check"),
        }.get(rest, rest)
    if kind == "agent" and rest:
        return agents[rest]
    return people.get(actor, actor)


def happened(entries: Iterable[AuditEntry]) -> list[Happened]:
    """Audit entries as lines of a history, people and agents by their names."""
    entries = list(entries)
    users = get_user_model().objects.filter(
        username__in={entry.actor for entry in entries}
    )
    people = {user.get_username(): wording.person(user) for user in users}
    agents = hosts.Names()
    return [
        Happened(
            words=audit.ACTIONS.get(entry.action, entry.action),
            actor=actor_words(entry.actor, people, agents),
            time=entry.time,
            action=entry.action,
            interrupt=entry.interrupt,
        )
        for entry in entries
    ]


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Why what somebody sent was not done, and whatever they typed."""

    text: str
    detail: str = ""
    note: str = ""
    field: str = ""
    conflict: bool = False


def done_word(verdict: str) -> str:
    return {
        Verdict.APPROVE: _("approved"),
        Verdict.DENY: _("denied"),
        Verdict.ANSWER: _("answered"),
        Verdict.RESPOND: _("answered"),
    }.get(Verdict(verdict), _("cancelled"))


def not_sent(verdict: str) -> str:
    """Says what was not done."""
    return {
        Verdict.APPROVE: _("Your approval was not sent."),
        Verdict.DENY: _("Your denial was not sent."),
        Verdict.ANSWER: _("Your answer was not sent."),
        Verdict.RESPOND: _("Your answer was not sent."),
    }.get(Verdict(verdict), _("Your decision was not sent."))


def problem_of(
    error: ApprovalsError, *, verdict: str, note: str, now: datetime
) -> Problem:
    """The refusal in words: who was faster, when, and that nothing was sent."""
    field = str(getattr(error, "field", ""))
    if isinstance(error, AlreadyDecided) and error.decision is not None:
        decision = error.decision
        text = _("%(who)s %(did)s this %(ago)s ago.") % {
            "who": decision.by,
            "did": done_word(decision.verdict),
            "ago": wording.duration(now - decision.created),
        }
        return Problem(
            text=f"{text} {not_sent(verdict)}",
            detail=decision.note,
            note=note,
            conflict=True,
        )
    text = error.message
    if error.http_status == 409:
        text = f"{text} {not_sent(verdict)}"
    return Problem(
        text=text,
        note=note,
        field=field,
        conflict=isinstance(error, Expired) or error.http_status == 409,
    )


def rule_lines(ruling: Ruling, *, waits: bool) -> list[tuple[str, str]]:
    """What a rule asks of a decision. ``waits``: whether a request has a deadline."""
    lines = []
    if ruling.approvals_required > 1:
        lines.append((_("Approvals needed"), str(ruling.approvals_required)))
    lines.append((_("Note"), NoteRule(ruling.note_rule).label))
    lines.append(
        (
            _("Own requests"),
            _("May be decided")
            if ruling.requester_may_decide
            else _("Somebody else decides"),
        )
    )
    if not waits:
        then = _("Stays open")
    elif ruling.on_deadline == OnDeadline.CANCEL_RUN:
        then = _("The run is cancelled")
    else:
        then = _("The agent is told no")
    lines.append((_("If nobody answers"), then))
    if ruling.undo_seconds:
        lines.append((_("Undo"), _("Within %s s") % ruling.undo_seconds))
    return lines


class Case:
    """One request for one person. Reads only; everything asked twice is kept."""

    def __init__(self, interrupt: Interrupt, person: Person) -> None:
        self.interrupt = interrupt
        self.run = interrupt.run
        self.person = person
        self.now = timezone.now()

    @cached_property
    def ruling(self) -> Ruling:
        return services.ruling_for(self.interrupt)

    @cached_property
    def shown(self) -> str:
        """Digest of what this page shows; travels in the form."""
        return services.shown_digest(self.interrupt, self.ruling)

    @cached_property
    def decision(self) -> Decision | None:
        return self.interrupt.decision

    @property
    def is_question(self) -> bool:
        return self.interrupt.kind == InterruptKind.QUESTION

    @property
    def is_at_page(self) -> bool:
        """Nobody is asked: the page that brought the tool answers."""
        return self.interrupt.kind == InterruptKind.CLIENT

    @property
    def is_open(self) -> bool:
        return self.interrupt.is_open and not self.is_past

    @property
    def is_past(self) -> bool:
        until = self.interrupt.expires_at
        return until is not None and until <= self.now and self.interrupt.is_open

    @property
    def status(self) -> str:
        return InterruptStatus.EXPIRED if self.is_past else self.interrupt.status

    @property
    def soon(self) -> bool:
        until = self.interrupt.expires_at
        return (
            self.is_open
            and until is not None
            and (until - self.now).total_seconds() < 900
        )

    @property
    def version(self) -> str:
        """Changes whenever the page of this request should."""
        parts = (
            self.status,
            self.run.status,
            self.decision.delivery if self.decision else "",
            self.ran,
            self.have,
            self.others_open,
            self.shown if self.is_open else "",
        )
        return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]

    # Who may do what

    @cached_property
    def deciders(self) -> str:
        """Whose turn it is, in words: a person, groups, or both; or a page."""
        if self.is_at_page:
            return _("the page that brought the tool")
        names = sorted(group.name for group in self.interrupt.review_groups.all())
        if self.interrupt.asks_requester:
            names.insert(0, wording.person(self.run.requester))
        return ", ".join(names)

    @cached_property
    def why_not(self) -> str:
        """Why this person cannot decide; empty if they can."""
        if not permissions.may_decide(self.person, self.interrupt):
            can = (
                _("You can read this. %(who)s can answer.")
                if self.is_question
                else _("You can read this. %(who)s can decide.")
            )
            return can % {"who": self.deciders or _("Nobody")}
        if (
            self.run.requester_id == self.person.pk
            and not self.ruling.requester_may_decide
            and not permissions.is_asked(self.person, self.interrupt)
        ):
            return _(
                "You asked for this run, so somebody else in %(groups)s has to decide."
            ) % {"groups": self.deciders}
        if self.vote is not None:
            left = self.still_needed
            return ngettext(
                "You approved. %(n)s more approval is needed.",
                "You approved. %(n)s more approvals are needed.",
                left,
            ) % {"n": left}
        if self.run.status != RunStatus.WAITING:
            return _("The run is working. This can be decided once it waits.")
        return ""

    @property
    def can_decide(self) -> bool:
        return self.is_open and not self.why_not

    @cached_property
    def can_cancel(self) -> bool:
        return not self.run.ended and permissions.may_cancel(self.person, self.run)

    def _takes(self, verdict: Verdict) -> bool:
        return verdict in self.interrupt.verdicts

    @property
    def can_approve(self) -> bool:
        return (
            not self.is_question
            and self._takes(Verdict.APPROVE)
            and self.ruling.gate != Gate.REFUSE
        )

    @property
    def can_edit(self) -> bool:
        """Whether the arguments may be changed on the way.

        Not where several people have to approve: their votes would be for different calls.
        """
        return (
            self.can_decide
            and self.can_approve
            and self.interrupt.editable
            and self.ruling.approvals_required == 1
            and bool(self.interrupt.tool_schema)
            and self.interrupt.arguments.startswith("{")
        )

    @property
    def answer(self) -> str:
        """What was answered, or said beside approving, as JSON; empty if nothing was."""
        decision = self.decision
        return (decision.answer or decision.output or "") if decision else ""

    @property
    def answer_in_words(self) -> str:
        return cards.in_words(self.answer) if self.answer else ""

    @property
    def told(self) -> str:
        """What was noted with the decision, for whoever asked."""
        decision = self.decision
        if decision is None or (
            decision.reviewer is None and decision.verdict == Verdict.APPROVE
        ):
            return ""  # The name of a policy is no note.
        return decision.note

    @property
    def changes(self) -> list[display.Change]:
        """What the reviewer changed in the arguments."""
        decision = self.decision
        if decision is None or decision.arguments is None:
            return []
        found = self.interrupt
        return display.changes(found.arguments, decision.arguments, hiding=found.hiding)

    @property
    def can_deny(self) -> bool:
        return self._takes(Verdict.DENY)

    @property
    def can_answer(self) -> bool:
        return self._takes(Verdict.ANSWER) and self.ruling.gate != Gate.REFUSE

    @property
    def takes_answer(self) -> bool:
        """Whether this person may say anything for the tool, alone or beside a yes."""
        return self.can_decide and (self.can_answer or self.can_approve)

    @property
    def can_cancel_call(self) -> bool:
        return self._takes(Verdict.CANCEL_CALL)

    @property
    def only_cancels(self) -> bool:
        """Whether all that can be done is to cancel the run."""
        verdicts = (self.can_approve, self.can_deny, self.can_answer)
        return self.can_cancel and not any(verdicts) and not self.can_cancel_call

    # What it says

    @cached_property
    def title(self) -> str:
        """What was asked, or decided where a reviewer changed it."""
        if not self.was_edited:
            return self.interrupt.title
        return services.decided_title(self.interrupt)

    @property
    def was_edited(self) -> bool:
        decision = self.decision
        return decision is not None and decision.arguments is not None

    @property
    def heading(self) -> str:
        title = self.interrupt.title
        return title if self.is_question or title.endswith("?") else f"{title}?"

    @property
    def approve_label(self) -> str:
        return self.interrupt.approve_label or wording.approve_label(
            self.interrupt.tool
        )

    @property
    def high_risk(self) -> bool:
        return self.interrupt.risk == Risk.HIGH

    @property
    def risk_notice(self) -> str:
        if self.interrupt.consequence or self.is_question:
            return self.interrupt.consequence
        return wording.risk_notice(self.interrupt.risk)

    @property
    def note_rule(self) -> str:
        takes_note = self.interrupt.takes_note
        match self.ruling.note_rule:
            case NoteRule.ALWAYS if takes_note:
                return _("(required)")
            case NoteRule.ALWAYS:
                return _("(required, the agent is not told)")
            case NoteRule.ON_DENY if takes_note:
                return _("(required to deny)")
            case NoteRule.ON_DENY:
                return _("(required to deny, the agent is not told)")
        if takes_note:
            return _("(optional, the agent reads it)")
        return _("(optional, the agent is not told)")

    @property
    def hint(self) -> str:
        if self.ruling.gate == Gate.REFUSE:
            return _("The policy “%(policy)s” now refuses this call.") % {
                "policy": self.ruling.policy
            }
        need = self.ruling.approvals_required
        if need > 1:
            given = _("%(have)s of %(need)s approvals given.")
            if len(self.voters) > self.have:
                given = _("%(have)s of %(need)s approvals given for the same answer.")
            return given % {"have": self.have, "need": need}
        if self.is_question:
            return _("The answer goes to the agent as you send it.")
        if self.can_deny:
            return _("Deny tells the agent no; the run carries on.")
        return ""

    @property
    def form_id(self) -> str:
        return f"decide-{self.interrupt.pk}"

    @property
    def card_target(self) -> str:
        return f"#card-{self.interrupt.pk}"

    @property
    def took(self) -> str:
        """How long it waited for its decision."""
        decision = self.decision
        return (
            wording.duration(decision.created - self.interrupt.created)
            if decision
            else ""
        )

    @property
    def raw(self) -> str:
        """The arguments as one JSON text, secrets hidden."""
        return display.json_text(canonical.dumps(services.redacted(self.interrupt)))

    @property
    def policy_lines(self) -> list[tuple[str, str]]:
        ruling = self.ruling
        who = _("Who can answer") if self.is_question else _("Who can decide")
        asked = self.interrupt.asks_requester
        as_it_goes = ruling.model_copy(
            update={
                "requester_may_decide": asked or ruling.requester_may_decide,
                "on_deadline": services.at_deadline(self.interrupt, ruling),
            }
        )
        return [
            (_("Rule"), ruling.policy),
            (who, self.deciders),
            *rule_lines(as_it_goes, waits=self.interrupt.expires_at is not None),
        ]

    @cached_property
    def history(self) -> list[Happened]:
        entries = AuditEntry.objects.filter(interrupt=self.interrupt.pk).order_by(
            "-number"
        )[:12]
        return happened(reversed(list(entries)))

    # Asked before

    @property
    def times_asked(self) -> str:
        """That the agent was told no to the same call before; empty if it was not."""
        before = self.interrupt.denied_before
        if not before:
            return ""
        return _("The agent has asked this %(n)s times in this run.") % {
            "n": before + 1
        }

    @cached_property
    def earlier_denials(self) -> list[Decision]:
        """The decisions that said no to the same call before, oldest first."""
        if not self.interrupt.denied_before:
            return []
        return list(services.denials_before(self.interrupt))

    # Its place in the run, and what came of it

    @cached_property
    def voters(self) -> list[str]:
        votes = self.interrupt.votes.filter(verdict=Verdict.APPROVE, void_at=None)
        return [wording.person(vote.voter) for vote in votes.select_related("voter")]

    @cached_property
    def _approvals(self) -> Counter[str]:
        """How many approvals count, by what they are for."""
        if self.ruling.approvals_required == 1:
            return Counter()
        return services.approvals_of(self.interrupt, self.ruling)

    @property
    def have(self) -> int:
        """Approvals of one and the same answer, where several are needed."""
        return max(self._approvals.values(), default=0)

    @cached_property
    def vote(self) -> Vote | None:
        """This person's approval, if more are needed."""
        if not self.is_open:
            return None
        return self.interrupt.votes.filter(
            voter_id=self.person.pk, verdict=Verdict.APPROVE, void_at=None
        ).first()

    @property
    def still_needed(self) -> int:
        """Approvals that are missing: of what this person has approved, if they have."""
        mine = self.vote
        have = self.have if mine is None else self._approvals[mine.effective_digest]
        return self.ruling.approvals_required - have

    @cached_property
    def others_open(self) -> int:
        """How many other requests of this run are still open: then it waits."""
        if self.run.status != RunStatus.WAITING:
            return 0
        return _OTHERS_OPEN.first(run=self.run.pk, id=self.interrupt.pk) or 0

    @property
    def waits_for(self) -> str:
        n = self.others_open
        if not n or self.run.ended:
            return ""
        if self.is_open:
            return ngettext(
                "%(n)s other request of this run is open. The run goes on when all are decided.",
                "%(n)s other requests of this run are open. The run goes on when all are decided.",
                n,
            ) % {"n": n}
        return ngettext(
            "Waits for %(n)s other request in this run",
            "Waits for %(n)s other requests in this run",
            n,
        ) % {"n": n}

    @property
    def outcome(self) -> str:
        """Who decided, in one line."""
        decision = self.decision
        if self.status == InterruptStatus.EXPIRED:
            return _("Nobody decided in time.")
        if decision is None:
            return _("This request was withdrawn when its run ended.")
        if self.is_at_page and decision.verdict == Verdict.ANSWER:
            return _("The page answered.")
        if self.is_at_page and decision.reviewer is not None:
            return _("%(who)s went on without answering.") % {"who": decision.by}
        return _("%(who)s %(did)s this.") % {
            "who": decision.by,
            "did": done_word(decision.verdict),
        }

    @cached_property
    def ran(self) -> str:
        """What became of the tool body, if it was entered."""
        decision = self.decision
        if decision is None or decision.verdict != Verdict.APPROVE:
            return ""
        if decision.delivery == Delivery.PENDING:
            return ""  # what was not sent cannot have been entered
        execution = self.interrupt.executions.order_by("-started").first()
        return execution.status if execution else ""

    @property
    def went_wrong(self) -> bool:
        return self.ran in (ExecutionStatus.FAILED, ExecutionStatus.IN_DOUBT)

    @property
    def delivery(self) -> str:
        """How far the decision has come on its way into the run."""
        decision = self.decision
        if decision is None or self.interrupt.is_open:
            return ""
        if self.ran == ExecutionStatus.DONE and self.run.source == Source.REMOTE:
            return _("It was sent, and the agent told what came of it.")
        if self.ran == ExecutionStatus.DONE:
            return _("It ran.")
        if self.ran == ExecutionStatus.FAILED:
            return _("It did not succeed.")
        if self.ran == ExecutionStatus.INFLIGHT:
            return _("It is running.")
        if ExecutionStatus.IN_DOUBT in (self.ran, decision.delivery):
            return _(
                "Outcome unknown. Somebody has to settle it on the page of the run."
            )
        if decision.delivery == Delivery.FAILED:
            return _("The run did not take it.")
        if decision.delivery == Delivery.APPLIED and services.held_back(decision):
            return _("It did not run: another call of its pause was not approved.")
        if decision.delivery == Delivery.APPLIED:
            return _("Delivered.")
        if self.run.ended:
            return _("The run has ended: %s.") % self.run.get_status_display().lower()
        if self.waits_for:
            return self.waits_for + "."
        if decision.dispatch_at > self.now:
            return _("Sends in %s.") % wording.duration(decision.dispatch_at - self.now)
        if decision.delivery == Delivery.SENT:
            return _("Sent to the run.")
        return _("Sending.")

    @property
    def undo_seconds(self) -> int:
        """Seconds this person has left to take their decision back."""
        decision = self.decision
        if decision is None or decision.reviewer_id != self.person.pk:
            return 0
        if self.run.status not in (RunStatus.WAITING, RunStatus.QUEUED):
            return 0
        return max(0, int((decision.dispatch_at - self.now).total_seconds()))


_OTHERS_OPEN = Prepared(
    lambda: (
        Interrupt.objects.open()
        .filter(run=Slot(Interrupt, "run"))
        .exclude(pk=Slot(Interrupt, "id"))
        .order_by()
        .values("run")
        .annotate(n=Count("pk"))
        .values_list("n", flat=True)
    )
)
