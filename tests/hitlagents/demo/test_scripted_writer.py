"""The scripted model of writer: what it understands and what it says."""

from __future__ import annotations

import json
import time

import pytest

from hitlagents.demo.scripted import MAX_CALLS, Call, Item, Reply, Result, Said
from hitlagents.demo.scripted_writer import GREETING, reply

pytestmark = pytest.mark.once


def ask(text: str, before: list[Item] | None = None) -> Reply:
    return reply([*(before or []), Said("user", text)])


def wishes(text: str) -> list[tuple[str, ...]]:
    """The calls of the first turn: verb and what, then the texts in the arguments."""
    found = []
    for call in ask(text).calls:
        values = json.loads(call.arguments)
        for edit in values.pop("edits", []):
            values.update(edit)
        found.append((call.tool, *values.values()))
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "Write “Ready for review.” to status.md",
            [("write_file", "status.md", "Ready for review.")],
        ),
        (
            "write 'a' to a.txt and 'b' to b.txt",
            [("write_file", "a.txt", "a"), ("write_file", "b.txt", "b")],
        ),
        (
            "write hello world to hello.txt",
            [("write_file", "hello.txt", "hello world")],
        ),
        (
            "Please write to notes.md: Buy milk, and\neggs: two",
            [("write_file", "notes.md", "Buy milk, and\neggs: two")],
        ),
        ("create notes.md with the text hello", [("write_file", "notes.md", "hello")]),
        ("save “ x ” as x.md", [("write_file", "x.md", " x ")]),
        ("create empty.txt", [("write_file", "empty.txt", "")]),
        (
            "put salt and pepper into list.txt",
            [("write_file", "list.txt", "salt and pepper")],
        ),
        ("write “x” to ../../etc/passwd", [("write_file", "../../etc/passwd", "x")]),
        (
            "Write an artifact summary.md: All quiet, nothing open.",
            [("write_artifact", "summary.md", "All quiet, nothing open.")],
        ),
        (
            "write an artifact called plan with “do it”",
            [("write_artifact", "plan", "do it")],
        ),
        (
            "write “body” to the artifact plan.md",
            [("write_artifact", "plan.md", "body")],
        ),
        (
            "In draft.txt, replace “risky” with “dangerous”",
            [("edit_file", "draft.txt", "risky", "dangerous")],
        ),
        (
            "Write “Ready.” to status.md and in draft.txt, replace “a” with “b”",
            [
                ("write_file", "status.md", "Ready."),
                ("edit_file", "draft.txt", "a", "b"),
            ],
        ),
        (
            "In draft.txt, replace “a” with “b” and write “Ready.” to status.md",
            [
                ("edit_file", "draft.txt", "a", "b"),
                ("write_file", "status.md", "Ready."),
            ],
        ),
        ("write “x” to a.txt and b.txt", [("write_file", "a.txt", "x")]),
        (
            "replace all foo with bar in notes.md",
            [("edit_file", "notes.md", "foo", "bar", True)],
        ),
        ("change foo to bar in notes.md", [("edit_file", "notes.md", "foo", "bar")]),
        (
            "show me draft.txt and outline.md",
            [("read_file", "draft.txt"), ("read_file", "outline.md")],
        ),
        ("read the artifact plan.md", [("read_artifact", "plan.md")]),
        ("What files are there?", [("list_files",)]),
        ("list the files", [("list_files",)]),
    ],
)
def test_it_understands_what_is_asked_for(text, expected):
    assert wishes(text) == expected


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("hi", GREETING),
        ("thanks", "You are welcome."),
        ("who are you?", "scripted model without a network"),
        ("list the artifacts", "There are no artifacts in this conversation yet."),
        ("don't write “x” to x.md", "I leave everything as it is."),
        ("delete a.txt", "I cannot delete or rename."),
        ("write something", "What shall I write, and where?"),
        ("sing", "I did not understand that."),
    ],
)
def test_what_asks_for_nothing_is_answered_in_words(text, said):
    answer = ask(text)
    assert answer.calls == ()
    assert said in answer.text


def played(text: str, *results: str) -> Reply:
    """What it says once the calls of its turns gave these results, one a turn."""
    history: list[Item] = [Said("user", text)]
    for result in results:
        answer = reply(history)
        history += [*answer.calls, Result(answer.calls[0].call_id, result)]
    return reply(history)


def test_to_append_it_reads_and_then_edits_the_end():
    text = "append “more” to a.txt"
    [call] = played(text, "Contents of a.txt:\none\ntwo\n").calls
    assert call.tool == "edit_file"
    [edit] = json.loads(call.arguments)["edits"]
    assert edit == {"old_string": "two", "new_string": "two\nmore"}
    [call] = played(text, "Contents of a.txt:\nsame\nsame\n").calls
    [edit] = json.loads(call.arguments)["edits"]
    assert edit == {"old_string": "same\nsame\n", "new_string": "same\nsame\nmore"}
    [call] = played(text, "Contents of a.txt:\n").calls
    assert json.loads(call.arguments) == {"file_path": "a.txt", "content": "more\n"}
    failed = played(
        text, "Error: read_file failed. ValueError: File not found: 'a.txt'"
    )
    assert failed.calls == ()
    assert failed.text.startswith("I could not read a.txt.")


def test_it_lists_what_was_written_and_not_what_was_wished():
    before: list[Item] = [
        Said("user", "…"),
        Call("1", "write_artifact", '{"name": "mine.md", "content": ""}'),
        Call("2", "write_artifact", '{"name": "denied.md", "content": ""}'),
        Result("1", 'Artifact "edited.md" saved successfully.'),
        Result("2", "Not executed: a reviewer denied this call."),
    ]
    assert ask("list the artifacts", before).text == (
        "The artifacts of this conversation: edited.md."
    )


def test_long_and_odd_messages_cost_little():
    began = time.process_time()
    for text in (
        "write " * 5000,
        "write “a” to a.txt and " * 2000,
        "write to " + "a.b/" * 5000 + ": x",
        "replace " + "x " * 20_000 + "with y",
        "artifact " * 5000,
        "write a: " * 5000,
        "." * 20_000 + " write x to y",
    ):
        assert len(ask(text).calls) <= MAX_CALLS
    assert time.process_time() - began < 5
