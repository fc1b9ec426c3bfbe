"""M20: a stream that waits, breaks, grows too long, or sees its worker die."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from types import SimpleNamespace
from uuid import uuid4

import pytest
from django.test import override_settings

from approvals import services
from approvals.callers import Caller
from approvals.hub import hub
from approvals.models import Run
from approvals.sockets import HELLO, Message
from approvals.states import TokenScope
from hitlagents import events, wire
from hitlagents.adapters.base import ToolCallProposed, ToolCallResult
from hitlagents.agui import frames, hearing, streams
from hitlagents.agui.hearing import Ear
from hitlagents.agui.places import Places, TooManyStreams
from hitlagents.agui.snapshot import Mark
from hitlagents.agui.streams import Stream
from hitlagents.engine import threads
from hitlagents.engine.threads import in_streams
from hitlagents.models import RunInput, Thread
from tests.hitlagents.agui import rules
from tests.hitlagents.fakes import until
from tests.plugins.cast import ballot, call


@pytest.fixture
def thread(transactional_db, make_run, mia):
    """A thread whose run is queued."""
    run = make_run()
    thread = Thread.objects.create(pk=run.thread, agent=run.agent, owner=mia)
    RunInput.objects.create(run=run, thread=thread, message="hi", message_id="m1")
    yield thread
    threads.close()


@pytest.fixture
def run(thread):
    return Run.objects.get()


@pytest.fixture
def stream(thread, mia):
    _, secret = services.create_token(mia, name="Page", actor=mia)
    token = services.authenticate_token(secret)

    def make(**options):
        caller = Caller(user=mia, scopes=frozenset(TokenScope.values), token=token.pk)
        return Stream(
            thread=thread,
            caller=caller,
            thread_key="t",
            run_key="r",
            modern=True,
            site="http://127.0.0.1",
            **options,
        )

    return make


class Read:
    """A stream as it is read, with what is done meanwhile, off the loop."""

    def __init__(self):
        self.raw = ""

    def all(self, stream, *meanwhile, lost=frozenset()):
        """``lost``: texts that a worker took with it."""

        async def go():
            steps = list(meanwhile)
            async with aclosing(stream.chunks()) as chunks:
                async for chunk in chunks:
                    self.raw += chunk.decode()
                    if steps and steps[0][0] in self.raw:
                        await in_streams(steps.pop(0)[1])
            assert not steps

        asyncio.run(asyncio.wait_for(go(), 30))
        found = rules.events_of(self.raw)
        kept = [event for event in found if event.get("messageId") not in lost]
        rules.check(kept, modern=stream.modern)
        return found


@pytest.fixture
def read():
    return lambda *args, **options: Read().all(*args, **options)


def claim(run, owner="worker"):
    claimed = services.claim_run(run.pk, owner=owner)
    assert claimed is not None
    return claimed


def write(run, attempt, seq, *told):
    with services.unit_of_work() as work:
        events.append(run, attempt, list(enumerate(told, seq)))
        work.tell_run(run)


def started(run):
    return wire.run_started(run.thread, run.pk)


def finish(run, attempt, seq, *told):
    with services.unit_of_work():
        ending = wire.run_finished(run.thread, run.pk, [])
        events.append(run, attempt, list(enumerate([*told, ending], seq)))
        services.finish_run(run.pk, attempt=attempt)


def test_m20_a_worker_that_dies_leaves_no_half_text_behind(stream, read, run):
    first = claim(run)
    half = [wire.text_start("m"), wire.text_content("m", "Half")]
    write(run, 1, 1, started(run), *half)

    def another_takes_over():
        services.release_run(run.pk, attempt=first.attempt)
        assert claim(run).attempt == 2
        whole = [wire.text_start("n"), wire.text_content("n", "Whole")]
        finish(run, 2, 4, started(run), *whole, wire.text_end("n"))

    told = read(stream(), ("Half", another_takes_over), lost={"m"})
    last = [e for e in told if e["type"] == "MESSAGES_SNAPSHOT"][-1]["messages"]
    assert [m["content"] for m in last] == ["hi", "Whole"]
    assert told[-1]["outcome"] == {"type": "success"}


def test_m20_a_run_that_was_quicker_than_its_stream_is_still_told(stream, read, run):
    """The request that began it hears its words; a page that comes later, the result."""
    whole = [wire.text_start("m"), wire.text_content("m", "Hi."), wire.text_end("m")]
    finish(run, claim(run).attempt, 1, started(run), *whole)
    told = read(stream(expects=True, mark=Mark(run=run.pk)))
    assert [e["delta"] for e in told if e["type"] == "TEXT_MESSAGE_CONTENT"] == ["Hi."]
    assert len(told[1]["messages"]) == 1
    later = read(stream())
    assert [e["type"] for e in later] == [
        "RUN_STARTED",
        "MESSAGES_SNAPSHOT",
        "RUN_FINISHED",
    ]
    assert later[1] == told[-2]


def test_m20_a_quiet_stream_says_that_it_lives(stream, read, run, monkeypatch):
    monkeypatch.setattr(streams, "KEEP_ALIVE", 0.05)
    attempt = claim(run).attempt
    told = read(
        stream(),
        (frames.KEEP_ALIVE.decode() * 3, lambda: finish(run, attempt, 1, started(run))),
    )
    assert told[-1]["outcome"] == {"type": "success"}


@pytest.mark.parametrize("resumes", [False, True])
def test_m20_a_stream_has_a_size_after_which_it_ends(
    stream, read, run, monkeypatch, resumes
):
    """Nothing says how far a reader is behind, so what is sent at all is bounded."""
    monkeypatch.setattr(streams, "MOST_BYTES", 2000)
    claim(run)
    write(run, 1, 1, started(run), wire.text_start("m"))

    def more(n):
        return lambda: write(run, 1, 3 + n, wire.text_content("m", f"{n}" * 900))

    told = read(
        stream(resumes=resumes),
        ("TEXT_MESSAGE_START", more(0)),
        ("000", more(1)),
        ("111", more(2)),
    )
    went_wrong(told, "too_long", resumes=resumes)
    ends = [e for e in told if e["type"] == "TEXT_MESSAGE_END"]
    assert ends[0]["messageId"] == "m"


def test_m20_a_result_stands_behind_its_call_where_clients_keep_it(stream, read, run):
    """Calls with messages of their own, answered in the other order: a client that has
    heard them keeps its places, and one that comes later has to see the same."""
    attempt = claim(run).attempt
    proposed = [call(call_id=f"c{n}") for n in (1, 2)]
    calls = [
        e for each in proposed for e in wire.tool_call(ToolCallProposed(call=each))
    ]
    results = [
        wire.tool_result(ToolCallResult(call_id=f"c{n}", content="ok")) for n in (2, 1)
    ]
    write(run, attempt, 1, started(run), *calls)
    told = read(stream(), ("c2", lambda: finish(run, attempt, 20, *results)))
    (shown,) = [e["messages"] for e in told if e["type"] == "MESSAGES_SNAPSHOT"][-1:]
    assert [m.get("toolCallId") or m["role"] for m in shown] == [
        "user", "assistant", "c1", "assistant", "c2",
    ]  # fmt: skip


def test_m20_many_events_are_read_in_parts(stream, read, run, monkeypatch):
    monkeypatch.setattr(hearing, "MOST_EVENTS", 3)
    attempt = claim(run).attempt
    words = [wire.text_content("m", f"{n} ") for n in range(20)]
    told = [started(run), wire.text_start("m"), *words, wire.text_end("m")]
    write(run, attempt, 1, *told)
    heard = read(stream(), ("19 ", lambda: finish(run, attempt, 24)))
    texts = [e["delta"] for e in heard if e["type"] == "TEXT_MESSAGE_CONTENT"]
    assert texts == [f"{n} " for n in range(20)]


def went_wrong(told, code, *, resumes):
    """An error; but a page that has answered something needs a run that finishes, or
    its client counts that as open for ever."""
    if not resumes:
        assert (told[-1]["type"], told[-1]["code"]) == ("RUN_ERROR", code)
        return
    assert told[-1]["outcome"] == {"type": "success"}
    (notice,) = [e["value"] for e in told if e["type"] == "CUSTOM"]
    assert notice["code"] == code
    assert notice["message"] in [e.get("delta") for e in told]


@pytest.mark.parametrize("resumes", [False, True])
def test_m20_a_stream_that_breaks_says_so(
    stream, read, run, monkeypatch, caplog, resumes
):
    def broken(*args):
        raise RuntimeError("disk")

    monkeypatch.setattr(streams, "glance", broken)
    told = read(stream(resumes=resumes))
    went_wrong(told, "stream_broke", resumes=resumes)
    assert "disk" not in json.dumps(told)
    assert "A stream of thread" in caplog.text


def doubtful(run, make_interrupts, rita):
    """A worker died inside the tool."""
    (interrupt,) = make_interrupts(1, run=run)
    services.decide(interrupt.pk, ballot(interrupt), reviewer=rita)
    inside = claim(run)
    (answer,) = inside.answers
    services.begin_execution(
        run.pk, attempt=inside.attempt, call=answer.call, owner="worker"
    )
    services.release_run(run.pk, attempt=inside.attempt)
    assert services.claim_run(run.pk, owner="next") is None


@pytest.mark.parametrize(
    ("expects", "resumes"), [(True, False), (True, True), (False, False)]
)
def test_m18_a_run_in_doubt_is_told_as_it_is(
    stream, read, run, make_interrupts, rita, expects, resumes
):
    doubtful(run, make_interrupts, rita)
    told = read(stream(expects=expects, resumes=resumes))
    if expects:
        went_wrong(told, "in_doubt", resumes=resumes)
    else:
        assert told[-1]["outcome"] == {"type": "success"}
        (notice,) = [e for e in told if e["type"] == "CUSTOM"]
        assert notice["value"]["code"] == "in_doubt"


def test_m20_a_held_stream_waits_for_a_run_in_doubt_to_be_settled(
    stream, read, run, make_interrupts, rita, monkeypatch
):
    monkeypatch.setattr(streams, "KEEP_ALIVE", 0.05)
    monkeypatch.setattr(streams, "LOOK_WAITING", 0.05)
    doubtful(run, make_interrupts, rita)

    def settled():
        services.settle_execution(
            run.executions.get().pk, settlement="ran", actor=rita, note="It did."
        )
        attempt = claim(run).attempt
        finish(run, attempt, 1, started(run))

    told = read(stream(hold=True), (frames.KEEP_ALIVE.decode(), settled))
    assert told[-1]["outcome"] == {"type": "success"}


def test_m20_a_reader_who_leaves_leaves_nothing_behind(stream, run):
    claim(run)

    async def go():
        chunks = stream().chunks()
        await anext(chunks)
        await anext(chunks)
        reading = asyncio.ensure_future(anext(chunks))
        await until(lambda: bool(hub._ears))
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        await chunks.aclose()
        assert not hub._ears
        assert f"run.{run.pk}" not in hub._listeners
        assert len(asyncio.all_tasks()) <= 2  # this one, and the hub's

    asyncio.run(go())


# Places and ears


@override_settings(SAYSO_AGUI_STREAMS=2)
def test_m20_a_place_is_given_back_and_one_that_never_began_lapses():
    places = Places()
    first, second = places.take(1), places.take(1)
    with pytest.raises(TooManyStreams):
        places.take(1)
    places.take(2)
    places.give_back(first)
    places.give_back(first)
    third = places.take(1)
    third.begun = True
    second.taken = third.taken = -Places.START
    places.take(1)
    with pytest.raises(TooManyStreams):
        places.take(1)


def test_m20_an_ear_has_room_for_so_much():
    async def go():
        ear = Ear(SimpleNamespace())
        for n in range(2000):
            ear.offer(Message({"op": "delta", "seq": n}))
        heard, look = ear.take()
        assert len(heard) == hearing.MOST_HEARD
        assert heard[-1]["seq"] == 1999
        assert not look
        ear.offer(HELLO)
        await asyncio.wait_for(ear.wait(10), 1)
        assert ear.take() == ([], True)

    asyncio.run(go())


def test_m20_an_ear_hears_its_run_and_hello_and_nothing_else():
    async def go():
        hub.attach()
        mine, other = uuid4(), uuid4()
        ear = Ear(mine)
        hub.hear(ear)
        hub.publish(frozenset({f"run.{other}"}), {"op": "run", "id": str(other)})
        hub.publish(frozenset({f"run.{mine}"}), {"op": "delta", "seq": 1})
        await asyncio.wait_for(ear.wait(10), 1)
        assert ear.take() == ([{"op": "delta", "seq": 1}], False)
        hub.hello()
        await asyncio.wait_for(ear.wait(10), 1)
        assert ear.take() == ([], True)
        hub.unhear(ear)
        hub.publish(frozenset({f"run.{mine}"}), {"op": "run", "id": str(mine)})
        hub.hello()
        await ear.wait(0.1)
        assert ear.take() == ([], False)

    asyncio.run(go())
