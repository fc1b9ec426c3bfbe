"""A conversation from rows that no database holds: what its page says, and in what order."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import AnonymousUser

from approvals.cases import Case
from approvals.hiding import Hiding
from approvals.models import Interrupt, Run, ToolExecution
from hitlagents.models import QueuedMessage, RunEvent
from hitlagents.transcript import CALL_LOOKS, AgentText, Call, Story, transcript

START = datetime(2026, 11, 29, 12, tzinfo=UTC)


def at(second: int) -> datetime:
    return START + timedelta(seconds=second)


class Told:
    """A run and its rows, made one after the other."""

    def __init__(self, status: str = "running", **fields: Any) -> None:
        self.run = Run(agent="clerk", status=status, created=at(0), **fields)
        self.events: list[tuple[RunEvent, dict[str, str]]] = []
        self.cases: list[Case] = []
        self.executions: list[ToolExecution] = []

    def event(self, type: str, **members: str) -> Told:
        seq = len(self.events) + 1
        event = RunEvent(run=self.run, seq=seq, attempt=1, type=type, created=at(seq))
        self.events.append((event, members))
        return self

    def says(self, *pieces: str, id: str = "m1", ends: bool = True) -> Told:
        self.event("TEXT_MESSAGE_START", messageId=id)
        for piece in pieces:
            self.event("TEXT_MESSAGE_CONTENT", messageId=id, delta=piece)
        return self.event("TEXT_MESSAGE_END", messageId=id) if ends else self

    def calls(self, call_id: str, tool: str = "delete_file", text: str = "{}") -> Told:
        self.event("TOOL_CALL_START", toolCallId=call_id, toolCallName=tool)
        self.event("TOOL_CALL_ARGS", toolCallId=call_id, delta=text)
        return self.event("TOOL_CALL_END", toolCallId=call_id)

    def hears(self, call_id: str, text: str) -> Told:
        return self.event("TOOL_CALL_RESULT", toolCallId=call_id, content=text)

    def asks(self, call_id: str, status: str = "open", turn: int = 1) -> Told:
        interrupt = Interrupt(
            run=self.run,
            turn=turn,
            call_id=call_id,
            tool="delete_file",
            arguments='{"filename":"a.txt"}',
            status=status,
            created=at(50 + turn),
        )
        self.cases.append(Case(interrupt, AnonymousUser()))
        return self

    def enters(self, call_id: str, status: str = "done", **fields: Any) -> Told:
        options = {"turn": 1, "tool": "delete_file", "result": "Deleted."} | fields
        options.setdefault("arguments", '{"filename":"a.txt"}')
        options.setdefault("started", at(60))
        self.executions.append(
            ToolExecution(run=self.run, call_id=call_id, status=status, **options)
        )
        return self

    def entries(self, **fields: Any) -> list[Any]:
        story = Story(
            run=self.run,
            message="Please delete a.txt",
            events=self.events,
            cases=self.cases,
            executions=self.executions,
            **fields,
        )
        return transcript([story])

    def parts(self, **fields: Any) -> list[AgentText | Call]:
        messages = [one for one in self.entries(**fields) if one.kind == "agent"]
        return [part for message in messages for part in message.parts]

    def call(self) -> Call:
        (call,) = (part for part in self.parts() if isinstance(part, Call))
        return call


def test_the_message_that_started_the_run_comes_first():
    first, *_rest = Told().entries()
    assert (first.kind, first.text, first.queued) == (
        "user",
        "Please delete a.txt",
        False,
    )


def test_pieces_of_a_text_become_one():
    (text,) = Told().says("Hello", ", ", "you").parts()
    assert (text.text, text.message_id, text.streaming) == ("Hello, you", "m1", False)


def test_a_text_without_end_is_still_coming_while_the_run_works():
    (text,) = Told().says("Hel", ends=False).parts()
    assert text.streaming
    (text,) = Told("failed").says("Hel", ends=False).parts()
    assert not text.streaming


def test_the_size_of_a_text_is_what_a_browser_counts():
    (text,) = Told().says("a😀").parts()
    assert text.size == 3


def test_empty_texts_are_left_out():
    assert Told().says().parts() == []


def test_calls_stand_under_the_words_before_them_and_new_words_begin_anew():
    told = Told().says("One", id="m1").calls("c1").calls("c2").says("Two", id="m2")
    messages = [one for one in told.entries() if one.kind == "agent"]
    kinds = [[part.kind for part in message.parts] for message in messages]
    assert kinds == [["text", "call", "call"], ["text"]]
    assert messages[0].time == at(1)


def test_a_call_that_is_only_proposed():
    assert Told().calls("c1").call().state == "proposed"


def test_a_call_with_an_open_request_waits():
    call = Told("waiting").calls("c1").asks("c1").call()
    assert call.state == "waiting"
    assert call.case is not None


def test_an_approved_call_has_not_run_until_the_ledger_says_so():
    told = Told("queued").calls("c1").asks("c1", "approved")
    assert told.call().state == "allowed"
    assert told.enters("c1", "inflight").call().state == "running"


def test_only_the_ledger_says_that_a_call_ran():
    told = Told("finished").calls("c1").asks("c1", "approved").hears("c1", "Deleted.")
    assert told.call().state == "not_run"
    assert told.enters("c1").call().state == "ran"


@pytest.mark.parametrize("status", ["approved", "denied"])
def test_of_a_call_elsewhere_only_what_was_told_from_there_is_known(status):
    """M21: a person there may have denied what was approved here, or run it all the same."""
    told = Told("finished", source="remote").calls("c1").asks("c1", status)
    call = told.hears("c1", "Deleted notes.md.").enters("c1").call()
    assert (call.state, call.word, call.result_word) == (
        "elsewhere",
        "Told from there",
        "The agent there said",
    )
    free = Told("finished", source="remote").calls("c2").hears("c2", "Two files.")
    assert free.call().state == "elsewhere"
    assert Told("running", source="remote").calls("c3").call().state == "proposed"


def test_a_denied_call_is_never_shown_as_run():
    call = Told().calls("c1").asks("c1", "denied").hears("c1", "Not executed").call()
    assert (call.state, call.word, call.result_word) == (
        "not_run",
        "Not run",
        "The agent was told",
    )


def test_every_end_of_a_request_that_is_not_an_approval_means_not_run():
    for status in ("denied", "cancelled", "expired"):
        assert Told().calls("c1").asks("c1", status).call().state == "not_run"
    assert Told().calls("c1").asks("c1", "answered").call().state == "answered"


def test_what_the_ledger_knows_of_a_call():
    words = {
        status: Told().calls("c1").enters("c1", status).call().word
        for status in ("done", "failed", "in_doubt", "inflight")
    }
    assert words == {
        "done": "Ran",
        "failed": "Failed",
        "in_doubt": "Outcome unknown",
        "inflight": "Running",
    }


def test_every_state_has_a_word_and_an_icon_of_its_own():
    looks = list(CALL_LOOKS.values())
    assert len({str(word) for _colour, _icon, word in looks}) == len(looks)
    assert len({icon for _colour, icon, _word in looks}) == len(looks)


def test_a_call_that_nobody_ran_when_the_run_ended():
    assert Told("cancelled").calls("c1").call().state == "not_run"


def test_edited_arguments_are_the_ones_shown():
    told = Told().calls("c1").asks("c1", "approved")
    call = told.enters("c1", arguments='{"filename":"b.txt"}').call()
    assert (call.arguments, call.edited) == ('{"filename":"b.txt"}', True)
    assert not Told().calls("c1").asks("c1", "approved").enters("c1").call().edited


def test_a_call_that_is_named_again_at_the_next_pause_is_the_same_call():
    told = Told("waiting").calls("c1").calls("c2").asks("c1").asks("c2").calls("c2")
    assert [part.kind for part in told.parts()] == ["call", "call"]


def test_the_same_id_in_a_later_turn_is_another_call():
    told = Told("waiting").calls("c1").enters("c1").hears("c1", "Deleted.")
    told.calls("c1").asks("c1", turn=2)
    assert [part.state for part in told.parts()] == ["ran", "waiting"]


def test_rows_without_events_are_shown_where_they_happened():
    """A tool that ran in an attempt that was cut off did run."""
    told = Told().says("One", id="m1").enters("c9", tool="list_files", started=at(2))
    told.says("Two", id="m2")
    assert [part.kind for part in told.parts()] == ["text", "call", "text"]
    assert told.call().state == "ran"


def test_secret_arguments_do_not_get_into_the_line_of_a_call():
    told = Told().calls("c1", "pay", '{"pin":"1234","account":"Ann"}')
    (call,) = told.parts(hiding={"pay": Hiding.of(["pin"])})
    assert call.short == "Ann"
    assert call.hiding == Hiding.of(["pin"])


def test_how_a_run_stands_is_said_at_its_end():
    for status, about in {
        "queued": "starting",
        "running": "working",
        "failed": "failed",
        "cancelled": "cancelled",
        "in_doubt": "in_doubt",
    }.items():
        assert Told(status).entries()[-1].about == about
    for status in ("waiting", "finished"):
        assert Told(status).says("Hello").entries()[-1].kind == "agent"


def test_a_failure_gives_its_reason_and_a_cancelled_run_its_person():
    notice = Told("failed", error="The model is gone.").entries()[-1]
    assert notice.detail == "The model is gone."
    notice = Told("cancelled").entries(cancelled_by="Rita", cancel_note="Why")[-1]
    assert (notice.who, notice.detail) == ("Rita", "Why")


def test_words_that_are_coming_need_no_notice_of_work():
    assert Told().says("Hel", ends=False).entries()[-1].kind == "agent"
    assert Told().says("Hello").entries()[-1].kind == "notice"


def test_messages_that_wait_come_last():
    told = Told("waiting").says("Hello")
    story = Story(run=told.run, message="First", events=told.events)
    queued = [QueuedMessage(pk=7, text="Second"), QueuedMessage(pk=8, text="Third")]
    entries = transcript([story], queued)
    assert [one.text for one in entries if one.kind == "user"] == [
        "First",
        "Second",
        "Third",
    ]
    assert [one.queued for one in entries[-2:]] == [True, True]


def test_the_same_rows_give_the_same_entries():
    told = Told("waiting").says("One").calls("c1").asks("c1").enters("c2")
    assert told.entries() == told.entries()


def test_keys_are_unique():
    told = Told("failed").says("One").calls("c1").asks("c1").says("Two", id="m2")
    entries = told.enters("c9").entries()
    keys = [one.key for one in entries]
    keys += [part.key for one in entries if one.kind == "agent" for part in one.parts]
    assert len(set(keys)) == len(keys)
