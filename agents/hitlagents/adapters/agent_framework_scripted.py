"""The scripted model as an Agent Framework chat client: offline, word by word.

Imports the framework, so import this module late.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from typing import Any
from uuid import uuid4

from agent_framework import (
    BaseChatClient,
    ChatMiddlewareLayer,
    ChatResponse,
    ChatResponseUpdate,
    Content,
    FunctionInvocationLayer,
    Message,
    ResponseStream,
)

from hitlagents.demo.scripted import Call, Item, Result, Said, Script, words
from hitlagents.demo.scripted_offered import play


class ScriptedClient(
    FunctionInvocationLayer[Any], ChatMiddlewareLayer[Any], BaseChatClient[Any]
):
    """Plays ``script``, a pure function of the conversation. ``pause`` in seconds per
    word makes the stream visible to people."""

    def __init__(self, script: Script, *, pause: float = 0.0) -> None:
        super().__init__()
        self.script = script
        self.pause = pause

    def _inner_get_response(
        self,
        *,
        messages: Sequence[Message],
        stream: bool,
        options: Mapping[str, Any],
        **kwargs: Any,
    ) -> (
        Awaitable[ChatResponse[Any]]
        | ResponseStream[ChatResponseUpdate, ChatResponse[Any]]
    ):
        updates = self._build_response_stream(self._updates(messages, options))
        return updates if stream else updates.get_final_response()

    async def _updates(
        self, messages: Sequence[Message], options: Mapping[str, Any]
    ) -> AsyncIterator[ChatResponseUpdate]:
        offered = {tool.name: tool.parameters() for tool in options.get("tools") or ()}
        said = play(self.script, items(messages), offered)
        message_id = uuid4().hex
        for word in words(said.text):
            yield _update(message_id, Content.from_text(word))
            await asyncio.sleep(self.pause)
        for call in said.calls:
            yield _update(
                message_id,
                Content.from_function_call(
                    call.call_id, call.tool, arguments=call.arguments
                ),
            )
        yield ChatResponseUpdate(
            role="assistant",
            contents=[],
            message_id=message_id,
            finish_reason="tool_calls" if said.calls else "stop",
        )


def _update(message_id: str, content: Content) -> ChatResponseUpdate:
    return ChatResponseUpdate(
        role="assistant", contents=[content], message_id=message_id
    )


def items(messages: Sequence[Message]) -> list[Item]:
    """The conversation in the scripted model's words. Instructions are left out."""
    found: list[Item] = []
    for message in messages:
        if message.role == "system":
            continue
        for content in message.contents:
            if content.type == "text":
                found.append(Said(str(message.role), content.text or ""))
            elif content.type == "function_call":
                arguments = str(content.arguments or "")
                found.append(Call(content.call_id or "", content.name or "", arguments))
            elif content.type == "function_result":
                found.append(Result(content.call_id or "", str(content.result or "")))
    return found
