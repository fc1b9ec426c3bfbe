"""A remote agent's interrupts, as requests here."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from approvals import canonical
from approvals.exceptions import InvalidArguments
from approvals.schemas import InterruptDraft, ToolCall, ToolSpec
from approvals.states import InterruptKind, Verdict
from hitlagents.adapters.stored import natural
from hitlagents.remote.profiles import HABITS, Habits, Together
from hitlagents.remote.schemas import tamed

MAX_NAME = 200
MAX_WORDING = 4_000
MAX_INTERRUPTS = 50
#: A tool nobody named.
UNNAMED = "unnamed tool"

#: An answer of any kind. Not empty, since an empty schema counts as none.
ANYTHING = {"title": "Answer"}
#: Parts of a response schema that this side fills.
OURS = frozenset({"approved", "accepted", "editedArgs", "toolCall"})

#: Parts of a graph's interrupt that the protocol has places for, and their other names.
LIFTED = {
    "reason": "reason",
    "message": "message",
    "toolCallId": "tool_call_id",
    "responseSchema": "response_schema",
    "expiresAt": "expires_at",
}

#: Names under which agents take a reviewer's words.
_NOTES = ("note", "reason", "comment", "feedback", "message")

_ASKED = re.compile(r"\s*(?:Approve|Allow|Confirm) running (.+?)\s*\?\s*")


@dataclass(frozen=True, kw_only=True)
class StreamedCall:
    """A tool call of an answer: the id here, the tool, the arguments as text."""

    call_id: str
    tool: str
    arguments: str


@dataclass(frozen=True, kw_only=True)
class OpenInterrupt:
    """An interrupt that waits there, and the key of its request here."""

    #: The remote's id of it; several may share one.
    id: str
    turn: int
    call_id: str
    tool: str
    #: The remote's id of the tool call; may be empty.
    tool_call_id: str = ""
    kind: InterruptKind = InterruptKind.APPROVAL
    #: Arguments as JSON text.
    arguments: str = "{}"
    #: The remote's response schema, tamed.
    schema: Mapping[str, Any] = field(default_factory=dict)
    #: Another Sayso asks: it tells its agent of the verdict and of changes by itself.
    of_desk: bool = False

    @property
    def key(self) -> tuple[int, str]:
        return self.turn, self.call_id

    def repeats(self, other: OpenInterrupt) -> bool:
        """Whether it asks exactly what another one asked before."""
        return replace(self, turn=other.turn, call_id=other.call_id) == other

    def to_state(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "turn": self.turn,
            "call_id": self.call_id,
            "tool": self.tool,
            "tool_call_id": self.tool_call_id,
            "kind": str(self.kind.value),
            "arguments": self.arguments,
            "schema": dict(self.schema),
            "of_desk": self.of_desk,
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> OpenInterrupt:
        """Raises KeyError, TypeError, ValueError for what was not written here."""
        return cls(
            id=str(state["id"]),
            turn=natural(state["turn"]),
            call_id=str(state["call_id"]),
            tool=str(state["tool"]),
            tool_call_id=str(state["tool_call_id"]),
            kind=InterruptKind(state["kind"]),
            arguments=str(state["arguments"]),
            schema=dict(state["schema"]),
            of_desk=bool(state.get("of_desk")),
        )


@dataclass(frozen=True, kw_only=True)
class Pause:
    """What a run stopped at: rows for the state, drafts and tools for the desk."""

    open: Sequence[OpenInterrupt]
    drafts: Sequence[InterruptDraft]
    tools: Sequence[ToolSpec]


def read_pause(
    interrupts: Sequence[Mapping[str, Any]],
    calls: Mapping[str, StreamedCall],
    *,
    turn: int,
    profile: str,
    together: Together | None,
) -> Pause:
    """Make requests of the interrupts that ended a run.

    ``calls``: the tool calls of the answer by the remote's ids. ``together``: what staff
    said of several answers. What was sent twice is
    one request; two different ones that share an id are two, which can only be answered
    alike. Raises ValueError with a sentence for what cannot be asked.
    """
    habits = HABITS[profile]
    ids = [_text(interrupt.get("id")) for interrupt in interrupts]
    reader = _Reader(calls, turn, habits, habits.together_for(ids, together))
    seen: list[Mapping[str, Any]] = []
    for interrupt in interrupts:
        if interrupt not in seen:
            seen.append(interrupt)
    if not seen or len(seen) > MAX_INTERRUPTS:
        raise ValueError(
            f"The agent stopped at {len(seen)} requests; 1 to {MAX_INTERRUPTS} can be "
            "taken."
        )
    return reader.pause(seen)


class _Reader:
    def __init__(
        self,
        calls: Mapping[str, StreamedCall],
        turn: int,
        habits: Habits,
        together: Together,
    ) -> None:
        self._calls = calls
        self._turn = turn
        self._habits = habits
        self._together = together
        #: Ids that are given.
        self._taken: set[str] = set()
        #: Calls whose arguments nobody told.
        self._unsaid: set[str] = set()
        #: Calls whose tool nobody named: all there is to show is the agent's message.
        self._nameless: set[str] = set()

    def pause(self, interrupts: Sequence[Mapping[str, Any]]) -> Pause:
        found = [self._read(interrupt) for interrupt in interrupts]
        shared = [each.id for each in found]
        several = len(found) > 1
        drafts = [
            self._draft(
                each,
                interrupt,
                several=several,
                twin=shared.count(each.id) > 1,
            )
            for each, interrupt in zip(found, interrupts, strict=True)
        ]
        tools = {
            each.tool: _spec(each)
            for each in found
            if each.kind == InterruptKind.APPROVAL
        }
        return Pause(open=found, drafts=drafts, tools=list(tools.values()))

    def _read(self, interrupt: Mapping[str, Any]) -> OpenInterrupt:
        remote_id = _text(interrupt.get("id"))
        if not remote_id:
            raise ValueError("The agent asked without an id, so it cannot be answered.")
        tool_call_id = _text(interrupt.get("toolCallId"))
        streamed = self._calls.get(tool_call_id)
        call_id = self._call_id(streamed, tool_call_id or remote_id)
        kind = _kind(interrupt, has_call=bool(streamed))
        named, arguments = _described(interrupt)
        if arguments is None and streamed is not None:
            arguments = streamed.arguments
        tool = named or (streamed.tool if streamed else "") or _tool_in(interrupt)
        if not tool:
            self._nameless.add(call_id)
            reason = _text(interrupt.get("reason"))
            tool = UNNAMED if reason in {"", "tool_call", "tool_approval"} else reason
        if arguments is None:
            self._unsaid.add(call_id)
        return OpenInterrupt(
            id=remote_id,
            turn=self._turn,
            call_id=call_id,
            tool=tool[:MAX_NAME],
            tool_call_id=tool_call_id,
            kind=kind,
            arguments=_as_object(arguments),
            schema=tamed(interrupt.get("responseSchema")),
            of_desk=_is_of_desk(interrupt),
        )

    def _call_id(self, streamed: StreamedCall | None, remote: str) -> str:
        """The id of its call in the stream, or a new one; never one twice."""
        wanted = streamed.call_id if streamed else own_id(self._turn, remote or "ask")
        found, nth = wanted, 1
        while found in self._taken:
            nth += 1
            found = f"{wanted}~{nth}"
        self._taken.add(found)
        return found

    def _draft(
        self,
        each: OpenInterrupt,
        interrupt: Mapping[str, Any],
        *,
        several: bool,
        twin: bool,
    ) -> InterruptDraft:
        question = each.kind == InterruptKind.QUESTION
        verdicts = self._verdicts(question=question, several=several)
        together = ""
        if several and self._together == Together.ALIKE:
            together = "pause"
        elif twin:
            together = each.id[:MAX_NAME]
        return InterruptDraft(
            call=ToolCall(
                turn=each.turn,
                call_id=each.call_id,
                tool=each.tool,
                arguments=each.arguments,
                framework_ref=each.id[:MAX_NAME],
            ),
            kind=each.kind,
            reason=(_text(interrupt.get("reason")) or "tool_call")[:MAX_NAME],
            message=_text(interrupt.get("message"))[:MAX_WORDING],
            title=self._title(each, interrupt),
            response_schema=self._asked(each),
            verdicts=verdicts,
            editable=may_edit(each.schema),
            takes_note=self._habits.takes_extras and bool(note_key(each.schema)),
            together=together if not question else "",
            consequence=" ".join(
                self._notices(each, interrupt, together=together, several=several)
            ),
        )

    def _title(self, each: OpenInterrupt, interrupt: Mapping[str, Any]) -> str:
        if each.call_id not in self._nameless or each.kind == InterruptKind.QUESTION:
            return ""
        return _text(interrupt.get("message"))[:MAX_WORDING]

    def _verdicts(self, *, question: bool, several: bool) -> tuple[Verdict, ...]:
        if several and self._together == Together.SINGLE:
            return (Verdict.CANCEL_RUN,)
        if question:
            return Verdict.ANSWER, Verdict.CANCEL_RUN
        if self._habits.takes_cancelled and not self._habits.cancel_ends_run:
            return (
                Verdict.APPROVE,
                Verdict.DENY,
                Verdict.CANCEL_CALL,
                Verdict.CANCEL_RUN,
            )
        return Verdict.APPROVE, Verdict.DENY, Verdict.CANCEL_RUN

    def _asked(self, each: OpenInterrupt) -> dict[str, Any] | None:
        """What a person may say: the whole answer, or what stands beside the approval."""
        if each.kind == InterruptKind.QUESTION:
            return dict(each.schema) or ANYTHING
        properties = each.schema.get("properties")
        if not self._habits.takes_extras or not isinstance(properties, Mapping):
            return None
        # The reviewer's note has a field of its own on every page.
        ours = OURS | {note_key(each.schema)}
        extras = {name: part for name, part in properties.items() if name not in ours}
        if not extras:
            return None
        approved = {"type": "boolean", "description": "Whether the call may run."}
        return {
            "type": "object",
            "properties": {"approved": approved, **extras},
            "required": ["approved"],
        }

    def _notices(
        self,
        each: OpenInterrupt,
        interrupt: Mapping[str, Any],
        *,
        together: str,
        several: bool,
    ) -> list[str]:
        """What a reviewer should know before they decide."""
        notices = []
        message = _text(interrupt.get("message"))[:MAX_WORDING]
        plain = _ASKED.fullmatch(message) or each.kind == InterruptKind.QUESTION
        in_title = each.call_id in self._nameless and "\n" not in message
        if message and not plain and not in_title:
            notices.append(f"The agent asks: “{message}”")
        if several and self._together == Together.SINGLE:
            notices.append(
                "This agent cannot be answered while several of its calls wait, so its "
                "run can only be cancelled."
            )
        elif together:
            notices.append(
                "This agent takes no approval beside a denial: if another call of this "
                "pause is denied, this one does not run either."
            )
        if each.kind == InterruptKind.APPROVAL and each.call_id in self._unsaid:
            notices.append("The agent did not say with which arguments.")
        elif self._differs(each):
            notices.append(
                "The agent first told other arguments of this call than the ones it asks "
                "about."
            )
        until = _text(interrupt.get("expiresAt"))[:50]
        if until:
            notices.append(f"The agent takes an answer until {until}.")
        return notices

    def _differs(self, each: OpenInterrupt) -> bool:
        streamed = self._calls.get(each.tool_call_id)
        if streamed is None:
            return False
        try:
            told = canonical.dumps(canonical.loads(streamed.arguments or "{}"))
            asked = canonical.dumps(canonical.loads(each.arguments))
        except InvalidArguments:
            return False
        return told != asked


def own_id(turn: int, remote: str) -> str:
    """An id for a call of a remote: its own, told apart from those of other turns."""
    return f"{turn}.{remote}"[: MAX_NAME - 10]


def may_edit(schema: Mapping[str, Any]) -> bool:
    """Whether whoever approves may send other arguments: the schema must say so."""
    properties = schema.get("properties")
    return isinstance(properties, Mapping) and "editedArgs" in properties


def note_key(schema: Mapping[str, Any]) -> str:
    """The part of an answer that takes a reviewer's words; empty if there is none."""
    properties = schema.get("properties")
    if not isinstance(properties, Mapping):
        return ""
    for name in _NOTES:
        part = properties.get(name)
        if isinstance(part, Mapping) and part.get("type") == "string":
            return name
    return ""


def _spec(each: OpenInterrupt) -> ToolSpec:
    """What is known of the tool, which is what edited arguments would have to be."""
    properties = each.schema.get("properties")
    edited = properties.get("editedArgs") if isinstance(properties, Mapping) else None
    if isinstance(edited, Mapping) and edited.get("type") == "object":
        return ToolSpec(name=each.tool, parameters=dict(edited))
    return ToolSpec(name=each.tool)


def _kind(interrupt: Mapping[str, Any], *, has_call: bool) -> InterruptKind:
    """Whether it asks for a yes or for anything else."""
    reason = _text(interrupt.get("reason"))
    schema = interrupt.get("responseSchema")
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    names = set(properties) if isinstance(properties, Mapping) else set()
    if names & {"approved", "accepted"}:
        return InterruptKind.APPROVAL
    if reason in {"tool_call", "tool_approval", "confirmation"}:
        return InterruptKind.APPROVAL
    if has_call and not isinstance(schema, Mapping):
        return InterruptKind.APPROVAL
    return InterruptKind.QUESTION


def _described(interrupt: Mapping[str, Any]) -> tuple[str, Any]:
    """The tool and arguments that the metadata of some server names."""
    metadata = interrupt.get("metadata")
    if not isinstance(metadata, Mapping):
        return "", None
    for part in metadata.values():
        if not isinstance(part, Mapping):
            continue
        call = part.get("function_call")
        if isinstance(call, Mapping):
            return _text(call.get("name")), call.get("arguments")
        if "raw" in part:
            return "", _raw_arguments(part["raw"])
    return _text(metadata.get("tool_name")), metadata.get("tool_input")


def _is_of_desk(interrupt: Mapping[str, Any]) -> bool:
    metadata = interrupt.get("metadata")
    ours = metadata.get("sayso") if isinstance(metadata, Mapping) else None
    return isinstance(ours, Mapping) and "digest" in ours


def _raw_arguments(raw: Any) -> Any:
    """The value of a graph's interrupt, without what the protocol has places for."""
    if not isinstance(raw, Mapping):
        return None
    lifted = {name for names in LIFTED.items() for name in names}
    return {key: value for key, value in raw.items() if key not in lifted} or None


def _tool_in(interrupt: Mapping[str, Any]) -> str:
    """The tool's name as the .NET server has it: in the message only."""
    match = _ASKED.fullmatch(_text(interrupt.get("message")))
    return match[1] if match else ""


def _as_object(arguments: Any) -> str:
    """Arguments as JSON text of an object, whatever shape they came in."""
    if isinstance(arguments, str):
        try:
            loaded = json.loads(arguments) if arguments.strip() else {}
        except ValueError:
            # Left as it is: the desk refuses to ask about it, and shows why.
            return arguments
        if isinstance(loaded, dict):
            return arguments if arguments.strip() else "{}"
        arguments = loaded
    if arguments is None:
        arguments = {}
    if not isinstance(arguments, Mapping):
        arguments = {"value": arguments}
    return json.dumps(arguments, ensure_ascii=False)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
