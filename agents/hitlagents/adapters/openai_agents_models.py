"""The models an agent on the OpenAI Agents SDK can have: scripted, or real by environment.
The SDK is imported when a model is first connected to."""

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
        from hitlagents.adapters.openai_agents_scripted import ScriptedModel

        yield ScriptedModel(script, pause=pause)

    return ChatModel(label=LABEL, connect=connect)


def openai_compatible(real: RealModel, *, retries: int = RETRIES) -> ChatModel:
    """A model behind the chat-completions protocol, also at OpenAI itself: one protocol,
    and with it no conversation kept at the provider."""

    @asynccontextmanager
    async def connect() -> AsyncIterator[Any]:
        from hitlagents.adapters.openai_agents_chat import WholeChatModel
        from hitlagents.adapters.openai_client import connected

        async with connected(real, retries=retries) as client:
            yield WholeChatModel(real.name, client, real.label)

    return ChatModel(label=real.label, connect=connect, settings=real.settings)
