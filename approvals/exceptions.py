"""What can be refused, each with a sentence for the person and an HTTP status for the wire."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from approvals.models import Decision, Interrupt


class ApprovalsError(Exception):
    """The request could not be carried out."""

    http_status: ClassVar[int] = 400
    code: ClassVar[str] = "error"

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or (type(self).__doc__ or "").strip())

    @property
    def message(self) -> str:
        return str(self)


class NotFound(ApprovalsError):
    """There is no such request."""

    http_status = 404
    code = "not_found"


class BadToken(ApprovalsError):
    """This token is not valid: unknown, expired or revoked, or its owner is locked."""

    http_status = 401
    code = "bad_token"


class NotAllowed(ApprovalsError):
    """You may not do this."""

    http_status = 403
    code = "not_allowed"


class AlreadyDecided(ApprovalsError):
    """This request was already decided."""

    http_status = 409
    code = "already_decided"

    def __init__(
        self, message: str | None = None, *, decision: Decision | None = None
    ) -> None:
        super().__init__(message)
        self.decision = decision


class Expired(ApprovalsError):
    """This request expired before the decision arrived."""

    http_status = 409
    code = "expired"


class RunEnded(ApprovalsError):
    """The run has already ended."""

    http_status = 409
    code = "run_ended"


class StalePage(ApprovalsError):
    """The request is not the one your page showed. Read it again, then decide."""

    http_status = 409
    code = "stale_page"

    def __init__(
        self, message: str | None = None, *, interrupt: Interrupt | None = None
    ) -> None:
        super().__init__(message)
        self.interrupt = interrupt


class InvalidDecision(ApprovalsError):
    """This decision does not fit the request."""

    http_status = 422
    code = "invalid_decision"

    def __init__(self, message: str | None = None, *, field: str = "") -> None:
        super().__init__(message)
        self.field = field


class InvalidArguments(ApprovalsError):
    """The arguments cannot be shown and kept exactly, so nobody is asked about them."""

    http_status = 422
    code = "invalid_arguments"


class TakenBack(ApprovalsError):
    """This question is not put to the page any more, so its answer was not taken."""

    http_status = 409
    code = "question_taken_back"


class LostLease(ApprovalsError):
    """Another worker has taken over this run, or it has ended; this write was refused."""

    http_status = 409
    code = "lost_lease"


class NotDecided(ApprovalsError):
    """No decision allows this tool call, so its body was not entered."""

    http_status = 403
    code = "not_decided"


class AskAgain(ApprovalsError):
    """The approval no longer satisfies the rules, so the call must be asked anew."""

    http_status = 409
    code = "ask_again"


class OutcomeUnknown(ApprovalsError):
    """A worker stopped inside this tool call: nobody knows whether it took effect."""

    http_status = 409
    code = "outcome_unknown"


class WorkerMayLive(ApprovalsError):
    """The worker that started this call may still be running it, so it cannot be run again yet."""

    http_status = 409
    code = "worker_may_live"
