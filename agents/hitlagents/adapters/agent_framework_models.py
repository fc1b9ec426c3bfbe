"""The models an agent on Microsoft Agent Framework can have: scripted, or real by
environment. The framework is imported when a model is first connected to."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from hitlagents.adapters.chat_model import ChatModel
from hitlagents.adapters.model_choice import (
    RETRIES,
    WORD_PAUSE,
    RealModel,
    real_model,
)
from hitlagents.demo.scripted import LABEL, Script


def from_environment(
    script: Script, environ: Mapping[str, str] | None = None
) -> ChatModel:
    """The model the environment names (see ``model_choice``), else ``script``.

    Raises ValueError when the environment names one but not where it is.
    """
    real = real_model(environ)
    return openai_compatible(real) if real else scripted(script, pause=WORD_PAUSE)


def scripted(script: Script, *, pause: float = 0.0) -> ChatModel:
    @asynccontextmanager
    async def connect() -> AsyncIterator[Any]:
        from hitlagents.adapters.agent_framework_scripted import ScriptedClient

        yield ScriptedClient(script, pause=pause)

    return ChatModel(label=LABEL, connect=connect)


def openai_compatible(real: RealModel, *, retries: int = RETRIES) -> ChatModel:
    """A model behind the chat-completions protocol."""

    @asynccontextmanager
    async def connect() -> AsyncIterator[Any]:
        from agent_framework.openai import OpenAIChatCompletionClient

        from hitlagents.adapters.openai_client import connected

        async with connected(real, retries=retries) as client:
            yield OpenAIChatCompletionClient(real.name, async_client=client)

    return ChatModel(label=real.label, connect=connect, settings=real.settings)
