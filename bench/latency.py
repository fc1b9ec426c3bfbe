"""From a person's word to the tool, and from the agent's question to the person."""

from __future__ import annotations

import time
from pathlib import Path

from bench import report
from bench.served import Person, Product, moment, served


def main(rounds: int) -> None:
    with served() as product:
        member = Person(product, "member")
        reviewer = Person(product, "ops-reviewer")
        frames = reviewer.listen()
        raised, entered, gone, felt = [], [], [], []
        for number in range(rounds + 5):
            thread = member.say(f"list the files {number}")
            _settled(product, thread)
            file = _file(product, thread, f"bench-{number}.txt")
            member.say(f"delete {file.name}", thread)
            interrupt, at = frames.opened()
            opened = _one(product, "interrupt", "created", "id", interrupt)
            form = reviewer.form(interrupt)
            sent = time.time()
            reviewer.approve(interrupt, form)
            vanished = _wait_until_gone(file)
            if number < 5:  # imports and first connections
                continue
            decided = _one(product, "decision", "created", "interrupt_id", interrupt)
            begun = _one(product, "toolexecution", "started", "interrupt_id", interrupt)
            raised.append((at - opened) * 1000)
            entered.append((begun - decided) * 1000)
            gone.append((vanished - decided) * 1000)
            felt.append((vanished - sent) * 1000)
        report.heading("One request at a time")
        report.line("raise (row written) to frame at the socket", raised, "median 15")
        report.line("decision written to tool entered", entered, "median 20, p95 60")
        report.line("decision written to file gone", gone)
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


def _wait_until_gone(file: Path) -> float:
    deadline = time.time() + 30
    while file.exists():
        assert time.time() < deadline, "The tool did not run."
        time.sleep(0.0005)
    return time.time()


def _one(product: Product, table: str, column: str, key: str, interrupt: str) -> float:
    query = f"SELECT {column} FROM approvals_{table} WHERE {key} = ?"  # noqa: S608
    ((stored,),) = product.rows(query, interrupt.replace("-", ""))
    return moment(stored)
