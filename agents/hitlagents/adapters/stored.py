"""What every adapter's stored state has in common: plain JSON, and the version of its layout."""

from __future__ import annotations

import json
from typing import Any

from hitlagents.adapters.base import AgentRunError, CheckpointError, State


def plain(state: State) -> State:
    """A copy in plain JSON. Raises AgentRunError when something in it is not."""
    try:
        copied: State = json.loads(json.dumps(state, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise AgentRunError(
            "The agent's state cannot be stored as JSON.", retryable=False
        ) from error
    return copied


def refuse_newer(state: State, schema: int) -> None:
    """Raises CheckpointError when newer code wrote it, ValueError when none of ours did."""
    written = state.get("schema")
    if isinstance(written, int) and written > schema:
        raise CheckpointError(
            "The stored state was written by a newer version of this adapter "
            f"(layout {written}, this one reads {schema})."
        )
    if written != schema:
        raise ValueError(written)


def natural(value: Any) -> int:
    """A whole number that is not negative; raises ValueError for anything else."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(value)
    return value
