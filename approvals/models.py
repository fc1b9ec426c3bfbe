"""The rows of the desk. Statuses are written by ``approvals.services`` and nowhere else."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Any, ClassVar, Never

from django.conf import settings
from django.contrib.auth.models import Group
from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import Case, Exists, OuterRef, Q, Value, When
from django.utils import timezone

from approvals import canonical, wording
from approvals.hiding import Hiding
from approvals.prepared import Prepared, Slot
from approvals.states import (
    RUN_AT_PAGE,
    RUN_ENDED,
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

SHORT = 200


def _digest_field(**options: Any) -> models.CharField[str, str]:
    return models.CharField(max_length=64, editable=False, **options)


class Tool(models.Model):
    """What is known of one tool of one agent; kept in step with the code at start."""

    agent = models.CharField(max_length=SHORT)
    name = models.CharField(max_length=SHORT)
    description = models.TextField(blank=True)
    schema = models.TextField(help_text="JSON Schema of the arguments, canonical.")
    schema_digest = _digest_field()
    risk = models.CharField(max_length=10, choices=Risk, default=Risk.MEDIUM)
    read_only = models.BooleanField(
        default=False, help_text="Running it again changes nothing."
    )
    secrets = models.JSONField(
        default=list, blank=True, help_text="Parameters whose values are never shown."
    )
    plain = models.JSONField(
        default=list,
        blank=True,
        help_text="Parameters that are shown although they look like secrets.",
    )
    title = models.CharField(
        max_length=SHORT,
        blank=True,
        help_text="What a call does, with {parameter} for a value of it.",
    )
    approve_label = models.CharField(
        max_length=SHORT, blank=True, help_text="What the approving button says."
    )
    consequence = models.TextField(
        blank=True, help_text="What whoever approves should know before."
    )
    kind = models.CharField(
        max_length=10,
        choices=InterruptKind,
        default=InterruptKind.APPROVAL,
        help_text="A question is answered by a person, and nothing runs for it.",
    )
    answer_schema = models.TextField(
        blank=True, help_text="JSON Schema of what a person says, canonical."
    )
    card = models.CharField(
        max_length=SHORT,
        blank=True,
        help_text="How pages ask for the answer. Empty: by a plain form.",
    )

    class Meta:
        ordering = ["agent", "name"]
        constraints = [
            models.UniqueConstraint(fields=["agent", "name"], name="one_tool_per_name"),
        ]

    def __str__(self) -> str:
        return f"{self.agent}: {self.name}"

    @property
    def hiding(self) -> Hiding:
        return Hiding.of(self.secrets, self.plain)


class Policy(models.Model):
    """A rule. They are asked in order, the first match wins, and no match means held."""

    position = models.PositiveIntegerField(
        default=100, help_text="Lower is asked first."
    )
    name = models.CharField(
        max_length=SHORT, unique=True, help_text="Stands on the requests it rules."
    )
    enabled = models.BooleanField(
        default=True, help_text="Off: as if there were no such rule."
    )
    agent_pattern = models.CharField(
        max_length=SHORT, default="*", help_text="Agent, with * and ? as wildcards."
    )
    tool_pattern = models.CharField(
        max_length=SHORT, default="*", help_text="Tool, with * and ? as wildcards."
    )
    gate = models.CharField(
        max_length=10,
        choices=Gate,
        default=Gate.HOLD,
        help_text="What happens to a call. All below is only for calls that are held.",
    )
    groups = models.ManyToManyField(
        Group,
        blank=True,
        related_name="policies",
        help_text="Who decides. Empty: the group Reviewers.",
    )
    approvals_required = models.PositiveSmallIntegerField(
        default=1,
        validators=[MinValueValidator(1), MaxValueValidator(20)],
        help_text="How many people have to approve. With more than one nobody can edit.",
    )
    requester_may_decide = models.BooleanField(
        default=False,
        help_text="Whoever asked for the run may decide its requests, if they belong to "
        "those who decide.",
    )
    asks_requester = models.BooleanField(
        default=False,
        help_text="Questions go to the person the agent works for, and to the groups, if "
        "any are chosen. Approvals never do.",
    )
    note_rule = models.CharField(
        max_length=10,
        choices=NoteRule,
        default=NoteRule.OPTIONAL,
        help_text="When a decision needs a note. The agent reads it where it can be told.",
    )
    deadline_seconds = models.PositiveIntegerField(
        null=True,
        blank=True,
        validators=[MinValueValidator(1)],
        help_text="How long a request stays open, in seconds. Empty: for ever.",
    )
    on_deadline = models.CharField(
        max_length=10,
        choices=OnDeadline,
        default=OnDeadline.DENY,
        help_text="What follows when nobody has decided by then.",
    )
    undo_seconds = models.PositiveSmallIntegerField(
        default=0,
        validators=[MaxValueValidator(30)],
        help_text="How long a decision can be taken back before it is sent, in seconds.",
    )

    class Meta:
        ordering = ["position", "pk"]
        verbose_name_plural = "policies"
        constraints = [
            models.CheckConstraint(
                condition=Q(approvals_required__gte=1),
                name="policy_needs_one_approval",
            ),
            models.CheckConstraint(
                condition=Q(gate__in=Gate.values), name="policy_gate_is_known"
            ),
        ]

    def __str__(self) -> str:
        return self.name

    def clean(self) -> None:
        if self.gate == Gate.REFUSE and self.deadline_seconds:
            raise ValidationError(
                {"deadline_seconds": "A refused call waits for nobody."}
            )
        for name in ("agent_pattern", "tool_pattern"):
            if set(getattr(self, name)) & {"[", "]"}:
                raise ValidationError(
                    {name: "Only * and ? are wildcards here; [ and ] cannot be used."}
                )


class RunQuerySet(models.QuerySet["Run"]):
    def active(self) -> RunQuerySet:
        return self.exclude(status__in=RUN_ENDED)

    def with_state(self) -> RunQuerySet:
        return self.annotate(state=run_state())


def run_state() -> Case:
    """The status of a run as pages tell it: where one waits and no person is asked for
    anything, it waits for its page."""
    asked = Interrupt.objects.open().for_people().filter(run=OuterRef("pk"))
    at_page = When(
        Q(status=RunStatus.WAITING) & ~Exists(asked), then=Value(RUN_AT_PAGE)
    )
    return Case(at_page, default="status", output_field=models.CharField())


class Run(models.Model):
    """One piece of work of one agent, from its message to its end, over all its pauses."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    source = models.CharField(max_length=10, choices=Source, default=Source.HOSTED)
    agent = models.CharField(max_length=SHORT)
    framework = models.CharField(max_length=SHORT, blank=True)
    thread = models.UUIDField(db_index=True)
    requester = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        null=True,
        on_delete=models.SET_NULL,
        related_name="requested_runs",
    )
    on_behalf_of = models.CharField(max_length=SHORT, blank=True)
    title = models.CharField(max_length=SHORT, blank=True)
    status = models.CharField(
        max_length=10, choices=RunStatus, default=RunStatus.QUEUED, editable=False
    )
    #: Fencing token: every write of a worker carries it, and an older one is refused.
    attempt = models.PositiveIntegerField(default=0, editable=False)
    #: The attempt whose state was saved last; what later ones ran, no state knows.
    saved_attempt = models.PositiveIntegerField(default=0, editable=False)
    lease_owner = models.CharField(max_length=SHORT, blank=True, editable=False)
    lease_until = models.DateTimeField(null=True, editable=False)
    #: A queued run is not taken before this moment (undo time of its decisions).
    due_at = models.DateTimeField(default=timezone.now, editable=False)
    error = models.TextField(blank=True, editable=False)
    retryable = models.BooleanField(default=False, editable=False)
    created = models.DateTimeField(default=timezone.now, editable=False)
    updated = models.DateTimeField(auto_now=True)
    ended_at = models.DateTimeField(null=True, editable=False)

    objects = RunQuerySet.as_manager()

    class Meta:
        ordering = ["-created", "-id"]
        permissions = [("cancel_run", "Can cancel a run")]
        indexes = [
            models.Index(fields=["-created", "-id"], name="run_newest"),
            models.Index(
                fields=["due_at"],
                name="run_queued",
                condition=Q(status=RunStatus.QUEUED),
            ),
            models.Index(
                fields=["lease_until"],
                name="run_leased",
                condition=Q(status=RunStatus.RUNNING),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.agent} {str(self.id)[:8]}"

    @property
    def short_id(self) -> str:
        return str(self.id)[:8]

    @property
    def ended(self) -> bool:
        return self.status in RUN_ENDED


class InterruptQuerySet(models.QuerySet["Interrupt"]):
    def open(self) -> InterruptQuerySet:
        return self.filter(status=InterruptStatus.OPEN)

    def for_people(self) -> InterruptQuerySet:
        """Without those that are put to nobody: calls that a page answers."""
        return self.exclude(kind=InterruptKind.CLIENT)

    def at_page(self) -> InterruptQuerySet:
        """Calls of tools that a page brought, which it answers itself."""
        return self.filter(kind=InterruptKind.CLIENT)

    def in_time(self, now: datetime | Slot) -> InterruptQuerySet:
        """Those whose deadline has not passed; the sweeper may be behind."""
        return self.filter(Q(expires_at=None) | Q(expires_at__gt=now))

    def decided(self) -> InterruptQuerySet:
        return self.exclude(status=InterruptStatus.OPEN)


class Interrupt(models.Model):
    """One tool call (or question) that waits for a person, or for the page that brought its
    tool. What it shows never changes."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    run = models.ForeignKey(
        Run, on_delete=models.PROTECT, related_name="interrupts", db_index=False
    )
    turn = models.PositiveIntegerField()
    call_id = models.CharField(max_length=SHORT)
    #: The attempt whose pause named this call last, so which pause it belongs to.
    attempt = models.PositiveIntegerField(default=0, editable=False)
    framework_ref = models.CharField(max_length=SHORT, blank=True)
    kind = models.CharField(max_length=10, choices=InterruptKind)
    reason = models.CharField(max_length=SHORT)
    message = models.TextField(blank=True)
    #: What the agent wrote just before, so that a reviewer sees why it asks.
    said = models.TextField(blank=True)
    title = models.CharField(max_length=SHORT)
    tool = models.CharField(max_length=SHORT)
    arguments = models.TextField(
        help_text="Canonical JSON, as the model proposed them."
    )
    salt = models.CharField(max_length=64, editable=False)
    arguments_digest = _digest_field()
    tool_schema = models.TextField(blank=True)
    schema_digest = _digest_field(blank=True)
    response_schema = models.TextField(blank=True)
    verdicts = models.JSONField(default=list)
    editable = models.BooleanField(default=True)
    #: Whether the agent is told the note of a decision; otherwise it stays here.
    takes_note = models.BooleanField(default=True)
    #: How often this run was told no to the same tool with the same arguments before.
    denied_before = models.PositiveIntegerField(default=0, editable=False)
    card = models.CharField(max_length=SHORT, blank=True)
    #: Requests of one pause that share this run together or not at all.
    together = models.CharField(max_length=SHORT, blank=True, editable=False)
    risk = models.CharField(max_length=10, choices=Risk, default=Risk.MEDIUM)
    consequence = models.TextField(blank=True)
    approve_label = models.CharField(max_length=SHORT, blank=True)
    secrets = models.JSONField(default=list)
    plain = models.JSONField(default=list)
    #: The ruling as it was when the call was asked (policies.Ruling as JSON).
    policy = models.JSONField(default=dict)
    review_groups = models.ManyToManyField(Group, related_name="interrupts")
    #: A question that whoever asked for the run may answer, whatever their permissions.
    asks_requester = models.BooleanField(default=False)
    status = models.CharField(
        max_length=10,
        choices=InterruptStatus,
        default=InterruptStatus.OPEN,
        editable=False,
    )
    expires_at = models.DateTimeField(null=True)
    created = models.DateTimeField(default=timezone.now)
    decided_at = models.DateTimeField(null=True, editable=False)

    objects = InterruptQuerySet.as_manager()

    class Meta:
        ordering = ["created", "id"]
        permissions = [
            ("decide_interrupt", "Can decide requests of own review groups"),
            ("view_all_interrupts", "Can see every request and run"),
        ]
        constraints = [
            models.UniqueConstraint(
                fields=["run", "turn", "call_id"], name="one_interrupt_per_call"
            ),
        ]
        indexes = [
            # Not partial: SQLite uses a partial index only for a condition without
            # parameters, and Django always sends parameters.
            models.Index(fields=["status", "created", "id"], name="interrupt_open"),
            models.Index(
                fields=["status", "expires_at", "id"], name="interrupt_expiring"
            ),
            models.Index(
                fields=["status", "risk", "expires_at"], name="interrupt_counted"
            ),
            models.Index(fields=["decided_at", "id"], name="interrupt_decided"),
            # Both columns, or SQLite looks through all open ones for those of a run.
            models.Index(fields=["run", "status"], name="interrupt_of_run"),
        ]

    def __str__(self) -> str:
        return self.title

    @property
    def is_open(self) -> bool:
        return self.status == InterruptStatus.OPEN

    @property
    def hiding(self) -> Hiding:
        return Hiding.of(self.secrets, self.plain)

    @property
    def decision(self) -> Decision | None:
        """The decision that stands, if there is one. Uses prefetched ``decisions``."""
        if self.is_open:
            return None
        if "decisions" not in getattr(self, "_prefetched_objects_cache", {}):
            return _STANDING.first(interrupt=self.pk)
        for decision in self.decisions.all():
            if decision.undone_at is None:
                return decision
        return None

    def digest_of(self, arguments: str) -> str:
        """Keyed digest of canonical arguments text under this interrupt's salt."""
        return canonical.keyed_digest(self.salt, "sayso.arguments.v1", arguments)

    def vote_digest(self, arguments: str, answer: str | None) -> str:
        """What a vote is for: canonical arguments, and the answer that goes with them."""
        if answer is None:
            return self.digest_of(arguments)
        both = canonical.dumps([arguments, answer])
        return canonical.keyed_digest(self.salt, "sayso.vote.v1", both)


class Vote(models.Model):
    """One person's verdict. It counts for exactly one digest: ``Interrupt.vote_digest``."""

    interrupt = models.ForeignKey(
        Interrupt, on_delete=models.PROTECT, related_name="votes"
    )
    voter = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="votes"
    )
    verdict = models.CharField(max_length=20, choices=Verdict)
    effective_digest = _digest_field()
    shown_digest = _digest_field()
    note = models.TextField(blank=True)
    created = models.DateTimeField(default=timezone.now)
    void_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["created", "pk"]
        constraints = [
            models.UniqueConstraint(
                fields=["interrupt", "voter"],
                condition=Q(void_at__isnull=True),
                name="one_vote_per_person",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.voter}: {self.verdict}"


class Decision(models.Model):
    """What was decided. Never updated, but for ``undone_at`` and how it was delivered."""

    interrupt = models.ForeignKey(
        Interrupt, on_delete=models.PROTECT, related_name="decisions"
    )
    verdict = models.CharField(max_length=20, choices=Verdict)
    arguments = models.TextField(
        null=True, help_text="Edited arguments, canonical JSON; null: as proposed."
    )
    answer = models.TextField(null=True, help_text="Canonical JSON.")
    output = models.TextField(null=True, help_text="Canonical JSON.")
    note = models.TextField(blank=True)
    reviewer = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        null=True,
        on_delete=models.PROTECT,
        related_name="decisions",
        help_text="Empty: the system, see channel.",
    )
    #: Where it was said: inbox, chat, api … or, without a reviewer, deadline, policy, intake.
    channel = models.CharField(max_length=20)
    shown_digest = _digest_field(blank=True)
    effective_digest = _digest_field()
    dwell_ms = models.PositiveIntegerField(null=True)
    created = models.DateTimeField(default=timezone.now)
    dispatch_at = models.DateTimeField(default=timezone.now)
    undone_at = models.DateTimeField(null=True)
    delivery = models.CharField(
        max_length=10, choices=Delivery, default=Delivery.PENDING
    )

    class Meta:
        ordering = ["created", "pk"]
        constraints = [
            models.UniqueConstraint(
                fields=["interrupt"],
                condition=Q(undone_at__isnull=True),
                name="one_standing_decision",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.verdict} by {self.by}"

    @property
    def by(self) -> str:
        """Who decided, in words."""
        if self.reviewer is not None:
            return wording.person(self.reviewer)
        return SYSTEM_ACTORS.get(self.channel, "the system")


SYSTEM_ACTORS = {
    "deadline": "the deadline",
    "policy": "the policy",
    "intake": "the intake check",
}


#: For ``Interrupt.decision``.
_STANDING = Prepared(
    lambda: (
        Decision.objects.filter(interrupt=Slot(Decision, "interrupt"), undone_at=None)
        .select_related("reviewer")
        .order_by()
    )
)


class ToolExecution(models.Model):
    """The ledger: every tool body that was entered, gated or not, and what came of it."""

    run = models.ForeignKey(Run, on_delete=models.PROTECT, related_name="executions")
    turn = models.PositiveIntegerField()
    call_id = models.CharField(max_length=SHORT)
    tool = models.CharField(max_length=SHORT)
    interrupt = models.ForeignKey(
        Interrupt, null=True, on_delete=models.PROTECT, related_name="executions"
    )
    read_only = models.BooleanField(default=False)
    arguments = models.TextField(help_text="Canonical JSON, as executed.")
    salt = models.CharField(max_length=64, editable=False)
    arguments_digest = _digest_field()
    status = models.CharField(
        max_length=10, choices=ExecutionStatus, default=ExecutionStatus.INFLIGHT
    )
    attempt = models.PositiveIntegerField()
    #: The worker that entered it; empty once it has let go without an outcome.
    owner = models.CharField(max_length=SHORT, blank=True)
    result = models.TextField(blank=True, help_text="What it gave, as text.")
    started = models.DateTimeField(default=timezone.now)
    ended_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["started", "pk"]
        permissions = [("settle_toolexecution", "Can settle an unknown outcome")]
        constraints = [
            models.UniqueConstraint(
                fields=["run", "turn", "call_id"], name="one_execution_per_call"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.tool} ({self.status})"


class ApiToken(models.Model):
    """A key with which a program speaks for a person. Only its digest is kept."""

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="api_tokens"
    )
    name = models.CharField(max_length=100, help_text="What it is for.")
    #: Plain SHA-256 of the secret, which is long and random: nothing to guess.
    digest = _digest_field(unique=True)
    scopes = models.JSONField(default=list)
    created = models.DateTimeField(default=timezone.now)
    expires_at = models.DateTimeField(null=True)
    last_used_at = models.DateTimeField(null=True, help_text="To the minute.")
    revoked_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["-created", "-pk"]

    def __str__(self) -> str:
        return self.name


class AuditQuerySet(models.QuerySet["AuditEntry"]):
    def update(self, **kwargs: Any) -> Never:
        raise TypeError("Audit entries are append-only.")

    def delete(self) -> Never:
        raise TypeError("Audit entries are append-only.")


class AuditEntry(models.Model):
    """One link of the chain. ``approvals.audit`` appends; nothing changes or deletes."""

    number = models.PositiveBigIntegerField(primary_key=True)
    time = models.DateTimeField()
    action = models.CharField(max_length=50)
    actor = models.CharField(max_length=SHORT)
    run = models.UUIDField(null=True)
    interrupt = models.UUIDField(null=True)
    payload = models.TextField(null=True, help_text="Canonical JSON; null once erased.")
    salt = models.CharField(max_length=64, null=True)
    payload_mac = _digest_field()
    previous = _digest_field()
    hash = _digest_field()

    objects = AuditQuerySet.as_manager()

    class Meta:
        ordering = ["-number"]
        verbose_name_plural = "audit entries"
        indexes = [
            models.Index(fields=["run", "number"], name="audit_run"),
            models.Index(fields=["interrupt", "number"], name="audit_interrupt"),
            models.Index(fields=["action", "-number"], name="audit_action"),
            models.Index(fields=["actor", "-number"], name="audit_actor"),
        ]

    def __str__(self) -> str:
        return f"{self.number} {self.action}"

    def save(self, *args: Any, **kwargs: Any) -> Never:
        raise TypeError("Audit entries are append-only.")

    def delete(self, *args: Any, **kwargs: Any) -> Never:
        raise TypeError("Audit entries are append-only.")


class AuditHead(models.Model):
    """Number and hash of the newest entry. One row; its lock orders all appends."""

    ONLY: ClassVar[int] = 1

    number = models.PositiveBigIntegerField(default=0)
    hash = _digest_field()

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(id=1), name="one_audit_head"),
        ]

    def __str__(self) -> str:
        return f"head {self.number}"
