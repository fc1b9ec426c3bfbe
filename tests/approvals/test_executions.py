from __future__ import annotations

from datetime import timedelta

import pytest
from django.contrib.auth.models import Group
from django.utils import timezone

from approvals import canonical, services
from approvals.exceptions import (
    AskAgain,
    InvalidArguments,
    InvalidDecision,
    LostLease,
    NotAllowed,
    NotDecided,
    OutcomeUnknown,
    RunEnded,
    WorkerMayLive,
)
from approvals.models import (
    AuditEntry,
    Decision,
    Interrupt,
    Policy,
    Run,
    Tool,
    ToolExecution,
)
from approvals.schemas import ToolCall
from approvals.services import Instead, Permit
from approvals.states import (
    Delivery,
    ExecutionStatus,
    Gate,
    RunStatus,
    Settlement,
    Verdict,
)
from tests.plugins.cast import OPS, ballot, call

GONE = "elsewhere:1:1"


def claimed(run_id, owner="w"):
    claim = services.claim_run(run_id, owner=owner)
    assert claim is not None
    return claim


def lapse(run_id):
    Run.objects.filter(pk=run_id).update(
        lease_until=timezone.now() - timedelta(seconds=1)
    )


@pytest.fixture
def approved(interrupt, rita):
    services.decide(interrupt.pk, ballot(interrupt), reviewer=rita)
    return interrupt


def enter(interrupt, attempt, **changes):
    proposed = call(interrupt.tool, call_id=interrupt.call_id, **changes)
    if not changes:
        proposed = proposed.model_copy(update={"arguments": interrupt.arguments})
    return services.begin_execution(
        interrupt.run_id, attempt=attempt, call=proposed, owner="w"
    )


def test_i01_an_approved_call_enters_once_and_its_result_is_kept(approved):
    attempt = claimed(approved.run_id).attempt
    permit = enter(approved, attempt)
    assert isinstance(permit, Permit)
    assert permit.arguments == {"filename": "file-1.txt"}
    services.finish_execution(permit, result="gone")

    assert enter(approved, attempt) == Instead(text="gone")
    assert ToolExecution.objects.get().status == ExecutionStatus.DONE
    assert Decision.objects.get().delivery == Delivery.APPLIED


@pytest.fixture
def transfer(make_interrupts):
    arguments = {"amount": 5, "account": "DE 1", "pin": "0000"}
    return make_interrupts([call("pay", **arguments)])[0]


def test_m15_the_model_is_told_what_a_reviewer_changed(transfer, fin):
    """Beside the result, also when an earlier attempt has it; never a secret's value."""
    edited = {"account": "DE 2", "amount": 4.5, "pin": "1234"}
    services.decide(
        transfer.pk,
        ballot(transfer, arguments=edited, note="Half of it."),
        reviewer=fin,
    )
    claim = claimed(transfer.run_id)
    told = (
        "A reviewer changed the arguments of this call before approving it: "
        'account (was "DE 1", now "DE 2"), amount (was 5, now 4.5), pin (changed, not '
        "shown). Only the changed call was approved; do not propose it again as it was. "
        "Whoever decided this noted: Half of it."
    )
    [answer] = claim.answers
    assert (answer.text, answer.note) == (told, "Half of it.")
    permit = enter(transfer, claim.attempt)
    assert isinstance(permit, Permit)
    assert permit.note == told
    services.finish_execution(permit, result="Paid.")
    assert ToolExecution.objects.get().result == "Paid."
    assert enter(transfer, claim.attempt) == Instead(text="Paid.", note=told)


def test_what_is_told_of_changes_is_bounded(make_interrupts, fin, mia):
    Tool.objects.filter(name="pay").update(
        schema="{}", schema_digest=canonical.plain_digest("sayso.schema.v1", "{}")
    )
    names = [f"n{number:02}" for number in range(30)]
    [asked] = make_interrupts([call("pay", gone=True, **dict.fromkeys(names, 1))])
    edited = {**dict.fromkeys(names, "x" * 5000), "new": "\u202e"}
    services.decide(asked.pk, ballot(asked, arguments=edited), reviewer=fin)
    permit = enter(asked, claimed(asked.run_id).attempt)
    assert isinstance(permit, Permit)
    assert "gone (was true, now left out), n00 (was 1, now" in permit.note
    assert ", and 12 more. Only the changed call" in permit.note
    assert len(permit.note) < 20 * 300


@pytest.mark.parametrize("how", [{}, {"arguments": {"filename": "file-1.txt"}}])
def test_a_call_that_was_approved_as_it_is_has_nothing_beside(interrupt, rita, how):
    services.decide(interrupt.pk, ballot(interrupt, **how), reviewer=rita)
    permit = enter(interrupt, claimed(interrupt.run_id).attempt)
    assert isinstance(permit, Permit)
    assert permit.note == ""


def test_a_note_beside_an_approval_is_told_where_the_agent_takes_notes(
    make_interrupts, rita
):
    """The page promises it: "optional, the agent reads it"."""
    told, kept = make_interrupts(2)
    Interrupt.objects.filter(pk=kept.pk).update(takes_note=False)
    for each in (told, kept):
        services.decide(each.pk, ballot(each, note="This once."), reviewer=rita)
    attempt = claimed(told.run_id).attempt
    notes = [enter(each, attempt).note for each in (told, kept)]
    assert notes == ["Whoever decided this noted: This once.", ""]


@pytest.mark.parametrize(
    ("given", "changed"),
    [
        ({"answer": {"day": 5}}, {"answer": '{"day":6}'}),
        ({"answer": {"day": 5}}, {"answer": None}),
        ({}, {"answer": '{"day":6}'}),
        ({"verdict": Verdict.RESPOND, "output": "Paid."}, {"output": '"Not paid."'}),
        ({"verdict": Verdict.RESPOND, "output": "x"}, {"verdict": Verdict.APPROVE}),
    ],
)
def test_the_guard_takes_no_decision_that_was_changed_behind_the_record(
    interrupt, rita, given, changed
):
    """Arguments, answer and output are bound to the audit entry of the decision."""
    services.decide(interrupt.pk, ballot(interrupt, **given), reviewer=rita)
    Decision.objects.update(**changed)
    attempt = claimed(interrupt.run_id).attempt
    with pytest.raises(InvalidArguments, match="not the one that was recorded"):
        enter(interrupt, attempt)
    assert not ToolExecution.objects.exists()


def test_the_guard_takes_no_decision_that_was_taken_back(interrupt, rita):
    """Its own entry still fits; a later one says that it does not stand."""
    services.decide(interrupt.pk, ballot(interrupt), reviewer=rita)
    later = timezone.now() + timedelta(minutes=1)
    Decision.objects.update(dispatch_at=later)
    services.undo(interrupt.pk, actor=rita)
    no = ballot(interrupt, Verdict.DENY, note="After all not.")
    services.decide(interrupt.pk, no, reviewer=rita)
    taken_back = Decision.objects.filter(verdict=Verdict.APPROVE)
    Decision.objects.exclude(pk__in=taken_back).update(undone_at=later)
    taken_back.update(undone_at=None)
    attempt = claimed(interrupt.run_id).attempt
    with pytest.raises(InvalidArguments, match="not the one that was recorded"):
        enter(interrupt, attempt)
    assert not ToolExecution.objects.exists()


def test_the_guard_lets_no_other_tool_run_by_a_decision(approved):
    """Its digests are of arguments, which another tool may take as well."""
    other = Tool.objects.get(name=approved.tool)
    other.pk, other.name = None, "delete_folder"
    other.save()
    Interrupt.objects.update(tool=other.name)
    approved.refresh_from_db()
    attempt = claimed(approved.run_id).attempt
    with pytest.raises(InvalidArguments, match="not the one that was recorded"):
        enter(approved, attempt)
    assert not ToolExecution.objects.exists()


def test_a_decision_whose_record_was_erased_still_counts(approved):
    entry = AuditEntry.objects.get(action="interrupt.approved")
    services.erase_payload(entry.number, reason="x", actor="ada")
    assert isinstance(enter(approved, claimed(approved.run_id).attempt), Permit)


def test_a_body_that_stopped_to_ask_is_entered_again(approved):
    attempt = claimed(approved.run_id).attempt
    permit = enter(approved, attempt)
    assert isinstance(permit, Permit)
    services.withdraw_execution(permit)
    assert not ToolExecution.objects.exists()
    assert AuditEntry.objects.filter(action="execution.paused").exists()

    again = enter(approved, attempt)
    assert isinstance(again, Permit)
    services.finish_execution(again, result="gone")
    services.withdraw_execution(again)
    assert ToolExecution.objects.get().status == ExecutionStatus.DONE


def test_a_body_that_stopped_to_ask_after_its_run_was_taken_is_no_doubt(approved):
    permit = enter(approved, claimed(approved.run_id).attempt)
    assert isinstance(permit, Permit)
    lapse(approved.run_id)
    services.claim_run(approved.run_id, owner="w2")
    run = Run.objects.get(pk=approved.run_id)
    assert run.status == RunStatus.IN_DOUBT
    services.withdraw_execution(permit)
    run.refresh_from_db()
    assert run.status == RunStatus.QUEUED
    assert isinstance(enter(approved, claimed(run.pk).attempt), Permit)


def test_i01_without_a_decision_the_body_is_not_entered(make_run):
    run = make_run()
    attempt = claimed(run.pk).attempt
    with pytest.raises(NotDecided):
        services.begin_execution(run.pk, attempt=attempt, call=call(), owner="w")
    assert not ToolExecution.objects.exists()
    assert AuditEntry.objects.filter(action="execution.refused").exists()


def test_a_denied_call_tells_the_note_and_is_not_entered(interrupt, rita):
    services.decide(
        interrupt.pk, ballot(interrupt, Verdict.DENY, note="Keep it."), reviewer=rita
    )
    told = enter(interrupt, claimed(interrupt.run_id).attempt)
    assert isinstance(told, Instead)
    assert told.text == "Not executed: a reviewer denied this call. Keep it."


def test_i02_other_arguments_than_were_approved_do_not_run(approved):
    attempt = claimed(approved.run_id).attempt
    with pytest.raises(InvalidArguments):
        enter(approved, attempt, filename="other.txt")
    with pytest.raises(InvalidArguments):
        services.begin_execution(
            approved.run_id,
            attempt=attempt,
            call=call("pay", call_id=approved.call_id, amount=1, account="2"),
            owner="w",
        )
    assert not ToolExecution.objects.exists()


def test_i02_a_tool_whose_schema_changed_is_asked_anew(approved):
    attempt = claimed(approved.run_id).attempt
    from approvals.models import Tool

    Tool.objects.filter(name="delete_file").update(schema_digest="1" * 64)
    with pytest.raises(AskAgain):
        enter(approved, attempt)
    services.ask_again(approved.run_id, attempt=attempt, interrupt_id=approved.pk)
    approved.refresh_from_db()
    assert approved.is_open


def test_edited_arguments_run_instead_of_the_proposed_ones(interrupt, rita):
    services.decide(
        interrupt.pk, ballot(interrupt, arguments={"filename": "b"}), reviewer=rita
    )
    permit = enter(interrupt, claimed(interrupt.run_id).attempt)
    assert isinstance(permit, Permit)
    assert permit.arguments == {"filename": "b"}


def test_a_response_takes_the_place_of_the_call(interrupt, rita):
    services.decide(
        interrupt.pk,
        ballot(interrupt, Verdict.RESPOND, output={"ok": False}),
        reviewer=rita,
    )
    told = enter(interrupt, claimed(interrupt.run_id).attempt)
    assert told == Instead(text='{"ok":false}')


def test_an_older_attempt_is_refused(approved):
    first = claimed(approved.run_id).attempt
    lapse(approved.run_id)
    second = claimed(approved.run_id).attempt
    assert second == first + 1
    with pytest.raises(LostLease):
        enter(approved, first)
    assert not services.renew_lease(approved.run_id, attempt=first)
    assert services.renew_lease(approved.run_id, attempt=second)


def test_i16_a_worker_that_died_inside_the_tool_leaves_it_in_doubt(approved, rita):
    enter(approved, claimed(approved.run_id, GONE).attempt)
    lapse(approved.run_id)

    assert services.claim_run(approved.run_id, owner="w") is None
    run = Run.objects.get(pk=approved.run_id)
    assert run.status == RunStatus.IN_DOUBT
    assert Decision.objects.get().delivery == Delivery.IN_DOUBT
    assert services.claim_run(approved.run_id, owner="w") is None


@pytest.mark.parametrize(
    ("settlement", "told"),
    [
        (
            Settlement.RAN,
            "Executed. The result was lost; a person confirmed that it ran.",
        ),
        (
            Settlement.DID_NOT_RUN,
            "Not executed: a person confirmed that it did not run.",
        ),
    ],
)
def test_i16_a_person_settles_what_is_unknown(approved, rita, eve, settlement, told):
    enter(approved, claimed(approved.run_id, GONE).attempt)
    lapse(approved.run_id)
    services.claim_run(approved.run_id, owner="w")
    execution = ToolExecution.objects.get()

    with pytest.raises(InvalidDecision):
        services.settle_execution(
            execution.pk, settlement=settlement, actor=rita, note=" "
        )
    services.settle_execution(
        execution.pk, settlement=settlement, actor=rita, note="I looked."
    )
    assert enter(approved, claimed(approved.run_id).attempt) == Instead(text=told)


def test_run_again_only_once_the_old_worker_is_gone(approved, rita):
    me = services.worker_name()
    permit = services.begin_execution(
        approved.run_id,
        attempt=claimed(approved.run_id).attempt,
        call=call(call_id=approved.call_id, filename="file-1.txt"),
        owner=me,
    )
    assert isinstance(permit, Permit)
    lapse(approved.run_id)
    services.claim_run(approved.run_id, owner="w")
    execution = ToolExecution.objects.get()
    again = {"settlement": Settlement.RUN_AGAIN, "actor": rita, "note": "looked"}

    with pytest.raises(WorkerMayLive):
        services.settle_execution(execution.pk, **again)
    host = me.split(":")[0]
    ToolExecution.objects.update(owner=f"{host}:{2**22 + 1}:1")
    services.settle_execution(execution.pk, **again)
    assert isinstance(enter(approved, claimed(approved.run_id).attempt), Permit)


def test_a_watcher_may_not_settle(approved, owen):
    enter(approved, claimed(approved.run_id, GONE).attempt)
    lapse(approved.run_id)
    services.claim_run(approved.run_id, owner="w")
    with pytest.raises(NotAllowed):
        services.settle_execution(
            ToolExecution.objects.get().pk,
            settlement=Settlement.RAN,
            actor=owen,
            note="x",
        )


def test_a_body_that_comes_back_late_settles_itself(approved):
    permit = enter(approved, claimed(approved.run_id, GONE).attempt)
    lapse(approved.run_id)
    services.claim_run(approved.run_id, owner="w")
    services.finish_execution(permit, result="gone")
    assert Run.objects.get(pk=approved.run_id).status == RunStatus.QUEUED


def test_a_call_entered_twice_in_one_attempt_is_unknown(approved):
    attempt = claimed(approved.run_id).attempt
    enter(approved, attempt)
    with pytest.raises(OutcomeUnknown):
        enter(approved, attempt)


def test_b08_a_retry_after_a_failed_model_gives_the_kept_result(approved, rita):
    attempt = claimed(approved.run_id).attempt
    permit = enter(approved, attempt)
    services.finish_execution(permit, result="gone")
    services.fail_run(
        approved.run_id, attempt=attempt, error="The model is down.", retryable=True
    )

    services.retry_run(approved.run_id, actor=rita)
    assert enter(approved, claimed(approved.run_id).attempt) == Instead(text="gone")
    assert ToolExecution.objects.count() == 1


def test_an_ungated_call_is_in_the_ledger_too(make_run):
    run = make_run()
    attempt = claimed(run.pk).attempt
    permit = services.begin_execution(
        run.pk, attempt=attempt, call=call("list_files"), owner="w"
    )
    assert isinstance(permit, Permit)
    assert ToolExecution.objects.get().interrupt is None


def test_an_ungated_call_that_took_effect_is_not_repeated_by_a_new_model_turn(
    make_run, mia
):
    run = make_run()
    attempt = claimed(run.pk).attempt
    note = call("post_note", call_id="first", text="hello")
    permit = services.begin_execution(run.pk, attempt=attempt, call=note, owner="w")
    services.finish_execution(permit, result="posted")
    services.fail_run(run.pk, attempt=attempt, error="down", retryable=True)
    services.retry_run(run.pk, actor=mia)

    attempt = claimed(run.pk).attempt
    again = note.model_copy(update={"call_id": "second"})
    told = services.begin_execution(run.pk, attempt=attempt, call=again, owner="w")
    assert told == Instead(text="posted")
    other = note.model_copy(update={"call_id": "third"})
    told = services.begin_execution(run.pk, attempt=attempt, call=other, owner="w")
    assert isinstance(told, Permit)  # asked for twice on purpose


def test_a_read_only_call_cut_off_is_simply_run_again(make_run):
    run = make_run()
    attempt = claimed(run.pk, GONE).attempt
    services.begin_execution(
        run.pk, attempt=attempt, call=call("list_files"), owner=GONE
    )
    lapse(run.pk)
    assert services.claim_run(run.pk, owner="w") is not None


def test_a_refused_tool_tells_which_policy(make_run):
    Policy.objects.filter(name="Notes").update(gate=Gate.REFUSE)
    run = make_run()
    told = services.begin_execution(
        run.pk,
        attempt=claimed(run.pk).attempt,
        call=call("post_note", text="x"),
        owner="w",
    )
    assert isinstance(told, Instead)
    assert "Notes" in told.text


@pytest.mark.parametrize(
    ("tool", "arguments", "why"),
    [
        ("delete_file", '{"filename": "a\\u0000b"}', "NUL"),
        ("delete_file", '{"filename": NaN}', "NaN"),
        ("delete_file", '{"filename": 1}', "not of type"),
        ("delete_file", '{"filename": "a", "filename": "b"}', "twice"),
        ("delete_file", "{", "not valid JSON"),
        ("no_such_tool", "{}", "no tool named"),
    ],
)
def test_b49_what_cannot_be_asked_is_refused_before_anyone_is_asked(
    make_interrupts, tool, arguments, why
):
    odd = call(tool).model_copy(update={"arguments": arguments})
    (refused,) = make_interrupts([odd])
    assert refused.status == "denied"
    assert why in refused.decision.note
    claim = claimed(refused.run_id)
    assert why in claim.answers[0].text


def test_b45_large_integers_stay_exact(make_interrupts, fin):
    big = 2512292042121000001
    (waiting,) = make_interrupts([call("pay", amount=big, account="7")])
    assert str(big) in waiting.arguments
    services.decide(waiting.pk, ballot(waiting), reviewer=fin)
    permit = enter(waiting, claimed(waiting.run_id).attempt)
    assert permit.arguments["amount"] == big


def test_a_megabyte_argument_is_kept_whole(make_interrupts, rita):
    huge = "x" * 1_000_000
    (waiting,) = make_interrupts([call(filename=huge)])
    services.decide(waiting.pk, ballot(waiting), reviewer=rita)
    permit = enter(waiting, claimed(waiting.run_id).attempt)
    assert permit.arguments["filename"] == huge
    assert len(waiting.title) <= 200


def test_m16_a_secret_is_in_no_title_and_no_record(make_interrupts):
    (waiting,) = make_interrupts([call("pay", amount=1, account="7", pin="pin-4711")])
    for entry in AuditEntry.objects.all():
        assert "pin-4711" not in (entry.payload or "")
    assert services.redacted(waiting)["pin"] == "hidden, 8 characters"


def test_a_call_without_any_arguments_text_runs_as_it_was_approved(
    make_interrupts, rita
):
    """A model may write nothing at all for a tool that takes nothing."""
    held = Policy.objects.create(position=0, name="Lists", tool_pattern="list_files")
    held.groups.add(Group.objects.get(name=OPS))
    proposed = ToolCall(turn=1, call_id="call-1", tool="list_files", arguments="")
    (asked,) = make_interrupts([proposed])
    services.decide(asked.pk, ballot(asked), reviewer=rita)
    claim = services.claim_run(asked.run_id, owner="w")
    permit = services.begin_execution(
        asked.run_id, attempt=claim.attempt, call=proposed, owner="w"
    )
    assert isinstance(permit, Permit)
    assert permit.arguments == {}


def test_a_retry_does_not_pass_over_a_body_that_never_came_back(approved, rita):
    attempt = claimed(approved.run_id, GONE).attempt
    enter(approved, attempt)
    services.fail_run(approved.run_id, attempt=attempt, error="lost", retryable=True)
    services.retry_run(approved.run_id, actor=rita)

    assert services.claim_run(approved.run_id, owner="w") is None
    assert Run.objects.get(pk=approved.run_id).status == RunStatus.IN_DOUBT


def test_a_call_that_was_entered_when_its_run_was_cancelled_can_be_settled(
    approved, rita
):
    enter(approved, claimed(approved.run_id, GONE).attempt)
    services.cancel_run(approved.run_id, actor=rita)
    execution = ToolExecution.objects.get()
    assert execution.status == ExecutionStatus.IN_DOUBT

    services.settle_execution(
        execution.pk, settlement=Settlement.RAN, actor=rita, note="I looked."
    )
    execution.refresh_from_db()
    assert execution.status == ExecutionStatus.DONE
    assert Run.objects.get(pk=approved.run_id).status == RunStatus.CANCELLED


def test_a_second_person_is_told_that_it_is_settled(approved, rita, ravi):
    enter(approved, claimed(approved.run_id, GONE).attempt)
    lapse(approved.run_id)
    services.claim_run(approved.run_id, owner="w")
    execution = ToolExecution.objects.get()
    given = {"settlement": Settlement.RAN, "note": "I looked."}
    services.settle_execution(execution.pk, actor=rita, **given)
    with pytest.raises(RunEnded, match="already known"):
        services.settle_execution(execution.pk, actor=ravi, **given)


def test_an_approval_of_an_earlier_pause_is_asked_again_too(
    make_interrupts, rita, ravi
):
    (first,) = make_interrupts(1)
    services.decide(first.pk, ballot(first), reviewer=rita)
    (_, second) = make_interrupts(
        [call(call_id="later", turn=2, filename="b")], run=first.run
    )
    services.decide(second.pk, ballot(second), reviewer=rita)
    attempt = claimed(first.run_id).attempt
    Policy.objects.filter(name="Destructive file tools").update(approvals_required=2)

    with pytest.raises(AskAgain):
        enter(first, attempt)
    services.ask_again(first.run_id, attempt=attempt, interrupt_id=first.pk)
    first.refresh_from_db()
    assert first.is_open
    assert Run.objects.get(pk=first.run_id).status == RunStatus.WAITING


# What runs elsewhere


def test_m21_a_lost_outcome_is_in_doubt_and_nobodys_any_more(approved, rita):
    permit = enter(approved, claimed(approved.run_id).attempt)
    services.doubt_execution(permit, why="The answer broke off.")
    run = Run.objects.get(pk=approved.run_id)
    assert run.status == RunStatus.IN_DOUBT
    assert run.error.startswith("The answer broke off.")
    execution = ToolExecution.objects.get()
    assert (execution.status, execution.owner) == (ExecutionStatus.IN_DOUBT, "")
    assert Decision.objects.get().delivery == Delivery.IN_DOUBT
    # Its worker lives, and has let go of it.
    services.settle_execution(
        execution.pk, settlement=Settlement.RUN_AGAIN, actor=rita, note="I looked."
    )
    assert isinstance(enter(approved, claimed(run.pk).attempt), Permit)


def test_m21_a_lost_outcome_of_a_cancelled_run_stays_in_doubt(approved, rita):
    permit = enter(approved, claimed(approved.run_id).attempt)
    services.cancel_run(approved.run_id, actor=rita)
    services.doubt_execution(permit, why="The answer broke off.")
    assert Run.objects.get(pk=approved.run_id).status == RunStatus.CANCELLED
    assert ToolExecution.objects.get().status == ExecutionStatus.IN_DOUBT


def test_m21_what_is_known_is_not_put_in_doubt(approved):
    permit = enter(approved, claimed(approved.run_id).attempt)
    services.finish_execution(permit, result="gone")
    services.doubt_execution(permit, why="The answer broke off.")
    assert ToolExecution.objects.get().status == ExecutionStatus.DONE
    assert Run.objects.get(pk=approved.run_id).status == RunStatus.RUNNING


def test_m21_a_tool_that_was_learned_keeps_what_it_said_of_itself(desk):
    from approvals.models import Tool
    from approvals.schemas import ToolSpec

    bare = ToolSpec(name="wipe")
    told = ToolSpec(
        name="wipe",
        parameters={"type": "object", "properties": {"disk": {"type": "string"}}},
    )
    services.learn_tools("far-away", [bare])
    services.learn_tools("far-away", [told])
    services.learn_tools("far-away", [bare])
    assert "disk" in Tool.objects.get(agent="far-away").schema
    services.learn_tools("far-away", [ToolSpec(name="look")])
    assert Tool.objects.filter(agent="far-away").count() == 2
