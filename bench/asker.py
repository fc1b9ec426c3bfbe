"""An agent without a framework: what is measured with it is the desk alone.

It asks at once for as many calls as its message says, and ends when they are decided. The
product takes it by ``SAYSO_AGENTS=bench.asker``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from approvals.schemas import InterruptDraft, ToolCall, ToolSpec
from approvals.states import Verdict
from hitlagents.adapters.base import (
    AgentSpec,
    Finished,
    Gating,
    Host,
    Interrupted,
    Outcome,
    Resume,
    Start,
    ToolCallProposed,
)

TOOL = ToolSpec(
    name="delete_file",
    description="Delete a file.",
    parameters={
        "type": "object",
        "properties": {"path": {"type": "string"}},
        "required": ["path"],
        "additionalProperties": False,
    },
)


class Asker:
    framework: ClassVar[str] = "none"
    version = "1"
    schema: ClassVar[int] = 1
    model_label = "No model"
    cancel: ClassVar[Verdict] = Verdict.CANCEL_RUN

    def __init__(self, gating: Gating) -> None:
        """Everything is held, whatever the policies of the moment are."""

    @property
    def tools(self) -> Sequence[ToolSpec]:
        return [TOOL]

    async def start(self, start: Start, host: Host) -> Outcome:
        """``start.message`` is the number of calls."""
        drafts = []
        for number in range(int(start.message)):
            call = ToolCall(
                turn=1,
                call_id=f"call-{number}",
                tool=TOOL.name,
                arguments=f'{{"path": "f{number}.txt"}}',
            )
            await host.emit(ToolCallProposed(call=call, message_id=str(start.run_id)))
            drafts.append(InterruptDraft(call=call))
        return Interrupted(interrupts=drafts, state={})

    async def resume(self, resume: Resume, host: Host) -> Outcome:
        return Finished(state={})


SPEC = AgentSpec(
    slug="asker",
    name="Asker",
    framework=Asker.framework,
    metadata_key="asker",
    description="Asks, and does nothing.",
    distribution="django",
    install="",
    build=Asker,
)
