"""What the peers share: one free port of the loopback, and files for a test to read.

A peer is a server of somebody else's, run as a program in a process of its own:
``python SERVER.py FOLDER [PORT]``. In the folder it writes ``port`` once it serves,
``ran.jsonl`` for every tool that ran, and ``told.jsonl`` for what its model was given.
While a file ``hold`` is there, no tool comes to its end.
"""

from __future__ import annotations

import json
import re
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

FOLDER = Path(sys.argv[1]) if len(sys.argv) > 1 else Path()

#: A call that a person's message asks for, such as "delete a.txt".
_ASKED = re.compile(r"delete (\S+)|list")


def note(name: str, line: Any) -> None:
    """Add a line to a file of the folder."""
    with (FOLDER / f"{name}.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def run(tool: str, **arguments: Any) -> str:
    """The body of every tool: it leaves a trace that outlives the process."""
    note("ran", [tool, arguments])
    while (FOLDER / "hold").exists():
        time.sleep(0.02)
    said = ", ".join(str(value) for value in arguments.values()) or "everything"
    return f"{tool} did {said}."


def asked(message: str) -> list[tuple[str, dict[str, Any]]]:
    """The calls a model makes of a person's message; what it does not know is talk."""
    return [
        ("delete_file", {"filename": name}) if name else ("list_files", {})
        for name in _ASKED.findall(message)
    ]


def reply(results: Sequence[str]) -> str:
    """What a model says in the end."""
    return "I was told: " + " | ".join(results) if results else "Hello."


def serve(app: Any) -> None:
    """Serve an ASGI application until the process is killed."""
    import uvicorn

    listening = socket.create_server(("127.0.0.1", port()), reuse_port=False)
    announce(listening.getsockname()[1])
    config = uvicorn.Config(app, log_level="warning", lifespan="off", access_log=False)
    uvicorn.Server(config).run(sockets=[listening])


def port() -> int:
    """The one a peer had before it was killed, or any."""
    return int(sys.argv[2]) if len(sys.argv) > 2 else 0


def announce(number: int) -> None:
    written = FOLDER / "port.new"
    written.write_text(str(number))
    written.rename(FOLDER / "port")
