"""The models an agent on the OpenAI Agents SDK can have: scripted, or real by environment.
The SDK is imported when a model is first connected to."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from hitlagents.adapters.model_choice import (
    OPENAI,
    RETRIES,
    TIMEOUT,
    WORD_PAUSE,
    RealModel,
    host_of,
    real_model,
)
from hitlagents.adapters.openai_agents import SdkModel
from hitlagents.demo.scripted import LABEL

if TYPE_CHECKING:
    from hitlagents.demo.scripted import Item, Reply

type Script = Callable[[Sequence[Item]], Reply]


def from_environment(
    script: Script, environ: Mapping[str, str] | None = None
) -> SdkModel:
    """The model the environment names (see ``model_choice``), else ``script``.

    Raises ValueError when the environment names one but not where it is.
    """
    real = real_model(environ)
    if real is None:
        return scripted(script, pause=WORD_PAUSE)
    return openai_compatible(real.name, base_url=real.base_url, key=real.key)


def scripted(script: Script, *, pause: float = 0.0) -> SdkModel:
    @asynccontextmanager
    async def connect() -> AsyncIterator[Any]:
        from hitlagents.adapters.openai_agents_scripted import ScriptedModel

        yield ScriptedModel(script, pause=pause)

    return SdkModel(label=LABEL, connect=connect)


def openai_compatible(
    name: str, *, base_url: str, key: str = "", retries: int = RETRIES
) -> SdkModel:
    """A model behind the chat-completions protocol, also at OpenAI itself: one protocol,
    and with it no conversation kept at the provider. A server that wants no key gets a
    placeholder, since the client library insists on one."""
    label = RealModel(name=name, base_url=base_url, key=key).label

    @asynccontextmanager
    async def connect() -> AsyncIterator[Any]:
        from openai import AsyncOpenAI

        from hitlagents.adapters.openai_agents_chat import ChatModel

        async with AsyncOpenAI(
            base_url=base_url,
            api_key=key or "none",
            timeout=TIMEOUT,
            max_retries=retries,
        ) as client:
            yield ChatModel(name, client, label)

    # Only OpenAI knows the setting, and keeps every conversation unless it is said.
    at_openai = host_of(base_url) == host_of(OPENAI)
    settings = {"store": False} if at_openai else {}
    return SdkModel(label=label, connect=connect, settings=settings)
