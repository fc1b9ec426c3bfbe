"""A chat model as every adapter gets one, whatever its framework."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class ChatModel:
    """A model a framework can talk to.

    ``connect`` opens it for one advance of one run and closes it afterwards: HTTP
    connections belong to one event loop, and an adapter may be used from several. What it
    gives is the framework's own; each adapter says what it takes.
    """

    label: str
    connect: Callable[[], AbstractAsyncContextManager[Any]]
    #: Sent with every request beside the conversation, in the framework's words.
    settings: Mapping[str, Any] = field(default_factory=dict)
