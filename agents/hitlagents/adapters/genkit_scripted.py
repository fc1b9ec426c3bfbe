"""The scripted model as a model of Genkit: offline, word by word.

Imports the framework, so import this module late.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from typing import Any

from genkit import FinishReason, Part, Role
from genkit.model import Message, ModelRequest, ModelResponse, ModelResponseChunk
from genkit.plugin_api import ActionRunContext

from hitlagents.demo.scripted import Call, Item, Result, Said, Script, words
from hitlagents.demo.scripted_offered import play


class ScriptedModel:
    """Plays ``script``, a pure function of the conversation. ``pause`` in seconds per
    word makes the stream visible to people."""

    def __init__(self, script: Script, *, pause: float = 0.0) -> None:
        self.script = script
        self.pause = pause

    async def __call__(
        self, request: ModelRequest[Any], context: ActionRunContext[Any]
    ) -> ModelResponse:
        offered = {tool.name: tool.input_schema or {} for tool in request.tools or ()}
        said = play(self.script, list(items(request.messages)), offered)
        for word in words(said.text):
            context.send_chunk(
                ModelResponseChunk(role=Role.MODEL, content=[Part.from_text(word)])
            )
            await asyncio.sleep(self.pause)
        content = [Part.from_text(said.text)] if said.text else []
        content += [
            Part.from_tool_request(
                name=call.tool, ref=call.call_id or None, input=call.arguments
            )
            for call in said.calls
        ]
        return ModelResponse(
            message=Message(role=Role.MODEL, content=content),
            finish_reason=FinishReason.STOP,
        )


def items(messages: Sequence[Message]) -> Iterator[Item]:
    """The conversation in the scripted model's words."""
    for message in messages:
        if message.role == Role.SYSTEM:
            continue
        for part in message.content:
            if part.text:
                role = "assistant" if message.role == Role.MODEL else str(message.role)
                yield Said(role, part.text)
            elif request := part.tool_request:
                given = request.input
                text = given if isinstance(given, str) else json.dumps(given)
                yield Call(request.ref or "", request.name, text)
            elif response := part.tool_response:
                yield Result(response.ref or "", str(response.output))
