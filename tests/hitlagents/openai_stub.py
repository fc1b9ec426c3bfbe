"""A loopback server that speaks chat completions as strictly as the real one.

It streams server-sent events in small, interleaved pieces, refuses (400) a conversation
whose tool calls are not answered exactly once and at once, wants the right key, and keeps
every request. What it says comes from a script of the scripted model.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar, Self

from hitlagents.demo.scripted import Call, Item, Reply, Result, Said, Script

KEY = "sk-loopback"
MODEL = "stub-1"


class OpenAIStub:
    """``with OpenAIStub(script) as stub``: serves at ``stub.base_url``."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        #: Statuses to answer with before anything else, first to last.
        self.failures: list[int] = []
        #: Break the connection after this many events.
        self.break_after: int | None = None
        #: Where there is one, every event takes one from it before it is sent.
        self.pace: threading.Semaphore | None = None

    def __enter__(self) -> Self:
        stub = self

        class Handler(_Handler):
            server_stub: ClassVar[OpenAIStub] = stub

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()
        self.base_url = f"http://127.0.0.1:{self._server.server_port}/v1"
        return self

    @property
    def environ(self) -> dict[str, str]:
        """What makes this server the model of a process."""
        return {
            "SAYSO_MODEL": MODEL,
            "OPENAI_BASE_URL": self.base_url,
            "OPENAI_API_KEY": KEY,
        }

    def __exit__(self, *exc: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class Refused(Exception):
    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class _Handler(BaseHTTPRequestHandler):
    server_stub: ClassVar[OpenAIStub]
    protocol_version = "HTTP/1.0"

    def do_POST(self) -> None:
        stub = self.server_stub
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        stub.requests.append(body)
        stub.headers.append({k.lower(): v for k, v in self.headers.items()})
        try:
            if stub.failures:
                raise Refused(stub.failures.pop(0), f"no, not with {KEY}")
            if self.path != "/v1/chat/completions":
                raise Refused(404, "no such path")
            if self.headers["Authorization"] != f"Bearer {KEY}":
                raise Refused(401, f"wrong key {self.headers['Authorization']}")
            if body["model"] != MODEL:
                raise Refused(404, f"no model {body['model']}")
            said = stub.script(conversation(body["messages"]))
        except Refused as error:
            self._refuse(error.status, str(error))
        except AssertionError as error:
            self._refuse(400, str(error))
        else:
            self._stream(said)

    def _refuse(self, status: int, message: str) -> None:
        body = json.dumps({"error": {"message": message, "type": "x", "code": None}})
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(body.encode())

    def _stream(self, said: Reply) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        stub = self.server_stub
        for number, event in enumerate(events(said)):
            if number == stub.break_after:
                return
            if stub.pace is not None:
                stub.pace.acquire()
            self.wfile.write(f"data: {json.dumps(event)}\n\n".encode())
            self.wfile.flush()
        self.wfile.write(b"data: [DONE]\n\n")

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""


def conversation(messages: Sequence[dict[str, Any]]) -> list[Item]:
    """The request as the scripted model reads it. Raises Refused as the real API does."""
    found: list[Item] = []
    waiting: list[str] = []
    for message in messages:
        role = message["role"]
        if role == "tool":
            if message["tool_call_id"] not in waiting:
                raise Refused(400, "a tool message answers no call before it")
            waiting.remove(message["tool_call_id"])
            found.append(Result(message["tool_call_id"], message["content"]))
            continue
        if waiting:
            raise Refused(400, f"tool calls without an answer: {waiting}")
        if role != "system" and message.get("content"):
            found.append(Said(role, message["content"]))
        for tool_call in message.get("tool_calls", []):
            function = tool_call["function"]
            if tool_call["id"] in waiting or not tool_call["id"]:
                raise Refused(400, "tool call ids must be there and differ")
            waiting.append(tool_call["id"])
            found.append(Call(tool_call["id"], function["name"], function["arguments"]))
    if waiting:
        raise Refused(400, f"tool calls without an answer: {waiting}")
    return found


def events(said: Reply) -> Iterator[dict[str, Any]]:
    yield _chunk({"role": "assistant", "content": ""})
    for start in range(0, len(said.text), 5):
        yield _chunk({"content": said.text[start : start + 5]})
    for index, call in enumerate(said.calls):
        function = {"name": call.tool, "arguments": ""}
        head = {"index": index, "id": call.call_id, "type": "function"}
        yield _chunk({"tool_calls": [{**head, "function": function}]})
    longest = max((len(call.arguments) for call in said.calls), default=0)
    for start in range(0, longest, 7):
        for index, call in enumerate(said.calls):
            if piece := call.arguments[start : start + 7]:
                part = {"index": index, "function": {"arguments": piece}}
                yield _chunk({"tool_calls": [part]})
    yield _chunk({}, finish="tool_calls" if said.calls else "stop")


def _chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 0,
        "model": MODEL,
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
    }
