"""The AG-UI endpoint: first events, words on their way, and many open streams at once."""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import httpx

from bench import report
from bench.bare import WORDS
from bench.served import ROOT, SELF_APPROVAL, Person, Product, free_port, served

WARM = 3
OPEN_STREAMS = 200
IDLE_SECONDS = 20.0
PATIENCE = 300.0
ENDS = ("RUN_FINISHED", "RUN_ERROR")


def main(rounds: int) -> None:
    with served(SAYSO_AGENTS="bench.stamps") as product:
        product.manage("shell", "--no-imports", "-c", SELF_APPROVAL)
        page = Page(product, "admin")
        _first_events(page, rounds)
        _words(page, max(3, rounds // 10))
    with served(SAYSO_AGUI_STREAMS=str(OPEN_STREAMS + 10)) as product:
        asyncio.run(_many(product, rounds))


class Page:
    """A page of somebody, on one connection."""

    def __init__(self, product: Product, username: str) -> None:
        self.url = product.url
        token = product.manage("create_token", username).splitlines()[-1]
        self.headers = {"Authorization": f"Bearer {token}"}
        self.http = httpx.Client(timeout=PATIENCE)

    def post(self, agent: str, thread: str, **more: Any) -> Read:
        """One request, read to its end."""
        return self.read(f"{self.url}/agui/{agent}/", body(thread, **more))

    def read(self, url: str, body: dict[str, Any]) -> Read:
        sent = time.time()
        with self.http.stream("POST", url, json=body, headers=self.headers) as answer:
            answer.raise_for_status()
            read = Read(sent)
            for line in answer.iter_lines():
                read.take(line)
        return read


@dataclass
class Read:
    """What came on one stream, and when."""

    sent: float
    events: list[dict[str, Any]] = field(default_factory=list)
    first: float = 0.0
    #: How late each stamped word was, in milliseconds.
    late: list[float] = field(default_factory=list)

    def take(self, line: str) -> None:
        now = time.time()
        if not line.startswith("data: "):
            return
        self.first = self.first or now
        event = json.loads(line.removeprefix("data: "))
        self.events.append(event)
        if event["type"] == "TEXT_MESSAGE_CONTENT" and event["delta"][0].isdigit():
            self.late += [(now - float(each)) * 1000 for each in event["delta"].split()]

    @property
    def first_ms(self) -> float:
        return (self.first - self.sent) * 1000

    @property
    def interrupts(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.events[-1]["outcome"].get("interrupts", [])
        return found


def body(thread: str, *, say: str = "", **more: Any) -> dict[str, Any]:
    said = [{"id": str(uuid4()), "role": "user", "content": say}] if say else []
    return {
        "protocolVersion": "1.0",
        "threadId": thread,
        "runId": str(uuid4()),
        "messages": said,
        **more,
    }


def _first_events(page: Page, rounds: int) -> None:
    took: dict[str, list[float]] = {"message": [], "reload": [], "answer": []}
    for number in range(rounds + WARM):
        thread = str(uuid4())
        said = page.post("file-ops", thread, say="delete report.txt")
        shown = page.post("file-ops", thread)
        (interrupt,) = shown.interrupts
        yes = {"status": "resolved", "payload": {"approved": True}}
        resume = [{"interruptId": interrupt["id"], **yes}]
        answered = page.post("file-ops", thread, resume=resume)
        assert answered.events[-1]["outcome"]["type"] == "success"
        if number < WARM:
            continue
        for kind, read in zip(took, (said, shown, answered), strict=True):
            took[kind].append(read.first_ms)
    report.heading("From a POST to its first event")
    for kind, milliseconds in took.items():
        report.line(f"{kind}, POST to first event", milliseconds, "30")


def _words(page: Page, rounds: int) -> None:
    """Every round has both ways, so that the load falls on both alike."""
    ours: list[float] = []
    bare: list[float] = []
    with _bare() as url:
        for number in range(rounds + 1):
            with_us = page.post("stamps", str(uuid4()), say="Go on").late
            without = page.read(url, body("")).late
            assert len(with_us) == len(without) == WORDS
            if number:
                ours += with_us
                bare += without
    report.heading("From the agent's word to the page")
    report.line("through Sayso", ours)
    report.line("the same server, nothing between", bare)
    added = statistics.median(ours) - statistics.median(bare)
    print(f"our layer adds (difference of medians)  {added:5.1f} ms   goal: 2")


@contextmanager
def _bare() -> Iterator[str]:
    port = free_port()
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "daphne",
            "-v",
            "0",
            "-p",
            str(port),
            "bench.bare:application",
        ],
        cwd=ROOT,
    )
    url = f"http://127.0.0.1:{port}/"
    try:
        until = time.monotonic() + 60
        while time.monotonic() < until:
            try:
                httpx.get(url)
                break
            except httpx.TransportError:
                time.sleep(0.1)
        yield url
    finally:
        process.terminate()
        process.wait(20)


async def _many(product: Product, rounds: int) -> None:
    """Everybody waits for a decision of somebody else; then the decisions come."""
    member, reviewer = Page(product, "member"), Person(product, "ops-reviewer")
    member.post("file-ops", str(uuid4()), say="What files are there?")
    before = product.resident_mb()
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(timeout=PATIENCE, limits=limits) as http:
        readers = [Reader(http, member) for _ in range(OPEN_STREAMS)]
        reading = [asyncio.create_task(reader.read()) for reader in readers]
        await asyncio.gather(*(reader.held.wait() for reader in readers))
        holding = product.resident_mb()
        used = product.cpu_seconds()
        await asyncio.sleep(IDLE_SECONDS)
        used = product.cpu_seconds() - used
        first = [
            (await asyncio.to_thread(member.post, "file-ops", str(uuid4()))).first_ms
            for _ in range(rounds)
        ]
        decided = []
        for reader in readers:
            form = await asyncio.to_thread(reviewer.form, reader.interrupt)
            await asyncio.to_thread(reviewer.approve, reader.interrupt, form)
            decided.append(time.time())
        await asyncio.gather(*reading)
    ended = [reader for reader in readers if reader.outcome == "success"]
    report.heading(f"{OPEN_STREAMS} streams that hold, in one process")
    print(f"memory: {holding - before:.0f} MB more, {holding:.0f} MB in all")
    print(f"processor while nothing happens: {used / IDLE_SECONDS:.0%} of one")
    report.line("POST to first event meanwhile", first)
    late = [
        (reader.ended - at) * 1000 for reader, at in zip(readers, decided, strict=True)
    ]
    report.line("decided to the end of its stream", late)
    print(f"streams that got their end: {len(ended)} of {OPEN_STREAMS}")


class Reader:
    """A page that holds until its request is decided."""

    def __init__(self, http: httpx.AsyncClient, page: Page) -> None:
        self._http, self._page = http, page
        self.held = asyncio.Event()
        self.interrupt = self.outcome = ""
        self.ended = 0.0

    async def read(self) -> None:
        async with self._http.stream(
            "POST",
            f"{self._page.url}/agui/file-ops/",
            json=body(str(uuid4()), say="delete report.txt"),
            headers={**self._page.headers, "X-Sayso-Hold": "1"},
        ) as answer:
            answer.raise_for_status()
            async for line in answer.aiter_lines():
                if line.startswith("data: "):
                    self._take(json.loads(line.removeprefix("data: ")))

    def _take(self, event: dict[str, Any]) -> None:
        if event.get("name") == "sayso.held":
            self.interrupt = event["value"]["interrupts"][0]["id"]
            self.held.set()
        if event["type"] in ENDS:
            self.outcome = event.get("outcome", event)["type"]
            self.ended = time.time()
