"""Tools that a page brings: stored with the message they came with, since whoever goes on
with its run after a decision has no page."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence

from pydantic import TypeAdapter

from approvals.schemas import ClientTool, ToolSpec
from approvals.states import InterruptKind
from hitlagents.adapters.base import AgentRunError

_TOOLS = TypeAdapter(tuple[ClientTool, ...])


def to_store(tools: Sequence[ClientTool]) -> str:
    """As JSON; empty for none."""
    return _TOOLS.dump_json(tuple(tools)).decode() if tools else ""


def stored(text: str) -> Sequence[ClientTool]:
    return _TOOLS.validate_json(text) if text else ()


def folded(name: str) -> str:
    """The same for names that differ only by case, or by how Unicode writes them."""
    return unicodedata.normalize("NFKC", name).casefold()


def refuse_taken(brought: Iterable[ClientTool], own: Iterable[ToolSpec]) -> None:
    """Raises AgentRunError for one that has the name of a tool that runs here. The endpoint
    refuses those; the agent may have got such a tool since.

    A question may be given over to the page: nothing runs for it either way.
    """
    runs = {folded(spec.name) for spec in own if spec.kind != InterruptKind.QUESTION}
    for tool in brought:
        if folded(tool.name) in runs:
            raise AgentRunError(f"Duplicate tool name: {tool.name}", retryable=False)
