"""What is kept of a conversation with a remote agent between two advances."""

from __future__ import annotations

from dataclasses import dataclass, field

from hitlagents.adapters.base import State
from hitlagents.adapters.failures import damaged
from hitlagents.adapters.stored import natural, plain, refuse_newer
from hitlagents.remote.interrupts import OpenInterrupt
from hitlagents.remote.reading import Message

#: Version of this layout.
SCHEMA = 1


@dataclass(kw_only=True)
class Kept:
    """The conversation as the agent told it last, and what it waits for."""

    messages: list[Message] = field(default_factory=list)
    open: list[OpenInterrupt] = field(default_factory=list)
    #: Calls beside those, which go on with them: our ids by the remote's.
    beside: dict[str, str] = field(default_factory=dict)
    #: What was approved and whose outcome was lost, in case the agent asks for it again.
    lost: list[OpenInterrupt] = field(default_factory=list)
    #: Our id of the last run there.
    run: str = ""
    #: How many answers have been read; the next one's calls are of the next turn.
    turn: int = 0

    @classmethod
    def of(cls, state: State | None) -> Kept:
        """Raises CheckpointError."""
        if state is None:
            return cls()
        try:
            refuse_newer(state, SCHEMA)
            messages = state["messages"]
            if not all(isinstance(message, dict) for message in messages):
                raise ValueError(messages)
            return cls(
                messages=list(messages),
                open=[OpenInterrupt.from_state(each) for each in state["open"]],
                # States of the first days have neither of these two.
                beside={str(k): str(v) for k, v in state.get("beside", {}).items()},
                lost=[OpenInterrupt.from_state(each) for each in state.get("lost", [])],
                run=str(state["run"]),
                turn=natural(state["turn"]),
            )
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise damaged() from error

    def to_state(self) -> State:
        return plain(
            {
                "schema": SCHEMA,
                "messages": self.messages,
                "open": [each.to_state() for each in self.open],
                "beside": self.beside,
                "lost": [each.to_state() for each in self.lost],
                "run": self.run,
                "turn": self.turn,
            }
        )
