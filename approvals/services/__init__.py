"""Everything that can happen. The only writer of a status, and the only door to it.

Verbs are plain functions with keyword-only actors, each one transaction on one run.
"""

from __future__ import annotations

from approvals.services.answers import denials_before, held_back, told_instead
from approvals.services.asking_again import ask_again
from approvals.services.at_page import answer_client_call, pass_over_client_calls
from approvals.services.deciding import Ballot, decide, undo
from approvals.services.executions import (
    Instead,
    Permit,
    begin_execution,
    doubt_execution,
    finish_execution,
    withdraw_execution,
)
from approvals.services.expiring import expire_due
from approvals.services.opening import open_interrupts
from approvals.services.outcomes import at_deadline
from approvals.services.outlines import flaw_of
from approvals.services.records import (
    access,
    changing_access,
    changing_policies,
    erase_payload,
    record_access,
)
from approvals.services.rulings import (
    approvals_of,
    redacted,
    ruling_for,
    shown_digest,
)
from approvals.services.runs import (
    LEASE,
    Claim,
    cancel_run,
    claim_run,
    fail_run,
    finish_run,
    queue_run,
    release_run,
    renew_lease,
    retry_run,
    runs_to_wake,
)
from approvals.services.settling import settle_execution
from approvals.services.setup import make_group, prepare
from approvals.services.tokens import (
    authenticate_token,
    create_token,
    revoke_token,
    token_is_good,
)
from approvals.services.tools import (
    decided_title,
    decided_titles,
    faults_of_answer,
    faults_of_arguments,
    learn_tools,
    register_tools,
)
from approvals.services.work import Work, lock_leased, unit_of_work
from approvals.services.workers import (
    keep_work_to_this_process,
    worker_is_gone,
    worker_name,
)

__all__ = [
    "LEASE",
    "Ballot",
    "Claim",
    "Instead",
    "Permit",
    "Work",
    "access",
    "answer_client_call",
    "approvals_of",
    "ask_again",
    "at_deadline",
    "authenticate_token",
    "begin_execution",
    "cancel_run",
    "changing_access",
    "changing_policies",
    "claim_run",
    "create_token",
    "decide",
    "decided_title",
    "decided_titles",
    "denials_before",
    "doubt_execution",
    "erase_payload",
    "expire_due",
    "fail_run",
    "faults_of_answer",
    "faults_of_arguments",
    "finish_execution",
    "finish_run",
    "flaw_of",
    "held_back",
    "keep_work_to_this_process",
    "learn_tools",
    "lock_leased",
    "make_group",
    "open_interrupts",
    "pass_over_client_calls",
    "prepare",
    "queue_run",
    "record_access",
    "redacted",
    "register_tools",
    "release_run",
    "renew_lease",
    "retry_run",
    "revoke_token",
    "ruling_for",
    "runs_to_wake",
    "settle_execution",
    "shown_digest",
    "token_is_good",
    "told_instead",
    "undo",
    "unit_of_work",
    "withdraw_execution",
    "worker_is_gone",
    "worker_name",
]
