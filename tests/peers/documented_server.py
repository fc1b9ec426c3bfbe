"""Servers that cannot be run here, as their documents and bug reports describe them.

``/dotnet``: Agent Framework's .NET server. Its interrupts have no metadata, its run dies
where an answer does not repeat the call, and a client that declares tools gets no gate.
``/openai``: the OpenAI Agents SDK's adapter. It keeps nothing: what waits is what the
messages leave unanswered.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from uuid import uuid4

from tests.peers.serving import announce, asked, note, port, reply, run

type Event = dict[str, Any]

APPROVED = {
    "type": "object",
    "properties": {"approved": {"type": "boolean"}},
    "required": ["approved"],
}


class Broken(Exception):
    """The run there dies of the answer it was given."""


class Conversation:
    """One request, and the events it is answered with."""

    def __init__(self, body: dict[str, Any]) -> None:
        self.body = body
        self.messages: list[dict[str, Any]] = list(body["messages"])
        self.answers = {each["interruptId"]: each for each in body.get("resume") or []}

    def events(self) -> Iterator[Event]:
        run_ids = {"threadId": self.body["threadId"], "runId": self.body["runId"]}
        yield {"type": "RUN_STARTED", **run_ids}
        waiting = self.waiting()
        if not waiting:
            waiting = self.calls()
            for call in waiting:
                yield from _streamed(call)
        held = [call for call in waiting if self.holds(call)]
        if held and not self.answers:
            asking = [self.interrupt(call) for call in held]
            outcome = {"type": "interrupt", "interrupts": asking}
            yield {"type": "RUN_FINISHED", **run_ids, "outcome": outcome}
            return
        try:
            results = [(call, self.answered(call)) for call in waiting]
        except Broken as error:
            yield {"type": "RUN_ERROR", "message": str(error), "code": "StreamingError"}
            return
        for call, result in results:
            told = {"toolCallId": call["id"], "content": result}
            self.messages.append({"role": "tool", **told})
            yield {"type": "TOOL_CALL_RESULT", "messageId": uuid4().hex, **told}
        note("told", [[m["role"], m.get("content") or ""] for m in self.messages])
        message = {"messageId": uuid4().hex}
        said = reply([result for _call, result in results])
        yield {"type": "TEXT_MESSAGE_START", "role": "assistant", **message}
        yield {"type": "TEXT_MESSAGE_CONTENT", "delta": said, **message}
        yield {"type": "TEXT_MESSAGE_END", **message}
        yield {"type": "RUN_FINISHED", **run_ids}

    def waiting(self) -> list[dict[str, Any]]:
        """The calls of the messages that nothing answers."""
        done = {each.get("toolCallId") for each in self.messages}
        calls = [call for each in self.messages for call in each.get("toolCalls") or []]
        return [call for call in calls if call["id"] not in done]

    def calls(self) -> list[dict[str, Any]]:
        said = [each for each in self.messages if each["role"] == "user"][-1]
        return [
            {
                "id": f"call_{uuid4().hex[:8]}",
                "function": {"name": name, "arguments": json.dumps(arguments)},
            }
            for name, arguments in asked(said["content"])
        ]

    def holds(self, call: dict[str, Any]) -> bool:
        return bool(call["function"]["name"] == "delete_file")

    def interrupt(self, call: dict[str, Any]) -> dict[str, Any]:
        raise NotImplementedError

    def answered(self, call: dict[str, Any]) -> str:
        """What comes of a call. Raises Broken."""
        raise NotImplementedError

    def run(self, call: dict[str, Any]) -> str:
        function = call["function"]
        return run(function["name"], **json.loads(function["arguments"]))


class DotNet(Conversation):
    def holds(self, call: dict[str, Any]) -> bool:
        return not self.body["tools"] and super().holds(call)

    def interrupt(self, call: dict[str, Any]) -> dict[str, Any]:
        return {
            "id": f"ficc_{call['id']}",
            "reason": "tool_call",
            "message": f"Approve running {call['function']['name']}?",
            "toolCallId": call["id"],
            "responseSchema": APPROVED,
        }

    def answered(self, call: dict[str, Any]) -> str:
        if not self.holds(call):
            return self.run(call)
        answer = self.answers.get(f"ficc_{call['id']}", {})
        note("answers", answer)
        if answer.get("status") == "cancelled":
            return "Tool call cancelled."
        payload = answer.get("payload", {})
        function = call["function"]
        echo = {
            "callId": call["id"],
            "name": function["name"],
            "arguments": json.loads(function["arguments"]),
        }
        if payload.get("toolCall") != echo:
            raise Broken("The answer matches no pending approval.")
        return self.run(call) if payload.get("approved") is True else "Rejected."


class OpenAIAgents(Conversation):
    def interrupt(self, call: dict[str, Any]) -> dict[str, Any]:
        function = call["function"]
        return {
            "id": call["id"],
            "reason": "tool_approval",
            "toolCallId": call["id"],
            "responseSchema": APPROVED,
            "metadata": {
                "tool_name": function["name"],
                "tool_input": json.loads(function["arguments"]),
            },
        }

    def answered(self, call: dict[str, Any]) -> str:
        if not self.holds(call):
            return self.run(call)
        answer = self.answers.get(call["id"], {})
        note("answers", answer)
        if answer.get("status") == "cancelled":
            return "Tool call cancelled."
        approved = answer.get("payload") == {"approved": True}
        return self.run(call) if approved else "Tool execution was not approved."


def _streamed(call: dict[str, Any]) -> Iterator[Event]:
    function, about = call["function"], {"toolCallId": call["id"]}
    yield {"type": "TOOL_CALL_START", "toolCallName": function["name"], **about}
    yield {"type": "TOOL_CALL_ARGS", "delta": function["arguments"], **about}
    yield {"type": "TOOL_CALL_END", **about}


class Handler(BaseHTTPRequestHandler):
    kinds = {"/dotnet": DotNet, "/openai": OpenAIAgents}

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        for event in self.kinds[self.path](body).events():
            self.wfile.write(f"data: {json.dumps(event)}\n\n".encode())

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", port()), Handler)
    server.daemon_threads = True
    announce(server.server_port)
    server.serve_forever(0.02)
