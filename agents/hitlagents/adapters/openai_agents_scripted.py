"""The scripted model as a model of the OpenAI Agents SDK: offline, word by word.

Imports the SDK, so import this module late.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from itertools import groupby
from typing import Any
from uuid import uuid4

from agents import Model, ModelResponse, Usage
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseFunctionToolCall,
    ResponseOutputItem,
    ResponseOutputMessage,
    ResponseOutputText,
    ResponseStreamEvent,
    ResponseTextDeltaEvent,
)

from hitlagents.demo.scripted import Call, Item, Reply, Result, Said, Script, words
from hitlagents.demo.scripted_offered import play


class ScriptedModel(Model):
    """Plays ``script``, a pure function of the conversation. ``pause`` in seconds per
    word makes the stream visible to people."""

    def __init__(self, script: Script, *, pause: float = 0.0) -> None:
        self.script = script
        self.pause = pause

    async def get_response(
        self,
        system_instructions: str | None,
        input: Any,
        model_settings: Any,
        tools: Sequence[Any],
        *rest: Any,
        **how: Any,
    ) -> ModelResponse:
        output = _output(play(self.script, items(input), _offered(tools)))
        return ModelResponse(output=output, usage=Usage(requests=1), response_id=None)

    async def stream_response(
        self,
        system_instructions: str | None,
        input: Any,
        model_settings: Any,
        tools: Sequence[Any],
        *rest: Any,
        **how: Any,
    ) -> AsyncIterator[ResponseStreamEvent]:
        said = play(self.script, items(input), _offered(tools))
        for number, word in enumerate(words(said.text)):
            yield ResponseTextDeltaEvent(
                content_index=0,
                delta=word,
                item_id="",
                logprobs=[],
                output_index=0,
                sequence_number=number,
                type="response.output_text.delta",
            )
            await asyncio.sleep(self.pause)
        response = Response(
            id=uuid4().hex,
            created_at=0,
            model="scripted",
            object="response",
            output=_output(said),
            tool_choice="auto",
            tools=[],
            parallel_tool_calls=True,
        )
        yield ResponseCompletedEvent(
            response=response, sequence_number=0, type="response.completed"
        )


def _offered(tools: Sequence[Any]) -> dict[str, Any]:
    return {tool.name: tool.params_json_schema for tool in tools}


def _output(said: Reply) -> list[ResponseOutputItem]:
    found: list[ResponseOutputItem] = []
    if said.text:
        text = ResponseOutputText(text=said.text, type="output_text", annotations=[])
        found.append(
            ResponseOutputMessage(
                id=uuid4().hex,
                content=[text],
                role="assistant",
                status="completed",
                type="message",
            )
        )
    found += [
        ResponseFunctionToolCall(
            call_id=call.call_id,
            name=call.tool,
            arguments=call.arguments,
            type="function_call",
        )
        for call in said.calls
    ]
    return found


def items(given: str | Sequence[Mapping[str, Any]]) -> list[Item]:
    """The conversation in the scripted model's words; the results of a turn in the order
    of its calls, since the SDK keeps them in the order they came."""
    if isinstance(given, str):
        return [Said("user", given)]
    found = [item for entry in given if (item := _item(entry)) is not None]
    ordered: list[Item] = []
    for _, group in groupby(found, key=lambda item: isinstance(item, Said)):
        turn = list(group)
        ordered += _by_call(turn) if not isinstance(turn[0], Said) else turn
    return ordered


def _by_call(turn: Sequence[Item]) -> list[Item]:
    """Sort each run of results like the calls before it."""
    order: dict[str, int] = {}
    for item in turn:
        if isinstance(item, Call):
            order[item.call_id] = len(order)
    found: list[Item] = []
    for _, group in groupby(turn, key=lambda item: isinstance(item, Result)):
        run = list(group)
        if isinstance(run[0], Result):
            run.sort(key=lambda item: order.get(getattr(item, "call_id", ""), 0))
        found += run
    return found


def _item(entry: Mapping[str, Any]) -> Item | None:
    kind = entry.get("type", "message")
    if kind == "function_call":
        return Call(entry["call_id"], entry["name"], entry["arguments"])
    if kind == "function_call_output":
        return Result(entry["call_id"], str(entry["output"]))
    if kind == "message" and (text := _text(entry.get("content", ""))):
        return Said(str(entry["role"]), text)
    return None


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "".join(str(part.get("text", "")) for part in content)
