"""The shapes that cross the border between the desk and whatever runs an agent."""

from __future__ import annotations

from datetime import time
from typing import Any
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field

from approvals.states import InterruptKind, Risk, Verdict

#: What a decision on a call says at least.
APPROVED_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "approved": {
            "type": "boolean",
            "description": "Whether the tool call may run.",
        }
    },
    "required": ["approved"],
}


class Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ToolSpec(Frozen):
    """What the desk must know of a tool to show, rule on and check a call of it."""

    name: str
    description: str = ""
    #: JSON Schema of the arguments (an object schema).
    parameters: dict[str, Any] = Field(default_factory=lambda: {"type": "object"})
    risk: Risk = Risk.MEDIUM
    #: The tool changes nothing, so running it again after a crash does no harm.
    read_only: bool = False
    #: Top-level parameters whose values are never shown.
    secrets: tuple[str, ...] = ()
    #: Parameters, also inside of others, that are shown although they look like secrets
    #: (``approvals.hiding``).
    plain: tuple[str, ...] = ()
    #: One line naming the effect; ``{filename}`` is replaced by that argument.
    title: str = ""
    #: The approve button, naming its effect.
    approve_label: str = ""
    #: What a reviewer should know before approving, as plain text.
    consequence: str = ""
    #: What a call asks of people. A question has no effect of its own: nothing runs for
    #: it, and a person's answer is its result.
    kind: InterruptKind = InterruptKind.APPROVAL
    #: JSON Schema of what a person says, an object schema: of a question the whole answer,
    #: otherwise what may stand beside an approval. A time may have ``x-suggest``
    #: (``Suggest``).
    answer: dict[str, Any] | None = None
    #: How pages ask for it (``approvals.cards``); empty or unknown: by a plain form.
    card: str = ""


class ClientTool(Frozen):
    """A tool that a page brings for a run and answers itself. Nothing runs for it here."""

    name: str = Field(min_length=1, max_length=200)
    description: str = ""
    #: JSON Schema of the arguments (an object schema).
    parameters: dict[str, Any] = Field(default_factory=lambda: {"type": "object"})


class Suggest(Frozen):
    """``x-suggest`` in the schema of a time: which times of the working days to come are
    proposed. They are put in when a call is asked, as the schema's ``examples``."""

    days: int = Field(default=3, ge=1, le=10)
    #: Times of the day in the zone of the installation.
    times: tuple[time, ...] = Field(min_length=1, max_length=6)


class ToolCall(Frozen):
    """One call a model proposed. (turn, call_id) is its key within the run."""

    #: Number of the model turn in this run that proposed it, from 1; fixed when first seen.
    turn: int = Field(ge=1)
    #: Never empty and never repeated within the turn; the adapter makes it so.
    call_id: str = Field(min_length=1, max_length=200)
    tool: str = Field(min_length=1, max_length=200)
    #: The arguments as the model wrote them: JSON text, not yet canonical.
    arguments: str
    #: What the framework calls this pause, if that differs from call_id.
    framework_ref: str = ""


class InterruptDraft(Frozen):
    """A pause as an adapter reports it; the desk makes an Interrupt of it."""

    call: ToolCall
    kind: InterruptKind = InterruptKind.APPROVAL
    #: AG-UI's word: tool_call, input_required, confirmation or ``<framework>:<name>``.
    reason: str = "tool_call"
    message: str = ""
    #: The effect in one line, where the tool's own title cannot say it.
    title: str = ""
    #: What the agent wrote just before it proposed the call.
    said: str = ""
    #: What the agent wants to hear, where it asks by itself. That of a registered tool
    #: stands in its ToolSpec.
    response_schema: dict[str, Any] | None = None
    #: The verdicts this framework can take for this pause.
    verdicts: tuple[Verdict, ...] = (
        Verdict.APPROVE,
        Verdict.DENY,
        Verdict.CANCEL_RUN,
    )
    #: Whether whoever approves may change the arguments.
    editable: bool = True
    #: The agent's own code wants a person's word on this very call, so that no policy may
    #: let it run without one.
    demanded: bool = False
    #: Whether the agent can be told what a reviewer notes; otherwise it stays here.
    takes_note: bool = True
    #: What a reviewer should know of this very call, beside what its tool says.
    consequence: str = ""
    #: Calls of one pause with the same name here run together or not at all: a denial of
    #: one holds the others back, whatever was said of them.
    together: str = Field(default="", max_length=200)


class Answer(Frozen):
    """A decision on its way into the run. The guard, not this, is the authority."""

    interrupt_id: UUID
    call: ToolCall
    verdict: Verdict
    #: What the model is to be told when the call does not run, and beside its result when
    #: it does.
    text: str = ""
    #: Of that text, what does not follow from verdict and arguments: a reviewer's own
    #: words, or why the call does not run if no reviewer denied it.
    note: str = ""
    arguments: dict[str, Any] | None = None
    answer: Any = None
    output: Any = None
