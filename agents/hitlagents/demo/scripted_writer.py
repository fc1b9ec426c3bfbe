"""What the agent writer says when no real model is configured.

It writes exactly the words it is given: "write “Hello” to hello.txt", "notes.md: …" after
"write", "append “more” to notes.md", "in notes.md, replace “a” with “b”", "write an
artifact plan.md: …". It reads and lists, too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hitlagents.demo.scripted import (
    MARK,
    SEPARATOR,
    Call,
    Item,
    Reply,
    Result,
    Wish,
    apart,
    is_negated,
    joined,
    orders,
    short,
    small_talk,
    speak,
    step_texts,
    unquoted,
    without_quotes,
)

HELP = (
    "I write the words you give me. Try “write 'Ready.' to status.md”, “append 'Done.' to "
    "draft.txt”, “in draft.txt, replace 'risky' with 'dangerous'” or “write an artifact "
    "plan.md: one, two, three”. Put texts in quotes, or behind a colon at the end."
)
GREETING = f"Hello. {HELP}"

#: How the tools' own successes begin.
SUCCESSES: Mapping[str, str] = {
    "list_files": "The folder ",
    "read_file": "Contents of ",
    "write_file": "File ",
    "edit_file": "File ",
    "read_artifact": "Contents of ",
    "write_artifact": "Artifact ",
}
_SAVED = re.compile(r"Artifact \"(.*)\" saved successfully\.")


def reply(history: Sequence[Item]) -> Reply:
    """What writer says next, a pure function of the conversation."""
    return speak(history, Writer(known_files(history)))


def known_files(history: Sequence[Item]) -> dict[str, str]:
    """What files were said to contain when they were last read. To append to a file is to
    edit its end, so it is read first."""
    found: dict[str, str] = {}
    for tool, text in _results(history):
        if tool == "read_file" and text.startswith("Contents of "):
            head, _, body = text.partition(":\n")
            found[head.removeprefix("Contents of ")] = body
    return found


def _results(history: Sequence[Item]) -> Iterator[tuple[str, str]]:
    """Each result with the tool it came from."""
    tools: dict[str, str] = {}
    for item in history:
        if isinstance(item, Call):
            tools[item.call_id] = item.tool
        elif isinstance(item, Result):
            yield tools.get(item.call_id, ""), apart(item.text)[0]


class Writer:
    """The part of the agent writer; ``files`` are the contents it has been told."""

    greeting = GREETING

    def __init__(self, files: Mapping[str, str]) -> None:
        self.files = files
        self.artifacts: list[str] = []

    def steps(self, text: str, before: Sequence[Item]) -> list[list[Wish]]:
        self.artifacts = _artifacts(before)
        if dictated := _DICTATED.match(text):
            return self._written(dictated, dictated["body"].strip())
        plain, quoted = without_quotes(text)
        steps = []
        for step in step_texts(plain, _VERB):
            steps += self._steps(step, quoted)
        return steps

    def talk(self, text: str) -> str:
        return _talk(text, self.artifacts)

    def in_words(self, tool: str, arguments: Mapping[str, Any]) -> str:
        if tool == "list_files":
            return "list the files"
        verb = tool.partition("_")[0]
        if tool.endswith("_artifact"):
            return f"{verb} the artifact {short(str(arguments.get('name', '')))}"
        return f"{verb} {short(str(arguments.get('file_path', '')))}"

    def explains_itself(self, tool: str, result: str) -> bool:
        return result.startswith(SUCCESSES.get(tool, "\0"))

    def _written(self, dictated: re.Match[str], body: str) -> list[list[Wish]]:
        """ "write to notes.md: …": all that follows is the text."""
        head, quoted = without_quotes(f" {dictated['head']} ")
        artifact = bool(_ARTIFACT.search(head))
        name = _target(head, quoted, artifact=artifact)
        if not name:
            return []
        if dictated["verb"].lower() in _APPENDING and not artifact:
            return self._appended(name, body)
        return [[_write(name, body, artifact=artifact)]]

    def _steps(self, text: str, quoted: Sequence[str]) -> list[list[Wish]]:
        """What one step asks for: turns of parallel calls, in its order."""
        now: dict[Wish, None] = {}
        later: list[list[Wish]] = []
        for verb, all_of_it in orders(text, _VERB):
            word = verb["verb"].lower()
            # "…, and in notes.md, replace": that place belongs to the next order.
            rest = _PLACE_AHEAD.sub("", all_of_it)
            if word in _REPLACING:
                ahead = text[: verb.start()]
                place = _PLACE.fullmatch(ahead) or _PLACE_AHEAD.search(ahead)
                where = place["name"] if place else ""
                for wish in _edits(rest, quoted, _named(where, quoted)):
                    now[wish] = None
            elif word in _APPENDING:
                for name, body in _texts(rest, quoted, artifact=False):
                    later += self._appended(name, body)
            elif word in _WRITING:
                artifact = bool(_ARTIFACT.search(rest))
                texts = list(_texts(rest, quoted, artifact=artifact))
                for name, body in texts:
                    # Beside others, a name without a text was not understood, and an empty
                    # text would empty the file.
                    if body or len(texts) == 1:
                        now[_write(name, body, artifact=artifact)] = None
            else:
                for wish in _reads(word, rest, quoted):
                    now[wish] = None
        return [[*now], *later] if now else later

    def _appended(self, name: str, body: str) -> list[list[Wish]]:
        """Read, then edit the end. The second turn is empty once the first has failed."""
        read = [Wish("read_file", _json(file_path=name))]
        before = self.files.get(name)
        if before is None:
            return [read]
        if not before.strip():
            return [read, [_write(name, f"{body}\n", artifact=False)]]
        lines = before.splitlines()
        last = next(line for line in reversed(lines) if line.strip())
        old = last if before.count(last) == 1 else before
        edits = [{"old_string": old, "new_string": f"{old.rstrip(chr(10))}\n{body}"}]
        return [read, [Wish("edit_file", _json(file_path=name, edits=edits))]]


# Understanding a message

_APPENDING = frozenset({"append", "add"})
_REPLACING = frozenset({"replace", "change"})
_WRITING = frozenset({"write", "create", "save", "put", "make"})
_VERB = re.compile(
    r"(?<!\S)(?P<verb>write|create|save|put|make|append|add|replace|change|read|show|open"
    r"|print|list|(?:what|which) files)(?=[ ,]|[.!?](?: |$)|$)",
    re.IGNORECASE,
)
#: "write to notes.md: the text": what stands behind the colon is the text.
_DICTATED = re.compile(
    r"\s*(?:(?:please|now|and|ok|okay|can you|could you|then),? ){0,3}"
    r"(?P<verb>write|create|save|put|make|append|add) (?P<head>[^:\n“\"]{1,200}):\s"
    r"(?P<body>.*\S)",
    re.IGNORECASE | re.DOTALL,
)
_ARTIFACT = re.compile(r"(?<!\S)artifacts?(?=[ ,.:]|$)", re.IGNORECASE)
_FILE = r"\ue000\d+\ue000|[^\s,;:]*[^\s,;:.][./][^\s,;:]*[^\s,;:.!?]"
_NAME = re.compile(rf"(?<!\S)(?:{_FILE})(?=[\s,;:.!?]|$)")
_NAMED_ARTIFACT = re.compile(
    rf"(?<!\S)artifacts? (?:(?:called|named|with the name|to|into|as) )?(?P<name>{_FILE}"
    r"|(?!with |containing |saying |that |called |named )[\w-]+)",
    re.IGNORECASE,
)
_AT = re.compile(
    rf"(?<!\S)(?:to|into|in|as|called|named) (?:the |a |file ){{0,2}}(?P<name>{_FILE})"
)
_TO_IT = re.compile(r" (?:to|into|in|as)(?: the| an?)? $", re.IGNORECASE)
_HOLDING = re.compile(
    r"(?<!\S)(?:with|containing|saying|that says|which says)(?: the)?(?: (?:text|words|content"
    r"|contents|line))? ",
    re.IGNORECASE,
)
_PLACE = re.compile(rf"(?:please )?in (?P<name>{_FILE}),? ", re.IGNORECASE)
_PLACE_AHEAD = re.compile(
    rf"(?:[,;]| and)(?: and)?(?: please)? in (?P<name>{_FILE}),? $", re.IGNORECASE
)
_EVERY = re.compile(r"\s*(?:all|every) ", re.IGNORECASE)
#: Leads to the next order.
_AND = re.compile(r"(?:[,;]| and)+ ?$", re.IGNORECASE)
_SWAP = re.compile(r" (?:with|by|to|into|for) ", re.IGNORECASE)
_FILLERS = re.compile(
    r"^(?:(?:a|an|the|me|new|text|words?|lines?|file|artifact|called|named) )+|^,? ?",
    re.IGNORECASE,
)
_FILES = re.compile(
    r"(?<!\S)(?:files|folder|workspace|everything)(?=[ ,.!?]|$)", re.IGNORECASE
)


def _json(**arguments: Any) -> str:
    return json.dumps(arguments, ensure_ascii=False)


def _write(name: str, body: str, *, artifact: bool) -> Wish:
    if artifact:
        return Wish("write_artifact", _json(name=name, content=body))
    return Wish("write_file", _json(file_path=name, content=body))


def _named(text: str, quoted: Sequence[str]) -> str:
    """A name or a text: what is in quotes word for word, anything else without blanks
    and punctuation around it."""
    bare = text.strip(" ,;:")
    if mark := MARK.fullmatch(bare.rstrip(".!?")):
        return quoted[int(mark[1])]
    return unquoted(bare, quoted)


def _target(text: str, quoted: Sequence[str], *, artifact: bool) -> str:
    pattern = _NAMED_ARTIFACT if artifact else _NAME
    match = pattern.search(text)
    if match is None:
        return ""
    return _named(match["name"] if artifact else match[0], quoted)


def _texts(
    rest: str, quoted: Sequence[str], *, artifact: bool
) -> Iterator[tuple[str, str]]:
    """Names and what shall be in them: "“a” to x.txt and y.txt with “b”"."""
    for part in _parts(rest):
        at = _AT.search(part)
        holding = _HOLDING.search(part)
        named = _NAMED_ARTIFACT.search(part) if artifact else None
        if holding and (not at or at.start() < holding.start()):
            name = _target(part[: holding.start()], quoted, artifact=artifact)
            body = part[holding.end() :]
        elif at:
            name, body = _named(at["name"], quoted), part[: at.start()]
        elif named:
            name, body = _named(named["name"], quoted), part[named.end() :]
            body = body if body.strip(" .") else _TO_IT.sub("", part[: named.start()])
        elif bare := _NAME.search(part):
            name, body = _named(bare[0], quoted), part[bare.end() :]
        else:
            continue
        if name:
            yield name, _named(_FILLERS.sub("", f"{body.strip()} "), quoted)


def _parts(rest: str) -> list[str]:
    """Cut at "and" where another name follows: "salt and pepper to x.txt" is one text."""
    parts = [""]
    end = 0
    for match in SEPARATOR.finditer(rest):
        if _NAME.search(rest[end : match.start()]) and _NAME.search(rest, match.end()):
            parts[-1] = rest[end : match.start()]
            parts.append("")
            end = match.end()
    parts[-1] = rest[end:]
    return parts


def _edits(rest: str, quoted: Sequence[str], place: str) -> Iterator[Wish]:
    """ "“a” with “b” in notes.md"."""
    swap = _SWAP.search(rest)
    if swap is None:
        return
    everywhere = _EVERY.match(rest)
    old = _named(rest[everywhere.end() if everywhere else 0 : swap.start()], quoted)
    new = _AND.sub("", rest[swap.end() :])
    at = _AT.search(new)
    if at is not None:
        place, new = _named(at["name"], quoted), new[: at.start()]
    if place and old:
        edit: dict[str, Any] = {"old_string": old, "new_string": _named(new, quoted)}
        if everywhere:
            edit["replace_all"] = True
        yield Wish("edit_file", _json(file_path=place, edits=[edit]))


def _reads(verb: str, rest: str, quoted: Sequence[str]) -> Iterator[Wish]:
    if _ARTIFACT.search(rest):
        if name := _target(rest, quoted, artifact=True):
            yield Wish("read_artifact", _json(name=name))
        return
    if verb == "list" or verb.endswith("files"):
        yield Wish("list_files")
        return
    names = [_named(match[0], quoted) for match in _NAME.finditer(rest)]
    for name in names:
        yield Wish("read_file", _json(file_path=name))
    if not names and _FILES.search(rest):
        yield Wish("list_files")


def _artifacts(before: Sequence[Item]) -> list[str]:
    """Names of what was written; a reviewer may have changed them, so results say so."""
    found: dict[str, None] = {}
    for tool, text in _results(before):
        if tool == "write_artifact" and (saved := _SAVED.fullmatch(text)):
            found[saved[1]] = None
    return list(found)


def _talk(text: str, artifacts: Sequence[str]) -> str:
    words = text[:200].lower()
    if told := small_talk(text, "writer", HELP):
        return told
    if _ARTIFACT.search(words) and re.search(r"\b(list|show|what|which|any)\b", words):
        if not artifacts:
            return "There are no artifacts in this conversation yet."
        return f"The artifacts of this conversation: {joined(artifacts)}."
    if is_negated(words, _VERB):
        return "All right, I leave everything as it is."
    if re.search(r"\b(delete|remove|erase|rename)\b", words):
        return "I write and edit, but I cannot delete or rename."
    if _VERB.search(words):
        return "What shall I write, and where? Put the text in quotes, then the name."
    return f"I did not understand that. {HELP}"
