"""Tools as the desk knows them: what the framework says of one, and what its card adds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from approvals.schemas import ToolSpec


def described(
    tools: Iterable[tuple[str, str, dict[str, Any]]], cards: Sequence[ToolSpec]
) -> tuple[ToolSpec, ...]:
    """The tools in their order, each given by name, description and parameters.

    Everything else comes from the card of that name, if there is one. Raises ValueError
    for cards that fit no tool and for tools of the same name.
    """
    found = list(tools)
    names = [name for name, *_ in found]
    refuse_repeated(names)
    refuse_unknown([card.name for card in cards], names)
    by_name = {card.name: card for card in cards}
    return tuple(
        by_name.get(name, ToolSpec(name=name)).model_copy(
            update={"description": description, "parameters": parameters}
        )
        for name, description, parameters in found
    )


def refuse_repeated(names: Sequence[str]) -> None:
    """Raises ValueError when a name stands there twice."""
    if len(set(names)) != len(names):
        raise ValueError(f"Two tools have the same name: {', '.join(sorted(names))}.")


def refuse_unknown(names: Iterable[str], tools: Iterable[str]) -> None:
    """Raises ValueError for names of no tool."""
    if strangers := set(names) - set(tools):
        raise ValueError(f"There is no tool named {', '.join(sorted(strangers))}.")
