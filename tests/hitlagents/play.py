"""An adapter without a framework: it plays given turns, for tests of the runner.

A turn is a list of calls; after the last turn it says "Done." It keeps its place in its
state only, so any process can go on from a checkpoint.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from approvals.schemas import InterruptDraft, ToolCall, ToolSpec
from approvals.states import Verdict
from hitlagents.adapters.base import (
    Finished,
    Host,
    Interrupted,
    Outcome,
    Resume,
    Start,
    State,
    TextDelta,
    ToolCallProposed,
    ToolCallResult,
)
from tests.plugins.cast import TOOLS

FREE = {"list_files", "post_note"}


@dataclass
class Play:
    """``turns``: the calls of each model turn as (tool, arguments)."""

    framework: ClassVar[str] = "test"
    schema: ClassVar[int] = 1
    cancel: ClassVar[Verdict] = Verdict.CANCEL_RUN
    turns: Sequence[Sequence[tuple[str, dict[str, Any]]]]
    version: str = "1"
    model_label: str = "Played"
    tools: Sequence[ToolSpec] = TOOLS
    #: Called instead of a tool's body.
    body: Callable[[str, Mapping[str, Any]], Any] = lambda tool, arguments: f"{tool} ok"
    #: Called before each model turn, with its number.
    model: Callable[[int], None] = lambda turn: None
    heard: list[str] = field(default_factory=list)
    #: The call ids that each resume brought answers for.
    answered: list[list[str]] = field(default_factory=list)

    async def start(self, start: Start, host: Host) -> Outcome:
        self.heard.append(start.message)
        state = {"turn": 0, "memory": (start.state or {}).get("memory", [])}
        state["memory"] = [*state["memory"], start.message]
        return await self._go_on(state, host)

    async def resume(self, resume: Resume, host: Host) -> Outcome:
        self.answered.append([answer.call.call_id for answer in resume.answers])
        state = json.loads(json.dumps(resume.state))
        for stored in state.pop("open"):
            await self._run(ToolCall.model_validate(stored), state, host)
        return await self._go_on(state, host)

    async def _go_on(self, state: State, host: Host) -> Outcome:
        while state["turn"] < len(self.turns):
            state["turn"] += 1
            self.model(state["turn"])
            held = await self._take_turn(state, host)
            if held:
                state["open"] = [call.model_dump(mode="json") for call in held]
                drafts = [InterruptDraft(call=call) for call in held]
                return Interrupted(interrupts=drafts, state=state)
        self.model(state["turn"] + 1)
        message = f"{host.run_id}-{state['turn']}"
        for word in ("Done", "."):
            await host.emit(TextDelta(message_id=message, delta=word))
        return Finished(state=state)

    async def _take_turn(self, state: State, host: Host) -> list[ToolCall]:
        held = []
        for number, (tool, arguments) in enumerate(self.turns[state["turn"] - 1], 1):
            call = ToolCall(
                turn=state["turn"],
                call_id=f"call-{state['turn']}-{number}",
                tool=tool,
                arguments=json.dumps(arguments),
            )
            await host.emit(ToolCallProposed(call=call))
            if tool in FREE:
                await self._run(call, state, host)
            else:
                held.append(call)
        return held

    async def _run(self, call: ToolCall, state: State, host: Host) -> None:
        async def body(arguments: Mapping[str, Any]) -> Any:
            return self.body(call.tool, arguments)

        told = await host.guard(call, body)
        state["memory"] = [*state["memory"], told.text]
        await host.emit(ToolCallResult(call_id=call.call_id, content=told.result))


DELETE = ("delete_file", {"filename": "report.txt"})
