"""Pages that use the real JavaScript client, as Python tests see them."""

from __future__ import annotations

import json
import queue
import subprocess
import threading
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

from tests.hitlagents.agui import rules

FOLDER = Path(__file__).parent
#: Seconds anything may take on a busy machine.
PATIENCE = 60.0


@dataclass
class Seen:
    """What a page was told of one run, and what its client has afterwards."""

    events: list[dict[str, Any]]
    #: What the client threw.
    failed: str | None
    messages: list[dict[str, Any]]
    #: The interrupts it considers open.
    pending: list[dict[str, Any]]

    @property
    def outcome(self) -> str:
        assert self.failed is None, self.failed
        return str(self.events[-1].get("outcome", self.events[-1])["type"])

    @property
    def notices(self) -> list[str]:
        return [e["value"]["code"] for e in self.of("CUSTOM") if "code" in e["value"]]

    @property
    def text(self) -> str:
        return "".join(event["delta"] for event in self.of("TEXT_MESSAGE_CONTENT"))

    @property
    def conversation(self) -> list[tuple[Any, ...]]:
        """Its messages, as far as they can be compared."""
        return [
            (
                message["id"],
                message["role"],
                message.get("content") or "",
                tuple(call["id"] for call in message.get("toolCalls", ())),
            )
            for message in self.messages
        ]

    def of(self, type: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["type"] == type]


class Client:
    """One version of the client in a Node.js process, for any number of pages."""

    def __init__(self, node: str, package: str) -> None:
        #: What it found odd about a stream.
        self.complaints: list[str] = []
        self._heard: dict[str, queue.SimpleQueue[dict[str, Any]]] = defaultdict(
            queue.SimpleQueue
        )
        self._process = subprocess.Popen(
            [node, "driver.js", package],
            cwd=FOLDER,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        threading.Thread(target=self._read, daemon=True).start()

    def tell(self, page: str, **command: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"page": page, **command}) + "\n")
        self._process.stdin.flush()

    def hear(self, page: str) -> dict[str, Any]:
        """The next line about this page."""
        return self._heard[page].get(timeout=PATIENCE)

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for text in self._process.stdout:
            line = json.loads(text)
            if "complaint" in line:
                self.complaints.append(line["complaint"])
            else:
                self._heard[line["page"]].put(line)


@dataclass
class ClientPage:
    """A page of a person. What it sends is the client's own doing."""

    client: Client
    url: str
    secret: str
    thread: str = field(default_factory=lambda: str(uuid4()))
    headers: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.reload()

    def reload(self, path: str = "") -> None:
        """Another client object, which knows the thread's id and nothing else."""
        self._name = str(uuid4())
        token = {"Authorization": f"Bearer {self.secret}"} if self.secret else {}
        headers = {**token, **self.headers}
        load = {"url": self.url + path, "headers": headers, "threadId": self.thread}
        self.client.tell(self._name, load=load)

    def say(self, text: str, **more: Any) -> Seen:
        return self.run(say=text, **more)

    def answer(self, *entries: Mapping[str, Any]) -> Seen:
        """Let the client put the answers together: it wants all that it has open."""
        return self.run(answers=by_interrupt(entries))

    def send(self, *entries: Mapping[str, Any]) -> Seen:
        """A resume that goes out as it is."""
        return self.run(resume=entries)

    def show(self) -> Seen:
        return self.run()

    def run(self, **wanted: Any) -> Seen:
        self.begin(**wanted)
        return self.end()

    def begin(self, **wanted: Any) -> None:
        self.client.tell(self._name, run=wanted)
        self._events: list[dict[str, Any]] = []

    def until(self, type: str) -> dict[str, Any]:
        """The next event of that type."""
        while True:
            event: dict[str, Any] = self.client.hear(self._name)["event"]
            self._events.append(event)
            if event["type"] == type:
                return event

    def end(self) -> Seen:
        """What the client made of the whole stream."""
        seen = self._rest()
        if seen.failed is None:
            rules.in_order(seen.events)
        return seen

    def leave(self) -> Seen:
        """The reader goes away."""
        self.client.tell(self._name, leave=True)
        return self._rest()

    def _rest(self) -> Seen:
        while True:
            heard = self.client.hear(self._name)
            if "done" in heard:
                return Seen(self._events, **heard["done"])
            self._events.append(heard["event"])


def by_interrupt(entries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {
        str(entry["interruptId"]): {
            key: value for key, value in entry.items() if key != "interruptId"
        }
        for entry in entries
    }
