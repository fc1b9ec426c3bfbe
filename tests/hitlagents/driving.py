"""Driving a hosted agent in a test: rules for it, advancing its run, deciding in between."""

from __future__ import annotations

from asgiref.sync import async_to_sync

from approvals import services
from approvals.models import Policy
from approvals.states import Gate, Verdict
from hitlagents import events, runner
from tests.plugins.cast import OPS, ballot


def rules(agent: str, *allowed: str) -> None:
    for position, pattern in enumerate([*allowed, "*"], 10):
        policy = Policy.objects.create(
            position=position,
            name=f"{agent} {pattern}",
            agent_pattern=agent,
            tool_pattern=pattern,
            gate=Gate.HOLD if pattern == "*" else Gate.ALLOW,
        )
        policy.groups.add(services.make_group(OPS))


def advance(run):
    async_to_sync(runner.advance)(run.pk, owner="worker")
    run.refresh_from_db()
    return run


def decide(run, reviewer, *verdicts):
    """Decide what is open, in the order of the calls, and let the run go on."""
    calls = [
        members["toolCallId"]
        for event, members in events.shown(run)
        if event.type == "TOOL_CALL_START"
    ]
    waiting = sorted(run.interrupts.open(), key=lambda i: calls.index(i.call_id))
    for interrupt, (verdict, fields) in zip(waiting, verdicts, strict=True):
        services.decide(
            interrupt.pk, ballot(interrupt, verdict, **fields), reviewer=reviewer
        )
    return advance(run)


def yes(**fields):
    return Verdict.APPROVE, fields


def results(run):
    return [
        members["content"]
        for event, members in events.shown(run)
        if event.type == "TOOL_CALL_RESULT"
    ]
