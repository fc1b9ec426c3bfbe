"""The client library of the chat-completions protocol, for the frameworks that take one.

Imports the library, so import this module late.
"""

from __future__ import annotations

from openai import AsyncOpenAI

from hitlagents.adapters.model_choice import TIMEOUT, RealModel


def connected(model: RealModel, *, retries: int) -> AsyncOpenAI:
    """A client for ``model``, to be closed by whoever asked for it."""
    return AsyncOpenAI(
        base_url=model.base_url,
        api_key=model.key_or_placeholder,
        timeout=TIMEOUT,
        max_retries=retries,
    )
