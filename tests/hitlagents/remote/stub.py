"""A remote agent that plays what it is told, in a process of its own.

Run as a program with a folder: it serves on a free port of the loopback, whose number it
writes to ``port``. The n-th POST gets the n-th reply of ``replies.json``, and every
request gets a line in ``requests.jsonl``. ``/replay/<capture>/<n>`` plays the n-th answer
of a capture instead.

A reply has ``status``, ``type`` (content type), ``headers``, and ``parts`` to write one
after the other; ``{"sleep": seconds}`` among them waits, ``{"until": name}`` until a file
of that name is there, and ``{"repeat": text}`` writes for ever. Without ``ends`` the
connection is cut instead of closed.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

CAPTURES = Path(__file__).parent / "captures"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    folder: ClassVar[Path]
    lock: ClassVar[threading.Lock] = threading.Lock()
    count: ClassVar[int] = 0

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        with self.lock:
            number = Handler.count
            Handler.count += 1
            self._note(body)
        if self.path.startswith("/replay/"):
            _, _, capture, place = self.path.rsplit("/", 3)
            source = self.path.split("/")[2]
            self._play(replies_of(f"{source}/{capture}")[int(place)])
            return
        replies = json.loads((self.folder / "replies.json").read_text())
        self._play(replies[number] if number < len(replies) else {"status": 500})

    def do_GET(self) -> None:
        self._note(b"null")
        known = json.loads((self.folder / "replies.json").read_text())
        gets = [reply for reply in known if reply.get("get")]
        self._play(gets[0] if gets else {"status": 405, "type": "text/plain"})

    def _note(self, body: bytes) -> None:
        line = {
            "method": self.command,
            "path": self.path,
            "headers": {name.lower(): value for name, value in self.headers.items()},
            "body": json.loads(body),
        }
        with (self.folder / "requests.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")

    def _play(self, reply: dict[str, Any]) -> None:
        self.send_response(reply.get("status", 200))
        self.send_header("Content-Type", reply.get("type", "text/event-stream"))
        self.send_header("Connection", "close")
        for name, value in reply.get("headers", {}).items():
            self.send_header(name, value)
        chunked = reply.get("ends", True)
        if chunked:
            self.send_header("Transfer-Encoding", "chunked")
        else:
            # More than will come, so that the end is seen to be a cut.
            self.send_header("Content-Length", "1000000")
        self.end_headers()
        self.close_connection = True
        try:
            for part in reply.get("parts", []):
                self._write(part, chunked=chunked)
            if chunked:
                self.wfile.write(b"0\r\n\r\n")
        except OSError:
            pass  # The client has had enough.

    def _write(self, part: Any, *, chunked: bool) -> None:
        if isinstance(part, dict) and "sleep" in part:
            time.sleep(part["sleep"])
            return
        if isinstance(part, dict) and "until" in part:
            while not (self.folder / part["until"]).exists():
                time.sleep(0.01)
            return
        forever = isinstance(part, dict)
        text = part["repeat"] if forever else part
        data = text.encode("utf-8", "surrogatepass")
        while data:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data) if chunked else data)
            self.wfile.flush()
            if not forever:
                return
            time.sleep(0.01)

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""


def replies_of(capture: str) -> list[dict[str, Any]]:
    """The answers of a capture, in order."""
    found: list[dict[str, Any]] = []
    for line in (CAPTURES / f"{capture}.jsonl").read_text().splitlines():
        seen = json.loads(line)
        match seen["t"]:
            case "request":
                found.append({"status": 200, "parts": []})
            case "response":
                found[-1] |= {"status": seen["status"], "type": seen["contentType"]}
            case "event":
                found[-1]["parts"].append(f"data: {json.dumps(seen['data'])}\n\n")
            case "body":
                found[-1]["parts"].append(seen["text"])
            case "concurrent":
                parts = [f"data: {json.dumps(event)}\n\n" for event in seen["events"]]
                found.append({"status": 200, "parts": parts})
    return [reply for reply in found if reply["parts"]]


class Server(ThreadingHTTPServer):
    daemon_threads = True


if __name__ == "__main__":
    Handler.folder = Path(sys.argv[1])
    server = Server(("127.0.0.1", 0), Handler)
    written = Handler.folder / "port.new"
    written.write_text(str(server.server_port))
    written.rename(Handler.folder / "port")
    server.serve_forever(0.02)
