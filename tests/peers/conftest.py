"""Peers as processes, and the desk in front of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from django.db import connections

from approvals.models import Run
from approvals.states import RunStatus, Verdict
from hitlagents import conversations
from hitlagents.models import RemoteAgent
from hitlagents.remote.profiles import Profile
from hitlsite.paths import BASE_DIR
from tests.hitlagents.driving import advance, rules

#: Seconds for what takes two or three on a machine that is not busy.
PATIENCE = 120


class Peer:
    """A server in a process of its own, which can be killed and started again."""

    def __init__(self, folder: Path, python: str, server: str) -> None:
        self.folder = folder
        self._command = [python, "-m", f"tests.peers.{server}", str(folder)]
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0
        self.start()

    def start(self) -> None:
        """Start it, where it was before if it was."""
        (self.folder / "port").unlink(missing_ok=True)
        again = [str(self.port)] if self.port else []
        keep = ("PATH", "HOME", "LANG", "TMPDIR")
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*self._command, *again],
                cwd=BASE_DIR,
                env={name: os.environ[name] for name in keep if name in os.environ},
                stdout=log,
                stderr=log,
            )
        until = time.monotonic() + PATIENCE
        while not (self.folder / "port").exists():
            running = self._process.poll() is None and time.monotonic() < until
            assert running, (self.folder / "log").read_text()
            time.sleep(0.02)
        self.port = int((self.folder / "port").read_text())

    def kill(self) -> None:
        """As ``kill -9`` does."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(PATIENCE)

    def clear(self) -> None:
        """As if nothing had been noted yet."""
        for name in ("ran.jsonl", "told.jsonl", "answers.jsonl", "hold"):
            (self.folder / name).unlink(missing_ok=True)

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}/{path}"

    def hold(self) -> None:
        """Let no tool come to its end."""
        (self.folder / "hold").touch()

    def release(self) -> None:
        (self.folder / "hold").unlink(missing_ok=True)

    def noted(self, name: str) -> list[Any]:
        file = self.folder / f"{name}.jsonl"
        lines = file.read_text("utf-8").splitlines() if file.exists() else []
        return [json.loads(line) for line in lines]

    def until_entered(self, count: int = 1) -> None:
        """Wait until so many tools have been entered."""
        until = time.monotonic() + PATIENCE
        while len(self.noted("ran")) < count:
            assert time.monotonic() < until, "no tool was entered"
            time.sleep(0.02)

    @property
    def deleted(self) -> list[str]:
        """The files that its tool was entered for, in order."""
        return [
            arguments["filename"]
            for tool, arguments in self.noted("ran")
            if tool == "delete_file"
        ]

    @property
    def told(self) -> list[str]:
        """What its model was given last, message by message."""
        return [text for _role, text in self.noted("told")[-1]]


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One way to serve an agent, and what is different about it."""

    server: str
    path: str
    profile: Profile
    #: Whether its server runs in our environment.
    ours: bool = False
    #: What its model is told of a denial with the note "Keep it."
    denied: str
    #: Whether two calls of one pause may have different answers.
    mixed: bool = True
    #: Whether other arguments may be approved than those that were asked about.
    edits: bool = False
    #: What an approval comes to after its server was started anew.
    forgotten: RunStatus = RunStatus.FINISHED


LANGGRAPH = Kind(
    server="langgraph_server",
    path="calls",
    profile=Profile.LANGGRAPH,
    denied="Denied: Not executed: a reviewer denied this call. Keep it.",
    edits=True,
    forgotten=RunStatus.IN_DOUBT,
)
KINDS = {
    "agent-framework": Kind(
        server="agent_framework_server",
        path="plain",
        profile=Profile.AGENT_FRAMEWORK,
        denied="Error: Tool call invocation was rejected by user.",
        mixed=False,
        edits=True,
        forgotten=RunStatus.FAILED,
    ),
    "langgraph": LANGGRAPH,
    "langgraph-as-it-comes": replace(LANGGRAPH, path="legacy"),
    "dotnet": Kind(
        server="documented_server",
        path="dotnet",
        profile=Profile.DOTNET,
        ours=True,
        denied="Rejected.",
    ),
    "openai-agents": Kind(
        server="documented_server",
        path="openai",
        profile=Profile.OPENAI_AGENTS,
        ours=True,
        denied="Tool execution was not approved.",
    ),
}


@pytest.fixture(scope="session")
def running(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Callable[[str, str], Peer]]:
    """The server of a module of this folder, started when it is first wanted."""
    started: dict[str, Peer] = {}

    def find(server: str, python: str) -> Peer:
        if server not in started:
            folder = tmp_path_factory.mktemp("peer")
            started[server] = Peer(folder, python, server)
        return started[server]

    yield find
    for peer in started.values():
        peer.kill()


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    """Each kind in turn; one alone by ``parametrize(..., indirect=True)``."""
    return KINDS[request.param]


@pytest.fixture
def peer(
    kind: Kind,
    running: Callable[[str, str], Peer],
    behind_desk: Callable[..., RemoteAgent],
    request: pytest.FixtureRequest,
) -> Peer:
    """The agent of that kind, behind the desk, with nothing noted yet."""
    python = sys.executable if kind.ours else request.getfixturevalue("peers_python")
    found = running(kind.server, str(python))
    found.clear()
    behind_desk(found.url(kind.path), kind.profile)
    return found


def no(note: str = "Keep it.") -> tuple[Verdict, dict[str, Any]]:
    """A denial, as ``decide`` of tests.hitlagents.driving takes it."""
    return Verdict.DENY, {"note": note}


@contextmanager
def meanwhile(work: Callable[[], Any]) -> Iterator[None]:
    """Do something on another thread; it has to be done at the end."""

    def do() -> None:
        try:
            work()
        finally:
            connections.close_all()

    thread = threading.Thread(target=do)
    thread.start()
    yield
    thread.join(PATIENCE)
    assert not thread.is_alive()


@pytest.fixture
def behind_desk(desk: None) -> Callable[..., RemoteAgent]:
    """Register an address as the remote agent *peer*, everything of which is held."""

    def register(url: str, profile: str, **fields: Any) -> RemoteAgent:
        headers = fields.pop("headers", {})
        agent = RemoteAgent(
            slug="peer",
            name="Peer",
            url=url,
            profile=profile,
            allow_private=True,
            idle_seconds=PATIENCE,
            **fields,
        )
        agent.headers = headers
        agent.save()
        rules("peer")
        return agent

    return register


@pytest.fixture
def say(mia: Any) -> Callable[..., Run]:
    """Have Mia say something to it, and let the run go as far as it gets."""

    def send(text: str, *, after: Run | None = None) -> Run:
        if after is None:
            thread = conversations.open_thread("peer", owner=mia).pk
        else:
            thread = after.thread
        return advance(conversations.send(thread, text, author=mia))

    return send
