"""A chat model as every adapter gets one, and the models that agents can have."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from hitlagents.adapters.model_choice import RETRIES, WORD_PAUSE, RealModel, real_model
from hitlagents.demo.scripted import LABEL, Script


@dataclass(frozen=True, kw_only=True)
class ChatModel:
    """A model a framework can talk to.

    ``connect`` opens it for one advance of one run and closes it afterwards: HTTP
    connections belong to one event loop, and an adapter may be used from several. What it
    gives is the framework's own; each adapter says what it takes.
    """

    label: str
    connect: Callable[[], AbstractAsyncContextManager[Any]]
    #: For the adapter to send with every request, in the framework's words.
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Models:
    """The models of one framework: scripted, or real by environment.

    ``play`` opens a model that plays a script, with so many seconds per word; ``reach``
    one behind an address, which rides out so many passing failures. Both import the
    framework.
    """

    play: Callable[[Script, float], AbstractAsyncContextManager[Any]]
    reach: Callable[[RealModel, int], AbstractAsyncContextManager[Any]]

    def from_environment(
        self, script: Script, environ: Mapping[str, str] | None = None
    ) -> ChatModel:
        """The model the environment names (see ``model_choice``), else ``script``.

        Raises AgentRunError when the environment names one but not where it is.
        """
        real = real_model(environ)
        if real is None:
            return self.scripted(script, pause=WORD_PAUSE)
        return self.openai_compatible(real)

    def scripted(self, script: Script, *, pause: float = 0.0) -> ChatModel:
        return ChatModel(label=LABEL, connect=partial(self.play, script, pause))

    def openai_compatible(
        self, real: RealModel, *, retries: int = RETRIES
    ) -> ChatModel:
        """A model behind the chat-completions protocol."""
        return ChatModel(
            label=real.label,
            connect=partial(self.reach, real, retries),
            settings=real.settings,
        )
