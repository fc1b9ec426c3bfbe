"""The models an agent on LangGraph can have. The framework is imported when a model is first
connected to."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from hitlagents.adapters.chat_model import Models
from hitlagents.adapters.model_choice import TIMEOUT, RealModel
from hitlagents.demo.scripted import Script


@asynccontextmanager
async def _play(script: Script, pause: float) -> AsyncIterator[Callable[[Any], Any]]:
    """Plays the script a part of the graph asks for, or this one where none is named."""
    from hitlagents.adapters.langgraph_scripted import ScriptedChatModel

    yield lambda wanted: ScriptedChatModel(script=wanted or script, pause=pause)


@asynccontextmanager
async def _reach(real: RealModel, retries: int) -> AsyncIterator[Callable[[Any], Any]]:
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


MODELS = Models(play=_play, reach=_reach)
from_environment = MODELS.from_environment
scripted = MODELS.scripted
openai_compatible = MODELS.openai_compatible
