"""What the agent file-ops says when no real model is configured.

It lists, reads and deletes files: "list the files", "read notes.md", "delete report.txt and
notes.md".
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
    Wish,
    orders,
    short,
    small_talk,
    speak,
    step_texts,
    without_quotes,
)

HELP = (
    "I look after the files of this workspace. Try “list the files”, “read notes.md” or "
    "“delete report.txt and notes.md”. Put names with blanks in quotes."
)
GREETING = f"Hello. {HELP}"


def reply(history: Sequence[Item]) -> Reply:
    """What file-ops says next."""
    return speak(history, Files())


_VERB = re.compile(
    r"(?<!\S)(?P<delete>delete|remove|erase)(?=[ ,]|$)"
    r"|(?<!\S)(?P<read>read|show|open|print|display|cat|what(?:['\u2019]s| is) in)(?=[ ,]|$)"
    r"|(?<!\S)(?P<list>list|ls|(?:what|which) files)(?=[,.!?]?(?: |$))",
    re.IGNORECASE,
)
_PLACE = re.compile(r" (?:the )?(?:files|folder|workspace)\b", re.IGNORECASE)
# fmt: off
_NOT_NAMES = frozenset({
    "all", "any", "anything", "both", "everything", "file", "files", "folder", "it",
    "me", "now", "one", "please", "some", "something", "thanks", "that", "them",
    "these", "this", "those"
})
_FILLERS = _NOT_NAMES | frozenset({
    "a", "about", "also", "an", "as", "called", "can", "content", "contents",
    "could", "do", "does", "for", "from", "i", "in", "is", "its", "like", "my",
    "named", "need", "of", "ok", "okay", "our", "out", "the", "there", "to", "too",
    "us", "want", "well", "will", "workspace", "would", "you", "your"
})
# fmt: on


def _wishes(text: str, quoted: Sequence[str]) -> list[Wish]:
    """What one step asks for, in its order and without repeats."""
    wishes: dict[Wish, None] = {}
    for verb, rest in orders(text, _VERB):
        for wish in _wishes_of(verb, rest, quoted):
            wishes[wish] = None
    return list(wishes)


def _wishes_of(verb: re.Match[str], rest: str, quoted: Sequence[str]) -> Iterator[Wish]:
    if verb.lastgroup == "list":
        yield Wish("list_files")
        return
    names = [name for part in SEPARATOR.split(rest) if (name := _name(part, quoted))]
    for name in names:
        arguments = json.dumps({"filename": name}, ensure_ascii=False)
        yield Wish(f"{verb.lastgroup}_file", arguments)
    if not names and verb.lastgroup == "read" and _PLACE.search(rest):
        yield Wish("list_files")


def _name(part: str, quoted: Sequence[str]) -> str:
    """The one name in ``part``, or nothing when there is none or one cannot be sure."""
    if mark := MARK.search(part):
        return quoted[int(mark[1])]
    words = [word.lstrip("(").rstrip(".,;:!?)") or word for word in part.split()]
    left = [word for word in words if word.lower() not in _FILLERS]
    like_files = [word for word in left if "." in word or "/" in word or "\\" in word]
    if like_files:
        return like_files[0]
    if len(words) == 1 and words[0].lower() not in _NOT_NAMES:
        return words[0]
    return left[0] if len(left) == 1 else ""


def _talk(text: str) -> str:
    words = text[:200].lower()
    if told := small_talk(text, "file-ops", HELP):
        return told
    if re.search(r"(?<!\S)(delete|remove|erase)\b", words):
        return (
            "I delete files by name. Which ones do you mean? Put names with blanks "
            "in quotes."
        )
    if re.search(r"(?<!\S)(read|show|open|print|display|cat)\b", words):
        return "Which file do you mean? Put names with blanks in quotes."
    return f"I did not understand that. {HELP}"


#: How the tools' own successes begin.
_SUCCESSES = {
    "list_files": "The workspace",
    "read_file": "Contents of ",
    "delete_file": "Deleted ",
}


class Files:
    """The part of file-ops."""

    greeting = GREETING

    def steps(self, text: str, before: Sequence[Item]) -> list[list[Wish]]:
        plain, quoted = without_quotes(text)
        steps = [_wishes(step, quoted) for step in step_texts(plain, _VERB)]
        return [step for step in steps if step]

    def talk(self, text: str) -> str:
        return _talk(text)

    def in_words(self, tool: str, arguments: Mapping[str, Any]) -> str:
        if tool == "list_files":
            return "list the files"
        verb = "delete" if tool == "delete_file" else "read"
        return f"{verb} {short(str(arguments.get('filename', '')))}"

    def explains_itself(self, tool: str, result: str) -> bool:
        return result.startswith(_SUCCESSES.get(tool, "\0"))
