"""What a scripted model says to a message that names tools it was offered, whoever they are
of: "use pick_colour with {"shade": "red"} and delete_file with {"filename": "a.txt"}".

So a page that brings a tool of its own can be tried with every demo agent.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hitlagents.demo.scripted import Item, Reply, Said, Script, Wish, speak, trimmed

type Offered = Mapping[str, Mapping[str, Any]]
"""The parameters of each tool, by its name."""

_USE = re.compile(r"\s*(?:please )?(?:use|call) (?:the tool )?", re.IGNORECASE)
_NAME = re.compile(r"`?([A-Za-z0-9_-]{1,64})`?")
_WITH = re.compile(r" +(?:with|for|on) +", re.IGNORECASE)
_AND = re.compile(r"(?: *,)? *(?:and )?", re.IGNORECASE)
_JSON = json.JSONDecoder()


def play(script: Script, history: Sequence[Item], offered: Offered) -> Reply:
    """What the script says next, unless the last message names a tool."""
    said = [item for item in history if isinstance(item, Said) and item.role == "user"]
    named = Named(offered)
    if said and named.steps(said[-1].text, ()):
        return speak(history, named)
    return script(history)


@dataclass(frozen=True)
class Named:
    """The part of a model that does exactly what it is told, with whatever tool."""

    offered: Offered
    greeting = ""

    def steps(self, text: str, before: Sequence[Item]) -> list[list[Wish]]:
        use = _USE.match(text)
        wishes: list[Wish] = []
        at = use.end() if use else len(text)
        while (name := _NAME.match(text, at)) and name[1] in self.offered:
            at = name.end()
            given: Any = None
            if words := _WITH.match(text, at):
                given, at = _given(text, words.end())
            wishes.append(self._wish(name[1], given))
            at = next_one.end() if (next_one := _AND.match(text, at)) else at
        return [wishes] if wishes else []

    def _wish(self, tool: str, given: Any) -> Wish:
        if not isinstance(given, dict):
            parts = self.offered[tool].get("properties", {})
            names = self.offered[tool].get("required", parts)
            given = dict.fromkeys(names, given or "")
        return Wish(tool, json.dumps(given, ensure_ascii=False))

    def talk(self, text: str) -> str:
        return ""

    def in_words(self, tool: str, arguments: Mapping[str, Any]) -> str:
        return f"use {tool}"

    def explains_itself(self, tool: str, result: str) -> bool:
        return False


def _given(text: str, at: int) -> tuple[Any, int]:
    """An object, or else the words up to the end."""
    try:
        found, end = _JSON.raw_decode(text, at)
    except ValueError:
        found, end = None, at
    if isinstance(found, dict):
        return found, end
    return trimmed(text[at:]), len(text)
