"""A process that knows nothing but a stored state and the decisions; for the tests.

Reads JSON from standard input, resumes, writes JSON to standard output. Its model is the
one its environment names, as for every process that hosts agents.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from typing import Any
from uuid import UUID, uuid4

from approvals.schemas import Answer, ClientTool
from hitlagents.adapters.base import Finished, Outcome, Resume
from hitlagents.client_tools import stored, to_store
from hitlagents.demo.scripted import Reply
from tests.hitlagents.adapters.harness import HARNESSES, Harness
from tests.hitlagents.fakes import FREE, FakeHost, Tools, heard, plays, through_json
from tests.hitlagents.processes import run_python


def resume_elsewhere(
    harness: Harness,
    host: FakeHost,
    paused: Outcome,
    answers: Sequence[Answer],
    client_tools: Sequence[ClientTool] = (),
    **environ: str,
) -> dict[str, Any]:
    """Resume in a process of its own, and say how that ended."""
    job = {
        "harness": harness.name,
        "run_id": str(host.run_id),
        "thread_id": str(uuid4()),
        "state": through_json(paused.state),
        "answers": [answer.model_dump(mode="json") for answer in answers],
        "client_tools": to_store(client_tools),
    }
    written = run_python("-m", __name__, given=json.dumps(job), **environ)
    ended: dict[str, Any] = json.loads(written)
    return ended


def main() -> None:
    job = json.load(sys.stdin)
    host = FakeHost(allowed=FREE, run_id=UUID(job["run_id"]))
    answers = [Answer.model_validate(answer) for answer in job["answers"]]
    host.decisions = {(a.call.turn, a.call.call_id): a for a in answers}
    tools = Tools()
    harness = HARNESSES[job["harness"]]
    model = harness.models.from_environment(plays(Reply("unused"), heard))
    adapter = harness.around(model, tools)
    resume = Resume(
        run_id=host.run_id,
        thread_id=UUID(job["thread_id"]),
        state=job["state"],
        answers=answers,
        client_tools=stored(job["client_tools"]),
    )
    outcome = asyncio.run(adapter.resume(resume, host))
    json.dump(
        {
            "finished": isinstance(outcome, Finished),
            "model": adapter.model_label,
            "effects": tools.effects,
            "text": host.text,
        },
        sys.stdout,
    )


if __name__ == "__main__":
    main()
