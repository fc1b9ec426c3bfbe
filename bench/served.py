"""The product, served as a user serves it, and people at its pages over HTTP and socket."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import re
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import httpx
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

ROOT = Path(__file__).resolve().parent.parent
PASSWORD = "sayso-demo"
HIDDEN = re.compile(r'<input type="hidden" name="(\w+)" value="([^"]*)"')


#: For `manage.py shell`: people may decide what they asked for themselves.
SELF_APPROVAL = (
    "from approvals.models import Policy; "
    "Policy.objects.update(requester_may_decide=True)"
)


class Product:
    """`manage.py serve` on a data folder of its own, until the context ends."""

    def __init__(self, folder: Path, **environment: str) -> None:
        self.folder = folder
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._environment = os.environ | {
            "SAYSO_DATA": str(folder),
            "PORT": str(self.port),
            "SAYSO_LOG_LEVEL": "WARNING",
            "SAYSO_AGENTS": "bench.asker",
        }
        for name in ("DATABASE_URL", "REDIS_URL", "SAYSO_MODEL", "OPENAI_BASE_URL"):
            self._environment.pop(name, None)
        self._environment |= environment
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> float:
        """Start it; gives the seconds until a page was served."""
        began = time.perf_counter()
        self.process = subprocess.Popen(
            [sys.executable, "manage.py", "serve"],
            cwd=ROOT,
            env=self._environment,
            stdout=subprocess.DEVNULL,
        )
        while time.perf_counter() - began < 60:
            if self.process.poll() is not None:
                raise SystemExit("The product stopped at its start.")
            try:
                httpx.get(f"{self.url}/accounts/login/").raise_for_status()
            except httpx.TransportError:
                time.sleep(0.02)
            else:
                return time.perf_counter() - began
        raise SystemExit("The product served no page within a minute.")

    def stop(self) -> None:
        if self.process is not None:
            self.process.terminate()
            self.process.wait(20)

    def manage(self, *words: str) -> str:
        """Run a management command on the product's data; gives what it printed."""
        return subprocess.run(
            [sys.executable, "manage.py", *words],
            cwd=ROOT,
            env=self._environment,
            capture_output=True,
            text=True,
            check=True,
        ).stdout

    def resident_mb(self) -> float:
        """Resident memory of the serving process."""
        assert self.process is not None
        status = Path(f"/proc/{self.process.pid}/status").read_text(encoding="ascii")
        found = re.search(r"VmRSS:\s+(\d+) kB", status)
        return int(found[1]) / 1024 if found else 0.0

    def cpu_seconds(self) -> float:
        """Processor time the serving process has used."""
        assert self.process is not None
        stat = Path(f"/proc/{self.process.pid}/stat").read_text(encoding="ascii")
        fields = stat.rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        """Read the product's database beside it."""
        with self.reading() as database:
            return database.execute(query, values).fetchall()

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """A connection to the product's database that only reads."""
        path = f"file:{self.folder / 'sayso.sqlite3'}?mode=ro"
        with contextlib.closing(sqlite3.connect(path, uri=True)) as database:
            yield database


class Site(Protocol):
    """Wherever a product is served."""

    url: str


class Person:
    """Somebody signed in."""

    def __init__(self, product: Site, username: str) -> None:
        self.product = product
        self.http = httpx.Client(base_url=product.url, timeout=60)
        page = self.http.get("/accounts/login/").text
        self._token = _token(page)
        self.post("/accounts/login/", {"username": username, "password": PASSWORD})
        # The token changes when somebody signs in.
        self._token = _token(self.http.get("/agents/").text)

    def post(self, path: str, data: dict[str, str]) -> httpx.Response:
        response = self.http.post(
            path,
            data=data | {"csrfmiddlewaretoken": self._token},
            headers={"Origin": self.product.url},
        )
        assert response.status_code < 400, f"{path}: {response.status_code}"
        # What the answer has to say is said on the page that follows, and goes with it.
        # Whoever reads no page would carry all that was ever said to them along.
        self.http.cookies.pop("messages", None)
        return response

    def say(self, text: str, thread: str = "", *, agent: str = "file-ops") -> str:
        """Send an agent a message; gives the thread's path."""
        answer = self.post(thread or f"/agents/{agent}/", {"message": text})
        return thread or answer.headers["Location"].partition("#")[0]

    def form(self, interrupt: str) -> dict[str, str]:
        """The hidden fields of a request's decision form, as the page shows them."""
        page = self.http.get(f"/inbox/{interrupt}/")
        assert page.status_code == 200, page.status_code
        start = page.text.index(f"/inbox/{interrupt}/decide/")
        return dict(HIDDEN.findall(page.text[start:]))

    def approve(self, interrupt: str, form: dict[str, str]) -> None:
        self.post(f"/inbox/{interrupt}/decide/", form | {"confirmed": "approve"})

    def listen(self) -> Frames:
        cookies = "; ".join(f"{c.name}={c.value}" for c in self.http.cookies.jar)
        return Frames(self.product, cookies)


class Frames:
    """What one socket receives, each frame with the moment it came."""

    def __init__(self, product: Site, cookies: str) -> None:
        self._socket = connect(
            f"{product.url.replace('http', 'ws', 1)}/ws/",
            additional_headers={"Cookie": cookies, "Origin": product.url},
        )
        self._opened: queue.SimpleQueue[tuple[str, float]] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def opened(self, timeout: float = 30) -> tuple[str, float]:
        """The next request that was raised, and when its frame arrived."""
        return self._opened.get(timeout=timeout)

    def _read(self) -> None:
        with contextlib.suppress(ConnectionClosed):  # the product has stopped
            for text in self._socket:
                now = time.time()
                frame = json.loads(text)
                if frame["op"] == "opened":
                    self._opened.put((frame["id"], now))


@contextmanager
def served(**environment: str) -> Iterator[Product]:
    """A fresh product in a folder that is removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="sayso-bench-") as folder:
        product = Product(Path(folder), **environment)
        try:
            product.start()
            yield product
        finally:
            product.stop()


def moment(stored: str) -> float:
    """A stored time of the database as seconds since the epoch."""
    return datetime.fromisoformat(stored).replace(tzinfo=UTC).timestamp()


def _token(page: str) -> str:
    found = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', page)
    assert found, "The page has no form."
    return found[1]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port
