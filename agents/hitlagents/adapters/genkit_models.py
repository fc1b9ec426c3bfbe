"""The models an agent on Genkit can have: scripted, or real by environment. The framework
is imported when a model is first connected to."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from hitlagents.adapters.genkit import GenkitModel
from hitlagents.adapters.model_choice import (
    OPENAI,
    RETRIES,
    TIMEOUT,
    WORD_PAUSE,
    RealModel,
    host_of,
    real_model,
)
from hitlagents.demo.scripted import LABEL

if TYPE_CHECKING:
    from hitlagents.demo.scripted import Item, Reply

type Script = Callable[[Sequence[Item]], Reply]


def from_environment(
    script: Script, environ: Mapping[str, str] | None = None
) -> GenkitModel:
    """The model the environment names (see ``model_choice``), else ``script``.

    Raises ValueError when the environment names one but not where it is.
    """
    real = real_model(environ)
    if real is None:
        return scripted(script, pause=WORD_PAUSE)
    return openai_compatible(real.name, base_url=real.base_url, key=real.key)


def scripted(script: Script, *, pause: float = 0.0) -> GenkitModel:
    @asynccontextmanager
    async def connect() -> AsyncIterator[Any]:
        from hitlagents.adapters.genkit_scripted import ScriptedModel

        yield ScriptedModel(script, pause=pause)

    return GenkitModel(label=LABEL, connect=connect)


def openai_compatible(
    name: str, *, base_url: str, key: str = "", retries: int = RETRIES
) -> GenkitModel:
    """A model behind the chat-completions protocol, through ``genkit-openai``. A server
    that wants no key gets a placeholder, since the client library insists on one."""

    @asynccontextmanager
    async def connect() -> AsyncIterator[Any]:
        from genkit_openai.models import OpenAIModel, OpenAIModelHandler
        from openai import AsyncOpenAI

        async with AsyncOpenAI(
            base_url=base_url,
            api_key=key or "none",
            timeout=TIMEOUT,
            max_retries=retries,
        ) as client:
            handler = OpenAIModelHandler(OpenAIModel(name, client))

            async def ask(request: Any, context: Any) -> Any:
                config = settings(base_url, tools=bool(request.tools))
                asked = request.model_copy(update={"config": config})
                return await handler.generate(asked, context)

            yield ask

    label = RealModel(name=name, base_url=base_url, key=key).label
    return GenkitModel(label=label, connect=connect)


def settings(base_url: str, *, tools: bool) -> dict[str, Any]:
    """What is sent beside the conversation."""
    sent: dict[str, Any] = {}
    if tools:
        # Left alone, the plugin forbids all calls once a tool has given a result.
        sent["tool_choice"] = "auto"
    if host_of(base_url) == host_of(OPENAI):
        # Only OpenAI knows the setting, and keeps every conversation unless it is said.
        sent["store"] = False
    return sent
