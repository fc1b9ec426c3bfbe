"""`manage.py` hosting the agent *clerk*, which does what the message says.

Run as a program by the tests of this folder. Messages:

- ``delete a.txt b.txt``  one gated call for each file, in one turn
- ``pay 5``               a gated call with a secret
- ``book``                a gated call whose approval takes a time
- ``ask``                 a question with a schema
- ``stumble a.txt``       a gated call, behind which the run fails
- ``again a.txt b.txt``   one gated call after the other
- ``pick red``            a call of the tool ``pick_colour`` that the page brought
- ``both a.txt``          that and a gated call, in one turn
- ``talk 20``             so many words, slowly
- ``wait``                says something, then waits for the file ``go``
- ``fail``                fails
- anything else is said back

The folder $SAYSO_PLAY gets a line in ``ran`` for every body that is entered, one in
``heard`` for every message that reaches the model, and one in ``brought`` for every start
and resume with tools of the page.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import django
from django.core.management import execute_from_command_line

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "hitlsite.settings")
django.setup()

from approvals.schemas import InterruptDraft, ToolCall, ToolSpec  # noqa: E402
from approvals.states import InterruptKind, Verdict  # noqa: E402
from hitlagents import catalog  # noqa: E402
from hitlagents.adapters.base import (  # noqa: E402
    ANSWER,
    Adapter,
    AgentRunError,
    AgentSpec,
    Finished,
    Gating,
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
from tests.plugins.cast import AGENT, TOOLS  # noqa: E402

FOLDER = Path(os.environ.get("SAYSO_PLAY", "/nonexistent"))

VERDICTS = (
    Verdict.APPROVE,
    Verdict.DENY,
    Verdict.RESPOND,
    Verdict.CANCEL_CALL,
    Verdict.CANCEL_RUN,
)
TIME = {
    "type": "object",
    "properties": {
        "approved": {"type": "boolean"},
        "chosen_time": {"type": "string", "minLength": 3},
    },
    "required": ["approved"],
}
COLOUR = {
    "type": "object",
    "properties": {"colour": {"enum": ["red", "blue"]}},
    "required": ["colour"],
}


class Clerk:
    framework: ClassVar[str] = "test"
    version = "1"
    schema: ClassVar[int] = 1
    cancel: ClassVar[Verdict] = Verdict.CANCEL_RUN
    model_label = "Played"
    tools: Sequence[ToolSpec] = TOOLS

    async def start(self, start: Start, host: Host) -> Outcome:
        note("heard", start.message)
        note_tools(start)
        word, _, rest = start.message.partition(" ")
        match word:
            case "delete":
                await self.say(host, "Let me see. ", "I delete.")
                names = rest.split()
                calls = [self.deletion(host, n, f) for n, f in enumerate(names)]
                return await self.pause(host, calls, {})
            case "again":
                first, *others = rest.split()
                return await self.pause(
                    host, [self.deletion(host, 0, first)], {"others": others}
                )
            case "stumble":
                call = self.deletion(host, 0, rest)
                return await self.pause(host, [call], {"stumbles": True})
            case "pay":
                paid = {"amount": int(rest), "account": "DE02", "pin": "pin-4711"}
                return await self.pause(host, [self.call(host, 0, "pay", paid)], {})
            case "book":
                call = self.call(host, 0, "delete_file", {"filename": "booked"})
                return await self.pause(host, [call], {}, schema=TIME)
            case "pick":
                call = self.call(host, 0, "pick_colour", {"shade": rest})
                return await self.pause(host, [call], {})
            case "both":
                pick = self.call(host, 0, "pick_colour", {"shade": "red"})
                return await self.pause(host, [pick, self.deletion(host, 1, rest)], {})
            case "ask":
                call = self.call(host, 0, "colour", {})
                return await self.pause(host, [call], {}, schema=COLOUR)
            case "talk":
                for n in range(int(rest)):
                    await self.say(host, f"word {n} ", message="talk")
                    await asyncio.sleep(0.02)
            case "wait":
                await self.say(host, "One moment. ")
                await asyncio.to_thread(wait_for, FOLDER / "go")
                await self.say(host, "Here.", message="there")
            case "fail":
                await self.say(host, "Hm")
                raise AgentRunError("The model is out.", retryable=True)
            case _:
                await self.say(host, f"You said: {start.message}")
        return Finished(state={})

    async def resume(self, resume: Resume, host: Host) -> Outcome:
        note_tools(resume)
        for answer in resume.answers:
            call = answer.call
            if call.tool == "colour":
                told = f"The answer is {json.dumps(answer.answer)}."
            else:
                told = (await host.guard(call, body(call))).result
            await host.emit(ToolCallResult(call_id=call.call_id, content=told))
        if resume.state.get("stumbles"):
            raise AgentRunError("The model is out.", retryable=True)
        others = resume.state.get("others")
        if others:
            call = self.deletion(host, 100 - len(others), others[0], turn=2)
            return await self.pause(host, [call], {"others": others[1:]})
        await self.say(host, "Done", ".", message="end")
        return Finished(state={})

    async def pause(
        self,
        host: Host,
        calls: Sequence[ToolCall],
        state: State,
        *,
        schema: dict[str, Any] | None = None,
    ) -> Outcome:
        drafts = []
        for call in calls:
            await host.emit(ToolCallProposed(call=call))
            question = call.tool == "colour"
            drafts.append(
                InterruptDraft(
                    call=call,
                    kind=InterruptKind.QUESTION if question else InterruptKind.APPROVAL,
                    reason="input_required" if question else "tool_call",
                    response_schema=schema,
                    verdicts=(
                        (Verdict.ANSWER, Verdict.CANCEL_RUN) if question else VERDICTS
                    ),
                )
            )
        return Interrupted(interrupts=drafts, state=state)

    async def say(self, host: Host, *words: str, message: str = "start") -> None:
        for word in words:
            await host.emit(
                TextDelta(message_id=f"{host.run_id}-{message}", delta=word)
            )

    def deletion(
        self, host: Host, number: int, filename: str, turn: int = 1
    ) -> ToolCall:
        arguments = {"filename": filename}
        return self.call(host, number, "delete_file", arguments, turn)

    def call(
        self, host: Host, number: int, tool: str, given: dict[str, Any], turn: int = 1
    ) -> ToolCall:
        return ToolCall(
            turn=turn,
            call_id=f"call-{host.run_id}-{number}",
            tool=tool,
            arguments=json.dumps(given),
        )


def note_tools(work: Start | Resume) -> None:
    if work.client_tools:
        note("brought", " ".join(tool.name for tool in work.client_tools))


def body(call: ToolCall) -> Any:
    async def run(arguments: Mapping[str, Any]) -> str:
        what = json.dumps([call.tool, dict(arguments), ANSWER.get()])
        note("ran", what)
        return f"{call.tool} ran with {json.dumps(dict(arguments))}"

    return run


def wait_for(file: Path) -> None:
    until = time.monotonic() + 60
    while not file.exists() and time.monotonic() < until:
        time.sleep(0.02)


def note(file: str, line: str) -> None:
    with (FOLDER / file).open("a", encoding="utf-8") as noted:
        noted.write(f"{line}\n")


def broken(gating: Gating) -> Adapter:
    raise AgentRunError("The model is set up wrong.", retryable=True)


def spec(slug: str, build: Callable[[Gating], Adapter]) -> AgentSpec:
    return AgentSpec(
        slug=slug,
        name=slug.title(),
        framework="test",
        metadata_key="agent_framework",
        description="Does what it is told.",
        distribution="django",
        install="",
        build=build,
    )


if __name__ == "__main__":
    adapter = Clerk()
    catalog.take(spec(AGENT, lambda gating: adapter))
    catalog.take(spec("broken", broken))
    execute_from_command_line(["manage.py", *sys.argv[1:]])
