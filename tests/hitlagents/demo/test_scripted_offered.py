"""What the scripted model makes of a message that names the tools it was offered."""

from __future__ import annotations

import json

import pytest

from hitlagents.demo.scripted import Call, Reply, Result, Said
from hitlagents.demo.scripted_offered import play

pytestmark = pytest.mark.once

OFFERED = {
    "pick_colour": {
        "properties": {"shade": {}, "note": {}},
        "required": ["shade"],
    },
    "delete_file": {"properties": {"filename": {}}},
    "look": {},
}


def own(history):
    return Reply("Something of its own.")


def ask(text):
    reply = play(own, [Said("user", text)], OFFERED)
    return [(call.tool, json.loads(call.arguments)) for call in reply.calls]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("use look", [("look", {})]),
        ("Please use the tool `look`.", [("look", {})]),
        ("Use pick_colour", [("pick_colour", {"shade": ""})]),
        ("Use pick_colour for the roof.", [("pick_colour", {"shade": "the roof"})]),
        ('call pick_colour with {"note": "x"}', [("pick_colour", {"note": "x"})]),
        ('use delete_file on a "b"', [("delete_file", {"filename": 'a "b"'})]),
        (
            'Use pick_colour with {"shade": "red"}, look and delete_file with '
            '{"filename": "a.txt"}',
            [
                ("pick_colour", {"shade": "red"}),
                ("look", {}),
                ("delete_file", {"filename": "a.txt"}),
            ],
        ),
        ("use pick_colours", []),
        ("use nothing", []),
        ("please look", []),
        ("use", []),
        ("", []),
        ("use look and nothing else", [("look", {})]),
    ],
)
def test_the_tools_that_are_named_are_called(text, expected):
    assert ask(text) == expected


def test_any_other_message_is_the_scripts():
    assert play(own, [Said("user", "Delete it")], OFFERED).text
    assert play(own, [], OFFERED).text == "Something of its own."
    assert play(own, [Said("user", "use look")], {}).text == "Something of its own."


def test_it_says_what_the_tool_gave():
    said = [Said("user", "use look"), Call("c1", "look", "{}")]
    reply = play(own, [*said, Result("c1", "a wall")], OFFERED)
    assert reply == Reply("When I wanted to use look, I was told: a wall")
    reply = play(own, [*said, Result("c1", "Not answered: nobody is there.")], OFFERED)
    assert reply.text == "I did not use look, because nobody is there."
