"""The models an agent on Microsoft Agent Framework can have: scripted, or real by
environment. The framework is imported when a model is first connected to."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from hitlagents.adapters.agent_framework import ChatModel
from hitlagents.demo import scripted as demo

if TYPE_CHECKING:
    from hitlagents.demo.scripted import Item, Reply

OPENAI = "https://api.openai.com/v1"
#: Seconds per word of the scripted model, so that people see it stream.
WORD_PAUSE = 0.01
TIMEOUT = 120.0
RETRIES = 2


def from_environment(environ: Mapping[str, str] | None = None) -> ChatModel:
    """A real model when ``SAYSO_MODEL`` names one, else the scripted one.

    ``OPENAI_BASE_URL`` (any OpenAI-compatible address) and ``OPENAI_API_KEY`` say where
    and how; alone they change nothing, since many machines have a key lying around.
    Raises ValueError when a model is named but neither of the two is there.
    """
    env = os.environ if environ is None else environ
    name = env.get("SAYSO_MODEL", "").strip()
    base_url = env.get("OPENAI_BASE_URL", "").strip()
    key = env.get("OPENAI_API_KEY", "").strip()
    if not name:
        return scripted(demo.reply, pause=WORD_PAUSE)
    if not base_url and not key:
        raise ValueError(
            "SAYSO_MODEL names a model, but neither OPENAI_BASE_URL nor OPENAI_API_KEY "
            "is set."
        )
    return openai_compatible(name, base_url=base_url or OPENAI, key=key)


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

    return ChatModel(label=f"{name} at {_host(base_url)}", connect=connect)


def _host(base_url: str) -> str:
    """Host and port only: an address may hold a user name and a password."""
    parts = urlsplit(base_url)
    host = parts.hostname or "?"
    return f"{host}:{parts.port}" if parts.port else host
