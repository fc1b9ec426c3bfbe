"""Conversations with hosted agents: what was said, and where an agent goes on from."""

from __future__ import annotations

import uuid

from django.conf import settings
from django.db import models
from django.utils import timezone

from approvals.models import Run


class Thread(models.Model):
    """A conversation of one person with one agent. Its id is AG-UI's ``threadId``."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    agent = models.CharField(max_length=200)
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="threads"
    )
    title = models.CharField(max_length=200, blank=True)
    created = models.DateTimeField(default=timezone.now)
    updated = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["-updated", "-id"]
        indexes = [models.Index(fields=["owner", "agent", "-updated"])]

    def __str__(self) -> str:
        return self.title or f"{self.agent} {str(self.id)[:8]}"


class Checkpoint(models.Model):
    """An agent's own state at the last pause or end of a run. Never leaves the server.

    A failed attempt leaves the row as it was, so that a retry starts where it began.
    """

    run = models.OneToOneField(
        Run, primary_key=True, on_delete=models.CASCADE, related_name="checkpoint"
    )
    framework = models.CharField(max_length=50)
    framework_version = models.CharField(max_length=50)
    schema = models.PositiveIntegerField(help_text="Version of the adapter's layout.")
    attempt = models.PositiveIntegerField()
    state = models.TextField(help_text="JSON, private to the adapter.")
    created = models.DateTimeField(default=timezone.now)

    def __str__(self) -> str:
        return f"{self.framework} {self.framework_version}, attempt {self.attempt}"


class RunInput(models.Model):
    """What started a hosted run: a message on a thread, after the run before it."""

    run = models.OneToOneField(
        Run, primary_key=True, on_delete=models.CASCADE, related_name="input"
    )
    thread = models.ForeignKey(Thread, on_delete=models.CASCADE, related_name="inputs")
    message = models.TextField()
    #: The run whose checkpoint this one starts from.
    after = models.ForeignKey(
        Run, null=True, on_delete=models.SET_NULL, related_name="followed_by"
    )

    def __str__(self) -> str:
        return self.message[:50]


class QueuedMessage(models.Model):
    """A message sent while a run of the thread was under way; it starts the next run."""

    thread = models.ForeignKey(Thread, on_delete=models.CASCADE, related_name="queued")
    text = models.TextField()
    created = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["created", "pk"]

    def __str__(self) -> str:
        return self.text[:50]


class RunEvent(models.Model):
    """One AG-UI event of a run, in order: the source of every replay and every page.

    Text deltas are stored in pieces of some 200 ms; ``seq`` counts what was sent live,
    so a piece that gathers several deltas carries the number of the last.
    """

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="events")
    seq = models.PositiveIntegerField()
    attempt = models.PositiveIntegerField()
    type = models.CharField(max_length=50, help_text="AG-UI's name of the event.")
    payload = models.TextField(help_text="The event's other members, JSON.")
    created = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["run", "seq"]
        constraints = [
            models.UniqueConstraint(fields=["run", "seq"], name="one_event_per_seq"),
        ]

    def __str__(self) -> str:
        return f"{self.seq} {self.type}"


class GenkitSnapshot(models.Model):
    """A session of an agent on Genkit after one of its turns, in ``genkit_store``.

    For agents that keep their sessions in a store; the run's checkpoint names the
    snapshot it goes on from.
    """

    snapshot_id = models.CharField(primary_key=True, max_length=100)
    thread = models.ForeignKey(
        Thread, on_delete=models.CASCADE, related_name="genkit_snapshots"
    )
    parent_id = models.CharField(max_length=100, blank=True)
    data = models.TextField(help_text="Genkit's SessionSnapshot, JSON.")
    created = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["thread", "created", "snapshot_id"]
        indexes = [models.Index(fields=["thread", "parent_id"])]

    def __str__(self) -> str:
        return self.snapshot_id


class CalendarEntry(models.Model):
    """A meeting in a person's demo calendar, booked by the agent scheduler."""

    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="meetings"
    )
    #: The call that booked it; together they make booking again a no-op.
    run_id = models.UUIDField()
    call_id = models.CharField(max_length=200)
    topic = models.CharField(max_length=200)
    attendee = models.CharField(max_length=200, blank=True)
    label = models.CharField(max_length=200, help_text="The time as it was chosen.")
    starts_at = models.DateTimeField(null=True, help_text="The moment, if it is known.")
    created = models.DateTimeField(default=timezone.now)
    cancelled_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["owner", "pk"]
        constraints = [
            models.UniqueConstraint(
                fields=["run_id", "call_id"], name="one_meeting_per_call"
            ),
        ]
        indexes = [models.Index(fields=["owner", "cancelled_at"])]

    def __str__(self) -> str:
        return self.topic


class OutboxMail(models.Model):
    """A mail the demo agent support has sent. It goes no further than this row."""

    thread_id = models.UUIDField(db_index=True)
    #: The call that sent it; together they make sending again a no-op.
    run_id = models.UUIDField()
    call_id = models.CharField(max_length=200)
    to = models.CharField(max_length=200)
    subject = models.CharField(max_length=200)
    body = models.TextField()
    refund_of = models.CharField(
        max_length=50, blank=True, help_text="The invoice whose refund it confirms."
    )
    created = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["pk"]
        constraints = [
            models.UniqueConstraint(
                fields=["run_id", "call_id"], name="one_mail_per_call"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.subject} to {self.to}"


class ToolReading(models.Model):
    """The last time a worker was asked to say which tools an agent has.

    Only a worker can: it takes importing the agent's framework.
    """

    agent = models.CharField(max_length=200, primary_key=True)
    asked_at = models.DateTimeField(default=timezone.now)
    ended_at = models.DateTimeField(null=True)
    error = models.TextField(blank=True, help_text="Why the tools could not be read.")

    def __str__(self) -> str:
        return f"{self.agent}, {self.asked_at:%d %b %Y, %H:%M}"


class BankAccount(models.Model):
    """An account in a person's demo bank. What is on it follows from the ledger."""

    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="bank_accounts"
    )
    number = models.CharField(max_length=34)
    name = models.CharField(max_length=100)
    opening = models.DecimalField(
        max_digits=12, decimal_places=2, help_text="On it before the first transfer."
    )

    class Meta:
        ordering = ["owner", "pk"]
        constraints = [
            models.UniqueConstraint(
                fields=["owner", "number"], name="one_account_per_number"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.number} ({self.name})"


class LedgerEntry(models.Model):
    """A transfer the demo agent banking has made."""

    #: The call that made it; together they make transferring again a no-op.
    run_id = models.UUIDField()
    call_id = models.CharField(max_length=200)
    source = models.ForeignKey(
        BankAccount, on_delete=models.CASCADE, related_name="debits"
    )
    target = models.ForeignKey(
        BankAccount, on_delete=models.CASCADE, related_name="credits"
    )
    amount = models.DecimalField(max_digits=12, decimal_places=2)
    created = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["pk"]
        verbose_name_plural = "ledger entries"
        constraints = [
            models.UniqueConstraint(
                fields=["run_id", "call_id"], name="one_transfer_per_call"
            ),
            models.CheckConstraint(
                condition=models.Q(amount__gt=0), name="transfers_are_positive"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.amount} to {self.target}"
