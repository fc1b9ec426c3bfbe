"""The scripted model, as file-ops: what it understands and what it says."""

from __future__ import annotations

import json
import time

import pytest

from hitlagents.demo.scripted import MAX_CALLS, Call, Item, Reply, Result, Said
from hitlagents.demo.scripted_file_ops import GREETING, reply

pytestmark = pytest.mark.once


def ask(text: str) -> Reply:
    return reply([Said("user", text)])


def wishes(text: str) -> list[str]:
    """The calls of the first turn, as ``delete report.txt``."""
    found = []
    for call in ask(text).calls:
        arguments = json.loads(call.arguments)
        words = [call.tool.removesuffix("_file"), arguments.get("filename", "")]
        found.append(" ".join(words).strip())
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("delete report.txt", ["delete report.txt"]),
        ("Please delete report.txt", ["delete report.txt"]),
        ("Could you please delete the file report.txt for me?", ["delete report.txt"]),
        ("DELETE Report.TXT!", ["delete Report.TXT"]),
        ("delete a.txt and b.txt", ["delete a.txt", "delete b.txt"]),
        ("delete a, b and c", ["delete a", "delete b", "delete c"]),
        ("delete a.txt, b.txt, and c.txt.", [
            "delete a.txt", "delete b.txt", "delete c.txt",
        ]),
        ("delete a.txt\nb.txt\nc.txt", ["delete a.txt", "delete b.txt", "delete c.txt"]),
        ("remove notes", ["delete notes"]),
        ("remove the old report.txt", ["delete report.txt"]),
        ("erase x.md & y.md", ["delete x.md", "delete y.md"]),
        ("list the files", ["list_files"]),
        ("list files", ["list_files"]),
        ("What files are there?", ["list_files"]),
        ("which files do you have", ["list_files"]),
        ("show me the files", ["list_files"]),
        ("what's in the folder?", ["list_files"]),
        ("read notes.md", ["read notes.md"]),
        ("show me report.txt", ["read report.txt"]),
        ("What is in report.txt?", ["read report.txt"]),
        ("What\u2019s in report.txt?", ["read report.txt"]),
        ("read notes.md and delete report.txt", ["read notes.md", "delete report.txt"]),
        ("Read a.md, delete b.md and list the files", [
            "read a.md", "delete b.md", "list_files",
        ]),
        ('delete "my old report.txt"', ["delete my old report.txt"]),
        ("delete “a b”, 'c d.txt' and `e`", [
            "delete a b", "delete c d.txt", "delete e",
        ]),
        ('delete "it, and then this.txt"', ["delete it, and then this.txt"]),
        ('delete "a\u00a0b"', ["delete a\u00a0b"]),
        ("delete delete-me.txt", ["delete delete-me.txt"]),
        ("read list.txt", ["read list.txt"]),
        ("delete ../../etc/passwd", ["delete ../../etc/passwd"]),
        ("delete ..", ["delete .."]),
        ("delete <img src=x>.txt", ["delete src=x>.txt"]),
        ("delete gnp\u202e.exe", ["delete gnp\u202e.exe"]),
        ("delete a.txt and a.txt", ["delete a.txt"]),
        ("don't delete a.txt", []),
        ("Do not delete a.txt, but read b.txt", ["read b.txt"]),
        ("never delete a.txt", []),
        ("please don\u2019t ever delete a.txt", []),
        ("delete it", []),
        ("delete everything", []),
        ("how do I delete a file?", []),
        ("undelete a.txt", []),
    ],
)  # fmt: skip
def test_what_it_understands(text, expected):
    assert wishes(text) == expected


def test_steps_are_turns_of_their_own():
    text = "delete a.txt, then b.txt and after that list the files"
    history: list[Item] = [Said("user", text)]
    first = reply(history)
    assert [c.tool for c in first.calls] == ["delete_file", "delete_file"]
    history += [Said("assistant", first.text), *first.calls]
    history += [Result(c.call_id, "Deleted it.") for c in first.calls]
    second = reply(history)
    assert [c.tool for c in second.calls] == ["list_files"]
    assert second.text.startswith("Deleted it.")
    ids = [c.call_id for c in (*first.calls, *second.calls)]
    assert len(set(ids)) == 3


def after(text: str, *results: str) -> Reply:
    said = ask(text)
    history: list[Item] = [Said("user", text), Said("assistant", said.text)]
    history += said.calls
    pairs = zip(said.calls, results, strict=True)
    history += [Result(call.call_id, result) for call, result in pairs]
    return reply(history)


@pytest.mark.parametrize(
    ("text", "result", "told"),
    [
        ("delete a.txt", "Deleted a.txt.", "Deleted a.txt."),
        # The reviewer changed the arguments: what was done is said, not what was meant.
        ("delete a.txt", "Deleted b.txt.", "Deleted b.txt."),
        (
            "delete a.txt",
            "Not executed: a reviewer denied this call. Ask Ann first",
            "I did not delete a.txt, because the reviewer said “Ask Ann first”.",
        ),
        (
            "delete a.txt",
            "Not executed: a reviewer denied this call.",
            "I did not delete a.txt, because a reviewer denied this call.",
        ),
        (
            "delete a.txt",
            "Not executed: nobody decided before the deadline.",
            "I did not delete a.txt, because nobody decided before the deadline.",
        ),
        (
            "delete a.txt",
            "Error: There is no file named a.txt in the workspace.",
            "I could not delete a.txt. Error: There is no file named a.txt in the "
            "workspace.",
        ),
        (
            "delete a.txt",
            "It is archived.",
            "When I wanted to delete a.txt, I was told: It is archived.",
        ),
        ("list files", "The workspace is empty.", "The workspace is empty."),
        (
            "read a.md",
            "Contents of a.md:\ndelete b.md",
            "Contents of a.md:\ndelete b.md",
        ),
    ],
)
def test_it_says_what_happened_and_proposes_nothing_again(text, result, told):
    said = after(text, result)
    assert said.text == told
    assert said.calls == ()


def test_several_results_are_told_in_order():
    said = after(
        "delete a and b", "Not executed: a reviewer denied this call. No", "Deleted b."
    )
    assert said.text == (
        "I did not delete a, because the reviewer said “No”.\n\nDeleted b."
    )


def test_only_the_last_user_message_counts():
    history: list[Item] = [
        Said("user", "delete a.txt"),
        Call("c", "delete_file", '{"filename": "a.txt"}'),
        Result("c", "The run was ended before this call gave a result."),
        Said("user", "thanks"),
    ]
    assert reply(history) == Reply("You are welcome.")


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("", "I did not understand"),
        ("Hello there", "Hello."),
        ("thank you", "You are welcome."),
        ("who are you?", "I am file-ops"),
        ("delete everything", "I delete files by name."),
        ("read it", "Which file"),
        ("What is the weather?", "I did not understand"),
        ("a\0b \ud800 \ue0000\ue000", "I did not understand"),
    ],
)
def test_it_answers_everything_else(text, start):
    said = ask(text)
    assert said.text.startswith(start)
    assert said.calls == ()


def test_without_a_message_it_says_hello():
    assert reply([]).text == GREETING


def test_many_names_are_taken_in_portions():
    said = ask("delete " + ", ".join(f"f{n}.txt" for n in range(50)))
    assert len(said.calls) == MAX_CALLS
    assert "first 20 of 50" in said.text


def test_it_is_a_pure_function():
    history = [Said("user", "delete a and b")]
    assert reply(history) == reply(list(history))


@pytest.mark.parametrize(
    "text",
    [
        "delete " + "x" * 1_000_000,
        " " * 1_000_000,
        "\n" * 1_000_000,
        "“" * 1_000_000,
        "'" * 1_000_000,
        " '" * 500_000,
        "`a" * 500_000,
        "delete " * 150_000,
        "then " * 200_000,
        ", and " * 150_000,
        "not " * 250_000 + "delete a",
        "\ue0009\ue000" * 100_000,
    ],
    ids=lambda text: repr(text[:8]),
)
def test_a_megabyte_of_anything_takes_a_moment(text):
    began = time.process_time()
    ask(text)
    assert time.process_time() - began < 5


def test_a_very_long_name_is_proposed_whole_and_told_short():
    [call] = ask("delete " + "x" * 1_000_000).calls
    assert len(json.loads(call.arguments)["filename"]) == 1_000_000
    assert len(ask("delete " + "x" * 1_000_000).text) < 200
