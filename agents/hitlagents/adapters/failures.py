"""How a failure of a model or a framework is told to people, whatever the framework."""

from __future__ import annotations

from hitlagents.adapters.base import AgentRunError, CheckpointError

_BUSY = frozenset({408, 409, 425, 429})
_LOST = frozenset({"APIConnectionError", "APITimeoutError", "TransportError"})


def damaged() -> CheckpointError:
    return CheckpointError("The stored state of this run is damaged.")


def foreign_decisions() -> CheckpointError:
    return CheckpointError(
        "The decisions do not belong to the calls this stored state waits for."
    )


def ignored_decisions(count: int) -> AgentRunError:
    return AgentRunError(
        f"The framework did not take {count} of the decisions.", retryable=False
    )


def missing_tool(tool: str) -> AgentRunError:
    return AgentRunError(
        f"The tool {tool!r} was called, but this version of the agent does not have it "
        "any more.",
        retryable=False,
    )


def unproposed_call() -> AgentRunError:
    return AgentRunError(
        "The framework wants to run a call that was never proposed.", retryable=False
    )


def too_many_turns(most: int) -> AgentRunError:
    return AgentRunError(
        f"The agent was stopped after {most} model turns.", retryable=False
    )


def cut_off(model: str) -> AgentRunError:
    return AgentRunError(
        f"The answer of the model ({model}) was cut off.", retryable=True
    )


def explained(error: BaseException, model: str) -> AgentRunError:
    """Word a failure for people, with nothing in it that the provider or a tool said.

    Such texts quote requests, addresses and sometimes keys. Retryable unless the same
    request would be refused again; a wrong key or address can be put right.
    """
    for cause in _causes(error):
        if isinstance(cause, AgentRunError):
            return cause
        status = getattr(cause, "status_code", None)
        if isinstance(status, int):
            return _by_status(status, model)
        names = {kind.__name__ for kind in type(cause).__mro__}
        if isinstance(cause, OSError | TimeoutError) or names & _LOST:
            return AgentRunError(
                f"The model ({model}) could not be reached.", retryable=True
            )
    last = type(_causes(error)[-1]).__name__
    return AgentRunError(
        f"The agent or its model ({model}) failed: {last}.", retryable=True
    )


def _by_status(status: int, model: str) -> AgentRunError:
    retryable = True
    if status in _BUSY or status >= 500:
        told = "is not available now"
    elif status in {401, 403}:
        told = "does not accept our key"
    elif status == 404:
        told = "does not exist at that address"
    else:
        told, retryable = "refused the request", False
    return AgentRunError(
        f"The model ({model}) {told} (HTTP {status}).", retryable=retryable
    )


def _causes(error: BaseException) -> list[BaseException]:
    """The error and what it was raised from, outermost first."""
    found: list[BaseException] = []
    current: BaseException | None = error
    while current is not None and current not in found:
        found.append(current)
        current = current.__cause__
    return found
