"""What the agent scheduler says when no real model is configured.

It books, lists and cancels meetings: "schedule a 1:1 with Alice", "set up a demo with
Carol and a retro with Bob", "and another with Dana". For a call that somebody wants to
book ("book an intro call with sales to discuss pricing") it asks them when.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from hitlagents.demo.scripted import (
    SEPARATOR,
    Call,
    Item,
    Reply,
    Result,
    Wish,
    apart,
    is_negated,
    loaded,
    orders,
    short,
    small_talk,
    speak,
    step_texts,
    trimmed,
    unquoted,
    without_quotes,
)

HELP = (
    "I book meetings. Try “schedule a 1:1 with Alice”, “book an intro call with sales to "
    "discuss pricing” or “what is on my calendar?”. Whoever approves a meeting picks its "
    "time; for a call I ask you."
)
GREETING = f"Hello. {HELP}"
MAX_TOPIC = 200

#: How the tools' own successes begin.
SUCCESSES: Mapping[str, tuple[str, ...]] = {
    "book_call": ("“", "None of the times"),
    "schedule_meeting": ("Booked ", "Nothing was scheduled"),
    "list_meetings": ("The calendar ",),
    "cancel_meeting": ("Cancelled ",),
}


def reply(history: Sequence[Item]) -> Reply:
    """What scheduler says next, a pure function of the conversation."""
    return speak(list(_in_sentences(history)), Scheduler())


def _in_sentences(history: Sequence[Item]) -> Iterator[Item]:
    """The conversation with what people answered to book_call in words."""
    calls: dict[str, Call] = {}
    for item in history:
        if isinstance(item, Call):
            calls[item.call_id] = item
        call = calls.get(item.call_id) if isinstance(item, Result) else None
        if isinstance(item, Result) and call and call.tool == "book_call":
            given, beside = apart(item.text)
            told = _answer(loaded(call.arguments), given)
            yield Result(item.call_id, f"{told}\n\n{beside}" if beside else told)
        else:
            yield item


def _answer(asked: Mapping[str, Any], text: str) -> str:
    answer = loaded(text)
    call = _named(asked)
    if answer.get("cancelled"):
        return f"None of the times suits you, so {call} has no time yet."
    when = answer.get("chosen_label") or answer.get("chosen_time")
    return f"{call} suits you on {short(str(when))}." if when else text


def _named(arguments: Mapping[str, Any]) -> str:
    """A meeting in words, such as "“1:1” with Alice"."""
    topic = short(str(arguments.get("topic", "")))
    attendee = short(str(arguments.get("attendee", "")))
    return f"“{topic}”" + (f" with {attendee}" if attendee else "")


class Scheduler:
    """The part of the agent scheduler."""

    greeting = GREETING

    def steps(self, text: str, before: Sequence[Item]) -> list[list[Wish]]:
        plain, quoted = without_quotes(text)
        if follow_up := _FOLLOW_UP.match(plain):
            tool, topic = _last_meeting(before)
            again = _meetings(plain[follow_up.end() :], quoted, tool, topic)
            return [again] if again else []
        steps = [_wishes(step, quoted) for step in step_texts(plain, _VERB)]
        return [step for step in steps if step]

    def talk(self, text: str) -> str:
        return _talk(text)

    def in_words(self, tool: str, arguments: Mapping[str, Any]) -> str:
        if tool == "list_meetings":
            return "look at the calendar"
        if tool == "cancel_meeting":
            return f"cancel “{short(str(arguments.get('meeting', '')))}”"
        verb = "get a time for" if tool == "book_call" else "schedule"
        return f"{verb} {_named(arguments)}"

    def explains_itself(self, tool: str, result: str) -> bool:
        return result.startswith(SUCCESSES.get(tool, ("\0",)))


# Understanding a message

_VERB = re.compile(
    r"(?<!\S)(?P<list>(?:list|show|what(?:['\u2019]s| is| are)?|which|see|check)(?= )"
    r"[^,;]{0,60}? (?:calendar|meetings?|appointments?|agenda|schedule))(?=[ ,.!?]|$)"
    r"|(?<!\S)(?P<schedule>schedule|book|arrange|set up|setup|plan|organi[sz]e|put)"
    r"(?=[ ,]|$)"
    r"|(?<!\S)(?P<cancel>cancel|call off|drop|delete|remove)(?=[ ,]|$)",
    re.IGNORECASE,
)
#: "and another with Dana", "the same with Bob": what comes before the name.
_FOLLOW_UP = re.compile(
    r"(?:(?:and|also|plus|then|now|ok|okay|yes|please|great|thanks),? |, ){0,4}"
    r"(?:(?:another(?: one)?|one(?: more)?|a second one|the same(?: again)?|same)"
    r"(?: please)?|(?<=and)|(?<=also)|(?<=and )|(?<=also ))(?= ?with )",
    re.IGNORECASE,
)
_CALENDAR = re.compile(r" (?:on|in|into|to) (?:my|the|our) calendar\b", re.IGNORECASE)
_DAY = r"(?:mon|tues|wednes|thurs|fri|satur|sun)day"
#: What a meeting is about begins here; "on Monday" and "for 30 minutes" say when.
_PURPOSE = re.compile(
    r"(?<!\S)(?:to|about|regarding|re|concerning"
    rf"|on(?! (?:{_DAY}|the \d|\d))"
    rf"|for(?! (?:{_DAY}|\d|an? |half|next|this|tomorrow|me|us)))(?= )",
    re.IGNORECASE,
)
#: Where a name ends, if no purpose follows it.
_WHEN = re.compile(
    r"(?<!\S)(?:next|this|tomorrow|today|tonight|at|in|on|every|before|after|via|over"
    r"|by|for|from|please|thanks|too|again|as well)(?=[ ,.!?]|$)",
    re.IGNORECASE,
)
_WITH = re.compile(r"(?<!\S)with(?= )", re.IGNORECASE)
_NUMBER = re.compile(r"(?:#|(?:number|no\.?) |(?<!\S))(\d{1,9})(?=[ ,.!?]|$)", re.I)
#: What is booked by asking when it suits.
_CALL = re.compile(r"(?<![\w-])calls?(?![\w-])", re.IGNORECASE)
_PLURAL = re.compile(
    r"(?:meeting|call|chat|sync|interview|session|review|appointment|1:1|one-on-one)s$",
    re.IGNORECASE,
)
# fmt: off
_ARTICLES = frozenset({
    "a", "also", "an", "another", "me", "my", "new", "one", "our", "please", "some",
    "something", "that", "the", "these", "this", "those", "time", "us"
})
_VAGUE = frozenset({
    "all", "anything", "appointment", "call", "chat", "everything", "it", "meeting",
    "meetings", "them"
})
_NOBODY = frozenset({
    "anyone", "her", "him", "it", "me", "myself", "someone", "that", "them", "this",
    "us", "you", "everyone", "everything"
})
# fmt: on


def _wishes(text: str, quoted: Sequence[str]) -> list[Wish]:
    """What one step asks for, in its order and without repeats."""
    wishes: dict[Wish, None] = {}
    for verb, rest in orders(text, _VERB):
        if verb.lastgroup == "list":
            wishes[Wish("list_meetings")] = None
            continue
        if verb.lastgroup == "schedule":
            tool = "book_call" if verb[0].lower() == "book" else "schedule_meeting"
            found: Iterable[Wish] = _meetings(rest, quoted, tool)
        else:
            found = _cancelled(rest, quoted)
        for wish in found:
            wishes[wish] = None
    return list(wishes)


def _meetings(
    rest: str, quoted: Sequence[str], tool: str, kind: str = ""
) -> list[Wish]:
    """The meetings that are asked for after a verb; ``kind`` where none is named. With
    book_call only calls are asked for by it, other meetings are scheduled."""
    rest = _CALENDAR.sub(" ", rest)
    return [
        wish for part in _parts(rest) for wish in _meeting(part, quoted, tool, kind)
    ]


def _parts(rest: str) -> list[str]:
    """Cut at "and", but only where another "with" follows: "prices and plans" is one
    topic, and "Bob and Carol" meet together."""
    parts: list[list[str]] = [[]]
    end = 0
    cuts = [(match.start(), match.end()) for match in SEPARATOR.finditer(rest)]
    for begin, after in [*cuts, (len(rest), len(rest))]:
        piece = rest[end:begin]
        if _WITH.search(piece) and any(_WITH.search(had) for had in parts[-1]):
            parts.append([])
        elif end:
            piece = rest[max(0, end - 4) : end].partition(",")[1] + piece
            piece = piece if piece.startswith(",") else f" and{piece}"
        parts[-1].append(piece)
        end = after
    return ["".join(part) for part in parts]


def _meeting(part: str, quoted: Sequence[str], tool: str, kind: str) -> Iterator[Wish]:
    before, _, after = _split(part, _WITH)
    if after:
        name_end = min(_start(after, _PURPOSE), _start(after, _WHEN))
        names, tail = after[:name_end], after[name_end:]
    else:
        what_end = min(_start(before, _PURPOSE), _start(before, _WHEN))
        names, tail, before = "", before[what_end:], before[:what_end]
    what = unquoted(_without(before, _ARTICLES), quoted)
    purpose = unquoted(trimmed(tail[_start(tail, _PURPOSE) :]), quoted)
    people = unquoted(_without(names, frozenset({"the", "our", "my"})), quoted)
    if people.lower() in _NOBODY:
        return
    if not people and not purpose and what.lower() in _VAGUE | {""}:
        return
    named = what or kind or "meeting"
    if tool == "book_call" and not _CALL.search(named):
        tool = "schedule_meeting"
    for person, topic in _each(people, named):
        yield _wish(tool, f"{topic} {purpose}".strip(), person)


def _each(people: str, what: str) -> Iterator[tuple[str, str]]:
    """ "1:1s with Bob and Carol" are two meetings, "a call with Bob and Carol" is one."""
    if not _PLURAL.search(what):
        yield people, what
        return
    for person in re.split(r",? and |, ", people):
        yield person.strip(), what[:-1]


def _wish(tool: str, topic: str, attendee: str) -> Wish:
    topic = (topic[:1].upper() + topic[1:])[:MAX_TOPIC]
    arguments = {"topic": topic, "attendee": attendee[:MAX_TOPIC]}
    return Wish(tool, json.dumps(arguments, ensure_ascii=False))


def _cancelled(rest: str, quoted: Sequence[str]) -> Iterator[Wish]:
    """Meetings named by their number, by who they are with, or by what they are."""
    for part in _parts(_CALENDAR.sub(" ", rest)):
        before, found, after = _split(part, _WITH)
        if not found and (numbers := _NUMBER.findall(part)):
            for number in numbers:
                yield _cancel(number)
            continue
        topic = unquoted(
            _without(before[: _start(before, _WHEN)], _ARTICLES | _VAGUE), quoted
        )
        named = after[: min(_start(after, _WHEN), _start(after, _PURPOSE))]
        person = unquoted(_without(named, _ARTICLES | _VAGUE), quoted)
        if person.lower() in _NOBODY:
            person = ""
        words = (topic, "with" if topic and person else "", person)
        name = " ".join(filter(None, words))
        if name and name.lower() not in _NOBODY:
            yield _cancel(name)


def _cancel(meeting: str) -> Wish:
    return Wish("cancel_meeting", json.dumps({"meeting": meeting}, ensure_ascii=False))


def _last_meeting(before: Sequence[Item]) -> tuple[str, str]:
    """How the meeting before was asked for, and what it was about."""
    for item in reversed(before):
        if isinstance(item, Call) and item.tool in {"schedule_meeting", "book_call"}:
            topic = loaded(item.arguments).get("topic")
            if topic:
                return item.tool, str(topic)
    return "schedule_meeting", ""


# Words


def _split(text: str, pattern: re.Pattern[str]) -> tuple[str, str, str]:
    match = pattern.search(text)
    if match is None:
        return text, "", ""
    return text[: match.start()], match[0], text[match.end() :]


def _start(text: str, pattern: re.Pattern[str]) -> int:
    match = pattern.search(text)
    return match.start() if match else len(text)


def _without(text: str, fillers: frozenset[str]) -> str:
    """The words but for fillers at the front and punctuation at the ends."""
    words = trimmed(text).split()
    while words and words[0].lower().strip(",") in fillers:
        del words[0]
    return trimmed(" ".join(words))


def _talk(text: str) -> str:
    words = text[:200].lower()
    if told := small_talk(text, "scheduler", HELP):
        return told
    if is_negated(words, _VERB):
        return "All right, the calendar stays as it is."
    if re.search(r"\b(reschedule|move|postpone)\b", words):
        return "I cannot move a meeting. I can cancel it and schedule another one."
    if re.search(r"(?<!\S)(cancel|call off|drop)\b", words):
        return "Which meeting? Say its number, or who it is with."
    if re.search(r"(?<!\S)(schedule|book|arrange|set up|plan|organi[sz]e)\b", words):
        return "Who should it be with, and what is it about?"
    return f"I did not understand that. {HELP}"
