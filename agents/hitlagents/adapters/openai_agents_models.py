"""The models an agent on the OpenAI Agents SDK can have; real ones by chat completions, also at
OpenAI itself. The SDK is imported when a model is first connected to."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from hitlagents.adapters.chat_model import Models
from hitlagents.adapters.model_choice import RealModel
from hitlagents.demo.scripted import Script


@asynccontextmanager
async def _play(script: Script, pause: float) -> AsyncIterator[Any]:
    from hitlagents.adapters.openai_agents_scripted import ScriptedModel

    yield ScriptedModel(script, pause=pause)


@asynccontextmanager
async def _reach(real: RealModel, retries: int) -> AsyncIterator[Any]:
    from hitlagents.adapters.openai_agents_chat import WholeChatModel
    from hitlagents.adapters.openai_client import connected

    async with connected(real, retries=retries) as client:
        yield WholeChatModel(real.name, client, real.label)


MODELS = Models(play=_play, reach=_reach)
from_environment = MODELS.from_environment
scripted = MODELS.scripted
openai_compatible = MODELS.openai_compatible
