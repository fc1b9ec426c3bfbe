"""The models an agent on Genkit can have, real ones through ``genkit-openai``. The framework
is imported when a model is first connected to."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from hitlagents.adapters.chat_model import Models
from hitlagents.adapters.model_choice import RealModel
from hitlagents.demo.scripted import Script


@asynccontextmanager
async def _play(script: Script, pause: float) -> AsyncIterator[Any]:
    from hitlagents.adapters.genkit_scripted import ScriptedModel

    yield ScriptedModel(script, pause=pause)


@asynccontextmanager
async def _reach(real: RealModel, retries: int) -> AsyncIterator[Any]:
    from genkit_openai.models import OpenAIModel, OpenAIModelHandler

    from hitlagents.adapters.openai_client import connected

    async with connected(real, retries=retries) as client:
        handler = OpenAIModelHandler(OpenAIModel(real.name, client))

        async def ask(request: Any, context: Any) -> Any:
            config = real.settings
            if request.tools:
                # Left alone, the plugin forbids all calls once a tool has given a result.
                config["tool_choice"] = "auto"
            asked = request.model_copy(update={"config": config})
            return await handler.generate(asked, context)

        yield ask


MODELS = Models(play=_play, reach=_reach)
from_environment = MODELS.from_environment
scripted = MODELS.scripted
openai_compatible = MODELS.openai_compatible
