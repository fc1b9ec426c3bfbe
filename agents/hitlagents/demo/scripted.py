"""The scripted model: what the demo agents say when no real model is configured.

A pure function of the conversation, so that the process which resumes a run says the same
as the one that started it. It knows no agent framework; each has a small client that turns
its own messages into ``Item``s and streams the ``Reply``. Everything a user or a file says
is data: only the last user message is read for what to do, and only by the rules here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

LABEL = "Scripted model, no network"


@dataclass(frozen=True)
class Said:
    """Text of the user or of the assistant."""

    role: str
    text: str


@dataclass(frozen=True)
class Call:
    """A proposed call; ``arguments`` is JSON text as a model writes it."""

    call_id: str
    tool: str
    arguments: str


@dataclass(frozen=True)
class Result:
    call_id: str
    text: str


type Item = Said | Call | Result


@dataclass(frozen=True)
class Reply:
    text: str = ""
    calls: Sequence[Call] = ()


type Script = Callable[[Sequence[Item]], Reply]
"""What a scripted model says next, as a pure function of the conversation."""

_WORDS = re.compile(r"\s*\S+\s*|\s+")


def words(text: str) -> list[str]:
    """The text in the pieces a model streams it in, blanks included."""
    return _WORDS.findall(text)


@dataclass(frozen=True)
class Wish:
    """A call somebody asked for; ``arguments`` is JSON text."""

    tool: str
    arguments: str = "{}"


class Part(Protocol):
    """What one demo agent understands, and how it speaks."""

    @property
    def greeting(self) -> str: ...

    def steps(self, text: str, before: Sequence[Item]) -> Sequence[Sequence[Wish]]:
        """The steps a message asks for, each a turn of its own; ``before`` is what was
        said and done earlier."""

    def talk(self, text: str) -> str:
        """An answer to a message that asks for nothing it can do."""

    def in_words(self, tool: str, arguments: Mapping[str, Any]) -> str:
        """A call as "delete report.txt". The arguments may be anything."""

    def explains_itself(self, tool: str, result: str) -> bool:
        """Whether a result can be said as it is."""


#: How the desk begins what it tells a model about a call that did not run, and about a
#: question that got no answer.
NOT_EXECUTED = "Not executed: "
NOT_ANSWERED = "Not answered: "
DENIED = (
    "a reviewer denied this call.",
    "the person who was asked declined to answer.",
)

#: How the desk begins and ends what it tells beside a result, and what else it tells there.
CHANGED = "A reviewer changed the arguments of this call before approving it: "
CHANGED_END = ". Only the changed call was approved"
NOTED = "Whoever decided this noted: "

MAX_CALLS = 20
MAX_SHOWN = 4000


def speak(history: Sequence[Item], part: Part) -> Reply:
    """What the model says next.

    A message may hold several steps ("… then …"). Each is one turn of parallel calls;
    a call that was denied is never proposed again.
    """
    start = max(
        (
            index
            for index, item in enumerate(history)
            if isinstance(item, Said) and item.role == "user"
        ),
        default=None,
    )
    if start is None:
        return Reply(part.greeting)
    request = history[start]
    assert isinstance(request, Said)
    since = history[start + 1 :]
    steps = part.steps(request.text, history[:start])
    done = _finished_turns(since)
    if done == 0 and not steps:
        return Reply(part.talk(request.text))
    told = _account(since, part)
    if done < len(steps):
        return _next_step(steps[done], told, len(history), part)
    return Reply(told)


def _next_step(wishes: Sequence[Wish], told: str, position: int, part: Part) -> Reply:
    taken = wishes[:MAX_CALLS]
    words = [part.in_words(wish.tool, loaded(wish.arguments)) for wish in taken]
    plan = f"I am going to {joined(words)}."
    if len(wishes) > MAX_CALLS:
        plan += f" That is the first {MAX_CALLS} of {len(wishes)}; ask again for more."
    calls = [
        Call(f"call-{position}-{number}", wish.tool, wish.arguments)
        for number, wish in enumerate(taken, start=1)
    ]
    return Reply(f"{told}\n\n{plan}" if told else plan, calls)


# Telling what happened


def _finished_turns(since: Sequence[Item]) -> int:
    """How often calls were made: each run of results closes one turn."""
    turns = 0
    before: Item | None = None
    for item in since:
        if isinstance(item, Result) and not isinstance(before, Result):
            turns += 1
        before = item
    return turns


def _account(since: Sequence[Item], part: Part) -> str:
    """What the last calls gave, truthfully: the results say so, not the plan."""
    calls: dict[str, Call] = {}
    lines: list[str] = []
    for item in since:
        if isinstance(item, Result):
            lines.append(_outcome(calls.get(item.call_id), item.text, part))
            continue
        lines = []  # what came before was told before the next step
        if isinstance(item, Call):
            calls[item.call_id] = item
    return "\n\n".join(lines)


def _outcome(call: Call | None, text: str, part: Part) -> str:
    """One result in sentences. A reviewer may have changed the arguments, so what was
    done is quoted from the result, never from the call."""
    given, beside = apart(text)
    return _with(_given(call, given, part), beside)


def with_beside(text: str) -> str:
    """What a call gave as it is, and what the desk tells beside it in our words."""
    return _with(*apart(text))


def _with(told: str, beside: str) -> str:
    if beside.startswith(CHANGED):
        changed = beside.removeprefix(CHANGED).partition(CHANGED_END)[0]
        told = f"{told} The reviewer had changed it: {changed}."
    _, noted, note = beside.partition(NOTED)
    return f"{told} It was noted with it: “{cut(note)}”." if noted else told


def apart(text: str) -> tuple[str, str]:
    """What a call gave, and what the desk tells beside it."""
    for beginning in (CHANGED, NOTED):
        given, found, rest = text.partition(f"\n\n{beginning}")
        if found:
            return given, beginning + rest
    return text, ""


def _given(call: Call | None, text: str, part: Part) -> str:
    if call is None:
        return cut(text)
    wanted = part.in_words(call.tool, loaded(call.arguments))
    if text.startswith((NOT_EXECUTED, NOT_ANSWERED)):
        return f"I did not {wanted}, because {_reason(text)}"
    if text.startswith("Error"):
        return f"I could not {wanted}. {cut(text)}"
    if part.explains_itself(call.tool, text):
        return cut(text)
    return f"When I wanted to {wanted}, I was told: {cut(text)}"


def loaded(arguments: str) -> Mapping[str, Any]:
    """The arguments a model wrote; none where they are no object."""
    try:
        found = json.loads(arguments)
    except ValueError:
        found = {}
    return found if isinstance(found, dict) else {}


def _reason(text: str) -> str:
    """The desk's sentence as a clause of ours; a note is quoted word for word."""
    reason = text.removeprefix(NOT_EXECUTED).removeprefix(NOT_ANSWERED).strip()
    for denied in DENIED:
        note = reason.removeprefix(denied).strip()
        if reason.startswith(denied) and note:
            return f"the reviewer said “{cut(note)}”."
    return cut(reason)


def cut(text: str) -> str:
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"


def short(name: str) -> str:
    return name if len(name) <= 80 else f"{name[:77]}…"


def joined(parts: Sequence[str]) -> str:
    if len(parts) < 2:
        return "".join(parts)
    return f"{', '.join(parts[:-1])} and {parts[-1]}"


def small_talk(text: str, agent: str, help: str) -> str:
    """An answer to a greeting, to thanks, and to "who are you?"; else nothing."""
    words = text[:200].lower()
    if re.match(r"\s*(hi|hello|hey|good (morning|day|evening))\b", words):
        return f"Hello. {help}"
    if re.match(r"\s*(thanks|thank you|thx)\b", words):
        return "You are welcome."
    if re.match(r"\s*(who|what) are you\b", words):
        return f"I am {agent}, running on a scripted model without a network. {help}"
    return ""


def is_negated(text: str, verb: re.Pattern[str]) -> bool:
    """Whether a message says of something it could ask for that it shall not be."""
    return bool(_NOT.search(text) and verb.search(text))


# Taking a message apart. Every pattern is linear on long input: runs of blanks are gone
# before they are used.

_QUOTED = re.compile(
    r"“([^“”]{1,300})”|\"([^\"]{1,300})\"|`([^`]{1,300})`"
    r"|(?<!\w)'([^']{1,300})'(?!\w)"
)
_NEGATED = re.compile(
    r"(?:\bnot|n['\u2019]t|\bnever|\bwithout) (?:\w+ )?$", re.IGNORECASE
)
_NOT = re.compile(r"\b(?:not|never)\b|n['\u2019]t\b")
_STEP = re.compile(r"(?:[ ,;]|, )(?:and )?(?:then|after that) ", re.IGNORECASE)
SEPARATOR = re.compile(r"[,;]| (?:and|&|plus)(?= )", re.IGNORECASE)
#: Stands for the quoted text of that number.
MARK = re.compile("\ue000([0-9]+)\ue000")


def without_quotes(text: str) -> tuple[str, list[str]]:
    """The text on one line with a numbered mark for each quoted name, and the names."""
    quoted: list[str] = []
    outside: list[str] = []
    end = 0
    for match in _QUOTED.finditer(text):
        outside.append(text[end : match.start()].replace("\ue000", ""))
        outside.append(f" \ue000{len(quoted)}\ue000 ")
        quoted.append(next(group for group in match.groups() if group is not None))
        end = match.end()
    outside.append(text[end:].replace("\ue000", ""))
    return " ".join("".join(outside).replace("\n", " , ").split()), quoted


def unquoted(text: str, quoted: Sequence[str]) -> str:
    """The text with the quoted names in the place of their marks."""
    return MARK.sub(lambda mark: quoted[int(mark[1])], text)


def trimmed(text: str, *endings: str) -> str:
    """The text without punctuation around it and without such words at its end."""
    text = text.strip(" .,;:!?")
    for ending in (" please", " thanks", " thank you", " and", *endings):
        if text.lower().endswith(ending):
            text = text[: -len(ending)].rstrip(" .,;:!?")
    return text


def step_texts(text: str, verb: re.Pattern[str]) -> list[str]:
    """A message cut at "then"; what has no verb belongs to the step before it."""
    parts: list[list[str]] = []
    for part in _STEP.split(text):
        if parts and not verb.search(part):
            parts[-1].append(part)  # "delete a, then b"
        else:
            parts.append([part])
    return [", ".join(part) for part in parts]


def orders(text: str, verb: re.Pattern[str]) -> Iterator[tuple[re.Match[str], str]]:
    """Each verb of a step that is not negated, with what follows it."""
    verbs = list(verb.finditer(text))
    ends = [*(match.start() for match in verbs[1:]), len(text)]
    for match, end in zip(verbs, ends, strict=False):
        if not _NEGATED.search(text[max(0, match.start() - 40) : match.start()]):
            yield match, text[match.end() : end]
