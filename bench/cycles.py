"""How many requests a second are raised, decided and carried out, with eight clients."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from bench import report
from bench.served import Frames, Person, Product, served

CLIENTS = 8

#: What a member says to each agent, to have it ask for so many calls.
SAYINGS: dict[str, Callable[[int], str]] = {
    "file-ops": lambda calls: (
        "delete " + " and ".join(f"f{n}.txt" for n in range(calls))
    ),
    "asker": str,
}

#: What no policy matches is held for Reviewers.
JOIN = """
from django.contrib.auth.models import Group, User
User.objects.get(username="ops-reviewer").groups.add(Group.objects.get(name="Reviewers"))
"""


def main(agent: str, calls: int, rounds: int) -> None:
    """``calls``: gated calls a message asks for; ``rounds``: messages per client."""
    with served() as product:
        product.manage("shell", "-c", JOIN)
        members = [Person(product, "member") for _ in range(CLIENTS)]
        reviewers = [Person(product, "ops-reviewer") for _ in range(CLIENTS)]
        frames = reviewers[0].listen()
        # The first time: imports, connections.
        _cycle(product, members, reviewers, frames, agent, calls, 1)
        _cycle(product, members, reviewers, frames, agent, calls, rounds)


def _cycle(
    product: Product,
    members: list[Person],
    reviewers: list[Person],
    frames: Frames,
    agent: str,
    calls: int,
    rounds: int,
) -> None:
    total = CLIENTS * rounds * calls
    forms: list[tuple[str, dict[str, str]]] = []

    def ask(member: Person) -> None:
        for _ in range(rounds):
            member.say(SAYINGS[agent](calls), agent=agent)

    used, began = product.cpu_seconds(), time.perf_counter()
    _together(ask, members)
    opened = [frames.opened()[0] for _ in range(total)]
    raise_s = time.perf_counter() - began

    # Reading is not part of the cycle: people read before, not while, they decide.
    reading = used_reading = product.cpu_seconds()
    forms = [(interrupt, reviewers[0].form(interrupt)) for interrupt in opened]
    used_reading = product.cpu_seconds() - reading

    lock, left = threading.Lock(), list(forms)

    def decide(reviewer: Person) -> None:
        while True:
            with lock:
                if not left:
                    return
                interrupt, form = left.pop()
            reviewer.approve(interrupt, form)

    began = time.perf_counter()
    _together(decide, reviewers)
    decide_s = time.perf_counter() - began
    _all_ran(product)
    ran_s = time.perf_counter() - began
    spent = product.cpu_seconds() - used - used_reading
    if rounds > 1:
        report.heading(f"{total} requests of {agent}, {calls} a run, {CLIENTS} clients")
        print(f"raised                    {total / raise_s:7.1f} a second")
        print(f"decided                   {total / decide_s:7.1f} a second")
        print(f"raised and decided        {total / (raise_s + decide_s):7.1f} a second")
        print(f"…and every tool ran       {total / (raise_s + ran_s):7.1f} a second")
        print(f"processor time            {spent / total * 1000:7.1f} ms a request")


def _together(work: object, people: list[Person]) -> None:
    assert callable(work)
    with ThreadPoolExecutor(len(people)) as pool:
        list(pool.map(work, people))


def _all_ran(product: Product) -> None:
    busy = "SELECT count(*) FROM approvals_run WHERE status IN ('queued','running')"
    deadline = time.time() + 120
    while product.rows(busy) != [(0,)]:
        assert time.time() < deadline, "Runs did not end."
        time.sleep(0.02)
