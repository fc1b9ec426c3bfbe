"""The agent *stamps*: says what time it is, so that a reader knows how late a word was."""

from __future__ import annotations

from typing import ClassVar

from approvals.schemas import ToolSpec
from approvals.states import Verdict
from bench.bare import stamps
from hitlagents.adapters.base import (
    AgentSpec,
    Finished,
    Host,
    Outcome,
    Resume,
    Start,
    TextDelta,
)


class Stamps:
    framework: ClassVar[str] = "bench"
    version = "1"
    schema: ClassVar[int] = 1
    cancel: ClassVar[Verdict] = Verdict.CANCEL_RUN
    model_label = "The clock"
    tools: tuple[ToolSpec, ...] = ()

    async def start(self, start: Start, host: Host) -> Outcome:
        async for word in stamps():
            await host.emit(TextDelta(message_id=f"{host.run_id}-time", delta=word))
        return Finished(state={})

    async def resume(self, resume: Resume, host: Host) -> Outcome:
        raise NotImplementedError("It never asks.")


SPEC = AgentSpec(
    slug="stamps",
    name="Stamps",
    framework=Stamps.framework,
    metadata_key="bench",
    description="Says what time it is.",
    distribution="django",
    install="",
    build=lambda gating: Stamps(),
)
