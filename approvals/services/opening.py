"""Pauses: a worker reports calls that must wait, and they become requests."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID

from django.contrib.auth.models import Group

from approvals import canonical
from approvals.exceptions import (
    InvalidArguments,
)
from approvals.hiding import masked_text
from approvals.models import Interrupt, Run, Tool
from approvals.policies import AT_PAGE, Rulebook, Ruling
from approvals.prepared import Prepared, Slot
from approvals.schemas import ClientTool, InterruptDraft, ToolCall
from approvals.services import asking
from approvals.services.answers import denials
from approvals.services.outcomes import decide_by_system, resume_if_decided
from approvals.services.rulings import redacted
from approvals.services.tools import brought, misfit
from approvals.services.work import (
    Work,
    agent_of,
    lock_leased,
    unit_of_work,
)
from approvals.states import (
    Gate,
    InterruptKind,
    RunStatus,
    Verdict,
)

#: A run that has asked this often is stopped: the model is going in circles.
MAX_INTERRUPTS = 200

#: A call that was denied this often in one run is not put to people any more. A person may
#: overlook the note that explains a denial once or twice, a model that does it a fourth time
#: is not listening, and each further request costs somebody's attention.
MAX_DENIALS = 3

#: A framework's own reference is kept for people to find; nothing is matched by it.
MAX_REF = 200

#: So much of what the agent said is kept with the request; the run has all of it.
MAX_SAID = 2000


def open_interrupts(
    run_id: UUID,
    *,
    attempt: int,
    drafts: Sequence[InterruptDraft],
    client_tools: Sequence[ClientTool] = (),
) -> list[Interrupt]:
    """Turn a worker's pause into rows and let the run wait; gives those that are open.

    A call that is already a row (same run, turn and call id) stays that row. A call that
    cannot be asked (unknown tool, arguments that do not fit or cannot be shown) or that a
    policy allows or refuses is decided here by the system, so that the run goes on.
    Calls of ``client_tools`` wait for the page that brought them, and no reviewer hears of
    them. One in the place of a question is the page's as long as the policies put that to
    the person at the page.

    Raises LostLease.
    """
    assert drafts
    with unit_of_work() as work:
        run = lock_leased(run_id, attempt)
        book = Rulebook(run.agent)
        # Without those in the place of a question that the policies put to others by now.
        given = [tool for tool in client_tools if not book.keeps(tool.name)]
        own = brought(given, book)
        known = {
            (turn, call_id): pk
            for pk, turn, call_id in run.interrupts.values_list("pk", "turn", "call_id")
        }
        again = []
        for place, draft in enumerate(drafts):
            key = (draft.call.turn, draft.call.call_id)
            if key in known:
                again.append(known[key])
                continue
            # A microsecond apart, so that lists keep the order of the calls.
            asked_at = work.now + timedelta(microseconds=place)
            tool = own.get(draft.call.tool) or book.tools.get(draft.call.tool)
            ruling = _ruling(draft, tool, book)
            interrupt = _open(
                work, run, draft, tool, ruling, asked_at, before=len(known)
            )
            known[key] = interrupt.pk
        if again:
            run.interrupts.filter(pk__in=again).update(attempt=attempt)
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
        waiting = _OPEN.all(run=run.pk)
        for interrupt in waiting:
            interrupt.run = run
        work.record("run.waiting", actor=agent_of(run), run=run, open=len(waiting))
        work.tell_run(run)
        resume_if_decided(work, run)
        return waiting


_OPEN = Prepared(lambda: Interrupt.objects.open().filter(run=Slot(Interrupt, "run")))


def _ruling(draft: InterruptDraft, tool: Tool | None, book: Rulebook) -> Ruling:
    if tool is not None and tool.kind == InterruptKind.CLIENT:
        return AT_PAGE
    ruling = book.ruling(draft.call.tool)
    if draft.demanded and ruling.gate == Gate.ALLOW:
        name = f"{ruling.policy} (but the agent's own code asks for a person)"
        return ruling.model_copy(update={"gate": Gate.HOLD, "policy": name})
    return ruling


def _open(
    work: Work,
    run: Run,
    draft: InterruptDraft,
    tool: Tool | None,
    ruling: Ruling,
    asked_at: datetime,
    *,
    before: int,
) -> Interrupt:
    """``before``: how many requests the run has made already."""
    call = draft.call
    arguments, problem = _readable(call)
    denied = denials(run, call.tool, arguments).count() if before else 0
    problem = problem or _unaskable(run, draft, tool, arguments, before)
    if denied >= MAX_DENIALS:
        problem = (
            f"The same call was denied {denied} times in this run, so nobody is asked "
            "again. Do not propose it any more."
        )
    ask = asking.asked(draft, tool, arguments, asked_at)
    interrupt = Interrupt(
        run=run,
        turn=call.turn,
        call_id=call.call_id,
        attempt=run.attempt,
        framework_ref=_storable(call.framework_ref)[:MAX_REF],
        tool=call.tool,
        arguments=arguments,
        salt=canonical.new_salt(),
        editable=draft.editable,
        takes_note=draft.takes_note,
        denied_before=denied,
        together=draft.together,
        consequence=draft.consequence,
        said=_storable(masked_text(draft.said[:MAX_SAID])),
        created=asked_at,
    )
    _put(interrupt, ask, tool)
    interrupt.arguments_digest = interrupt.digest_of(arguments)
    apply_ruling(work, interrupt, ruling)
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
        denied_before=denied,
        policy=interrupt.policy,
    )
    work.tell_interrupt(interrupt, "opened")
    if problem:
        decide_by_system(work, interrupt, Verdict.DENY, "intake", problem)
    elif ruling.gate == Gate.ALLOW:
        decide_by_system(work, interrupt, Verdict.APPROVE, "policy", ruling.policy)
    elif ruling.gate == Gate.REFUSE:
        note = f"The policy “{ruling.policy}” refuses this call."
        decide_by_system(work, interrupt, Verdict.DENY, "policy", note)
    return interrupt


def _put(interrupt: Interrupt, ask: asking.Asked, tool: Tool | None) -> None:
    """In which words it is asked, and what its tool says of it."""
    interrupt.kind = ask.kind
    interrupt.reason = ask.reason
    interrupt.message = _storable(ask.message)
    interrupt.title = _storable(ask.title)
    interrupt.response_schema = (
        canonical.dumps(ask.response_schema) if ask.response_schema else ""
    )
    interrupt.verdicts = [verdict.value for verdict in ask.verdicts]
    if tool is None:
        return
    interrupt.tool_schema = tool.schema
    interrupt.schema_digest = tool.schema_digest
    interrupt.risk = tool.risk
    interrupt.consequence = " ".join(
        filter(None, (tool.consequence, interrupt.consequence))
    )
    interrupt.approve_label = tool.approve_label
    interrupt.secrets, interrupt.plain = tool.secrets, tool.plain
    interrupt.card = tool.card


def take_back(work: Work, interrupt: Interrupt, book: Rulebook) -> bool:
    """Put a question that waits for a page to whom the policies name now, or refuse it.

    Returns whether it waits for them.
    """
    tool, ruling = book.tools[interrupt.tool], book.ruling(interrupt.tool)
    draft = InterruptDraft(
        call=ToolCall(
            turn=interrupt.turn,
            call_id=interrupt.call_id,
            tool=interrupt.tool,
            arguments=interrupt.arguments,
        ),
        verdicts=tuple(Verdict(verdict) for verdict in interrupt.verdicts),
    )
    _put(interrupt, asking.asked(draft, tool, interrupt.arguments, work.now), tool)
    apply_ruling(work, interrupt, ruling, asked_before=True)
    refused = ruling.gate == Gate.REFUSE
    then = (
        "refuses this call" if refused else "puts this question to others than the page"
    )
    why = f"The policy “{ruling.policy}” now {then}."
    work.record(
        "interrupt.reopened",
        actor="system:policy",
        run=interrupt.run,
        interrupt=interrupt,
        why=why,
        policy=interrupt.policy,
    )
    work.tell_interrupt(interrupt, "opened")
    problem = misfit(tool.schema, interrupt.arguments, hiding=tool.hiding)
    if refused or problem:
        decide_by_system(work, interrupt, Verdict.DENY, "policy", problem or why)
    return not refused and not problem


def apply_ruling(
    work: Work, interrupt: Interrupt, ruling: Ruling, *, asked_before: bool = False
) -> None:
    """Put the interrupt, as new or as asked again, under a ruling; saves it."""
    interrupt.asks_requester = (
        ruling.asks_requester
        and interrupt.kind == InterruptKind.QUESTION
        and interrupt.run.requester_id is not None
    )
    ids = ruling.group_ids
    if not ids and not interrupt.asks_requester:
        ids = tuple(
            Group.objects.get_or_create(name=name)[0].pk for name in ruling.groups
        )
    interrupt.policy = ruling.model_copy(update={"group_ids": ids}).model_dump(
        mode="json"
    )
    interrupt.expires_at = (
        work.now + timedelta(seconds=ruling.deadline_seconds)
        if ruling.deadline_seconds
        else None
    )
    interrupt.save()
    links = Interrupt.review_groups.through.objects
    if asked_before:
        links.filter(interrupt=interrupt).delete()
    links.bulk_create(links.model(interrupt=interrupt, group_id=pk) for pk in ids)


def _storable(text: str) -> str:
    """Text that every database takes, whatever a model wrote."""
    return text.encode("utf-8", "replace").decode().replace("\0", "␀")


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
    run: Run, draft: InterruptDraft, tool: Tool | None, arguments: str, before: int
) -> str:
    """Why nobody should be asked about this call; empty if they should."""
    if before >= MAX_INTERRUPTS:
        return f"This run has already asked {MAX_INTERRUPTS} times."
    if draft.kind == InterruptKind.QUESTION:
        return ""
    if tool is not None and tool.kind == InterruptKind.CLIENT:
        # The page checks them against its own schema: a pattern in that may take for ever.
        return "" if arguments.startswith("{") else "The arguments are not an object."
    if tool is None:
        return f"{run.agent} has no tool named {draft.call.tool}."
    return misfit(tool.schema, arguments, hiding=tool.hiding)
