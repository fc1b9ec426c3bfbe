"""How results are printed: medians and tails, never without the machine's load."""

from __future__ import annotations

import os
import statistics
from collections.abc import Sequence


def line(name: str, milliseconds: Sequence[float], goal: str = "") -> None:
    ordered = sorted(milliseconds)
    p95 = ordered[min(len(ordered) - 1, int(len(ordered) * 0.95))]
    text = (
        f"{name:<46} median {statistics.median(ordered):7.1f} ms   "
        f"p95 {p95:7.1f} ms   max {ordered[-1]:7.1f} ms   n={len(ordered)}"
    )
    print(f"{text}   goal: {goal}" if goal else text)


def load() -> str:
    return "load average " + " ".join(f"{each:.2f}" for each in os.getloadavg())


def heading(text: str) -> None:
    print(f"\n{text} ({load()}, {os.cpu_count()} processors)")
