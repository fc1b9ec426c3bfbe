"""Calls of tools that a page brought: the page's answer, or the person going on without one.

They are no requests to decide. Nothing runs here for such a call, so nobody's permission is
asked but that it is a page of whoever the agent works for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from approvals import canonical, permissions
from approvals.exceptions import NotFound, TakenBack
from approvals.models import Interrupt
from approvals.policies import Rulebook
from approvals.services.opening import take_back
from approvals.services.outcomes import decide_unvoted
from approvals.services.work import Work, lock_run, lock_run_of, name_of, unit_of_work
from approvals.states import RunStatus, Verdict

if TYPE_CHECKING:
    from django.contrib.auth.models import User

CHANNEL = "page"


def answer_client_call(interrupt_id: UUID, content: str, *, actor: User) -> bool:
    """The page says what its tool gave; that becomes the result of the call.

    Only the first answer counts: returns False for a call that does not wait any more.
    Raises NotFound for what is no such call of a run of this person, InvalidArguments
    for a text that cannot be stored, and TakenBack for a question that the policies now
    refuse or put to others, to whom it then goes.
    """
    answer = canonical.dumps(content)
    with unit_of_work() as work:
        run = lock_run_of(interrupt_id)
        interrupt = run.interrupts.at_page().filter(pk=interrupt_id).first()
        if interrupt is None or not permissions.may_answer_for_page(actor, run):
            raise NotFound("There is no such call.")
        if not interrupt.is_open or run.status != RunStatus.WAITING:
            return False
        interrupt.run = run
        book = Rulebook(run.agent)
        if not book.keeps(interrupt.tool):
            _decide(work, interrupt, Verdict.ANSWER, actor, answer)
            return True
        waits = take_back(work, interrupt, book)
        groups = ", ".join(map(str, permissions.deciders(interrupt)))
    where = f"now waits for {groups}" if waits else "is refused by now"
    # Raised after the commit, so that the question stays where it went.
    raise TakenBack(f"This question {where}, so the answer of the page was not taken.")


def pass_over_client_calls(run_id: UUID, *, actor: User) -> int:
    """The person went on without the page's answers: the agent is told so, and the run goes
    on once nothing else of the pause is open. Returns how many calls that were.

    Raises NotFound for a run of somebody else.
    """
    with unit_of_work() as work:
        run = lock_run(run_id)
        if not permissions.may_answer_for_page(actor, run):
            raise NotFound("There is no such run.")
        if run.status != RunStatus.WAITING:
            return 0
        left = list(run.interrupts.open().at_page())
        for interrupt in left:
            interrupt.run = run
            _decide(work, interrupt, Verdict.CANCEL_CALL, actor)
        return len(left)


def _decide(
    work: Work,
    interrupt: Interrupt,
    verdict: Verdict,
    actor: User,
    answer: str | None = None,
) -> None:
    decide_unvoted(
        work,
        interrupt,
        verdict,
        actor=name_of(actor),
        channel=CHANNEL,
        reviewer=actor,
        answer=answer,
    )
