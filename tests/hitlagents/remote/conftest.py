from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

STUB = Path(__file__).with_name("stub.py")


@dataclass
class Remote:
    """A stub server that runs in another process."""

    folder: Path
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/agent"

    def plays(self, *replies: dict[str, Any]) -> None:
        (self.folder / "replies.json").write_text(json.dumps(replies))

    @property
    def requests(self) -> list[dict[str, Any]]:
        path = self.folder / "requests.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return [json.loads(line) for line in lines]

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return [request["body"] for request in self.requests]

    def let(self, name: str) -> None:
        """Let a reply go on that waits for this."""
        (self.folder / name).touch()


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Remote]]:
    """Start a stub server with these replies."""
    started: list[subprocess.Popen[bytes]] = []

    def start(*replies: dict[str, Any]) -> Remote:
        folder = tmp_path / f"stub-{len(started)}"
        folder.mkdir()
        started.append(subprocess.Popen([sys.executable, str(STUB), str(folder)]))
        deadline = time.monotonic() + 20
        while not (folder / "port").exists():
            assert time.monotonic() < deadline, "the stub did not start"
            time.sleep(0.01)
        remote = Remote(folder, int((folder / "port").read_text()))
        remote.plays(*replies)
        return remote

    yield start
    for process in started:
        process.kill()
        process.wait()


def sse(*events: dict[str, Any], **reply: Any) -> dict[str, Any]:
    """A reply that streams these events."""
    return {"parts": [f"data: {json.dumps(event)}\n\n" for event in events], **reply}


def started(**members: Any) -> dict[str, Any]:
    return {"type": "RUN_STARTED", "threadId": "t", "runId": "r", **members}


def finished(*interrupts: dict[str, Any], **members: Any) -> dict[str, Any]:
    event: dict[str, Any] = {"type": "RUN_FINISHED", "threadId": "t", "runId": "r"}
    if interrupts:
        event["outcome"] = {"type": "interrupt", "interrupts": list(interrupts)}
    return event | members


def failed(message: str = "It broke.", **members: Any) -> dict[str, Any]:
    return {"type": "RUN_ERROR", "message": message, **members}


def says(text: str, message_id: str = "m1") -> list[dict[str, Any]]:
    return [
        {"type": "TEXT_MESSAGE_START", "messageId": message_id, "role": "assistant"},
        {"type": "TEXT_MESSAGE_CONTENT", "messageId": message_id, "delta": text},
        {"type": "TEXT_MESSAGE_END", "messageId": message_id},
    ]


def calls(
    tool: str = "delete_file", call_id: str = "call-1", **arguments: Any
) -> list[dict[str, Any]]:
    return [
        {"type": "TOOL_CALL_START", "toolCallId": call_id, "toolCallName": tool},
        {
            "type": "TOOL_CALL_ARGS",
            "toolCallId": call_id,
            "delta": json.dumps(arguments),
        },
        {"type": "TOOL_CALL_END", "toolCallId": call_id},
    ]


def result(content: str, call_id: str = "call-1") -> dict[str, Any]:
    return {
        "type": "TOOL_CALL_RESULT",
        "messageId": f"{call_id}-r",
        "toolCallId": call_id,
        "content": content,
    }


APPROVED = {
    "type": "object",
    "properties": {"approved": {"type": "boolean"}},
    "required": ["approved"],
}


def asks(interrupt_id: str = "i1", call_id: str = "call-1", **members: Any) -> Any:
    """An interrupt as the protocol has it, about a call of the stream."""
    return {
        "id": interrupt_id,
        "reason": "tool_call",
        "message": "Approve running delete_file?",
        "toolCallId": call_id,
        "responseSchema": APPROVED,
        **members,
    }


def pauses(count: int = 1, **members: Any) -> dict[str, Any]:
    """A reply that asks about so many deletions."""
    numbers: Sequence[int] = range(1, count + 1)
    return sse(
        started(),
        *(
            event
            for n in numbers
            for event in calls(call_id=f"call-{n}", filename=f"{n}.txt")
        ),
        finished(*(asks(f"i{n}", f"call-{n}", **members) for n in numbers)),
    )
