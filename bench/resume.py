"""What hosting adds to a framework's own resume, without and with the database.

Three ways to take the same paused run to its end, one after the other in every round so
that the load of the machine falls on all of them alike:

- bare: the framework alone;
- hosted: the adapter, and a host in memory that allows the call;
- runner: the real runner with its lease, guard, ledger, events and stored state, on a
  SQLite file that waits for the disk.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

from bench import report

if TYPE_CHECKING:
    from approvals.schemas import ToolCall
    from bench.frameworks import Framework
    from hitlagents.adapters.base import Adapter, Body, Told

WARM = 5
GOAL_MS = 5.0


class MemoryHost:
    """Allows every call, and keeps nothing."""

    def __init__(self, run_id: UUID) -> None:
        self.run_id = run_id

    async def emit(self, happening: object) -> None:
        pass

    async def guard(self, call: ToolCall, body: Body) -> Told:
        from hitlagents.adapters.base import Told

        return Told(result=str(await body(json.loads(call.arguments))))


def main(rounds: int) -> None:
    with tempfile.TemporaryDirectory(prefix="sayso-bench-") as folder:
        set_up(Path(folder))
        from bench.frameworks import FRAMEWORKS

        desk = Desk()
        for framework in FRAMEWORKS:
            desk.host(framework)
            took = asyncio.run(_measure(framework, desk, rounds))
            report.heading(f"Resume on {framework.name}")
            for way, milliseconds in took.items():
                report.line(way, milliseconds)
            added = _median_difference(took["hosted"], took["bare"])
            print(
                f"hosting adds (median of pairs)  {added:5.1f} ms   goal: {GOAL_MS:.0f}"
            )
            added = _median_difference(took["runner"], took["bare"])
            print(f"all of it adds                  {added:5.1f} ms")
        desk.close()


def set_up(folder: Path) -> None:
    """Make this process one of Sayso, with nothing of this machine's own settings."""
    for name in ("DATABASE_URL", "REDIS_URL", "SAYSO_MODEL", "OPENAI_BASE_URL"):
        os.environ.pop(name, None)
    os.environ["SAYSO_DATA"] = str(folder)
    os.environ["SAYSO_LOG_LEVEL"] = "WARNING"
    os.environ["DJANGO_SETTINGS_MODULE"] = "hitlsite.settings"
    import django

    django.setup()


def _median_difference(more: list[float], less: list[float]) -> float:
    return statistics.median(a - b for a, b in zip(more, less, strict=True))


class Desk:
    """A fresh installation in this process, with a member and a reviewer."""

    def __init__(self) -> None:
        from django.contrib.auth.models import User
        from django.core.management import call_command

        from approvals import services

        call_command("migrate", verbosity=0)
        services.prepare()
        self.member = User.objects.create(username="member")
        self.reviewer = User.objects.create(username="reviewer", is_superuser=True)

    def host(self, framework: Framework) -> None:
        from hitlagents import catalog
        from hitlagents.adapters.base import AgentSpec

        catalog.take(
            AgentSpec(
                slug=framework.slug,
                name=framework.slug,
                framework=framework.name,
                metadata_key="bench",
                description="",
                distribution=framework.distribution,
                install="",
                build=framework.hosted,
            )
        )

    def paused(self, slug: str) -> UUID:
        """A run of the agent that waits for the reviewer."""
        from hitlagents import conversations

        thread = conversations.open_thread(slug, owner=self.member)
        return conversations.send(thread.pk, "Please write", author=self.member).pk

    def approve(self, run_id: UUID) -> None:
        from approvals import services
        from approvals.models import Interrupt
        from approvals.states import Verdict

        asked = Interrupt.objects.get(run=run_id)
        ballot = services.Ballot(
            verdict=Verdict.APPROVE,
            shown=services.shown_digest(asked),
            channel="bench",
        )
        services.decide(asked.pk, ballot, reviewer=self.reviewer)

    def check(self, run_id: UUID) -> None:
        from approvals.models import Run
        from approvals.states import RunStatus

        run = Run.objects.get(pk=run_id)
        assert run.status == RunStatus.FINISHED, run.error

    def close(self) -> None:
        from hitlagents.engine import threads

        threads.close()


async def _measure(
    framework: Framework, desk: Desk, rounds: int
) -> dict[str, list[float]]:
    from bench.frameworks import written
    from hitlagents import runner
    from hitlagents.adapters.base import Gating
    from hitlagents.engine.threads import in_database

    bare, adapter = framework.bare(), framework.hosted(Gating(allowed=frozenset()))
    took: dict[str, list[float]] = {"bare": [], "hosted": [], "runner": []}
    for round in range(WARM + rounds):
        kept = await bare.pause()
        paused = await _pause_hosted(adapter)
        run_id = await in_database(desk.paused, framework.slug)
        await runner.advance(run_id, owner="bench")
        await in_database(desk.approve, run_id)
        before = len(written)
        ways: list[tuple[str, Callable[[], Awaitable[None]]]] = [
            ("bare", partial(bare.resume, kept)),
            ("hosted", partial(_resume_hosted, adapter, *paused)),
            ("runner", partial(runner.advance, run_id, owner="bench")),
        ]
        # Nobody is always the one whose caches the one before has filled.
        for way, resume in ways[round % 3 :] + ways[: round % 3]:
            began = time.perf_counter()
            await resume()
            spent = (time.perf_counter() - began) * 1000
            if round >= WARM:
                took[way].append(spent)
        assert len(written) == before + 3, "A tool did not run."
        await in_database(desk.check, run_id)
    return took


async def _pause_hosted(adapter: Adapter) -> tuple[str, UUID, UUID, Any]:
    from hitlagents.adapters.base import Interrupted, Start

    run_id, thread_id = uuid4(), uuid4()
    start = Start(
        run_id=run_id, thread_id=thread_id, message="Please write", state=None
    )
    outcome = await adapter.start(start, MemoryHost(run_id))
    assert isinstance(outcome, Interrupted)
    return json.dumps(outcome.state), run_id, thread_id, outcome.interrupts[0].call


async def _resume_hosted(
    adapter: Adapter, kept: str, run_id: UUID, thread_id: UUID, call: ToolCall
) -> None:
    from approvals.schemas import Answer
    from approvals.states import Verdict
    from hitlagents.adapters.base import Finished, Resume

    answer = Answer(interrupt_id=uuid4(), call=call, verdict=Verdict.APPROVE)
    resume = Resume(
        run_id=run_id, thread_id=thread_id, state=json.loads(kept), answers=[answer]
    )
    outcome = await adapter.resume(resume, MemoryHost(run_id))
    assert isinstance(outcome, Finished)
    json.dumps(outcome.state)
