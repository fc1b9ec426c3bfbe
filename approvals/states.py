"""Every status and verdict, and which of them end something. Nothing here knows a database."""

from __future__ import annotations

from django.db.models import TextChoices


class RunStatus(TextChoices):
    """queued → running → waiting → queued (resume) → running → one of the ends."""

    QUEUED = "queued", "Queued"  # a worker should take it
    RUNNING = "running", "Running"  # a worker holds the lease
    WAITING = "waiting", "Waiting"  # at least one interrupt is open
    FINISHED = "finished", "Finished"
    FAILED = "failed", "Failed"  # may be retried: back to queued
    CANCELLED = "cancelled", "Cancelled"
    IN_DOUBT = "in_doubt", "Outcome unknown"  # a person settles it: back to queued


#: What pages say of a run that is ``waiting`` for the page that brought its tools only.
RUN_AT_PAGE = "at_page"

RUN_ENDED = frozenset({RunStatus.FINISHED, RunStatus.FAILED, RunStatus.CANCELLED})
RUN_ACTIVE = frozenset(RunStatus) - RUN_ENDED


class InterruptKind(TextChoices):
    APPROVAL = "approval", "Approval"  # may this call run?
    QUESTION = "question", "Question"  # what is the answer?
    CLIENT = "client", "Front-end call"  # what does the page that brought the tool say?


class InterruptStatus(TextChoices):
    """open → one of the others. Claimed is a lease on an open interrupt, not a status."""

    OPEN = "open", "Pending"
    APPROVED = "approved", "Approved"
    DENIED = "denied", "Denied"
    ANSWERED = "answered", "Answered"
    CANCELLED = "cancelled", "Cancelled"
    EXPIRED = "expired", "Expired"


class Verdict(TextChoices):
    """What a reviewer can say about one interrupt."""

    APPROVE = "approve", "Approve"  # the call runs, perhaps with edited arguments
    DENY = "deny", "Deny"  # the call does not run; the model hears the note
    ANSWER = "answer", "Answer"  # a question gets its answer
    RESPOND = "respond", "Respond"  # the model gets this output, the call does not run
    CANCEL_CALL = "cancel_call", "Cancel call"  # answered as cancelled, the run goes on
    CANCEL_RUN = "cancel_run", "Cancel run"  # the run ends at once


STATUS_OF_VERDICT = {
    Verdict.APPROVE: InterruptStatus.APPROVED,
    Verdict.DENY: InterruptStatus.DENIED,
    Verdict.ANSWER: InterruptStatus.ANSWERED,
    Verdict.RESPOND: InterruptStatus.ANSWERED,
    Verdict.CANCEL_CALL: InterruptStatus.CANCELLED,
    Verdict.CANCEL_RUN: InterruptStatus.CANCELLED,
}


class Delivery(TextChoices):
    """How far a decision has come on its way into the run."""

    PENDING = "pending", "Not sent yet"
    SENT = "sent", "Sent to the run"
    APPLIED = "applied", "Applied"
    FAILED = "failed", "The run did not take it"
    IN_DOUBT = "in_doubt", "Outcome unknown"


class ExecutionStatus(TextChoices):
    """inflight → done | failed | in_doubt; a person settles in_doubt."""

    INFLIGHT = "inflight", "Running"
    DONE = "done", "Ran"
    FAILED = "failed", "Failed"
    IN_DOUBT = "in_doubt", "Outcome unknown"


class Settlement(TextChoices):
    """What a person found out about a call whose outcome was unknown."""

    RAN = "ran", "It ran"
    DID_NOT_RUN = "did_not_run", "It did not run"
    RUN_AGAIN = "run_again", "Run it again"


class Gate(TextChoices):
    HOLD = "hold", "Hold for a person"
    ALLOW = "allow", "Let it run"
    REFUSE = "refuse", "Refuse it"


class Risk(TextChoices):
    LOW = "low", "Low risk"
    MEDIUM = "medium", "Medium risk"
    HIGH = "high", "High risk"


class NoteRule(TextChoices):
    OPTIONAL = "optional", "Optional"
    ON_DENY = "on_deny", "Required to deny"
    ALWAYS = "always", "Always required"


class OnDeadline(TextChoices):
    DENY = "deny", "The agent is told no"
    CANCEL_RUN = "cancel_run", "The run is cancelled"


class Source(TextChoices):
    """Who runs the agent, and so who takes the answer."""

    HOSTED = "hosted", "Hosted here"
    REMOTE = "remote", "Remote agent"
    API = "api", "Raised over the API"


class TokenScope(TextChoices):
    """What a token lets a program do in its owner's name."""

    AGENTS = "agents", "Talk to agents"
    DECIDE = "decide", "Decide requests"
