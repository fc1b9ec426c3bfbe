"""AG-UI's shapes of what happens in a run (protocol 0.1 and 1.0 agree on these).

Everything is plain JSON objects; the member ``type`` names the event.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from approvals import canonical, services
from approvals.models import Interrupt
from approvals.schemas import APPROVED_SCHEMA
from approvals.states import InterruptKind
from hitlagents import catalog
from hitlagents.adapters.base import ToolCallProposed, ToolCallResult

type Event = tuple[str, dict[str, Any]]
"""The event's type, and its other members."""


def text_start(message_id: str) -> Event:
    return "TEXT_MESSAGE_START", {"messageId": message_id, "role": "assistant"}


def text_content(message_id: str, delta: str) -> Event:
    return "TEXT_MESSAGE_CONTENT", {"messageId": message_id, "delta": delta}


def text_end(message_id: str) -> Event:
    return "TEXT_MESSAGE_END", {"messageId": message_id}


def tool_call(happening: ToolCallProposed) -> list[Event]:
    call = happening.call
    start = {"toolCallId": call.call_id, "toolCallName": call.tool}
    if happening.message_id:
        start["parentMessageId"] = happening.message_id
    return [
        ("TOOL_CALL_START", start),
        ("TOOL_CALL_ARGS", {"toolCallId": call.call_id, "delta": call.arguments}),
        ("TOOL_CALL_END", {"toolCallId": call.call_id}),
    ]


def tool_result(happening: ToolCallResult) -> Event:
    return "TOOL_CALL_RESULT", {
        "messageId": f"{happening.call_id}-result",
        "toolCallId": happening.call_id,
        "role": "tool",
        "content": happening.content,
    }


def run_started(thread_id: object, run_id: object) -> Event:
    return "RUN_STARTED", {"threadId": str(thread_id), "runId": str(run_id)}


def run_finished(
    thread_id: object, run_id: object, waiting: Sequence[Interrupt]
) -> Event:
    """The end of one advance: with requests their list; else success, with the calls that
    its page answers."""
    at_page = [each for each in waiting if each.kind == InterruptKind.CLIENT]
    interrupts = [each for each in waiting if each not in at_page]
    outcome: dict[str, Any] = {"type": "success"}
    if at_page and not interrupts:
        outcome["pendingToolCallIds"] = [each.call_id for each in at_page]
    if interrupts:
        shapes = [interrupt_shape(interrupt) for interrupt in interrupts]
        outcome = {"type": "interrupt", "interrupts": shapes}
    return "RUN_FINISHED", {
        "threadId": str(thread_id),
        "runId": str(run_id),
        "outcome": outcome,
    }


def run_error(message: str) -> Event:
    return "RUN_ERROR", {"message": message}


def _plain(interrupt: Interrupt) -> dict[str, Any]:
    """What is answered where the agent does not say."""
    if interrupt.kind == InterruptKind.QUESTION:
        return {"title": "Answer"}
    return APPROVED_SCHEMA


def interrupt_shape(interrupt: Interrupt) -> dict[str, Any]:
    """One interrupt as a page gets it; values of secret parameters are hidden."""
    schema = interrupt.response_schema
    spec = catalog.get(interrupt.run.agent)
    shape: dict[str, Any] = {
        "id": str(interrupt.pk),
        "reason": interrupt.reason,
        "message": interrupt.message,
        "toolCallId": interrupt.call_id,
        "responseSchema": canonical.loads(schema) if schema else _plain(interrupt),
        "metadata": {
            spec.metadata_key if spec else "sayso": {
                "function_call": {
                    "call_id": interrupt.call_id,
                    "name": interrupt.tool,
                    "arguments": services.redacted(interrupt),
                }
            }
        },
    }
    if interrupt.reason == "tool_approval":
        # Where pages for the OpenAI Agents SDK look.
        shape["metadata"]["tool_name"] = interrupt.tool
        shape["metadata"]["tool_input"] = services.redacted(interrupt)
    if interrupt.expires_at is not None:
        shape["expiresAt"] = interrupt.expires_at.isoformat()
    return shape
