"""Conversations with agents: what was said, where an agent goes on from, and which agents
run elsewhere."""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from django.conf import settings
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.utils import timezone

from approvals.models import Run
from hitlagents.remote import sealing
from hitlagents.remote.profiles import Profile, Together

if TYPE_CHECKING:
    from hitlagents.remote.client import Endpoint


class Thread(models.Model):
    """A conversation of one person with one agent. Its id is AG-UI's ``threadId``."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    agent = models.CharField(max_length=200)
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="threads"
    )
    title = models.CharField(max_length=200, blank=True)
    #: What the page calls it that began it over AG-UI; empty for our own pages.
    client_key = models.CharField(max_length=200, blank=True)
    created = models.DateTimeField(default=timezone.now)
    updated = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["-updated", "-id"]
        indexes = [models.Index(fields=["owner", "agent", "-updated"])]
        constraints = [
            models.UniqueConstraint(
                fields=["owner", "agent", "client_key"],
                condition=~models.Q(client_key=""),
                name="one_thread_per_client_key",
            ),
        ]

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
    #: AG-UI's id of the message, the page's own where it came from one.
    message_id = models.CharField(max_length=200, blank=True)
    client_tools = models.TextField(
        blank=True, help_text="Tools of the page it came from, JSON."
    )
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
    message_id = models.CharField(max_length=200, blank=True)
    client_tools = models.TextField(
        blank=True, help_text="Tools of the page it came from, JSON."
    )
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


def _between(least: int, most: int) -> list[MinValueValidator | MaxValueValidator]:
    return [MinValueValidator(least), MaxValueValidator(most)]


class RemoteAgent(models.Model):
    """An agent that runs elsewhere and speaks AG-UI."""

    slug = models.SlugField(
        max_length=100, unique=True, help_text="Names it in policies and addresses."
    )
    name = models.CharField(max_length=200)
    description = models.TextField(blank=True)
    url = models.CharField(
        "address",
        max_length=2000,
        help_text="Shown to staff and in the audit, so secrets belong into headers.",
    )
    #: Sealed JSON object; empty without headers. Never shown, logged or exported.
    sealed_headers = models.TextField(blank=True, editable=False)
    profile = models.CharField(
        max_length=20,
        choices=Profile,
        default=Profile.OTHER,
        help_text="What serves it. Decides how it is answered.",
    )
    together = models.CharField(
        "answers to several calls",
        max_length=10,
        choices=[("", "As servers of its kind take them"), *Together.choices],
        blank=True,
    )
    connect_seconds = models.PositiveIntegerField(
        default=10, validators=_between(1, 60)
    )
    idle_seconds = models.PositiveIntegerField(
        default=120,
        validators=_between(1, 3600),
        help_text="How long it may send nothing.",
    )
    total_seconds = models.PositiveIntegerField(
        default=900,
        validators=_between(1, 86_400),
        help_text="How long one answer may take.",
    )
    max_event_bytes = models.PositiveIntegerField(
        default=1_000_000, validators=_between(1_000, 20_000_000)
    )
    max_run_bytes = models.PositiveIntegerField(
        default=20_000_000,
        validators=_between(1_000, 200_000_000),
        help_text="How much one answer may be.",
    )
    may_repost = models.BooleanField(
        "a retry may send again",
        default=False,
        help_text="Send a message or a denial again, when a person retries a run whose "
        "answer was lost. An approval only leaves again when a person settles its call "
        "as one to run again.",
    )
    allow_private = models.BooleanField(
        "allow private addresses",
        default=False,
        help_text="Also plain http, and addresses of this machine and its networks.",
    )
    enabled = models.BooleanField(default=True)
    created = models.DateTimeField(default=timezone.now, editable=False)
    #: When it last answered in its protocol, and the version it named.
    heard = models.DateTimeField(null=True, editable=False)
    protocol_version = models.CharField(max_length=20, blank=True, editable=False)
    #: The last health check.
    checked = models.DateTimeField(null=True, editable=False)
    check_passed = models.BooleanField(default=False, editable=False)
    check_result = models.TextField(blank=True, editable=False)

    class Meta:
        ordering = ["name", "slug"]

    def __str__(self) -> str:
        return self.name

    @property
    def host(self) -> str:
        """Where it is, without what its address may hold beside."""
        return urlsplit(self.url).netloc.rpartition("@")[2]

    @property
    def headers(self) -> dict[str, str]:
        """Sent with every request. Raises sealing.Unreadable."""
        if not self.sealed_headers:
            return {}
        opened: dict[str, str] = json.loads(sealing.unseal(self.sealed_headers))
        return opened

    @headers.setter
    def headers(self, headers: dict[str, str]) -> None:
        self.sealed_headers = sealing.seal(json.dumps(headers)) if headers else ""

    def endpoint(self) -> Endpoint:
        """Raises sealing.Unreadable."""
        from hitlagents.remote.client import Endpoint, Limits

        return Endpoint(
            url=self.url,
            headers=self.headers,
            allow_private=self.allow_private,
            limits=Limits(
                connect=self.connect_seconds,
                idle=self.idle_seconds,
                total=self.total_seconds,
                max_event=self.max_event_bytes,
                max_run=self.max_run_bytes,
            ),
        )


class RemotePost(models.Model):
    """A request to a remote agent that carries no approval, marked before it leaves."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="remote_posts")
    place = models.CharField(
        max_length=100, help_text="The start, or the run there that it goes on from."
    )
    sent = models.DateTimeField(default=timezone.now)
    lost = models.BooleanField(
        default=False, help_text="What came of it will not be known."
    )

    class Meta:
        ordering = ["sent", "pk"]
        constraints = [
            models.UniqueConstraint(fields=["run", "place"], name="one_post_per_place"),
        ]

    def __str__(self) -> str:
        return f"{self.place} of {self.run_id}"
