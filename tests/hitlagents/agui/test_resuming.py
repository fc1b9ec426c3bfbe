"""M3, M14, M20: a resume is a request to decide, and nothing a page sends is more."""

from __future__ import annotations

import json
import threading

import pytest

from approvals import services
from approvals.models import AuditEntry, Decision, Interrupt, Policy
from approvals.schemas import ToolSpec
from approvals.states import NoteRule, TokenScope
from hitlagents import catalog, conversations
from hitlagents.adapters.base import Gating
from hitlagents.agui.resuming import _edited as edited_arguments
from hitlagents.models import RemoteAgent, Thread
from hitlagents.remote.profiles import Profile
from tests.hitlagents.agui.conftest import NO, YES, cancelled, resolved
from tests.hitlagents.agui.test_doors import problem
from tests.hitlagents.engine.conftest import eventually
from tests.plugins.cast import AGENT, TOOLS, ballot, call

RAN_A = ["delete_file", {"filename": "a.txt"}, None]


def entries():
    return AuditEntry.objects.filter(action__startswith="interrupt.").count()


# M3: the endings


@pytest.mark.parametrize("modern", [True, False])
def test_m3_approve_runs_the_tool_on_the_same_stream(ritas, server, rita, modern):
    ritas.modern = modern
    (interrupt,) = ritas.say("delete a.txt").interrupts
    answer = ritas.resume(resolved(interrupt, YES))
    assert answer.outcome == "success"
    assert answer.text == "Done."
    (result,) = answer.of("TOOL_CALL_RESULT")
    assert result["toolCallId"] == interrupt["toolCallId"]
    assert not answer.of("TOOL_CALL_START")
    assert server.ran() == [RAN_A]
    decision = Decision.objects.get()
    assert (decision.reviewer, decision.channel) == (rita, "agui")
    assert decision.shown_digest == ""


def test_m3_deny_tells_the_agent_why(ritas, server):
    (interrupt,) = ritas.say("delete a.txt").interrupts
    answer = ritas.resume(resolved(interrupt, NO))
    assert answer.outcome == "success"
    (result,) = answer.of("TOOL_CALL_RESULT")
    assert result["content"].endswith("denied this call. Not today.")
    assert server.ran() == []


@pytest.mark.parametrize("key", ["note", "reason", "comment"])
def test_m20_a_note_that_is_too_long_is_refused_and_nothing_is_decided(
    ritas, server, key
):
    (interrupt,) = ritas.say("delete a.txt").interrupts
    long = {"approved": False, key: "n" * 10_001}
    entries = [cancelled({"id": "x"}), resolved(interrupt, long)]
    error = problem(ritas.raw(resume=entries), 422, "invalid_input")
    field = f"resume.1.payload.{key}"
    assert error["field"] == field
    assert error["message"] == f"{field}: it has 10,001 characters; 10,000 are allowed."
    assert not Decision.objects.exists()
    # What surrounds it, or stands in the place of another, is no note.
    fits = {"approved": False, key: f" {'n' * 10_000}\n", "feedback": "n" * 10_001}
    assert ritas.resume(resolved(interrupt, fits)).outcome == "success"
    assert Decision.objects.get().note == "n" * 10_000


@pytest.mark.parametrize(
    ("modern", "outcome"), [(True, "cancelled"), (False, "success")]
)
def test_m3_cancel_means_what_the_agent_declares(ritas, server, modern, outcome):
    ritas.modern = modern
    (interrupt,) = ritas.say("delete a.txt").interrupts
    answer = ritas.resume(cancelled(interrupt))
    assert answer.outcome == outcome
    assert answer.notices == ["run_cancelled"]
    assert answer.text == ""
    assert answer.messages[-1]["content"] == "Not executed: the run was cancelled."
    assert server.ran() == []
    assert ritas.say("hello").text == "You said: hello"


def test_m3_every_agent_declares_its_cancel_as_its_adapter_does():
    for spec in catalog.hosted():
        adapter = spec.build(Gating(allowed=frozenset()))
        assert spec.cancel == adapter.cancel, spec.slug


@pytest.mark.parametrize("profile", Profile.values)
def test_m3_a_remote_agent_declares_its_cancel_too(db, profile):
    agent = RemoteAgent(
        slug="far", name="Far", url="https://far.example.org/agui", profile=profile
    )
    agent.save()
    spec = catalog.get("far")
    assert spec.cancel == spec.build(Gating(allowed=frozenset())).cancel


def test_m3_with_several_open_the_id_says_which(ritas, server):
    """Mixed answers in one batch, in any order, and one of them edited."""
    first, second, third = ritas.say("delete a.txt b.txt c.txt").interrupts
    edited = {"approved": True, "editedArgs": {"filename": "z.txt"}}
    answer = ritas.resume(
        resolved(third, edited), resolved(second, NO), resolved(first, YES)
    )
    assert answer.outcome == "success"
    assert server.ran() == [RAN_A, ["delete_file", {"filename": "z.txt"}, None]]
    results = {r["toolCallId"]: r["content"] for r in answer.of("TOOL_CALL_RESULT")}
    assert "Not today." in results[second["toolCallId"]]


def test_m3_a_part_of_the_answers_is_kept_and_the_rest_asked_again(ritas, server):
    first, second = ritas.say("delete a.txt b.txt").interrupts
    answer = ritas.resume(resolved(first, YES))
    assert [each["id"] for each in answer.interrupts] == [second["id"]]
    assert server.ran() == []
    # The page may answer both: what was decided before is left alone.
    answer = ritas.resume(resolved(first, YES), resolved(second, NO))
    assert (answer.outcome, answer.notices) == ("success", [])
    assert server.ran() == [RAN_A]


def test_m3_a_cancel_among_answers_ends_the_run(ritas, server):
    first, second = ritas.say("delete a.txt b.txt").interrupts
    answer = ritas.resume(resolved(first, YES), cancelled(second))
    assert answer.outcome == "cancelled"
    assert server.ran() == []


def test_m3_a_cancel_before_an_approval_ends_the_run_too(ritas, server):
    first, second = ritas.say("delete a.txt b.txt").interrupts
    answer = ritas.resume(cancelled(first), resolved(second, YES))
    assert (answer.outcome, answer.notices) == ("cancelled", ["run_cancelled"])
    assert server.ran() == []


def test_m3_an_agent_that_asks_again_is_followed_to_its_next_question(ritas, server):
    """B158: the second interrupt during a resumed stream is told."""
    (first,) = ritas.say("again a.txt b.txt").interrupts
    answer = ritas.resume(resolved(first, YES))
    (second,) = answer.interrupts
    assert second["id"] != first["id"]
    # AG-UI's worst case: the answer to the first, sent again, must not approve the second.
    again = ritas.resume(resolved(first, YES))
    assert [each["id"] for each in again.interrupts] == [second["id"]]
    assert server.ran() == [RAN_A]
    assert ritas.resume(resolved(second, YES)).outcome == "success"


# What an answer may hold


@pytest.mark.parametrize(
    "payload",
    [
        {"approved": False, "reason": "x"},
        {"approved": "true", "note": "x"},
        {"approved": 1, "comment": "x"},
        {"accepted": True, "reason": "x"},
        {"reason": "x"},
    ],
)
def test_m7_anything_that_is_not_exactly_yes_denies(ritas, server, payload):
    (interrupt,) = ritas.say("delete a.txt").interrupts
    assert ritas.resume(resolved(interrupt, payload)).outcome == "success"
    assert Decision.objects.get().verdict == "deny"
    assert Decision.objects.get().note == "x"
    assert server.ran() == []


@pytest.mark.parametrize("payload", [None, True, "yes", 0, [], {}, {"approved": None}])
def test_m7_a_bare_no_denies_where_no_note_is_asked_for(ritas, server, payload):
    Policy.objects.update(note_rule=NoteRule.OPTIONAL)
    (interrupt,) = ritas.say("delete a.txt").interrupts
    assert ritas.resume(resolved(interrupt, payload)).outcome == "success"
    assert Decision.objects.get().verdict == "deny"
    assert server.ran() == []


def test_m16_a_denial_needs_the_note_that_the_policy_asks_for(ritas):
    (interrupt,) = ritas.say("delete a.txt").interrupts
    answer = ritas.resume(resolved(interrupt, {"approved": False}))
    assert answer.interrupts == [interrupt]
    assert answer.notices == ["invalid_decision"]
    assert "Send it as “note” beside “approved”" in answer.text
    assert not Decision.objects.exists()


def test_m8_a_time_that_was_chosen_reaches_the_tool(ritas, server):
    (interrupt,) = ritas.say("book").interrupts
    assert "chosen_time" in interrupt["responseSchema"]["properties"]
    payload = {"approved": True, "chosen_time": "10:00", "picked_by": "mouse"}
    assert ritas.resume(resolved(interrupt, payload)).outcome == "success"
    assert server.ran() == [
        ["delete_file", {"filename": "booked"}, {"chosen_time": "10:00"}]
    ]


def test_m7_what_stands_beside_an_approval_is_not_refused(ritas, server):
    (interrupt,) = ritas.say("book").interrupts
    odd = {"approved": True, "chosen_time": 7}
    assert ritas.resume(resolved(interrupt, odd)).outcome == "success"
    assert server.ran() == [["delete_file", {"filename": "booked"}, {"chosen_time": 7}]]


def test_m7_a_question_takes_only_an_answer_that_fits(ritas):
    (interrupt,) = ritas.say("ask").interrupts
    assert interrupt["reason"] == "input_required"
    assert interrupt["responseSchema"]["required"] == ["colour"]
    for wrong in ({"colour": "green"}, {"approved": True}, None, "red", False):
        answer = ritas.resume(resolved(interrupt, wrong))
        assert answer.interrupts == [interrupt]
        assert answer.notices == ["invalid_decision"]
    answer = ritas.resume(resolved(interrupt, {"colour": "red"}))
    assert answer.outcome == "success"
    assert answer.of("TOOL_CALL_RESULT")[0]["content"] == (
        'The answer is {"colour": "red"}.'
    )


@pytest.mark.parametrize(
    ("edited", "told"),
    [
        ({"filename": 7}, "filename: 7 is not of type 'string'"),
        ({}, "'filename' is a required property"),
        ({"filename": "b", "force": True}, "Additional properties"),
        ("b.txt", "The edited arguments are not an object."),
        ([], "The edited arguments are not an object."),
    ],
)
def test_m15_edited_arguments_must_fit_the_tool(ritas, server, edited, told):
    (interrupt,) = ritas.say("delete a.txt").interrupts
    payload = {"approved": True, "editedArgs": edited}
    answer = ritas.resume(resolved(interrupt, payload))
    assert answer.interrupts == [interrupt]
    assert told in answer.text
    assert server.ran() == []


def test_m15_edited_arguments_are_what_runs(ritas, server):
    (interrupt,) = ritas.say("delete a.txt").interrupts
    payload = {"approved": True, "editedArgs": {"filename": "b.txt"}, "filename": "c"}
    ritas.resume(resolved(interrupt, payload))
    assert server.ran() == [["delete_file", {"filename": "b.txt"}, None]]
    assert json.loads(Decision.objects.get().arguments) == {"filename": "b.txt"}


def test_m15_nobody_finds_a_secret_by_trying(open_page, mia, fin, server):
    """What was decided is compared for anybody, also for who may decide nothing."""
    page = open_page(mia, TokenScope.AGENTS)
    page.say("pay 5")
    interrupt = Interrupt.objects.get()
    services.decide(interrupt.pk, ballot(interrupt), reviewer=fin)
    asked = {"id": str(interrupt.pk)}
    told = []
    for pin in ("pin-1111", "pin-4711"):
        edited = {"amount": 5, "account": "DE02", "pin": pin}
        yes = YES | {"editedArgs": edited}
        told.append(page.resume(resolved(asked, yes)).notices)
    assert told == [[], []]
    yes = YES | {"editedArgs": {"amount": 6, "account": "DE02"}}
    assert page.resume(resolved(asked, yes)).notices == ["already_decided"]


def test_m15_an_edit_leaves_secrets_as_they_are_that_the_page_cannot_see(
    ritas, server, rita
):
    rita.groups.add(*Policy.objects.get(name="Money out").groups.all())
    (interrupt,) = ritas.say("pay 5").interrupts
    shown = interrupt["metadata"]["agent_framework"]["function_call"]["arguments"]
    payload = {"approved": True, "editedArgs": {**shown, "amount": 4}}
    answer = ritas.resume(resolved(interrupt, payload))
    assert answer.outcome == "success"
    (ran,) = server.ran()
    assert ran[1] == {"amount": 4, "account": "DE02", "pin": "pin-4711"}


def test_b86_words_for_a_hidden_value_never_become_one(ritas, server, rita):
    rita.groups.add(*Policy.objects.get(name="Money out").groups.all())
    (interrupt,) = ritas.say("pay 5").interrupts
    shown = interrupt["metadata"]["agent_framework"]["function_call"]["arguments"]
    for words in (shown["pin"], f"with ⟦{shown['pin']}⟧"):
        payload = {"approved": True, "editedArgs": {**shown, "account": words}}
        answer = ritas.resume(resolved(interrupt, payload))
        assert answer.notices == ["invalid_decision"]
        assert answer.interrupts == [interrupt]
    assert server.ran() == []


def test_b86_a_value_goes_with_the_name_it_had(desk, make_interrupts):
    services.register_tools(AGENT, [*TOOLS, ToolSpec(name="delete_variable")])
    given = {"name": "API_KEY", "value": "key-xylo", "scope": "all"}
    [interrupt] = make_interrupts([call("delete_variable", **given)])
    here = {"name": "API_KEY", "scope": "here"}
    assert edited_arguments(here, interrupt) == given | {"scope": "here"}
    for renamed in ({"name": "NOTE"}, {"key": "NOTE", "name": "NOTE"}, {"scope": "x"}):
        assert edited_arguments(renamed, interrupt) == renamed
    unnamed = given | {"name": "NOTE"}
    [interrupt] = make_interrupts([call("delete_variable", **unnamed)])
    left_out = {"name": "API_KEY"}
    assert edited_arguments(left_out, interrupt) == left_out


def test_m14_a_digest_that_is_echoed_is_checked(ritas, server):
    (interrupt,) = ritas.say("delete a.txt").interrupts
    wrong = {"sayso": {"digest": "0" * 64}}
    answer = ritas.resume(resolved(interrupt, YES, metadata=wrong))
    assert answer.interrupts == [interrupt]
    assert answer.notices == ["stale_page"]
    right = {"sayso": {"digest": interrupt["metadata"]["sayso"]["digest"]}}
    assert ritas.resume(resolved(interrupt, YES, metadata=right)).outcome == "success"
    digest = Decision.objects.get().shown_digest
    assert digest == interrupt["metadata"]["sayso"]["digest"]
    assert server.ran() == [RAN_A]


# Who may


def test_m4_a_page_whose_person_may_not_decide_gets_the_same_interrupt(
    open_page, mia, server
):
    page = open_page(mia)
    (interrupt,) = page.say("delete a.txt").interrupts
    for payload in (YES, NO):
        answer = page.resume(resolved(interrupt, payload))
        assert answer.interrupts == [interrupt]
        assert answer.notices == ["not_allowed"]
        assert "It waits for Ops reviewers." in answer.text
    assert server.ran() == []
    assert not Decision.objects.exists()


def test_m16_nobody_approves_what_they_asked_for_themselves(open_page, rita, server):
    page = open_page(rita)
    (interrupt,) = page.say("delete a.txt").interrupts
    answer = page.resume(resolved(interrupt, YES))
    assert answer.interrupts == [interrupt]
    assert "somebody else has to decide" in answer.text
    assert server.ran() == []


def test_m3_whoever_asked_for_a_run_may_end_it(open_page, mia, server):
    page = open_page(mia)
    (interrupt,) = page.say("delete a.txt").interrupts
    assert page.resume(cancelled(interrupt)).outcome == "cancelled"
    entry = AuditEntry.objects.get(action="run.cancelled")
    assert entry.actor == "mia"


def test_m22_a_token_that_may_not_decide_decides_nothing(
    ritas, open_page, rita, server
):
    (interrupt,) = ritas.say("delete a.txt").interrupts
    page = open_page(rita, TokenScope.AGENTS, thread=ritas.thread)
    answer = page.resume(resolved(interrupt, YES))
    assert answer.interrupts == [interrupt]
    assert "does not allow deciding" in answer.text
    assert server.ran() == []


def test_m16_one_of_two_approvals_keeps_it_open(ritas, server):
    Policy.objects.update(approvals_required=2)
    (interrupt,) = ritas.say("delete a.txt").interrupts
    assert "editedArgs" not in interrupt["responseSchema"]["properties"]
    answer = ritas.resume(resolved(interrupt, YES))
    assert [each["id"] for each in answer.interrupts] == [interrupt["id"]]
    answer = ritas.resume(resolved(interrupt, YES))
    assert answer.notices == ["already_decided"]
    assert server.ran() == []


def test_k33_another_persons_request_does_not_exist_here(ritas, open_page, mia, server):
    (hers,) = open_page(mia).say("delete a.txt").interrupts
    ritas.say("hello")
    answer = ritas.resume(resolved(hers, YES))
    assert (answer.outcome, answer.notices) == ("success", ["unknown_interrupt"])
    assert Interrupt.objects.get(pk=hers["id"]).is_open


# Again, late, twice


def test_m14_a_replay_runs_nothing_again_and_is_told_the_same(ritas, server):
    (interrupt,) = ritas.say("delete a.txt").interrupts
    first = ritas.resume(resolved(interrupt, YES))
    before = entries()
    for _ in range(3):
        again = ritas.resume(resolved(interrupt, YES), runId=first.end["runId"])
        assert (again.outcome, again.notices) == ("success", [])
        assert again.messages == first.messages
    assert server.ran() == [RAN_A]
    assert entries() == before


def test_m14_a_replayed_denial_asks_nothing_anew(ritas, server):
    (interrupt,) = ritas.say("delete a.txt").interrupts
    ritas.resume(resolved(interrupt, NO))
    again = ritas.resume(resolved(interrupt, NO))
    assert (again.outcome, again.notices) == ("success", [])
    assert server.heard() == ["delete a.txt"]


def test_m14_a_different_second_answer_changes_nothing_and_is_told(ritas, server):
    (interrupt,) = ritas.say("delete a.txt").interrupts
    ritas.resume(resolved(interrupt, YES))
    for late in (
        resolved(interrupt, NO),
        resolved(interrupt, {"approved": True, "editedArgs": {"filename": "b.txt"}}),
        cancelled(interrupt),
    ):
        answer = ritas.resume(late)
        assert (answer.outcome, answer.notices) == ("success", ["already_decided"])
        assert "Rita Okafor (rita) already decided this: Approved." in answer.text
    assert server.ran() == [RAN_A]


def test_m14_a_late_answer_is_told_of_the_call_as_it_was_changed(ritas, server):
    (interrupt,) = ritas.say("delete a.txt").interrupts
    edited = {"approved": True, "editedArgs": {"filename": "z.txt"}}
    ritas.resume(resolved(interrupt, edited))
    answer = ritas.resume(resolved(interrupt, NO))
    assert answer.notices == ["already_decided"]
    assert "Delete z.txt: Rita Okafor (rita) already decided this" in answer.text
    assert server.ran() == [["delete_file", {"filename": "z.txt"}, None]]


def test_m20_decided_at_the_desk_while_the_page_was_open(
    open_page, mia, rita, at_the_desk, server
):
    page = open_page(mia)
    first, second = page.say("delete a.txt b.txt").interrupts
    at_the_desk(rita, first, "approve")
    # The page answers both; one is decided, the other is not hers to decide.
    answer = page.resume(resolved(first, YES), resolved(second, YES))
    assert [each["id"] for each in answer.interrupts] == [second["id"]]
    assert answer.notices == ["not_allowed"]
    at_the_desk(rita, second, "approve")
    assert eventually(lambda: len(server.ran()) == 2)
    answer = page.resume(resolved(second, YES))
    assert (answer.outcome, answer.notices) == ("success", [])
    assert "Done." in answer.messages[-1]["content"]


def test_m14_the_same_resume_at_the_same_moment_runs_once(ritas, server):
    (interrupt,) = ritas.say("delete a.txt").interrupts
    answers = []
    pages = [
        threading.Thread(
            target=lambda: answers.append(ritas.resume(resolved(interrupt, YES)))
        )
        for _ in range(5)
    ]
    for page in pages:
        page.start()
    for page in pages:
        page.join(60)
    assert [(a.outcome, a.notices) for a in answers] == [("success", [])] * 5
    assert len({json.dumps(answer.messages) for answer in answers}) == 1
    assert server.ran() == [RAN_A]


def test_m20_what_expired_is_told_and_the_run_has_gone_on(ritas, server):
    Policy.objects.update(deadline_seconds=1)
    (interrupt,) = ritas.say("delete a.txt").interrupts
    assert "expiresAt" in interrupt
    assert eventually(lambda: not Interrupt.objects.open().exists())
    answer = ritas.resume(resolved(interrupt, YES))
    assert (answer.outcome, answer.notices) == ("success", ["already_decided"])
    assert "expired" in answer.text
    assert server.ran() == []


def test_m20_ids_that_nobody_knows_stop_nothing(ritas, server):
    (interrupt,) = ritas.say("delete a.txt").interrupts
    answer = ritas.resume(
        resolved("no-uuid", YES),
        resolved("00000000-0000-4000-8000-000000000000", YES),
        resolved(interrupt["toolCallId"], YES),
    )
    assert answer.interrupts == [interrupt]
    assert answer.notices == ["unknown_interrupt"] * 3
    answer = ritas.resume(resolved("no-uuid", YES), resolved(interrupt, YES))
    assert answer.outcome == "success"
    assert server.ran() == [RAN_A]


def test_m20_two_different_answers_to_one_interrupt_are_none(ritas, server):
    (interrupt,) = ritas.say("delete a.txt").interrupts
    answer = ritas.resume(resolved(interrupt, YES), resolved(interrupt, NO))
    assert answer.interrupts == [interrupt]
    assert answer.notices == ["two_answers"]
    assert server.ran() == []
    answer = ritas.resume(resolved(interrupt, YES), resolved(interrupt, YES))
    assert answer.outcome == "success"
    assert server.ran() == [RAN_A]


def test_m20_a_resume_of_a_conversation_that_has_not_begun(ritas):
    answer = ritas.resume(resolved("x", YES))
    assert answer.outcome == "success"
    assert answer.notices == ["unknown_interrupt"]
    assert not Thread.objects.exists()


def test_m20_an_answer_as_copilotkit_sends_it(ritas, server):
    """The interrupted run's id again, and the answer as a tool message beside."""
    ritas.modern = False
    body = {
        "runId": "run-1",
        "messages": [{"id": "m", "role": "user", "content": "delete a.txt"}],
    }
    (interrupt,) = ritas.post(**body).interrupts
    made_up = {
        "id": "page-made",
        "role": "tool",
        "toolCallId": interrupt["toolCallId"],
        "content": '{"approved": true}',
    }
    later = {"id": "m2", "role": "user", "content": "Thanks"}
    answer = ritas.post(
        runId="run-1",
        messages=[*ritas.messages, later, made_up],
        resume=[resolved(interrupt, YES)],
    )
    assert answer.outcome == "success"
    assert "page-made" not in {m["id"] for m in answer.messages}
    assert server.heard() == ["delete a.txt", "Thanks"]
    assert server.ran() == [RAN_A]


def test_m20_a_message_the_desk_keeps_does_not_lose_its_place(ritas, rita):
    """Sent on our own page, seen in the other one under an id that stays."""
    ritas.say("delete a.txt")
    thread = Thread.objects.get()
    conversations.send(thread.pk, "From the desk", author=rita)
    shown = ritas.show().messages[-1]
    assert shown["content"] == "From the desk"
    (interrupt,) = ritas.show().interrupts
    answer = ritas.resume(resolved(interrupt, YES))
    assert shown in answer.messages
