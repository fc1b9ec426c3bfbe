"""The artifacts of a conversation with the demo agent writer, for pages that show them.

For database threads. Django is imported when a function is called.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from uuid import UUID


@dataclass(frozen=True, kw_only=True)
class Artifact:
    name: str
    text: str


def artifacts(thread_id: UUID) -> list[Artifact]:
    """As they were when the thread's newest run last paused or ended, oldest first."""
    from hitlagents.models import Checkpoint

    newest = (
        Checkpoint.objects.filter(run__input__thread=thread_id)
        .order_by("-run__created", "-run_id")
        .first()
    )
    state = json.loads(newest.state) if newest is not None else {}
    kept = (state.get("session") or {}).get("artifacts", [])
    return [
        Artifact(
            name=str(each.get("name", "")),
            text="\n".join(part["text"] for part in each["parts"] if "text" in part),
        )
        for each in kept
    ]
