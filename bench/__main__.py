"""``./dev bench [agui|latency|cycles|footprint|memory|resume]``: measure the product."""

from __future__ import annotations

import argparse

from bench import agui, cycles, footprint, latency, memory, resume


def main() -> None:
    parser = argparse.ArgumentParser(prog="./dev bench", description=__doc__)
    parser.add_argument(
        "what",
        nargs="?",
        choices=["agui", "latency", "cycles", "footprint", "memory", "resume"],
        default=None,
    )
    parser.add_argument("--rounds", type=int, default=0, help="more rounds, less noise")
    given = parser.parse_args()
    if given.what in (None, "footprint"):
        footprint.main()
    if given.what in (None, "memory"):
        memory.main()
    if given.what in (None, "resume"):
        resume.main(given.rounds or 60)
    if given.what in (None, "agui"):
        agui.main(given.rounds or 60)
    if given.what in (None, "latency"):
        latency.main(given.rounds or 60)
    if given.what in (None, "cycles"):
        for agent in ("asker", "file-ops"):
            cycles.main(agent, calls=1, rounds=given.rounds or 15)
            cycles.main(agent, calls=8, rounds=given.rounds or 4)


if __name__ == "__main__":
    main()
