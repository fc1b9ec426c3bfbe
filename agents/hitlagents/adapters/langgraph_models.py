"""The models an agent on LangGraph can have: scripted, or real by environment. The
framework is imported when a model is first connected to."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from hitlagents.adapters.langgraph import ChatModel
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


def from_environment(environ: Mapping[str, str] | None = None) -> ChatModel:
    """The model the environment names (see ``model_choice``), else the scripted one.

    Raises ValueError when the environment names one but not where it is.
    """
    real = real_model(environ)
    if real is None:
        return scripted(pause=WORD_PAUSE)
    return openai_compatible(real.name, base_url=real.base_url, key=real.key)


def scripted(
    script: Callable[[Sequence[Item]], Reply] | None = None, *, pause: float = 0.0
) -> ChatModel:
    """Plays the script a part of the graph asks for, or this one where none is named."""

    @asynccontextmanager
    async def connect() -> AsyncIterator[Callable[[Any], Any]]:
        from hitlagents.adapters.langgraph_scripted import ScriptedChatModel

        yield lambda wanted: ScriptedChatModel(
            script=wanted or script or demo.reply, pause=pause
        )

    return ChatModel(label=demo.LABEL, connect=connect)


def openai_compatible(
    name: str, *, base_url: str, key: str = "", retries: int = RETRIES
) -> ChatModel:
    """A model behind the chat-completions protocol. A server that wants no key gets a
    placeholder, since the client library insists on one."""

    @asynccontextmanager
    async def connect() -> AsyncIterator[Callable[[Any], Any]]:
        from httpx import AsyncClient
        from langchain_openai import ChatOpenAI
        from pydantic import SecretStr

        async with AsyncClient(timeout=TIMEOUT) as client:
            model = ChatOpenAI(
                model=name,
                base_url=base_url,
                api_key=SecretStr(key or "none"),
                http_async_client=client,
                max_retries=retries,
                use_responses_api=False,
                stream_usage=False,
            )
            yield lambda script: model

    real = RealModel(name=name, base_url=base_url, key=key)
    return ChatModel(label=real.label, connect=connect)
