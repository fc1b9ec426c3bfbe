"""What the adapters say of tool calls in the same words, whatever the framework."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from approvals.states import Verdict

#: Longest name of a tool, or reference of a call, that the desk stores.
MAX_NAME = 200

#: True whatever happened: the run may have ended before, while or after the call ran.
ABANDONED = "The run was ended before this call gave a result."

#: What the guard makes of a decision, where the framework itself knows less.
VERDICTS = (
    Verdict.APPROVE,
    Verdict.DENY,
    Verdict.RESPOND,
    Verdict.CANCEL_CALL,
    Verdict.CANCEL_RUN,
)


def named(name: str | None) -> str:
    """A tool's name as it can be stored. One that had to be changed is no tool's."""
    text = (name or "(no name)")[:MAX_NAME]
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def not_there(tool: str) -> str:
    """What a model is told that calls a tool which does not exist."""
    return f"Not executed: there is no tool named {tool!r}."


async def at_page(*_: Any, **__: Any) -> str:
    """The body of a tool that a page brought."""
    raise NotImplementedError("The page answers this call; nothing runs for it.")


class ArgumentsError(ValueError):
    """The arguments do not fit the tool."""


def refuse_strangers(
    tool: str, parameters: Mapping[str, Any], arguments: Mapping[str, Any]
) -> None:
    """Raises ArgumentsError for names a closed schema does not know. Frameworks drop
    such arguments silently; what a reviewer sees must be what runs."""
    if parameters.get("additionalProperties") is not False:
        return
    strangers = sorted(arguments.keys() - parameters.get("properties", {}).keys())
    if strangers:
        raise ArgumentsError(f"{tool} has no parameter {', '.join(strangers)}.")


def misfit(tool: str, error: ValidationError) -> ArgumentsError:
    """The faults in short sentences; a framework's own check speaks to developers."""
    faults = "; ".join(
        f"{'.'.join(str(part) for part in fault['loc'])}: {fault['msg']}"
        for fault in error.errors(include_url=False, include_input=False)
    )
    return ArgumentsError(f"The arguments do not fit {tool}. {faults}.")
