"""A process that knows nothing but a stored state and the decisions; for the tests.

Reads JSON from standard input, resumes, writes JSON to standard output.
"""

from __future__ import annotations

import asyncio
import json
import sys
from uuid import UUID

from approvals.schemas import Answer
from hitlagents.adapters.base import Finished, Resume
from hitlagents.demo.scripted import Reply
from tests.hitlagents.adapters.harness import HARNESSES
from tests.hitlagents.fakes import FREE, FakeHost, Tools, heard, plays


def main() -> None:
    job = json.load(sys.stdin)
    host = FakeHost(allowed=FREE, run_id=UUID(job["run_id"]))
    answers = [Answer.model_validate(answer) for answer in job["answers"]]
    host.decisions = {(a.call.turn, a.call.call_id): a for a in answers}
    tools = Tools()
    adapter = HARNESSES[job["harness"]].build(plays(Reply("unused"), heard), tools)
    resume = Resume(
        run_id=host.run_id,
        thread_id=UUID(job["thread_id"]),
        state=job["state"],
        answers=answers,
    )
    outcome = asyncio.run(adapter.resume(resume, host))
    json.dump(
        {
            "finished": isinstance(outcome, Finished),
            "effects": tools.effects,
            "text": host.text,
        },
        sys.stdout,
    )


if __name__ == "__main__":
    main()
