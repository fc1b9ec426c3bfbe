"""The scripted model as a LangChain chat model: offline, word by word.

Imports the framework, so import this module late.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

from langchain_core.callbacks import (
    AsyncCallbackManagerForLLMRun,
    CallbackManagerForLLMRun,
)
from langchain_core.language_models import BaseChatModel
from langchain_core.language_models.chat_models import generate_from_stream
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    HumanMessage,
    ToolMessage,
)
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_core.utils.function_calling import convert_to_openai_tool

from hitlagents.demo.scripted import Call, Item, Result, Said, Script, words
from hitlagents.demo.scripted_offered import play


class ScriptedChatModel(BaseChatModel):
    """Plays ``script``, a pure function of the conversation. ``pause`` in seconds per
    word makes the stream visible to people."""

    script: Script
    pause: float = 0.0
    offered: dict[str, dict[str, Any]] = {}

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **kwargs: Any) -> ScriptedChatModel:
        declared = [convert_to_openai_tool(tool)["function"] for tool in tools]
        offered = {each["name"]: each.get("parameters", {}) for each in declared}
        return self.model_copy(update={"offered": offered})

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        return generate_from_stream(self._stream(messages))

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        for chunk in self._chunks(messages):
            yield chunk
            time.sleep(self.pause)

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        for chunk in self._chunks(messages):
            yield chunk
            await asyncio.sleep(self.pause)

    def _chunks(self, messages: Sequence[BaseMessage]) -> Iterator[ChatGenerationChunk]:
        said = play(self.script, items(messages), self.offered)
        for word in words(said.text):
            yield _chunk(content=word)
        for index, call in enumerate(said.calls):
            piece = tool_call_chunk(
                name=call.tool,
                args=call.arguments,
                id=call.call_id or None,
                index=index,
            )
            yield _chunk(content="", tool_call_chunks=[piece])
        reason = "tool_calls" if said.calls else "stop"
        yield _chunk(content="", response_metadata={"finish_reason": reason})


def _chunk(**parts: Any) -> ChatGenerationChunk:
    return ChatGenerationChunk(message=AIMessageChunk(**parts))


def items(messages: Sequence[BaseMessage]) -> list[Item]:
    """The conversation in the scripted model's words. Instructions are left out."""
    found: list[Item] = []
    for message in messages:
        text = str(message.text)
        if isinstance(message, ToolMessage):
            found.append(Result(message.tool_call_id, text))
        elif isinstance(message, AIMessage):
            if text:
                found.append(Said("assistant", text))
            found += [
                Call(
                    call["id"] or "",
                    call["name"],
                    json.dumps(call["args"], ensure_ascii=False),
                )
                for call in message.tool_calls
            ]
        elif isinstance(message, HumanMessage):
            found.append(Said("user", text))
    return found
