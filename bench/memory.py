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
from importlib import import_module
from pathlib import Path

from bench import report
from bench.resume import Desk, set_up
from hitlsite.paths import BASE_DIR, add_source_root

#: Stands for what the frameworks import when a real model is named.
CLIENTS = "clients"


def main() -> None:
    add_source_root()
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
    slugs = [framework.slug for framework in FRAMEWORKS]
    for name, what in (
        ("all of them", slugs),
        ("… and the clients of real models", [*slugs, CLIENTS]),
    ):
        mb, seconds = _measured(what)
        print(
            f"{name:<34} {mb:5.0f} MB   {mb - base:+5.0f}   loaded in {seconds:4.1f} s"
        )


def _measured(slugs: list[str]) -> tuple[float, float]:
    """Resident memory of such a process, and the seconds its first runs took."""
    with tempfile.TemporaryDirectory(prefix="sayso-bench-") as folder:
        done = subprocess.run(
            [sys.executable, "-m", "bench.memory", *slugs],
            cwd=BASE_DIR,
            env=os.environ | {"SAYSO_DATA": folder},
            capture_output=True,
            text=True,
            check=True,
        )
    mb, seconds = done.stdout.split()[-2:]
    return float(mb), float(seconds)


def _inside(slugs: list[str]) -> None:
    """The measured process."""
    set_up(Path(os.environ["SAYSO_DATA"]))
    # What `manage.py worker` runs.
    import hitlagents.engine.worker  # noqa: F401
    from bench.frameworks import FRAMEWORKS

    desk = Desk()
    began = time.perf_counter()
    for framework in FRAMEWORKS:
        if framework.slug in slugs:
            desk.host(framework)
            asyncio.run(_run(desk, framework.slug))
    if CLIENTS in slugs:
        for module in (
            "openai",
            "agent_framework.openai",
            "langchain_openai",
            "genkit_openai",
        ):
            import_module(module)
    seconds = time.perf_counter() - began
    status = Path("/proc/self/status").read_text(encoding="ascii")
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    print(int(found[1]) / 1024 if found else 0.0, seconds)
    desk.close()


async def _run(desk: Desk, slug: str) -> None:
    """From a message over an approval to the end."""
    from hitlagents import runner
    from hitlagents.engine.threads import in_database

    run_id = await in_database(desk.paused, slug)
    await runner.advance(run_id, owner="bench")
    await in_database(desk.approve, run_id)
    await runner.advance(run_id, owner="bench")
    await in_database(desk.check, run_id)


if __name__ == "__main__":
    _inside(sys.argv[1:])
