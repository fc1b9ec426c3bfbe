"""What the agent support says when no real model is configured.

It plans, drafts and talks, each a pure function of what it is shown: "reply to Dana about
invoice 1042", "please answer tickets 8812 and 8813 and refund invoice 1042".
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hitlagents.demo.scripted import (
    MARK,
    SEPARATOR,
    Item,
    Reply,
    Said,
    Wish,
    is_negated,
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
    "I look after customers. Try “reply to Dana about invoice 1042”, “answer tickets 8812 "
    "and 8813”, “look up invoice 1051” or “refund invoice 1042”. Somebody reads every "
    "reply before it is sent."
)
GREETING = f"Hello. {HELP}"
MAX_WORDS = 300


def reply(history: Sequence[Item]) -> Reply:
    """What support says in the chat: everything but replies to customers."""
    return speak(history, Support())


def plan(history: Sequence[Item]) -> Reply:
    """The replies to customers that the last message asks for, and whether it asks for
    more, as JSON."""
    text = _last(history)
    replies = list(_replies(text))
    rest = any(True for _ in _wishes_in(text)) or not replies
    return Reply(json.dumps({"replies": replies, "rest": rest}, ensure_ascii=False))


def draft(history: Sequence[Item]) -> Reply:
    """A mail, from lines such as "To: Dana" and "On file: …"."""
    asked = dict(_LINE.findall(_last(history)))
    name = _name_of(asked)
    about = asked.get("About", "").strip(" .")
    problem = re.search(r"“([^”]{1,300})”", asked.get("On file", ""))
    subject = f"About {about}" if about else "Your message to us"
    paragraphs = [f"Dear {name}," if name else "Hello,"]
    if problem:
        paragraphs.append(f"Thank you for writing to us: “{problem[1]}”")
    paragraphs.append(
        f"We are looking into {about} and will come back to you today."
        if about
        else "We are looking into this and will come back to you today."
    )
    if asked.get("Remark"):
        paragraphs.append(asked["Remark"])
    paragraphs.append("Kind regards\nSupport")
    return Reply("\n\n".join([f"Subject: {subject}"[:180], *paragraphs]))


_LINE = re.compile(r"^(To|About|On file|Remark): (.{1,2000})$", re.MULTILINE)


def _name_of(asked: Mapping[str, str]) -> str:
    """The first name: from the file, or as the message named them."""
    found = re.search(r" from ([^<\s]{1,40})[^<]{0,60}<", asked.get("On file", ""))
    if found:
        return found[1]
    name = asked.get("To", "").split("@")[0].split()
    return name[0].capitalize() if name and name[0].isalpha() else ""


class Support:
    """The part of the agent support in the chat."""

    greeting = GREETING

    def steps(self, text: str, before: Sequence[Item]) -> list[list[Wish]]:
        plain, quoted = without_quotes(text)
        steps = [
            list(dict.fromkeys(_wishes(step, quoted)))
            for step in step_texts(plain, _VERB)
        ]
        return [step for step in steps if step]

    def talk(self, text: str) -> str:
        return _talk(text)

    def in_words(self, tool: str, arguments: Mapping[str, Any]) -> str:
        if tool == "refund_invoice":
            return f"refund invoice {short(str(arguments.get('invoice', '')))}"
        return f"look up {short(str(arguments.get('query', '')))}"

    def explains_itself(self, tool: str, result: str) -> bool:
        return result.startswith(_SUCCESSES.get(tool, ("\0",)))


#: How the tools' own successes begin.
_SUCCESSES: Mapping[str, tuple[str, ...]] = {
    "lookup_ticket": ("Ticket ", "There is nothing on file"),
    "refund_invoice": ("Refunded ",),
}

# Understanding a message

_VERB = re.compile(
    r"(?<!\S)(?P<refund>refund|reimburse|pay back|give back|credit)(?=[ ,:]|$)"
    r"|(?<!\S)(?P<reply>(?:reply|respond|answer|write|e-?mail|mail|message|get back)"
    r"(?: (?:back|an? (?:reply|answer|e-?mail|mail|message|note)))?)(?=[ ,:]|$)"
    r"|(?<!\S)(?P<lookup>look (?:up|at)|lookup|look into|show(?: me)?|check|find|open"
    r"|what(?:['\u2019]s| is| do (?:we|you) know about| about)|tell me about"
    r"|status of)(?=[ ,:]|$)",
    re.IGNORECASE,
)
_ABOUT = re.compile(
    r"(?<!\S)(?:about|regarding|concerning|re|on|because of|because|saying(?: that)?"
    r"|that|to say(?: that)?|telling (?:him|her|them)(?: that)?)(?=[ :])",
    re.IGNORECASE,
)
_ADDRESS = re.compile(r"[^\s@,;<>]{1,64}@[^\s@,;<>]{1,120}")
_NUMBER = re.compile(r"(?<![\w.])#?(\d{2,12})(?![\w])")
# fmt: off
_FILLERS = frozenset({
    "a", "again", "all", "also", "an", "and", "another", "answer", "back", "case",
    "cases", "client", "customer", "customers", "e-mail", "email", "for", "from", "her",
    "him", "in", "invoice", "invoices", "issue", "it", "its", "letter", "mail", "me",
    "message", "money", "mr", "mrs", "ms", "my", "new", "now", "number", "of", "on",
    "order", "our", "please", "question", "questions", "reply", "request", "s", "short",
    "some", "thanks", "that", "the", "their", "them", "this", "ticket", "tickets", "to",
    "today", "too", "us", "with", "you", "your"
})
# fmt: on


def _last(history: Sequence[Item]) -> str:
    """What the user said last."""
    for item in reversed(history):
        if isinstance(item, Said) and item.role == "user":
            return item.text
    return ""


def _orders(text: str) -> Iterator[tuple[str, str, Sequence[str]]]:
    plain, quoted = without_quotes(text)
    for step in step_texts(plain, _VERB):
        for verb, rest in orders(step, _VERB):
            yield str(verb.lastgroup), rest, quoted


def _replies(text: str) -> Iterator[dict[str, str]]:
    """To whom (a name, an address or a number), and about what."""
    seen = set()
    for verb, rest, quoted in _orders(text):
        if verb != "reply":
            continue
        about = _ABOUT.search(rest)
        head, tail = (
            (rest[: about.start()], rest[about.end() :]) if about else (rest, "")
        )
        topic = unquoted(trimmed(tail, " also", " then"), quoted)
        for person in _people(head, quoted) or _NUMBER.findall(tail):
            if (person, topic) not in seen:
                seen.add((person, topic))
                yield {"to": person[:MAX_WORDS], "about": topic[:MAX_WORDS]}


def _people(text: str, quoted: Sequence[str]) -> list[str]:
    found = []
    for part in SEPARATOR.split(text):
        if mark := MARK.search(part):
            found.append(quoted[int(mark[1])])
        elif address := _ADDRESS.search(part):
            found.append(address[0].rstrip("."))
        elif numbers := _NUMBER.findall(part):
            found += numbers
        elif name := _name(part):
            found.append(name)
    return found


def _name(part: str) -> str:
    words = [word.strip(".,;:!?()") for word in part.split()]
    words = [re.sub(r"['\u2019]s$", "", word) for word in words]
    return " ".join(word for word in words if word and word.lower() not in _FILLERS)


def _wishes_in(text: str) -> Iterator[Wish]:
    plain, quoted = without_quotes(text)
    for step in step_texts(plain, _VERB):
        yield from _wishes(step, quoted)


def _wishes(step: str, quoted: Sequence[str]) -> Iterator[Wish]:
    for verb, rest in orders(step, _VERB):
        if verb.lastgroup == "refund":
            why = _ABOUT.search(rest)
            head, tail = (rest[: why.start()], rest[why.end() :]) if why else (rest, "")
            numbers = _NUMBER.findall(head) or _NUMBER.findall(tail)
            for number in numbers:
                yield _wish(
                    "refund_invoice", invoice=number, reason=_reason(tail, quoted)
                )
        elif verb.lastgroup == "lookup":
            for what in _people(rest, quoted):
                yield _wish("lookup_ticket", query=what[:MAX_WORDS])


def _reason(tail: str, quoted: Sequence[str]) -> str:
    return unquoted(trimmed(tail, " also", " then"), quoted)[:MAX_WORDS]


def _wish(tool: str, **arguments: str) -> Wish:
    return Wish(tool, json.dumps(arguments, ensure_ascii=False))


def _talk(text: str) -> str:
    words = text[:200].lower()
    if told := small_talk(text, "support", HELP):
        return told
    if is_negated(words, _VERB):
        return "All right, nothing is sent and nothing is paid back."
    if re.search(r"(?<!\S)(refund|reimburse|pay back|credit)\b", words):
        return "Which invoice? Say its number."
    if re.search(r"(?<!\S)(reply|respond|answer|write|e-?mail|mail)\b", words):
        return "To whom? Say a name, an e-mail address, or the number of a ticket."
    return f"I did not understand that. {HELP}"
