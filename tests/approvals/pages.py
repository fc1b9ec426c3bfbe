"""Open pages as the socket tests need them, and a server that really listens."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import quote

from channels.testing import WebsocketCommunicator
from django.conf import settings
from django.db import connection
from django.test import Client

ROOT = Path(__file__).parent.parent.parent
HOST = "127.0.0.1:8000"
ORIGIN = f"http://{HOST}"


def sign_in(user) -> str:
    """The cookie of a new session of this person."""
    client = Client()
    client.force_login(user)
    return client.cookies[settings.SESSION_COOKIE_NAME].value


class Page:
    """A page that listens, inside this process."""

    def __init__(self, session="", *, path="/ws/", origin=ORIGIN, host=HOST):
        # Imported late: it sets up Django.
        from hitlsite.asgi import application

        cookie = f"{settings.SESSION_COOKIE_NAME}={session}"
        headers = [(b"host", host.encode()), (b"cookie", cookie.encode())]
        if origin is not None:
            headers.append((b"origin", origin.encode()))
        self.socket = WebsocketCommunicator(application, path, headers=headers)

    async def open(self):
        """Shake hands; False when refused."""
        accepted, _ = await self.socket.connect(timeout=5)
        return accepted

    async def greeted(self):
        assert await self.open()
        assert await self.next() == {"v": 1, "op": "hello"}
        return self

    async def next(self):
        return await self.socket.receive_json_from(timeout=5)

    async def hears_nothing(self, seconds=0.2):
        return await self.socket.receive_nothing(timeout=seconds)

    async def code(self):
        """The code it is closed with; what comes before it must not be content."""
        while True:
            output = await self.socket.receive_output(5)
            if output["type"] == "websocket.close":
                return output["code"]
            assert json.loads(output["text"])["op"] == "hello"

    async def send(self, text):
        await self.socket.send_to(text_data=text)

    async def leave(self):
        await self.socket.disconnect(timeout=5)


class Served:
    """A daphne of its own process, on the database of this test run."""

    def __init__(self, folder: Path, **environment: str) -> None:
        self.port = free_port()
        self.folder = folder
        self.environment = environment
        self.log = folder / f"daphne-{self.port}.log"
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def origin(self):
        return f"http://127.0.0.1:{self.port}"

    def address(self, path="/ws/"):
        return f"ws://127.0.0.1:{self.port}{path}"

    def start(self):
        command = [sys.executable, "-m", "daphne", "-b", "127.0.0.1"]
        command += ["-p", str(self.port), "hitlsite.asgi:application"]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=served_environment(self.folder, **self.environment),
                stdout=log,
                stderr=log,
            )
        wait_for_port(self.port)

    def kill(self):
        if self.process is not None:
            self.process.kill()
            self.process.wait(10)
            self.process = None


@contextmanager
def serving(folder: Path, **environment: str) -> Iterator[Served]:
    served = Served(folder, **environment)
    try:
        served.start()
        yield served
    finally:
        served.kill()


def served_environment(folder: Path, **more: str) -> dict[str, str]:
    """What another process needs to work on this test's database, as a real one."""
    environment = dict(os.environ)
    for name in ("REDIS_URL", "DATABASE_URL", "PYTEST_CURRENT_TEST"):
        environment.pop(name, None)
    environment |= {
        "SAYSO_DATA": str(folder),
        "SAYSO_SECRET_KEY": settings.SECRET_KEY,
        "SAYSO_LIVE_CHECK_SECONDS": "1",
        "SAYSO_DEMO": "0",
    }
    name = str(connection.settings_dict["NAME"])
    if connection.vendor == "postgresql":
        parts = connection.settings_dict
        login = quote(parts["USER"], safe="")
        if parts["PASSWORD"]:
            login += ":" + quote(parts["PASSWORD"], safe="")
        host = f"{parts['HOST']}:{parts['PORT'] or 5432}"
        environment["DATABASE_URL"] = f"postgres://{login}@{host}/{name}"
    else:
        link = folder / "sayso.sqlite3"
        if not link.is_symlink():
            link.symlink_to(name)
    return environment | more


def free_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for_port(port: int) -> None:
    until = time.monotonic() + 30
    while time.monotonic() < until:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise TimeoutError(f"Nothing listens on port {port}.")


def open_files() -> Iterator[str]:
    """What this process has open, as the system names it."""
    for number in os.listdir("/proc/self/fd"):
        try:
            yield os.readlink(f"/proc/self/fd/{number}")
        except OSError:
            continue
