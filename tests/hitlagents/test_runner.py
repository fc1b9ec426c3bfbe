from __future__ import annotations

import asyncio
import json
from datetime import timedelta

import pytest
from asgiref.sync import async_to_sync
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from approvals import services
from approvals.models import AuditEntry, Interrupt, Policy, Run, ToolExecution
from approvals.states import ExecutionStatus, RunStatus, Verdict
from hitlagents import conversations, events, registry, runner
from hitlagents.adapters.base import AgentRunError
from hitlagents.models import Checkpoint, QueuedMessage, RunEvent, Thread
from hitlagents.toolcall import ToolError
from tests.hitlagents.play import DELETE, Play
from tests.plugins.cast import AGENT, ballot

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def play(monkeypatch):
    """Host a played agent; gives the function that sets what it plays."""

    def host(*turns, **options):
        adapter = Play(turns, **options)
        monkeypatch.setattr(registry, "adapter_for", lambda slug, allowed: adapter)
        return adapter

    return host


@pytest.fixture
def thread(mia):
    return Thread.objects.create(agent=AGENT, owner=mia)


@pytest.fixture
def say(thread, mia):
    return lambda text="Please delete report.txt": conversations.send(
        thread.pk, text, author=mia
    )


def advance(run, owner="worker"):
    async_to_sync(runner.advance)(run.pk, owner=owner)
    run.refresh_from_db()
    return run


def decide(run, reviewer, verdict=Verdict.APPROVE, **fields):
    for interrupt in run.interrupts.open():
        services.decide(
            interrupt.pk, ballot(interrupt, verdict, **fields), reviewer=reviewer
        )


def types(run):
    return [event.type for event, _ in events.shown(run)]


def results(run):
    return [
        members["content"]
        for event, members in events.shown(run)
        if event.type == "TOOL_CALL_RESULT"
    ]


def test_m1_a_gated_call_waits_and_runs_once_after_approval(play, say, rita):
    ran = []
    play([DELETE], body=lambda tool, arguments: ran.append(arguments) or "gone")
    run = advance(say())
    assert run.status == RunStatus.WAITING
    assert ran == []
    assert types(run) == [
        "RUN_STARTED",
        "TOOL_CALL_START",
        "TOOL_CALL_ARGS",
        "TOOL_CALL_END",
        "RUN_FINISHED",
    ]

    decide(run, rita)
    run = advance(run)
    assert run.status == RunStatus.FINISHED
    assert ran == [{"filename": "report.txt"}]
    assert results(run) == ["gone"]
    assert advance(run).attempt == run.attempt  # nothing left to do


def test_m15_the_model_reads_what_a_reviewer_changed_and_the_page_the_result(
    play, say, rita
):
    play([DELETE], body=lambda tool, arguments: f"deleted {arguments['filename']}")
    run = advance(say())
    decide(run, rita, arguments={"filename": "old.txt"})
    run = advance(run)
    assert run.status == RunStatus.FINISHED
    assert results(run) == ["deleted old.txt"]
    assert ToolExecution.objects.get().result == "deleted old.txt"
    [*_, told] = json.loads(Checkpoint.objects.get(run=run).state)["memory"]
    assert told.startswith("deleted old.txt\n\nA reviewer changed the arguments")
    assert '(was "report.txt", now "old.txt")' in told


def test_m3_a_denial_goes_on_without_the_body(play, say, rita):
    ran = []
    play([DELETE], body=lambda *a: ran.append(a))
    run = advance(say())
    decide(run, rita, Verdict.DENY, note="Keep it.")
    run = advance(run)
    assert run.status == RunStatus.FINISHED
    assert ran == []
    assert results(run) == ["Not executed: a reviewer denied this call. Keep it."]


def test_k70_a_second_pause_of_a_run_is_a_request_of_its_own(play, say, rita):
    """B158: and waits for a decision of its own."""
    adapter = play([DELETE], [DELETE])
    run = advance(say())
    decide(run, rita)
    run = advance(run)
    assert run.status == RunStatus.WAITING
    assert run.interrupts.open().count() == 1
    decide(run, rita)
    assert advance(run).status == RunStatus.FINISHED
    # Each resume brings the answers of its own pause.
    assert adapter.answered == [["call-1-1"], ["call-2-1"]]
    assert ToolExecution.objects.filter(status="done").count() == 2


def test_b08_a_model_that_fails_after_the_tool_is_retried_without_it(play, say, rita):
    ran, down = [], [True]

    def model(turn):
        if turn == 2 and down:
            raise AgentRunError("The model did not answer (503).", retryable=True)

    play([DELETE], body=lambda *a: ran.append(a) or "gone", model=model)
    run = advance(say())
    decide(run, rita)
    run = advance(run)
    assert run.status == RunStatus.FAILED
    assert run.retryable
    assert run.error == "The model did not answer (503)."
    assert types(run)[-1] == "RUN_ERROR"
    assert ToolExecution.objects.get().status == ExecutionStatus.DONE

    down.clear()
    services.retry_run(run.pk, actor=rita)
    run = advance(run)
    assert run.status == RunStatus.FINISHED
    assert len(ran) == 1
    assert results(run) == ["gone"]  # of the attempt that counts, and only once


@pytest.mark.parametrize("damage", ["delete", "garble", "newer", "other framework"])
def test_b10_a_damaged_state_fails_in_words_and_runs_nothing(play, say, rita, damage):
    ran = []
    play([DELETE], body=lambda *a: ran.append(a))
    run = advance(say())
    saved = Checkpoint.objects.filter(run=run)
    match damage:
        case "delete":
            saved.delete()
        case "garble":
            saved.update(state="{not json")
        case "newer":
            saved.update(schema=99)
        case _:
            saved.update(framework="other")
    decide(run, rita)
    run = advance(run)
    assert run.status == RunStatus.FAILED
    assert not run.retryable
    assert "state" in run.error
    assert ran == []


def test_b10_the_reviewer_reads_why_and_nothing_else_is_held_up(
    play, say, make_run, make_interrupts, mia, rita
):
    play([DELETE])
    run = advance(say())
    (other,) = make_interrupts(1)
    Checkpoint.objects.filter(run=run).update(state="{not json")
    client = Client()
    client.force_login(rita)
    asked = run.interrupts.get()
    sent = {"confirmed": "approve", "shown": services.shown_digest(asked)}
    decided = client.post(reverse("decide", args=[asked.pk]), sent, follow=True)
    assert decided.status_code == 200
    run = advance(run)
    told = {
        reverse("interrupt", args=[asked.pk]): "The run did not take it.",
        reverse("run", args=[run.pk]): "The saved state of this run is damaged.",
    }
    for address, words in told.items():
        page = client.get(address)
        assert page.status_code == 200
        assert words in page.content.decode()
    # Whoever waits for it can go on, and the other request is as it was.
    kept = say("Never mind.")
    assert isinstance(kept, Run)
    other.refresh_from_db()
    assert other.is_open


def test_b10_a_request_of_a_damaged_run_can_still_be_cancelled(play, say, rita):
    play([DELETE])
    run = advance(say())
    Checkpoint.objects.filter(run=run).delete()
    decide(run, rita, Verdict.CANCEL_RUN)
    run = advance(run)
    assert run.status == RunStatus.CANCELLED
    assert not run.interrupts.open().exists()


def test_b20_equal_call_ids_of_two_runs_stay_apart(play, say, rita, mia):
    """The adapter names its calls alike in every run; the desk does not."""
    ran = []
    play([DELETE], body=lambda *a: ran.append(a) or "gone")
    first = advance(say())
    elsewhere = Thread.objects.create(agent=AGENT, owner=mia)
    other = advance(conversations.send(elsewhere.pk, "Again.", author=mia))
    mine, theirs = first.interrupts.get(), other.interrupts.get()
    assert mine.call_id == theirs.call_id
    assert mine.pk != theirs.pk
    decide(first, rita)
    assert advance(first).status == RunStatus.FINISHED
    assert advance(other).status == RunStatus.WAITING
    assert theirs.pk == other.interrupts.open().get().pk
    assert len(ran) == 1


def test_b95_a_pause_that_is_told_twice_is_one_request(play, say, rita):
    """The worker dies after the pause was stored, and the next one comes to it again."""
    ran = []
    play([DELETE], body=lambda *a: ran.append(a) or "gone")
    run = advance(say())
    asked = run.interrupts.get()
    # Its own state is lost, so the model proposes the same call under the same id.
    Run.objects.filter(pk=run.pk).update(status=RunStatus.QUEUED, saved_attempt=0)
    run = advance(run)
    assert (run.status, run.attempt) == (RunStatus.WAITING, 2)
    assert run.interrupts.get() == asked
    decide(run, rita)
    assert advance(run).status == RunStatus.FINISHED
    assert len(ran) == 1


def strictly(text):
    def refuse(constant):
        raise AssertionError(constant)

    return json.loads(text, parse_constant=refuse)


def test_b48_a_result_that_json_cannot_hold_breaks_no_page(play, say, rita, aud, mia):
    play([DELETE], body=lambda *_: {"share": float("nan")})
    run = advance(say())
    decide(run, rita)
    run = advance(run)
    assert run.status == RunStatus.FINISHED, run.error
    entry = AuditEntry.objects.get(action="execution.done")
    pages = [
        (rita, reverse("run", args=[run.pk])),
        (mia, reverse("run-events", args=[run.pk])),
        (mia, reverse("thread", args=["file-ops", run.thread])),
        (aud, reverse("audit-entry", args=[entry.number])),
    ]
    Thread.objects.filter(pk=run.thread).update(agent="file-ops")
    Run.objects.filter(pk=run.pk).update(agent="file-ops")
    for person, address in pages:
        client = Client()
        client.force_login(person)
        assert client.get(address).status_code == 200, address
    for person, name, args in (
        (mia, "run-events-download", [run.pk]),
        (aud, "audit-export", []),
    ):
        client = Client()
        client.force_login(person)
        stream = client.get(reverse(name, args=args)).streaming_content
        for line in b"".join(stream).decode().splitlines():
            strictly(line)


def test_a_tool_that_raises_is_told_to_the_model_and_the_run_goes_on(play, say, rita):
    def body(*_):
        raise OSError("disk full")

    play([DELETE], body=body)
    run = advance(say())
    decide(run, rita)
    run = advance(run)
    assert run.status == RunStatus.FINISHED
    assert results(run) == ["Error: delete_file failed. OSError: disk full"]
    assert ToolExecution.objects.get().status == ExecutionStatus.FAILED


def test_a_tool_that_says_why_it_did_nothing_has_failed(play, say, rita):
    def body(*_):
        raise ToolError("There is no file “report.txt”.")

    play([DELETE], body=body)
    run = advance(say())
    decide(run, rita)
    run = advance(run)
    assert results(run) == ["Error: There is no file “report.txt”."]
    assert ToolExecution.objects.get().status == ExecutionStatus.FAILED


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"a": 1}, '{"a":1}'),
        (None, "null"),
        (float("nan"), '"nan"'),
        ({"x": float("inf")}, "\"{'x': inf}\""),
        (object, "\"<class 'object'>\""),
        ("a\0b", "a␀b"),
        ("half \ud83d", "half \\ud83d"),
    ],
)
def test_b48_any_result_becomes_text(value, text):
    assert runner.as_text(value) == text


def test_an_unexpected_error_fails_the_run_and_can_be_retried(play, say):
    def model(turn):
        raise ZeroDivisionError

    play([DELETE], model=model)
    run = advance(say())
    assert run.status == RunStatus.FAILED
    assert run.retryable
    assert "ZeroDivisionError" in run.error


def test_an_agent_that_is_gone_fails_in_words(say, monkeypatch):
    run = say()
    run = advance(run)
    assert run.status == RunStatus.FAILED
    assert AGENT in run.error


@pytest.mark.parametrize("cut", range(1, 6))
def test_b11_every_step_survives_the_end_of_its_process(play, say, rita, cut):
    """Forget the adapter and the worker after each step; only rows go on."""
    ran = []
    turns = [[("list_files", {}), DELETE], [DELETE]]

    def body(tool, arguments):
        ran.append(tool)
        return "ok"

    def fresh():
        play(*turns, body=body)

    fresh()
    run = say()
    steps = [
        lambda: advance(run),
        lambda: decide(run, rita),
        lambda: advance(run),
        lambda: decide(run, rita),
        lambda: advance(run),
    ]
    for number, step in enumerate(steps, 1):
        step()
        if number == cut:
            fresh()
            run = Run.objects.get(pk=run.pk)
    run.refresh_from_db()
    assert run.status == RunStatus.FINISHED
    assert ran == ["list_files", "delete_file", "delete_file"]


def test_a_cancelled_worker_gives_the_run_back(play, say):
    entered = asyncio.Event()

    async def cut_off(run):
        adapter = registry.adapter_for(AGENT, frozenset())

        async def hang(start, host):
            entered.set()
            await asyncio.sleep(60)

        adapter.start = hang
        task = asyncio.create_task(runner.advance(run.pk, owner="w"))
        await entered.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    play([DELETE])
    run = say()
    async_to_sync(cut_off)(run)
    run.refresh_from_db()
    assert run.status == RunStatus.RUNNING
    assert run.lease_until <= timezone.now()
    play([DELETE])
    assert advance(run).status == RunStatus.WAITING


def test_cancelling_a_run_that_works_stops_its_worker(play, say, mia, monkeypatch):
    monkeypatch.setattr(runner, "RENEW_EVERY", 0.05)
    play([DELETE])
    run = say()

    async def cancel_meanwhile():
        adapter = registry.adapter_for(AGENT, frozenset())
        entered = asyncio.Event()

        async def hang(start, host):
            entered.set()
            await asyncio.sleep(60)

        adapter.start = hang
        task = asyncio.create_task(runner.advance(run.pk, owner="w"))
        await entered.wait()
        await runner.in_database(services.cancel_run, run.pk, actor=mia)
        await asyncio.wait_for(task, 5)

    async_to_sync(cancel_meanwhile)()
    run.refresh_from_db()
    assert run.status == RunStatus.CANCELLED


def test_a_body_goes_on_when_its_run_is_cancelled_and_its_result_is_kept(
    play, say, mia, rita, monkeypatch
):
    monkeypatch.setattr(runner, "RENEW_EVERY", 0.05)
    play([DELETE])
    run = advance(say())
    decide(run, rita)

    async def cancel_inside():
        adapter = registry.adapter_for(AGENT, frozenset())
        entered, leave = asyncio.Event(), asyncio.Event()

        async def run_slowly(call, state, host):
            async def body(arguments):
                entered.set()
                await leave.wait()
                return "gone"

            await host.guard(call, body)

        adapter._run = run_slowly
        task = asyncio.create_task(runner.advance(run.pk, owner="w"))
        await entered.wait()
        await runner.in_database(services.cancel_run, run.pk, actor=mia)
        await asyncio.wait_for(task, 5)
        leave.set()
        await asyncio.gather(*runner._bodies)

    async_to_sync(cancel_inside)()
    execution = ToolExecution.objects.get()
    assert execution.status == ExecutionStatus.DONE
    assert execution.result == "gone"
    run.refresh_from_db()
    assert run.status == RunStatus.CANCELLED


def test_m9_a_message_while_it_waits_is_kept_and_starts_the_next_run(
    play, say, rita, thread
):
    """B140: it is no answer, and it is not lost."""
    adapter = play([DELETE])
    run = advance(say())
    kept = say("And then tell me a joke.")
    assert isinstance(kept, QueuedMessage)
    run.refresh_from_db()
    assert run.status == RunStatus.WAITING

    decide(run, rita)
    advance(run)
    following = Run.objects.exclude(pk=run.pk).get()
    assert following.status == RunStatus.QUEUED
    assert not thread.queued.exists()
    advance(following)
    assert adapter.heard[-1] == "And then tell me a joke."
    state = Checkpoint.objects.get(run=following).state
    assert "delete_file ok" in state  # the thread remembers the run before


def test_a_queued_message_follows_a_cancelled_run(play, say, mia):
    play([DELETE])
    run = advance(say())
    say("Never mind, list the files.")
    services.cancel_run(run.pk, actor=mia)
    assert Run.objects.filter(status=RunStatus.QUEUED).count() == 1


def test_a_policy_made_stricter_inside_the_window_asks_anew(play, say, rita, ravi):
    """B147: after the decision and before the tool."""
    ran = []
    play([DELETE], body=lambda *a: ran.append(a))
    run = advance(say())
    decide(run, rita)
    claim = services.claim_run(run.pk, owner="w")
    Run.objects.filter(pk=run.pk).update(
        lease_until=timezone.now() - timedelta(seconds=1)
    )
    Policy.objects.filter(name="Destructive file tools").update(approvals_required=2)
    assert claim is not None
    run = advance(run)
    assert run.status == RunStatus.WAITING
    assert ran == []
    decide(run, rita)
    decide(run, ravi)
    assert advance(run).status == RunStatus.FINISHED
    assert len(ran) == 1


def test_events_are_numbered_without_gaps(play, say, rita):
    play([("list_files", {}), DELETE])
    run = advance(say())
    decide(run, rita)
    advance(run)
    numbers = list(RunEvent.objects.filter(run=run).values_list("seq", flat=True))
    assert numbers == sorted(set(numbers))
    text = [m for e, m in events.shown(run) if e.type == "TEXT_MESSAGE_CONTENT"]
    assert "".join(members["delta"] for members in text) == "Done."


def test_m2_the_interrupt_on_the_wire(play, say):
    play([DELETE])
    run = advance(say())
    finished = events.shown(run)[-1][1]
    (shape,) = finished["outcome"]["interrupts"]
    interrupt = Interrupt.objects.get()
    assert shape["id"] == str(interrupt.pk)
    assert shape["reason"] == "tool_call"
    assert shape["message"] == "Approve running delete_file?"
    started = [m for e, m in events.shown(run) if e.type == "TOOL_CALL_START"]
    assert shape["toolCallId"] == started[0]["toolCallId"]
    assert shape["responseSchema"]["properties"]["approved"]["type"] == "boolean"


def test_an_agent_whose_code_exits_while_it_is_made_fails_its_run(monkeypatch, say):
    def leave(slug, allowed):
        raise SystemExit("as the test wants it")

    monkeypatch.setattr(registry, "adapter_for", leave)
    run = advance(say())
    assert run.status == RunStatus.FAILED
    assert run.lease_until is None
