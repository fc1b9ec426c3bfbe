"""The models an agent on Microsoft Agent Framework can have. The framework is imported when
a model is first connected to."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from hitlagents.adapters.chat_model import Models
from hitlagents.adapters.model_choice import RealModel
from hitlagents.demo.scripted import Script


@asynccontextmanager
async def _play(script: Script, pause: float) -> AsyncIterator[Any]:
    from hitlagents.adapters.agent_framework_scripted import ScriptedClient

    yield ScriptedClient(script, pause=pause)


@asynccontextmanager
async def _reach(real: RealModel, retries: int) -> AsyncIterator[Any]:
    from agent_framework.openai import OpenAIChatCompletionClient

    from hitlagents.adapters.openai_client import connected

    async with connected(real, retries=retries) as client:
        yield OpenAIChatCompletionClient(real.name, async_client=client)


MODELS = Models(play=_play, reach=_reach)
from_environment = MODELS.from_environment
scripted = MODELS.scripted
openai_compatible = MODELS.openai_compatible
