"""One server for each module, on the database of the tests, hosting the agent *clerk*."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
from django.conf import settings
from django.contrib.auth.models import Group

from approvals import services
from approvals.models import Policy
from approvals.states import TokenScope
from bench.served import SELF_APPROVAL
from tests.approvals.pages import served_environment, sign_in
from tests.hitlagents.agui import rules
from tests.plugins.cast import AGENT, OPS
from tests.served import Served

PROGRAM = ("-m", "tests.hitlagents.agui.played")
PATIENCE = 60.0
CSRF = "c" * 32


@dataclass
class Server:
    url: str
    play: Path
    log: Path

    def ran(self) -> list[list[Any]]:
        """Every body that was entered: tool, arguments, answer."""
        return [json.loads(line) for line in self._lines("ran")]

    def brought(self) -> list[str]:
        """The names of the page's tools at every start and resume."""
        return self._lines("brought")

    def heard(self) -> list[str]:
        return self._lines("heard")

    def _lines(self, name: str) -> list[str]:
        file = self.play / name
        return file.read_text("utf-8").splitlines() if file.exists() else []


@pytest.fixture(scope="module")
def process(django_db_setup, django_db_blocker, tmp_path_factory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("agui")
    play = folder / "play"
    play.mkdir()
    with django_db_blocker.unblock():
        environment = served_environment(
            folder,
            PORT="0",
            SAYSO_PLAY=str(play),
            SAYSO_AGUI_STREAMS="6",
            SAYSO_AGUI_MAX_BODY="200000",
            SAYSO_CORS_ORIGINS="https://pages.example.org",
        )
    served = Served(folder, program=PROGRAM, environment=environment)
    served.start()
    yield Server(served.url, play, served.log)
    served.stop()
    assert "Traceback" not in served.said(), served.said()


@pytest.fixture
def server(process: Server, transactional_db: None, desk: None) -> Server:
    for name in ("ran", "heard", "brought", "go"):
        (process.play / name).unlink(missing_ok=True)
    return process


@dataclass
class Answer:
    """A stream to its end."""

    events: list[dict[str, Any]]

    @property
    def end(self) -> dict[str, Any]:
        return self.events[-1]

    @property
    def outcome(self) -> str:
        return str(self.end["outcome"]["type"])

    @property
    def interrupts(self) -> list[dict[str, Any]]:
        return rules.interrupts_of(self.end)

    @property
    def pending(self) -> list[str]:
        """Calls that the page is to answer, as protocol 1.0 names them."""
        found: list[str] = self.end["outcome"].get(rules.PENDING, [])
        return found

    @property
    def messages(self) -> list[dict[str, Any]]:
        """Of the last snapshot."""
        found: list[dict[str, Any]] = self.of("MESSAGES_SNAPSHOT")[-1]["messages"]
        return found

    @property
    def text(self) -> str:
        """What was said, by the agent and by the server."""
        return "".join(event["delta"] for event in self.of("TEXT_MESSAGE_CONTENT"))

    @property
    def notices(self) -> list[str]:
        return [e["value"]["code"] for e in self.of("CUSTOM") if "code" in e["value"]]

    def of(self, type: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["type"] == type]


@dataclass
class Page:
    """A page that talks AG-UI, as real ones do: it sends everything it has every time."""

    url: str
    secret: str
    agent: str = AGENT
    thread: str = field(default_factory=lambda: str(uuid4()))
    modern: bool = True
    messages: list[dict[str, Any]] = field(default_factory=list)
    hold: bool = False
    #: Where the routes are, and what the one is called that runs.
    root: str = "agui/{}/"
    run: str = ""

    def say(self, text: str, **more: Any) -> Answer:
        said = {"id": f"m-{uuid4()}", "role": "user", "content": text}
        self.messages.append(said)
        return self.post(**more)

    def resume(self, *entries: dict[str, Any], **more: Any) -> Answer:
        return self.post(resume=list(entries), **more)

    def answer(self, call_id: str, content: Any, **more: Any) -> Answer:
        """What a tool of the page gave, as CopilotKit sends it: behind its call."""
        at = max(
            place
            for place, message in enumerate(self.messages)
            if message["role"] == "assistant"
        )
        given = {
            "id": f"t-{uuid4()}",
            "role": "tool",
            "toolCallId": call_id,
            "content": content,
        }
        self.messages.insert(at + 1, given)
        return self.post(**more)

    def show(self, **more: Any) -> Answer:
        """After a reload: the page has nothing."""
        self.messages = []
        return self.post(**more)

    def post(self, *, path: str = "", **more: Any) -> Answer:
        """Send, read to the end, and hold the stream to the rules."""
        response = self.raw(path=path, **more)
        assert response.status_code == 200, response.text
        assert response.headers["content-type"] == "text/event-stream"
        events = rules.events_of(response.text)
        rules.check(events, modern=self.modern)
        answer = Answer(events)
        if answer.of("MESSAGES_SNAPSHOT"):
            self.messages = list(answer.messages)
        return answer

    def raw(self, *, path: str = "", **more: Any) -> httpx.Response:
        return httpx.post(
            self.address(path),
            # In ASCII, which holds half characters, too.
            content=json.dumps(self.body(**more)),
            headers=self.headers() | {"Content-Type": "application/json"},
            timeout=PATIENCE,
        )

    @contextmanager
    def reading(self, *, path: str = "", **more: Any) -> Iterator[Iterator[Any]]:
        """Read event by event; leaving the block leaves the stream."""
        with httpx.stream(
            "POST",
            self.address(path),
            json=self.body(**more),
            headers=self.headers(),
            timeout=PATIENCE,
        ) as response:
            assert response.status_code == 200
            yield (
                json.loads(line.removeprefix("data: "))
                for line in response.iter_lines()
                if line.startswith("data: ")
            )

    def address(self, path: str = "") -> str:
        return f"{self.url}/{self.root.format(self.agent)}{path or self.run}"

    def body(self, **more: Any) -> dict[str, Any]:
        version = {"protocolVersion": "1.0"} if self.modern else {}
        return {
            "threadId": self.thread,
            "runId": str(uuid4()),
            "state": {},
            "messages": self.messages,
            "tools": [],
            "context": [],
            "forwardedProps": {},
            **version,
            **more,
        }

    def headers(self) -> dict[str, str]:
        hold = {"X-Sayso-Hold": "1"} if self.hold else {}
        return {"Authorization": f"Bearer {self.secret}", **hold}


def resolved(interrupt: Any, payload: Any = None, **more: Any) -> dict[str, Any]:
    id = interrupt["id"] if isinstance(interrupt, dict) else str(interrupt)
    return {"interruptId": id, "status": "resolved", "payload": payload, **more}


def cancelled(interrupt: dict[str, Any]) -> dict[str, Any]:
    return {"interruptId": interrupt["id"], "status": "cancelled"}


YES = {"approved": True}
NO = {"approved": False, "reason": "Not today."}


@pytest.fixture
def open_page(server: Server) -> Callable[..., Page]:
    """A page of a person, who signs it in by a token."""

    def make(user: Any, *scopes: TokenScope, **options: Any) -> Page:
        _, secret = services.create_token(
            user, name="Page", actor=user, scopes=scopes or tuple(TokenScope)
        )
        return Page(server.url, secret, **options)

    return make


@pytest.fixture
def ritas(open_page: Callable[..., Page], rita: Any) -> Page:
    """A page of Rita, whose policy lets her decide what she asked for herself."""
    rest = Policy.objects.create(position=9, name="Rest", agent_pattern=AGENT)
    rest.groups.add(Group.objects.get(name=OPS))
    Policy.objects.update(requester_may_decide=True)
    return open_page(rita)


@pytest.fixture
def at_the_desk(server: Server) -> Callable[..., None]:
    """Decide in the inbox, over HTTP, as somebody who is signed in there."""

    def decide(
        user: Any, interrupt: dict[str, Any], verdict: str, note: str = ""
    ) -> None:
        response = httpx.post(
            f"{server.url}/inbox/{interrupt['id']}/decide/",
            data={
                "verdict": verdict,
                "shown": interrupt["metadata"]["sayso"]["digest"],
                "note": note,
                "confirmed": verdict,
            },
            cookies={
                settings.SESSION_COOKIE_NAME: sign_in(user),
                settings.CSRF_COOKIE_NAME: CSRF,
            },
            headers={"X-CSRFToken": CSRF, "Origin": server.url},
            timeout=PATIENCE,
        )
        assert response.status_code in (200, 302), response.text

    return decide


@pytest.fixture(scope="module")
def demo(tmp_path_factory) -> Iterator[Served]:
    """A demo as `./dev run` starts it, in which people may decide for themselves."""
    started = Served(tmp_path_factory.mktemp("demo"))
    started.start()
    started.manage("shell", "--no-imports", "-c", SELF_APPROVAL)
    yield started
    started.stop()
    assert "Traceback" not in started.said(), started.said()


@pytest.fixture(scope="module")
def secret(demo: Served) -> str:
    """A token of the demo's administrator."""
    return demo.manage("create_token", "admin").splitlines()[-1]
