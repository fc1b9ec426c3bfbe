"""What a page sends, checked. Everything in it is a wish and nothing is history."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Never

from ag_ui.core import ResumeEntry, RunAgentInput, ToolMessage, UserMessage
from django.conf import settings
from django.http import HttpRequest
from pydantic import ValidationError

from approvals import canonical, services
from approvals.exceptions import ApprovalsError
from approvals.models import Tool
from approvals.policies import Rulebook
from approvals.schemas import ClientTool
from hitlagents import client_tools, tool_reading
from hitlagents.adapters.base import AgentSpec
from hitlagents.conversations import MAX_MESSAGE
from hitlagents.models import ToolReading

if TYPE_CHECKING:
    from django.contrib.auth.models import User

MAX_ID = 200
#: More new messages than this are nobody's typing.
MAX_NEW = 20
#: A run asks no more often than this, so more answers are no person's; each is looked up, and
#: compared with the others to its request.
MAX_ANSWERS = 200
#: Tools a page may bring, and characters of what they say of themselves: a model reads all
#: of it at every turn.
MAX_TOOLS = 64
MAX_TOOLS_SIZE = 100_000
#: What the pickiest provider takes.
TOOL_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
#: Seconds a worker may take to read an agent's tools, once in the life of an installation.
TOOLS_WITHIN = 15.0
#: Requests that wait for that at once. Each has one of the few threads that answer all pages,
#: also the inbox, and a worker may be long in coming.
_waiters = threading.BoundedSemaphore(2)
#: Kinds of a message, which pydantic names in the path of an error.
ROLES = frozenset(
    {"activity", "assistant", "developer", "reasoning", "system", "tool", "user"}
)


class Unusable(ApprovalsError):
    """This is no input of an AG-UI run."""

    http_status = 422
    code = "invalid_input"

    def __init__(self, message: str, *, field: str = "") -> None:
        super().__init__(message)
        self.field = field


class DuplicateTool(Unusable):
    """Two tools have the same name."""

    code = "duplicate_tool_name"


class TooLarge(ApprovalsError):
    """This request is too large."""

    http_status = 413
    code = "too_large"


class NotJson(ApprovalsError):
    """Send JSON (Content-Type: application/json)."""

    http_status = 415
    code = "not_json"


@dataclass(frozen=True, kw_only=True)
class Said:
    """One new message of the person."""

    id: str
    text: str


@dataclass(frozen=True, kw_only=True)
class Asked:
    """One request of a page."""

    thread: str
    run: str
    #: The peer speaks protocol 1.0; otherwise what 0.1 does not know is left out.
    modern: bool
    #: The user messages at the end, of which some may be known already.
    latest: Sequence[Said]
    resume: Sequence[ResumeEntry]
    #: What its own tools gave, as it says, by the id of the call: the first word on each.
    results: Mapping[str, str]
    tools: Sequence[ClientTool]
    #: Something beside text came with a message.
    left_out: bool


def read(request: HttpRequest) -> Asked:
    """Parse the body. Raises NotJson, TooLarge, Unusable with the field's name."""
    if request.content_type != "application/json":
        raise NotJson
    try:
        given = RunAgentInput.model_validate(_json(request))
    except ValidationError as error:
        _refuse(error)
    latest, left_out = _latest(given)
    return Asked(
        thread=_id(given.thread_id, "threadId"),
        run=_id(given.run_id, "runId"),
        modern=(given.protocol_version or "").startswith("1."),
        latest=latest,
        resume=_resume(given),
        results=_results(given),
        tools=_tools(given),
        left_out=left_out,
    )


def refuse_duplicate_tools(
    spec: AgentSpec, tools: Sequence[ClientTool], *, person: User
) -> None:
    """Tools of the page share one room with the agent's, where names that differ only by
    case count as the same: models and people mix them up. Raises DuplicateTool.

    A question that the policies put to this person anyway is given over to a page that
    brings a tool of its name: nothing runs for it, and whoever answers is the same.
    """
    if not tools:
        return
    ours = Tool.objects.filter(agent=spec.slug)
    # Those of a remote agent are known once it has used them.
    if not spec.is_remote and not ours.exists():
        _wait_for_tools(spec.slug, person)
    book = Rulebook(spec.slug)
    taken = {
        client_tools.folded(name) for name in book.tools if not book.gives_over(name)
    }
    given_over = {client_tools.folded(name): name for name in book.tools}
    for place, tool in enumerate(tools):
        name = client_tools.folded(tool.name)
        if name in taken or given_over.get(name, tool.name) != tool.name:
            raise DuplicateTool(
                f"Duplicate tool name: {tool.name}", field=f"tools.{place}.name"
            )
        taken.add(name)


def _wait_for_tools(agent: str, person: User) -> None:
    """Have a worker read the agent's tools, which nobody has needed before. If it cannot,
    no run of the agent can begin either, and that says why. Whoever does not wait is told by
    the run of a name that is taken."""
    if ToolReading.objects.filter(pk=agent, ended_at__isnull=False, error="").exists():
        return  # It has none.
    tool_reading.ask(agent, person=person)
    if not _waiters.acquire(blocking=False):
        return
    try:
        until = time.monotonic() + TOOLS_WITHIN
        while time.monotonic() < until:
            if ToolReading.objects.filter(pk=agent, ended_at__isnull=False).exists():
                return
            time.sleep(0.05)
    finally:
        _waiters.release()


def _json(request: HttpRequest) -> Any:
    most: int = settings.SAYSO_AGUI_MAX_BODY
    body = request.read(most + 1)
    if len(body) > most:
        raise TooLarge(f"This request is larger than {most:,} bytes.")
    try:
        return json.loads(body, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise Unusable(f"The body is not JSON: {error}.") from error


def _no_number(word: str) -> Never:
    raise ValueError(f"{word} is no number")


def _refuse(error: ValidationError) -> Never:
    first = error.errors(include_url=False, include_context=False)[0]
    field = ".".join(str(part) for part in first["loc"] if part not in ROLES)
    raise Unusable(f"{field or 'The body'}: {first['msg']}.", field=field) from error


def _id(value: str, field: str) -> str:
    """An id as others may choose it: any text that can be kept and sent back."""
    if not value or len(value) > MAX_ID or "\0" in value or not _encodes(value):
        raise Unusable(
            f"{field}: an id is a text of 1 to {MAX_ID} characters.", field=field
        )
    return value


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _resume(given: RunAgentInput) -> list[ResumeEntry]:
    entries = given.resume or []
    if len(entries) > MAX_ANSWERS:
        raise Unusable(
            f"resume: there are {len(entries):,} answers; {MAX_ANSWERS} are allowed.",
            field="resume",
        )
    return entries


def _tools(given: RunAgentInput) -> list[ClientTool]:
    tools = given.tools or []
    if len(tools) > MAX_TOOLS:
        raise Unusable(
            f"tools: there are {len(tools)}; {MAX_TOOLS} are allowed.", field="tools"
        )
    found, size = [], 0
    for place, tool in enumerate(tools):
        field = f"tools.{place}"
        if not TOOL_NAME.fullmatch(tool.name):
            raise Unusable(
                f"{field}.name: models take 1 to 64 letters, digits, - and _, and a "
                "letter or _ first.",
                field=f"{field}.name",
            )
        parameters = tool.parameters or {}
        if flaw := services.flaw_of(parameters):
            field = f"{field}.parameters"
            raise Unusable(f"{field}: {flaw}.", field=field)
        if "\0" in tool.description or not _encodes(tool.description):
            field = f"{field}.description"
            raise Unusable(f"{field}: it cannot be stored.", field=field)
        found.append(
            ClientTool(
                name=tool.name,
                description=tool.description,
                parameters={"type": "object", "properties": {}} | parameters,
            )
        )
        size += len(tool.description) + len(canonical.dumps(parameters))
    if size > MAX_TOOLS_SIZE:
        raise Unusable(
            f"tools: descriptions and parameters have {size:,} characters; "
            f"{MAX_TOOLS_SIZE:,} are allowed.",
            field="tools",
        )
    return found


def _results(given: RunAgentInput) -> dict[str, str]:
    """Tool messages. Most are history, and stand there with every request."""
    found: dict[str, str] = {}
    for message in given.messages:
        if isinstance(message, ToolMessage):
            text = _text_of(message)[0] or message.error or ""
            found.setdefault(message.tool_call_id, text)
    return found


def _latest(given: RunAgentInput) -> tuple[list[Said], bool]:
    """The user messages behind the last one of the agent.

    Tool messages between them are no words of the person.
    """
    found: list[Said] = []
    left_out = False
    for place in range(len(given.messages) - 1, -1, -1):
        message = given.messages[place]
        if message.role == "assistant":
            break
        if not isinstance(message, UserMessage):
            continue
        text, partly = _text_of(message)
        left_out = left_out or partly
        if partly and not text:
            continue
        problem = _unfit(text)
        if problem and found:
            continue  # It was refused when it was new, and stands in the page's way only.
        if problem:
            field = f"messages.{place}.content"
            raise Unusable(f"{field}: {problem}", field=field)
        found.append(Said(id=_id(message.id, f"messages.{place}.id"), text=text))
        if len(found) == MAX_NEW:
            break
    return found[::-1], left_out


def _unfit(text: str) -> str:
    if len(text) > MAX_MESSAGE:
        return f"the message has {len(text):,} characters; {MAX_MESSAGE:,} are allowed."
    if not text.strip() or "\0" in text:
        return "a message is a text without NUL characters."
    return ""


def _text_of(message: UserMessage | ToolMessage) -> tuple[str, bool]:
    """The words of a message, and whether there was anything else in it."""
    content = message.content
    if isinstance(content, str):
        texts, partly = [content], False
    else:
        texts = [part.text for part in content if part.type == "text"]
        partly = len(texts) < len(content)
    return "\n\n".join(texts).encode("utf-8", "replace").decode(), partly
