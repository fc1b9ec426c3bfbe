from __future__ import annotations

import json
import uuid
from datetime import timedelta

import pytest
from django.contrib.auth.models import Group, Permission, User
from django.urls import reverse
from django.utils import timezone

from approvals import canonical, services
from approvals.exceptions import (
    AlreadyDecided,
    Expired,
    InvalidArguments,
    InvalidDecision,
    NotAllowed,
    NotFound,
    RunEnded,
    StalePage,
)
from approvals.models import AuditEntry, Decision, Interrupt, Policy, Run
from approvals.schemas import InterruptDraft
from approvals.services import expiring
from approvals.states import Gate, InterruptStatus, NoteRule, RunStatus, Verdict
from tests.plugins.cast import ballot, call


def actions(run):
    return list(
        AuditEntry.objects.filter(run=run.pk)
        .order_by("number")
        .values_list("action", flat=True)
    )


def test_an_approval_queues_the_resume(interrupt, rita):
    decided = services.decide(interrupt.pk, ballot(interrupt), reviewer=rita)

    assert decided.status == InterruptStatus.APPROVED
    decided.run.refresh_from_db()
    assert decided.run.status == RunStatus.QUEUED
    decision = Decision.objects.get()
    assert decision.reviewer == rita
    assert decision.effective_digest == interrupt.arguments_digest
    assert decision.shown_digest == services.shown_digest(interrupt)
    assert actions(interrupt.run) == [
        "run.queued",
        "run.started",
        "interrupt.opened",
        "run.waiting",
        "interrupt.approved",
    ]


def test_a_denial_carries_its_note_to_the_agent_unchanged(interrupt, rita):
    """B31: quotes, line ends and emoji too."""
    note = 'Not "this" one.\nKeep it 🗂'
    services.decide(
        interrupt.pk, ballot(interrupt, Verdict.DENY, note=note), reviewer=rita
    )

    claim = services.claim_run(interrupt.run_id, owner="w")
    assert claim is not None
    (answer,) = claim.answers
    assert answer.verdict == Verdict.DENY
    assert note in answer.text


def test_arguments_that_were_sent_unchanged_are_no_edit(interrupt, rita):
    same = ballot(interrupt, arguments={"filename": "file-1.txt"})
    services.decide(interrupt.pk, same, reviewer=rita)
    assert Decision.objects.get().arguments is None


def test_a_denial_needs_a_note_where_the_policy_says_so(interrupt, rita):
    with pytest.raises(InvalidDecision) as refused:
        services.decide(
            interrupt.pk, ballot(interrupt, Verdict.DENY, note="  "), reviewer=rita
        )
    assert refused.value.field == "note"
    interrupt.refresh_from_db()
    assert interrupt.is_open


def test_k01_the_second_decision_is_refused_with_who_was_first(interrupt, rita, ravi):
    services.decide(interrupt.pk, ballot(interrupt), reviewer=rita)

    with pytest.raises(AlreadyDecided) as refused:
        services.decide(
            interrupt.pk, ballot(interrupt, Verdict.DENY, note="no"), reviewer=ravi
        )
    assert "Rita Okafor" in refused.value.message
    assert refused.value.decision == Decision.objects.get()
    interrupt.refresh_from_db()
    assert interrupt.status == InterruptStatus.APPROVED


def test_i03_a_page_that_showed_something_else_decides_nothing(interrupt, rita):
    with pytest.raises(StalePage):
        services.decide(interrupt.pk, ballot(interrupt, shown="0" * 64), reviewer=rita)
    interrupt.refresh_from_db()
    assert interrupt.is_open
    assert not Decision.objects.exists()


def test_what_a_policy_change_shows_is_another_digest(interrupt, rita):
    before = ballot(interrupt)
    Policy.objects.filter(name="Destructive file tools").update(
        note_rule=NoteRule.ALWAYS
    )
    with pytest.raises(StalePage):
        services.decide(interrupt.pk, before, reviewer=rita)


@pytest.mark.parametrize("who", ["eve", "mia", "fin"])
def test_i21_what_one_may_not_see_does_not_exist(interrupt, who, request):
    stranger = request.getfixturevalue(who)
    with pytest.raises(NotFound):
        services.decide(interrupt.pk, ballot(interrupt), reviewer=stranger)


def test_a_watcher_may_look_and_not_decide(interrupt, owen):
    with pytest.raises(NotAllowed):
        services.decide(interrupt.pk, ballot(interrupt), reviewer=owen)


def test_k33_an_id_that_was_never_issued_decides_nothing(interrupt, rita):
    """B79: a decision that nobody was asked for."""
    with pytest.raises(NotFound):
        services.decide(uuid.uuid4(), ballot(interrupt), reviewer=rita)


def test_i05_permission_lost_meanwhile_counts(interrupt, rita):
    form = ballot(interrupt)
    rita.groups.clear()
    with pytest.raises(NotFound):
        services.decide(interrupt.pk, form, reviewer=type(rita).objects.get(pk=rita.pk))


def test_k32_whoever_asked_does_not_decide(make_run, make_interrupts, rita, ravi):
    (own,) = make_interrupts(1, run=make_run(requester=rita))
    with pytest.raises(NotAllowed, match="somebody else"):
        services.decide(own.pk, ballot(own), reviewer=rita)
    services.decide(own.pk, ballot(own), reviewer=ravi)


def test_k32_a_superuser_does_not_decide_their_own(make_run, make_interrupts, ada):
    """B78: not even a superuser."""
    (own,) = make_interrupts(1, run=make_run(requester=ada))
    with pytest.raises(NotAllowed):
        services.decide(own.pk, ballot(own), reviewer=ada)


def test_the_resume_waits_for_every_request_of_the_run(make_interrupts, rita):
    first, second = make_interrupts(2)
    services.decide(first.pk, ballot(first), reviewer=rita)
    first.run.refresh_from_db()
    assert first.run.status == RunStatus.WAITING

    services.decide(second.pk, ballot(second, Verdict.DENY, note="keep"), reviewer=rita)
    first.run.refresh_from_db()
    assert first.run.status == RunStatus.QUEUED


def test_m3_cancel_run_ends_it_and_withdraws_the_rest(make_interrupts, rita):
    first, second = make_interrupts(2)
    services.decide(first.pk, ballot(first, Verdict.CANCEL_RUN), reviewer=rita)

    first.run.refresh_from_db()
    second.refresh_from_db()
    assert first.run.status == RunStatus.CANCELLED
    assert second.status == InterruptStatus.CANCELLED
    assert services.claim_run(first.run_id, owner="w") is None
    assert "interrupt.withdrawn" in actions(first.run)
    with pytest.raises(RunEnded):
        services.decide(second.pk, ballot(second), reviewer=rita)


def test_m3_cancel_call_is_another_verb_and_the_run_goes_on(interrupt, rita):
    services.decide(interrupt.pk, ballot(interrupt, Verdict.CANCEL_CALL), reviewer=rita)
    interrupt.refresh_from_db()
    interrupt.run.refresh_from_db()
    assert interrupt.status == InterruptStatus.CANCELLED
    assert interrupt.run.status == RunStatus.QUEUED


def test_the_requester_may_cancel_and_a_stranger_sees_no_run(interrupt, mia, eve):
    with pytest.raises(NotFound):
        services.cancel_run(interrupt.run_id, actor=eve)
    services.cancel_run(interrupt.run_id, actor=mia, note="changed my mind")
    interrupt.refresh_from_db()
    assert interrupt.status == InterruptStatus.CANCELLED
    with pytest.raises(RunEnded):
        services.cancel_run(interrupt.run_id, actor=mia)


def test_k27_a_late_decision_is_refused_without_the_sweeper(interrupt, rita):
    """B63: between the deadline and the next sweep."""
    Interrupt.objects.filter(pk=interrupt.pk).update(
        expires_at=timezone.now() - timedelta(seconds=5)
    )
    with pytest.raises(Expired):
        services.decide(interrupt.pk, ballot(interrupt), reviewer=rita)

    interrupt.refresh_from_db()
    interrupt.run.refresh_from_db()
    assert interrupt.status == InterruptStatus.EXPIRED
    assert interrupt.run.status == RunStatus.QUEUED
    assert actions(interrupt.run)[-2:] == ["interrupt.expired", "decision.refused"]
    with pytest.raises(Expired):
        services.decide(interrupt.pk, ballot(interrupt), reviewer=rita)


def test_k06_what_is_past_its_deadline_expires_once(interrupt):
    """B14: by the system, and never twice."""
    past = timezone.now() - timedelta(minutes=2)
    Interrupt.objects.filter(pk=interrupt.pk).update(expires_at=past)

    assert services.expire_due(timezone.now()) == 1
    assert services.expire_due(timezone.now()) == 0
    entry = AuditEntry.objects.get(action="interrupt.expired")
    assert entry.actor == "system:sweeper"


def test_a_deadline_may_cancel_the_run(desk, make_interrupts):
    Policy.objects.filter(name="Destructive file tools").update(
        deadline_seconds=60, on_deadline="cancel_run"
    )
    (waiting,) = make_interrupts(1)
    assert waiting.expires_at is not None
    services.expire_due(waiting.expires_at + timedelta(seconds=1))
    waiting.run.refresh_from_db()
    assert waiting.run.status == RunStatus.WAITING  # the database's clock decides

    Interrupt.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    services.expire_due(timezone.now())
    waiting.run.refresh_from_db()
    assert waiting.run.status == RunStatus.CANCELLED


def test_votes_count_per_effective_arguments(desk, make_interrupts, rita, ravi, ada):
    Policy.objects.filter(name="Destructive file tools").update(approvals_required=2)
    (waiting,) = make_interrupts(1)
    edited = {"filename": "other.txt"}

    services.decide(waiting.pk, ballot(waiting), reviewer=rita)
    services.decide(waiting.pk, ballot(waiting, arguments=edited), reviewer=ravi)
    waiting.refresh_from_db()
    assert waiting.is_open  # one vote for each of two different calls

    with pytest.raises(AlreadyDecided, match="already approved"):
        services.decide(waiting.pk, ballot(waiting), reviewer=rita)

    services.decide(waiting.pk, ballot(waiting, arguments=edited), reviewer=ada)
    waiting.refresh_from_db()
    assert waiting.status == InterruptStatus.APPROVED
    assert Decision.objects.get().arguments == '{"filename":"other.txt"}'


def test_a_vote_of_somebody_who_lost_the_permission_no_longer_counts(
    desk, make_interrupts, rita, ravi
):
    Policy.objects.filter(name="Destructive file tools").update(approvals_required=2)
    (waiting,) = make_interrupts(1)
    services.decide(waiting.pk, ballot(waiting), reviewer=rita)
    rita.groups.clear()
    services.decide(waiting.pk, ballot(waiting), reviewer=ravi)
    waiting.refresh_from_db()
    assert waiting.is_open


def test_i19_edited_arguments_must_fit_the_tool(interrupt, rita):
    for edited in ({"filename": 5}, {}, {"filename": "a", "force": True}):
        with pytest.raises(InvalidDecision) as refused:
            services.decide(
                interrupt.pk, ballot(interrupt, arguments=edited), reviewer=rita
            )
        assert refused.value.field == "arguments"


def test_a_note_with_a_nul_is_refused(interrupt, rita):
    with pytest.raises(InvalidArguments, match="NUL"):
        services.decide(
            interrupt.pk, ballot(interrupt, Verdict.DENY, note="a\0b"), reviewer=rita
        )


def test_undo_takes_a_decision_back_until_it_left(desk, make_interrupts, rita, ravi):
    Policy.objects.filter(name="Destructive file tools").update(undo_seconds=20)
    (waiting,) = make_interrupts(1)
    services.decide(waiting.pk, ballot(waiting), reviewer=rita)
    assert services.claim_run(waiting.run_id, owner="w") is None  # not due yet

    with pytest.raises(NotAllowed):
        services.undo(waiting.pk, actor=ravi)
    services.undo(waiting.pk, actor=rita)
    waiting.refresh_from_db()
    assert waiting.is_open
    assert Decision.objects.get().undone_at is not None

    services.decide(waiting.pk, ballot(waiting, Verdict.DENY, note="no"), reviewer=ravi)
    assert Decision.objects.filter(undone_at=None).get().reviewer == ravi


def test_undo_is_refused_once_the_agent_has_it(interrupt, rita):
    services.decide(interrupt.pk, ballot(interrupt), reviewer=rita)
    with pytest.raises(AlreadyDecided):
        services.undo(interrupt.pk, actor=rita)


def test_k41_the_same_call_reported_twice_is_one_request(make_interrupts, rita):
    """B95: also when its decision has been made already."""
    first, second = make_interrupts(2)
    services.decide(first.pk, ballot(first), reviewer=rita)
    services.decide(second.pk, ballot(second), reviewer=rita)
    again = make_interrupts(
        [call(call_id="call-2", filename="file-2.txt")], run=first.run
    )
    assert {row.pk for row in again} == {first.pk, second.pk}
    first.run.refresh_from_db()
    assert first.run.status == RunStatus.QUEUED  # decided already, so it goes on


def test_b20_equal_call_ids_of_two_runs_are_two_requests(make_interrupts, rita):
    (one,), (other,) = make_interrupts(1), make_interrupts(1)
    services.decide(one.pk, ballot(one), reviewer=rita)
    other.refresh_from_db()
    assert other.is_open


def test_b147_a_stricter_rule_asks_anew_before_the_tool(interrupt, rita, ravi):
    services.decide(interrupt.pk, ballot(interrupt), reviewer=rita)
    Policy.objects.filter(name="Destructive file tools").update(approvals_required=2)

    assert services.claim_run(interrupt.run_id, owner="w") is None
    interrupt.refresh_from_db()
    interrupt.run.refresh_from_db()
    assert interrupt.is_open
    assert interrupt.run.status == RunStatus.WAITING
    assert "interrupt.reopened" in actions(interrupt.run)

    services.decide(interrupt.pk, ballot(interrupt), reviewer=rita)
    services.decide(interrupt.pk, ballot(interrupt), reviewer=ravi)
    assert services.claim_run(interrupt.run_id, owner="w") is not None


def test_b147_a_rule_that_now_refuses_denies_by_the_policy(interrupt, rita):
    services.decide(interrupt.pk, ballot(interrupt), reviewer=rita)
    Policy.objects.filter(name="Destructive file tools").update(gate=Gate.REFUSE)

    assert services.claim_run(interrupt.run_id, owner="w") is None
    interrupt.refresh_from_db()
    assert interrupt.status == InterruptStatus.DENIED
    claim = services.claim_run(interrupt.run_id, owner="w")
    assert claim is not None
    assert claim.answers[0].verdict == Verdict.DENY


def test_a_laxer_rule_never_weakens_an_open_case(desk, make_interrupts, rita):
    Policy.objects.filter(name="Destructive file tools").update(approvals_required=2)
    (waiting,) = make_interrupts(1)
    Policy.objects.filter(name="Destructive file tools").update(gate=Gate.ALLOW)
    services.decide(waiting.pk, ballot(waiting), reviewer=rita)
    waiting.refresh_from_db()
    assert waiting.is_open


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("said", "It is only a copy."),
        ("approve_label", "Approve and keep file"),
        ("secrets", ["filename"]),
        ("consequence", "Nothing happens."),
        ("title", "Keep report.txt"),
        ("risk", "low"),
        ("message", "Approve listing files?"),
    ],
)
def test_i03_the_digest_binds_everything_the_page_showed(interrupt, rita, field, value):
    shown = ballot(interrupt)
    Interrupt.objects.filter(pk=interrupt.pk).update(**{field: value})
    with pytest.raises(StalePage):
        services.decide(interrupt.pk, shown, reviewer=rita)


def test_a_denial_after_ones_own_approval_takes_its_place(
    desk, make_interrupts, rita, ravi
):
    Policy.objects.filter(name="Destructive file tools").update(approvals_required=2)
    (waiting,) = make_interrupts(1)
    services.decide(waiting.pk, ballot(waiting), reviewer=rita)
    services.decide(
        waiting.pk,
        ballot(waiting, Verdict.DENY, note="On second thought."),
        reviewer=rita,
    )
    waiting.refresh_from_db()
    assert waiting.status == InterruptStatus.DENIED


def test_k06_a_request_that_cannot_be_expired_keeps_no_other_open(
    make_interrupts, monkeypatch, caplog
):
    (stuck,) = make_interrupts([call(filename="a.txt")])
    (other,) = make_interrupts([call(filename="b.txt")])
    now = timezone.now()
    for at, waiting in enumerate((stuck, other)):
        Interrupt.objects.filter(pk=waiting.pk).update(
            expires_at=now - timedelta(seconds=9 - at)
        )
    expire = expiring.expire

    def fails(work, run, interrupt):
        if interrupt == stuck:
            raise RuntimeError("as the test wants it")
        expire(work, run, interrupt)

    monkeypatch.setattr(expiring, "expire", fails)
    assert services.expire_due(now) == 1
    assert Interrupt.objects.get(pk=other.pk).status == InterruptStatus.EXPIRED
    assert Interrupt.objects.get(pk=stuck.pk).status == InterruptStatus.OPEN
    assert str(stuck.pk) in caplog.text


def test_votes_count_per_answer_beside_the_approval(desk, make_run, rita, ravi, ada):
    """What is said beside an approval is what runs, as much as the arguments are."""
    Policy.objects.filter(name="Destructive file tools").update(approvals_required=2)
    schema = {
        "type": "object",
        "properties": {
            "approved": {"type": "boolean"},
            "chosen_time": {"type": "string"},
        },
    }
    run = make_run()
    claim = services.claim_run(run.pk, owner="worker")
    draft = InterruptDraft(call=call(), response_schema=schema)
    services.open_interrupts(run.pk, attempt=claim.attempt, drafts=[draft])
    waiting = run.interrupts.get()

    ten, midnight = {"chosen_time": "10:00"}, {"chosen_time": "00:00"}
    services.decide(waiting.pk, ballot(waiting, answer=ten), reviewer=rita)
    services.decide(waiting.pk, ballot(waiting, answer=midnight), reviewer=ravi)
    waiting.refresh_from_db()
    assert waiting.is_open  # one vote for each of two different answers

    services.decide(waiting.pk, ballot(waiting, answer=ten), reviewer=ada)
    waiting.refresh_from_db()
    assert waiting.status == InterruptStatus.APPROVED

    # And the guard lets it through: both votes are for what is decided.
    claim = services.claim_run(run.pk, owner="worker")
    Policy.objects.filter(name="Destructive file tools").update(note_rule="always")
    permit = services.begin_execution(
        run.pk, attempt=claim.attempt, call=call(), owner="worker"
    )
    assert permit.answer == ten


def test_i23_the_chain_binds_what_was_answered(interrupt, rita):
    given = {"chosen_time": "10:00"}
    services.decide(interrupt.pk, ballot(interrupt, answer=given), reviewer=rita)
    entry = AuditEntry.objects.get(action="interrupt.approved")
    assert json.loads(entry.payload)["answer_digest"] == canonical.keyed_digest(
        interrupt.salt, "sayso.answer.v1", canonical.dumps(given)
    )


def test_b75_the_documented_permissions_are_enough_for_every_verb(
    make_interrupts, make_run
):
    """A group with the permissions of ``permissions.py``, made by hand, and a new account."""
    wanted = ("view_interrupt", "decide_interrupt", "cancel_run")
    group = Group.objects.create(name="Night shift")
    group.permissions.set(Permission.objects.filter(codename__in=wanted))
    nina = User.objects.create(username="nina")
    nina.groups.add(group)
    Policy.objects.get(name="Destructive file tools").groups.set([group])
    Policy.objects.update(undo_seconds=60)
    verbs = {
        Verdict.APPROVE: {},
        Verdict.DENY: {"note": "no"},
        Verdict.ANSWER: {"answer": "yes"},
        Verdict.RESPOND: {"output": "gone"},
        Verdict.CANCEL_CALL: {},
        Verdict.CANCEL_RUN: {},
    }
    assert set(verbs) == set(Verdict)
    for verdict, fields in verbs.items():
        (asked,) = make_interrupts(1)
        services.decide(asked.pk, ballot(asked, verdict, **fields), reviewer=nina)
        assert Decision.objects.get(interrupt=asked).reviewer == nina
        if verdict != Verdict.CANCEL_RUN:
            services.undo(asked.pk, actor=nina)
            services.cancel_run(asked.run_id, actor=nina)


@pytest.mark.parametrize("allowed", [False, True])
def test_b78_approving_what_one_asked_for_is_marked_as_that(
    make_run, make_interrupts, ada, client, allowed
):
    """A superuser too: refused on every path, unless the rule allows it."""
    Policy.objects.update(requester_may_decide=allowed)
    (own,) = make_interrupts(1, run=make_run(requester=ada))
    client.force_login(ada)
    sent = {"confirmed": "approve", "shown": services.shown_digest(own)}
    response = client.post(reverse("decide", args=[own.pk]), sent)
    record = reverse("admin:approvals_interrupt_change", args=[own.pk])
    assert client.post(record, {"status": "approved"}).status_code == 403
    own.refresh_from_db()
    if allowed:
        assert response.status_code == 302
        entry = AuditEntry.objects.get(action="interrupt.approved")
        assert json.loads(entry.payload)["own_request"] is True
    else:
        assert response.status_code == 403
        assert own.is_open
        assert not Decision.objects.exists()


def test_b78_approving_for_somebody_else_is_not(interrupt, rita):
    services.decide(interrupt.pk, ballot(interrupt), reviewer=rita)
    entry = AuditEntry.objects.get(action="interrupt.approved")
    assert json.loads(entry.payload)["own_request"] is False


def test_b154_a_refusal_says_what_became_of_the_run(
    make_interrupts, rita, ravi, mia, client
):
    """Of a run that is over, one that works, and one cancelled a moment ago."""

    def over(asked):
        services.decide(asked.pk, ballot(asked), reviewer=ravi)
        claim = services.claim_run(asked.run_id, owner="w")
        services.finish_run(asked.run_id, attempt=claim.attempt)

    def working(asked):
        services.decide(asked.pk, ballot(asked), reviewer=ravi)
        services.claim_run(asked.run_id, owner="w")

    def cancelled(asked):
        services.cancel_run(asked.run_id, actor=mia)

    told = {
        over: "Ravi Nair (ravi) approved this",
        working: "Ravi Nair (ravi) approved this",
        cancelled: "This request was withdrawn when its run ended.",
    }
    client.force_login(rita)
    for become, words in told.items():
        (asked,) = make_interrupts(1)
        sent = {"verdict": "deny", "note": "no", "shown": services.shown_digest(asked)}
        become(asked)
        before = Run.objects.values().get(pk=asked.run_id)
        response = client.post(reverse("decide", args=[asked.pk]), sent)
        assert response.status_code == 409
        assert words in response.content.decode()
        assert "Your denial was not sent." in response.content.decode()
        assert Run.objects.values().get(pk=asked.run_id) == before
