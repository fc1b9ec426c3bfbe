"""What the adapters say of tool calls in the same words, whatever the framework."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

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


#: Values that JSON has itself.
PLAIN = (str, int, float, list, dict)


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


def refuse_rewrites(tool: str, arguments: Mapping[str, Any], fitted: object) -> None:
    """Raises ArgumentsError where the tool's own types would make another value of what was
    approved, such as a number cut to a limit. That a text becomes a date is no other value."""
    made = fitted.model_dump(by_alias=True) if isinstance(fitted, BaseModel) else fitted
    if isinstance(made, Mapping) and (found := "; ".join(_rewrites(arguments, made))):
        raise ArgumentsError(
            f"{tool} would run with other arguments than were shown. {found}."
        )


def _rewrites(shown: Any, made: Any, where: str = "") -> Iterator[str]:
    if isinstance(shown, Mapping) and isinstance(made, Mapping):
        for name in shown.keys() & made.keys():
            yield from _rewrites(shown[name], made[name], f"{where}.{name}".strip("."))
    elif isinstance(shown, list) and isinstance(made, list) and len(shown) == len(made):
        for at, (one, other) in enumerate(zip(shown, made, strict=True)):
            yield from _rewrites(one, other, f"{where}.{at}".strip("."))
    elif isinstance(shown, PLAIN) and isinstance(made, PLAIN) and shown != made:
        yield f"{where}: {made!r} instead of {shown!r}"


def misfit(tool: str, error: ValidationError) -> ArgumentsError:
    """The faults in short sentences; a framework's own check speaks to developers."""
    faults = "; ".join(
        f"{'.'.join(str(part) for part in fault['loc'])}: {fault['msg']}"
        for fault in error.errors(include_url=False, include_input=False)
    )
    return ArgumentsError(f"The arguments do not fit {tool}. {faults}.")
