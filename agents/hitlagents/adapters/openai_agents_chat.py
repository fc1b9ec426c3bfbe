"""A real model behind chat completions, for the OpenAI Agents SDK.

Imports the SDK, so import this module late.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from agents import OpenAIChatCompletionsModel
from openai import AsyncOpenAI

from hitlagents.adapters.failures import cut_off


class WholeChatModel(OpenAIChatCompletionsModel):
    """The SDK's own model, which takes a stream that merely ends for a whole answer
    (unless it comes from OpenAI); this one does not."""

    def __init__(self, name: str, client: AsyncOpenAI, label: str) -> None:
        super().__init__(name, client)
        self.label = label

    async def _fetch_response(self, *args: Any, **how: Any) -> Any:
        fetched = await super()._fetch_response(*args, **how)
        if not isinstance(fetched, tuple):
            return fetched
        response, stream = fetched
        return response, Whole(stream, self.label)


class Whole:
    """A stream that raises AgentRunError when it ends before the model said why."""

    def __init__(self, stream: Any, label: str) -> None:
        self._stream = stream
        self._label = label
        self.response = stream.response

    async def __aiter__(self) -> AsyncIterator[Any]:
        finished = False
        async for chunk in self._stream:
            finished = finished or any(
                choice.finish_reason is not None for choice in chunk.choices
            )
            yield chunk
        if not finished:
            raise cut_off(self._label)

    async def close(self) -> None:
        await self._stream.close()
