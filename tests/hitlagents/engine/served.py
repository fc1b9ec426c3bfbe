"""`manage.py`, hosting an agent that deletes one file and can be held at a chosen spot.

Run as a program by test_serve.py. The message names the file. While the folder
$SAYSO_PLAY holds a file `hold`, the deletion of `before.txt` stops before the guard,
`inside.txt` inside the body, `blocked.txt` inside it too but on a thread that cannot be
stopped, and `after.txt` once the guard has returned. The file `ran` gets a line for every
body that is entered.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import django
from django.core.management import execute_from_command_line

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "hitlsite.settings")
django.setup()

from approvals.schemas import InterruptDraft, ToolCall, ToolSpec  # noqa: E402
from approvals.states import Verdict  # noqa: E402
from hitlagents import registry  # noqa: E402
from hitlagents.adapters.base import (  # noqa: E402
    Finished,
    Host,
    Interrupted,
    Outcome,
    Resume,
    Start,
)

FOLDER = Path(os.environ["SAYSO_PLAY"])


class OneDeletion:
    framework: ClassVar[str] = "test"
    version = "1"
    schema: ClassVar[int] = 1
    cancel: ClassVar[Verdict] = Verdict.CANCEL_RUN
    model_label = "Played"
    tools: Sequence[ToolSpec] = ()

    async def start(self, start: Start, host: Host) -> Outcome:
        call = ToolCall(
            turn=1,
            call_id="call-1",
            tool="delete_file",
            arguments=json.dumps({"filename": start.message}),
        )
        state = {"call": call.model_dump(mode="json")}
        return Interrupted(interrupts=[InterruptDraft(call=call)], state=state)

    async def resume(self, resume: Resume, host: Host) -> Outcome:
        call = ToolCall.model_validate(resume.state["call"])
        await held_at("before", call)

        async def body(arguments: Mapping[str, Any]) -> str:
            with (FOLDER / "ran").open("a", encoding="utf-8") as ran:
                ran.write(f"{arguments['filename']}\n")
            await held_at("inside", call)
            await asyncio.to_thread(block, call)
            return "gone"

        await host.guard(call, body)
        await held_at("after", call)
        return Finished(state={})


def is_held(spot: str, call: ToolCall) -> bool:
    if f"{spot}.txt" not in call.arguments or not (FOLDER / "hold").exists():
        return False
    (FOLDER / f"at-{spot}").touch()
    return True


async def held_at(spot: str, call: ToolCall) -> None:
    if is_held(spot, call):
        await asyncio.sleep(3600)


def block(call: ToolCall) -> None:
    if is_held("blocked", call):
        time.sleep(3600)


if __name__ == "__main__":
    adapter = OneDeletion()
    registry.adapter_for = lambda slug, allowed: adapter
    execute_from_command_line(["manage.py", *sys.argv[1:]])
