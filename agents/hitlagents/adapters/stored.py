"""What every adapter's stored state has in common: plain JSON, the version of its layout, and
the calls that are open in it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from typing import Any, Self

from hitlagents.adapters.base import AgentRunError, CheckpointError, State
from hitlagents.adapters.failures import damaged


def plain(state: State) -> State:
    """A copy in plain JSON. Raises AgentRunError when something in it is not."""
    try:
        copied: State = json.loads(json.dumps(state, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise AgentRunError(
            "The agent's state cannot be stored as JSON.", retryable=False
        ) from error
    return copied


@contextmanager
def reading(state: State, schema: int) -> Iterator[None]:
    """Around the code that reads a state of that layout. Raises CheckpointError when newer
    code wrote it, and when something is not there or not as it was written."""
    try:
        refuse_newer(state, schema)
        yield
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise damaged() from error


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


@dataclass(kw_only=True)
class StoredCall:
    """A call without a result yet. What a framework needs beside is text."""

    turn: int
    call_id: str
    tool: str
    #: The provider's id of the call.
    reference: str = ""
    #: Whether a person decides it.
    asked: bool = False

    @classmethod
    def all_from(cls, states: Mapping[str, Mapping[str, Any]]) -> dict[str, Self]:
        """The calls by their ids, from what ``stored_calls`` gave; to be called when ``reading``."""
        return {call_id: cls._from(call_id, state) for call_id, state in states.items()}

    @classmethod
    def _from(cls, call_id: str, state: Mapping[str, Any]) -> Self:
        others = {"call_id", "turn", "asked"}
        names = [each.name for each in fields(cls) if each.name not in others]
        return cls(
            call_id=call_id,
            turn=natural(state["turn"]),
            asked=state["asked"] is True,
            **{name: str(state[name]) for name in names},
        )


def stored_calls(calls: Mapping[str, StoredCall]) -> dict[str, dict[str, Any]]:
    """The calls as plain JSON, by their ids."""
    kept = {call_id: asdict(call) for call_id, call in calls.items()}
    for state in kept.values():
        del state["call_id"]
    return kept
