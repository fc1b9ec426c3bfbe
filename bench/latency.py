"""From a person's word to the tool, and from the agent's question to the person."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bench import report
from bench.served import Person, Product, moment, served


def main(rounds: int) -> None:
    with served() as product:
        member = Person(product, "member")
        reviewer = Person(product, "ops-reviewer")
        frames = reviewer.listen()
        raised, ran, felt = [], [], []
        for number in range(rounds + 5):
            thread = member.say(f"list the files {number}")
            _settled(product, thread)
            file = _file(product, thread, f"bench-{number}.txt")
            member.say(f"delete {file.name}", thread)
            interrupt, at = frames.opened()
            opened = _one(product, "interrupt", "created", "id", interrupt)
            form = reviewer.form(interrupt)
            with ThreadPoolExecutor(1) as watcher:
                seen = watcher.submit(_watch, product, interrupt, file)
                sent = time.time()
                reviewer.approve(interrupt, form)
            committed, gone = seen.result()
            if number < 5:  # imports and first connections
                continue
            raised.append((at - opened) * 1000)
            ran.append((gone - committed) * 1000)
            felt.append((gone - sent) * 1000)
        report.heading("One request at a time")
        report.line("raise (row written) to frame at the socket", raised, "median 15")
        report.line("decision committed to file gone", ran, "median 20, p95 60")
        report.line("button pressed (POST sent) to file gone", felt)


def _file(product: Product, thread: str, name: str) -> Path:
    """A file in the thread's own workspace."""
    (key,) = [part for part in thread.split("/") if part.count("-") == 4]
    folder = product.folder / "workspaces" / key
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / name
    file.write_text("to be deleted", encoding="utf-8")
    return file


def _settled(product: Product, thread: str) -> None:
    """Wait until the thread's run has ended."""
    (key,) = [part for part in thread.split("/") if part.count("-") == 4]
    ended = "SELECT 1 FROM approvals_run WHERE thread = ? AND status = 'finished'"
    deadline = time.time() + 60
    while not product.rows(ended, key.replace("-", "")):
        assert time.time() < deadline, "The run did not end."
        time.sleep(0.01)


def _watch(product: Product, interrupt: str, file: Path) -> tuple[float, float]:
    """When others could see the decision, and when the tool had done its work.

    Seen from outside, because no row knows when it was committed: the times that are
    stored were read before.
    """
    decided = "SELECT 1 FROM approvals_decision WHERE interrupt_id = ?"
    with product.reading() as database:
        key = interrupt.replace("-", "")
        committed = _moment(lambda: database.execute(decided, (key,)).fetchone())
    return committed, _moment(lambda: not file.exists())


def _moment(happened: Callable[[], object]) -> float:
    deadline = time.time() + 30
    while not happened():
        assert time.time() < deadline, "The tool did not run."
        time.sleep(0.0002)
    return time.time()


def _one(product: Product, table: str, column: str, key: str, interrupt: str) -> float:
    query = f"SELECT {column} FROM approvals_{table} WHERE {key} = ?"  # noqa: S608
    ((stored,),) = product.rows(query, interrupt.replace("-", ""))
    return moment(stored)
