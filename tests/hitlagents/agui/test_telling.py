"""M20: live text and stored events become one stream, whatever is lost or late."""

from __future__ import annotations

import random

import pytest

from approvals.hiding import Hiding
from hitlagents import wire
from hitlagents.adapters.base import ToolCallProposed, ToolCallResult
from hitlagents.agui.telling import Stored, Telling
from hitlagents.events import utf16_length
from tests.hitlagents.agui import rules
from tests.plugins.cast import call

MODEL = ("Hello", " there", ", 🙂", " you")


class Worker:
    """Numbers what happens as the worker does (``hitlagents.events.EventLog``)."""

    def __init__(self, attempt=1, seq=0):
        self.attempt, self.seq = attempt, seq
        self.live = []
        self.rows = []
        self.size = 0

    def event(self, type, members=None):
        self.seq += 1
        self.rows.append(Stored(seq=self.seq, attempt=self.attempt, type=type,
                                members=members or {}))  # fmt: skip

    def text(self, message, *pieces):
        """Pieces are lists of deltas that are stored together."""
        self.event("TEXT_MESSAGE_START", {"messageId": message, "role": "assistant"})
        size = 0
        for piece in pieces:
            for delta in piece:
                self.seq += 1
                size += utf16_length(delta)
                self.live.append(
                    {
                        "attempt": self.attempt,
                        "seq": self.seq,
                        "message": message,
                        "size": size,
                        "text": delta,
                    }
                )
            self.rows.append(
                Stored(
                    seq=self.seq,
                    attempt=self.attempt,
                    type="TEXT_MESSAGE_CONTENT",
                    members={"messageId": message, "delta": "".join(piece)},
                )
            )
        self.event("TEXT_MESSAGE_END", {"messageId": message})

    def called(self, id):
        for type, members in wire.tool_call(ToolCallProposed(call=call(call_id=id))):
            self.event(type, members)

    def result(self, id):
        self.event(*wire.tool_result(ToolCallResult(call_id=id, content="ok")))


def play():
    """One run over a pause, as the worker numbers it."""
    worker = Worker()
    worker.event("RUN_STARTED")
    worker.text("m1", MODEL[:2], MODEL[2:])
    worker.text("m2", ["a", "b", "c"])
    worker.called("c1")
    worker.event("RUN_FINISHED")
    worker.attempt = 2
    worker.event("RUN_STARTED")
    worker.text("m3", ["x"], ["y", "z"])
    worker.called("c1")  # Named again: it still waits.
    worker.result("c1")
    worker.text("m4", ["done"])
    worker.event("RUN_FINISHED")
    return worker


def texts(events):
    return [m["delta"] for type, m in events if type == "TEXT_MESSAGE_CONTENT"]


def held(events):
    """As a client hears them."""
    ids = {"threadId": "thread", "runId": "run"}
    heard = [{"type": type, **members} for type, members in events]
    ending = {"type": "RUN_FINISHED", **ids}
    rules.in_order([{"type": "RUN_STARTED", **ids}, *heard, ending])
    told = rules.Told()
    told.hear(heard)
    return told


WHOLE = {"m1": "".join(MODEL), "m2": "abc", "m3": "xyz", "m4": "done"}


def test_m20_stored_events_alone_tell_everything():
    told = held(Telling().stored(play().rows, {}))
    assert told.texts == WHOLE
    assert list(told.arguments) == ["c1"]
    assert list(told.results.values()) == ["ok"]


@pytest.mark.parametrize("seed", range(200))
def test_m20_any_mix_of_live_and_stored_tells_everything_once(seed):
    """Live text is lost here and there; storage is read now and then."""
    chance = random.Random(seed)  # noqa: S311
    worker, telling = play(), Telling()
    rows, live, told = list(worker.rows), list(worker.live), []
    now = 0
    while rows or live:
        now += chance.randint(1, 4)
        while live and live[0]["seq"] <= now:
            delta = live.pop(0)
            if chance.random() < 0.7:
                told += telling.live(delta)
        if chance.random() < 0.4:
            ready = [row for row in rows if row.seq <= now]
            rows = rows[len(ready) :]
            told += telling.stored(ready, {})
    assert held(told).texts == WHOLE
    assert telling.seq == worker.seq
    assert not telling.cut_off


def test_m20_words_need_not_wait_for_storage():
    worker, telling = play(), Telling()
    first = [delta for delta in worker.live if delta["attempt"] == 1]
    assert texts(e for d in first for e in telling.live(d)) == [*MODEL, "a", "b", "c"]
    assert texts(telling.stored(worker.rows[:-1], {}))[:1] == ["x"]


def test_m20_words_behind_a_gap_wait_for_what_is_missing():
    worker, telling = play(), Telling()
    assert telling.live(worker.live[1]) == []
    told = telling.stored(worker.rows[:2], {})
    assert texts(told) == []
    told += telling.stored(worker.rows[2:3], {})
    assert texts(told) == ["Hello there"]


def test_m20_an_attempt_that_was_cut_off_is_noticed_and_its_text_closed():
    worker, telling = Worker(), Telling()
    worker.event("RUN_STARTED")
    worker.text("m1", ["half"])
    told = telling.stored(worker.rows[:3], {})
    again = Worker(attempt=2, seq=worker.seq)
    again.event("RUN_STARTED")
    again.text("m2", ["whole"])
    assert [e for d in again.live for e in telling.live(d)] == []
    told += telling.stored(again.rows, {})
    assert telling.cut_off
    assert held(told).texts == {"m1": "half", "m2": "whole"}


def test_m20_a_stream_that_ends_early_closes_its_text():
    worker, telling = Worker(), Telling()
    worker.event("RUN_STARTED")
    worker.text("m1", ["half"])
    told = [*telling.live(worker.live[0]), *telling.close(), *telling.close()]
    assert held(told).texts == {"m1": "half"}


def test_m20_words_of_an_older_attempt_are_not_told():
    telling = Telling(seq=9, attempt=3)
    worker = Worker(attempt=2, seq=10)
    worker.text("m1", ["late"])
    assert telling.live(worker.live[0]) == []


def test_m2_secrets_are_hidden_in_arguments_of_calls():
    worker = Worker()
    worker.event("RUN_STARTED")
    paid = call("pay", amount=1, account="x", pin="4711")
    for type, members in wire.tool_call(ToolCallProposed(call=paid)):
        worker.event(type, members)
    told = held(Telling().stored(worker.rows, {"pay": Hiding.of(["pin"])}))
    assert "4711" not in str(told.arguments)
    assert "hidden, 4 characters" in told.arguments["call-1"]


def test_b86_only_the_page_of_a_tool_gets_what_looks_like_a_secret():
    """It runs there."""
    worker = Worker()
    worker.event("RUN_STARTED")
    for call_id, tool in (("call-1", "pay"), ("call-2", "sign_in")):
        proposed = call(tool, call_id=call_id, api_key="key-4711")
        for type, members in wire.tool_call(ToolCallProposed(call=proposed)):
            worker.event(type, members)
    told = held(Telling().stored(worker.rows, {"pay": Hiding()}))
    assert "hidden, 8 characters" in told.arguments["call-1"]
    assert "key-4711" in told.arguments["call-2"]
