"""The models an agent on LangGraph can have: scripted, or real by environment. The
framework is imported when a model is first connected to."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from hitlagents.adapters.chat_model import ChatModel
from hitlagents.adapters.model_choice import (
    RETRIES,
    TIMEOUT,
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
    """Plays the script a part of the graph asks for, or this one where none is named."""

    @asynccontextmanager
    async def connect() -> AsyncIterator[Callable[[Any], Any]]:
        from hitlagents.adapters.langgraph_scripted import ScriptedChatModel

        yield lambda wanted: ScriptedChatModel(script=wanted or script, pause=pause)

    return ChatModel(label=LABEL, connect=connect)


def openai_compatible(real: RealModel, *, retries: int = RETRIES) -> ChatModel:
    """A model behind the chat-completions protocol."""

    @asynccontextmanager
    async def connect() -> AsyncIterator[Callable[[Any], Any]]:
        from httpx import AsyncClient
        from langchain_openai import ChatOpenAI
        from pydantic import SecretStr

        async with AsyncClient(timeout=TIMEOUT) as client:
            model = ChatOpenAI(
                model=real.name,
                base_url=real.base_url,
                api_key=SecretStr(real.key_or_placeholder),
                http_async_client=client,
                max_retries=retries,
                use_responses_api=False,
                stream_usage=False,
                **real.settings,
            )
            yield lambda script: model

    return ChatModel(label=real.label, connect=connect)
