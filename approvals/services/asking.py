"""What a call asks of people: whether it may run or how a question is answered, with
which verdicts, in which words, and what an answer must look like. Pure functions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.utils import timezone

from approvals import canonical
from approvals.models import Tool
from approvals.schemas import APPROVED_SCHEMA, InterruptDraft, Suggest
from approvals.services.tools import MAX_TITLE, SUGGEST, title_of
from approvals.states import InterruptKind, Verdict


@dataclass(frozen=True, kw_only=True)
class Asked:
    """How a pause is put to people."""

    kind: InterruptKind
    reason: str
    title: str
    message: str
    verdicts: tuple[Verdict, ...]
    response_schema: dict[str, Any] | None


def asked(
    draft: InterruptDraft, tool: Tool | None, arguments: str, asked_at: datetime
) -> Asked:
    """The pause in its final form. A call of a tool that is a question, or that a page
    brought, becomes one, whatever the framework takes it for."""
    if tool is not None and tool.kind == InterruptKind.CLIENT:
        return _of_a_page(draft)
    from_tool = tool is not None and tool.kind == InterruptKind.QUESTION
    question = from_tool or draft.kind == InterruptKind.QUESTION
    title = _first_line(draft.title) or title_of(tool, draft.call.tool, arguments)
    if question and not draft.title and not (tool and tool.title):
        title = _first_line(draft.message) or f"Answer {draft.call.tool}"[:MAX_TITLE]
    message = draft.message or (
        title if question else f"Approve running {draft.call.tool}?"
    )
    return Asked(
        kind=InterruptKind.QUESTION if question else InterruptKind.APPROVAL,
        reason="input_required" if from_tool else draft.reason,
        title=title,
        message=message,
        verdicts=tuple(_of_a_question(draft)) if from_tool else draft.verdicts,
        response_schema=draft.response_schema or _from_tool(tool, asked_at),
    )


def _of_a_page(draft: InterruptDraft) -> Asked:
    """No person is asked; what it says is for who looks at the run."""
    tool = draft.call.tool
    return Asked(
        kind=InterruptKind.CLIENT,
        reason="client_tool",
        title=f"{tool} on the page"[:MAX_TITLE],
        message="The page that brought this tool answers it.",
        # Those of a question, which it becomes if a policy puts it to people after all.
        verdicts=tuple(_of_a_question(draft)),
        response_schema=None,
    )


def _of_a_question(draft: InterruptDraft) -> Iterator[Verdict]:
    """The guard gives the answer to the framework as the result of the call, so that
    whatever lets a call run can take one."""
    for verdict in draft.verdicts:
        if verdict == Verdict.APPROVE:
            yield Verdict.ANSWER
        elif verdict != Verdict.RESPOND:
            yield verdict


def _from_tool(tool: Tool | None, asked_at: datetime) -> dict[str, Any] | None:
    """What the tool's registration says of the answer; None where it says nothing."""
    if tool is None or not tool.answer_schema:
        return None
    answer: dict[str, Any] = canonical.loads(tool.answer_schema)
    properties = {
        name: _with_times(part, asked_at) for name, part in answer["properties"].items()
    }
    if tool.kind == InterruptKind.QUESTION:
        return answer | {"properties": properties}
    return {
        "type": "object",
        "properties": APPROVED_SCHEMA["properties"] | properties,
        "required": APPROVED_SCHEMA["required"],
    }


def _with_times(part: Any, asked_at: datetime) -> Any:
    """The schema of a time with the proposed ones as examples, so that they are part of
    the request: shown, digested and recorded with it."""
    if not isinstance(part, Mapping) or SUGGEST not in part:
        return part
    kept = {key: value for key, value in part.items() if key != SUGGEST}
    return kept | {"examples": times(Suggest.model_validate(part[SUGGEST]), asked_at)}


def times(suggest: Suggest, asked_at: datetime) -> list[str]:
    """Times of the working days after ``asked_at``, in ISO 8601 with their offset."""
    day = timezone.localtime(asked_at, timezone.get_default_timezone()).date()
    found: list[str] = []
    for _ in range(suggest.days):
        day += timedelta(days=1)
        while day.isoweekday() > 5:
            day += timedelta(days=1)
        for at in suggest.times:
            moment = timezone.make_aware(
                datetime.combine(day, at.replace(tzinfo=None)),
                timezone.get_default_timezone(),
            )
            found.append(moment.isoformat())
    return found


def _first_line(text: str) -> str:
    """A question as a title: its first line, short."""
    line = " ".join(text.strip().partition("\n")[0].split())
    return line if len(line) <= MAX_TITLE else f"{line[: MAX_TITLE - 1]}…"
