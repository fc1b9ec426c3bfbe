"""How much memory a worker holds with each agent framework loaded, and with all of them.

Every line is a process of its own that has run one agent to a pause and to its end. A
worker is what is measured: nothing of the web server is in it.
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench import report

ROOT = Path(__file__).resolve().parent.parent


def main() -> None:
    from bench.frameworks import FRAMEWORKS

    report.heading("Memory of a worker")
    base, _ = _measured([])
    print(f"{'without any framework':<34} {base:5.0f} MB")
    for framework in FRAMEWORKS:
        mb, seconds = _measured([framework.slug])
        print(
            f"{framework.name:<34} {mb:5.0f} MB   {mb - base:+5.0f}   "
            f"loaded in {seconds:4.1f} s"
        )
    mb, seconds = _measured([framework.slug for framework in FRAMEWORKS])
    print(
        f"{'all of them':<34} {mb:5.0f} MB   {mb - base:+5.0f}   "
        f"loaded in {seconds:4.1f} s"
    )


def _measured(slugs: list[str]) -> tuple[float, float]:
    """Resident memory of such a process, and the seconds its first runs took."""
    with tempfile.TemporaryDirectory(prefix="sayso-bench-") as folder:
        done = subprocess.run(
            [sys.executable, "-m", "bench.memory", *slugs],
            cwd=ROOT,
            env=os.environ | {"SAYSO_DATA": folder},
            capture_output=True,
            text=True,
            check=True,
        )
    mb, seconds = done.stdout.split()[-2:]
    return float(mb), float(seconds)


def _inside(slugs: list[str]) -> None:
    """The measured process."""
    from bench.resume import Desk, set_up

    set_up(Path(os.environ["SAYSO_DATA"]))
    from bench.frameworks import FRAMEWORKS
    from hitlagents.engine import worker

    assert worker.Worker  # what `manage.py worker` runs
    desk = Desk()
    began = time.perf_counter()
    for framework in FRAMEWORKS:
        if framework.slug in slugs:
            desk.host(framework)
            asyncio.run(_run(desk, framework.slug))
    seconds = time.perf_counter() - began
    status = Path("/proc/self/status").read_text(encoding="ascii")
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    print(int(found[1]) / 1024 if found else 0.0, seconds)
    desk.close()


async def _run(desk: object, slug: str) -> None:
    """From a message over an approval to the end."""
    from bench.resume import Desk
    from hitlagents import runner
    from hitlagents.engine.threads import in_database

    assert isinstance(desk, Desk)
    run_id = await in_database(desk.paused, slug)
    await runner.advance(run_id, owner="bench")
    await in_database(desk.approve, run_id)
    await runner.advance(run_id, owner="bench")
    await in_database(desk.check, run_id)


if __name__ == "__main__":
    _inside(sys.argv[1:])
