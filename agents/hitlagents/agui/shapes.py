"""Interrupts as this endpoint tells them: the framework's shape, and what binds an answer.

Beside what every AG-UI front end reads, ``metadata.sayso`` holds the digest of what is
decided about, and the addresses of the request on the desk and of the conversation.
"""

from __future__ import annotations

from typing import Any

from django.urls import reverse

from approvals import canonical, services
from approvals.forms import OURS
from approvals.models import Interrupt
from approvals.policies import Ruling
from approvals.states import Gate, InterruptKind, NoteRule, Verdict
from hitlagents import wire

#: Where a page may put the words that go with a verdict, unless the answer has such a key.
NOTE_KEYS = ("note", "reason", "comment")


def interrupt_for(interrupt: Interrupt, *, site: str, modern: bool) -> dict[str, Any]:
    """``site``: where this installation is, such as ``https://desk.example.org``."""
    ruling = services.ruling_for(interrupt)
    shape = wire.interrupt_shape(interrupt)
    if interrupt.kind == InterruptKind.APPROVAL:
        shape["responseSchema"] = _decision_schema(
            shape["responseSchema"], interrupt, ruling
        )
    shape["metadata"]["sayso"] = {
        **shape["metadata"].get("sayso", {}),
        "digest": services.shown_digest(interrupt, ruling),
        # Where reviewers decide, and where whoever talks to the agent sees it stand.
        "url": site + reverse("interrupt", args=[interrupt.pk]),
        "conversation": site
        + reverse("thread", args=[interrupt.run.agent, interrupt.run.thread]),
    }
    if not modern:
        # Its clients can neither answer nor cancel what has expired.
        shape.pop("expiresAt", None)
    return shape


def may_edit(interrupt: Interrupt, ruling: Ruling) -> bool:
    """Whether an approval may bring other arguments."""
    return (
        interrupt.editable
        and interrupt.kind == InterruptKind.APPROVAL
        and Verdict.APPROVE in interrupt.verdicts
        and ruling.gate != Gate.REFUSE
        and ruling.approvals_required == 1
        and bool(interrupt.tool_schema)
        and interrupt.arguments.startswith("{")
    )


def answer_keys(interrupt: Interrupt) -> frozenset[str]:
    """What may stand beside ``approved`` for the tool itself."""
    if not interrupt.response_schema:
        return frozenset()
    schema = canonical.loads(interrupt.response_schema)
    properties = schema.get("properties") if isinstance(schema, dict) else None
    return frozenset(properties if isinstance(properties, dict) else ()) - OURS


def _decision_schema(
    schema: dict[str, Any], interrupt: Interrupt, ruling: Ruling
) -> dict[str, Any]:
    properties = dict(schema.get("properties") or {})
    required = list(schema.get("required") or [])
    if may_edit(interrupt, ruling):
        properties["editedArgs"] = {
            **canonical.loads(interrupt.tool_schema),
            "description": "All arguments, as they should be instead.",
        }
    if "note" not in properties:
        properties["note"] = {
            "type": "string",
            "description": "Why. The agent reads it when the call does not run.",
        }
        if ruling.note_rule == NoteRule.ALWAYS:
            required.append("note")
    return {**schema, "properties": properties, "required": required}
