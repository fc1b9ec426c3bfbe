"""The models an agent on Microsoft Agent Framework can have: scripted, or real by
environment. The framework is imported when a model is first connected to."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from hitlagents.adapters.agent_framework import ChatModel
from hitlagents.adapters.model_choice import (
    RETRIES,
    TIMEOUT,
    WORD_PAUSE,
    RealModel,
    real_model,
)
from hitlagents.demo import scripted as demo

if TYPE_CHECKING:
    from hitlagents.demo.scripted import Item, Reply


def from_environment(
    environ: Mapping[str, str] | None = None,
    *,
    script: Callable[[Sequence[Item]], Reply] = demo.reply,
) -> ChatModel:
    """The model the environment names (see ``model_choice``), else one playing ``script``.

    Raises ValueError when the environment names one but not where it is.
    """
    real = real_model(environ)
    if real is None:
        return scripted(script, pause=WORD_PAUSE)
    return openai_compatible(real.name, base_url=real.base_url, key=real.key)


def scripted(
    script: Callable[[Sequence[Item]], Reply], *, pause: float = 0.0
) -> ChatModel:
    @asynccontextmanager
    async def connect() -> AsyncIterator[Any]:
        from hitlagents.adapters.agent_framework_scripted import ScriptedClient

        yield ScriptedClient(script, pause=pause)

    return ChatModel(label=demo.LABEL, connect=connect)


def openai_compatible(
    name: str, *, base_url: str, key: str = "", retries: int = RETRIES
) -> ChatModel:
    """A model behind the chat-completions protocol. A server that wants no key gets a
    placeholder, since the client library insists on one."""

    @asynccontextmanager
    async def connect() -> AsyncIterator[Any]:
        from agent_framework.openai import OpenAIChatCompletionClient
        from openai import AsyncOpenAI

        async with AsyncOpenAI(
            base_url=base_url,
            api_key=key or "none",
            timeout=TIMEOUT,
            max_retries=retries,
        ) as client:
            yield OpenAIChatCompletionClient(name, async_client=client)

    real = RealModel(name=name, base_url=base_url, key=key)
    return ChatModel(label=real.label, connect=connect)
