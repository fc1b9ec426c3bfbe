"""Which model the environment asks for, whatever the framework that talks to it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from hitlagents.adapters.base import AgentRunError

OPENAI = "https://api.openai.com/v1"
#: What ``real_model`` chooses between, for people.
CHOICES = (
    "Scripted, without any network: while SAYSO_MODEL is not set",
    "Any model behind an OpenAI-compatible address: SAYSO_MODEL names it, "
    "OPENAI_BASE_URL and OPENAI_API_KEY say where and how",
)
#: Seconds per word of the scripted model, so that people see it stream.
WORD_PAUSE = 0.01
#: Seconds a request may take, and how often a passing failure is ridden out.
TIMEOUT = 120.0
RETRIES = 2


@dataclass(frozen=True, kw_only=True)
class RealModel:
    """A model behind an OpenAI-compatible address. ``key`` may be empty."""

    name: str
    base_url: str
    key: str = ""

    @property
    def label(self) -> str:
        return f"{self.name} at {_host(self.base_url)}"

    @property
    def key_or_placeholder(self) -> str:
        """For client libraries, which insist on a key where the server wants none."""
        return self.key or "none"

    @property
    def settings(self) -> dict[str, Any]:
        """What has to be said with every request. Only OpenAI knows the setting, and keeps
        every conversation unless it is said."""
        return {"store": False} if _host(self.base_url) == _host(OPENAI) else {}


def real_model(environ: Mapping[str, str] | None = None) -> RealModel | None:
    """The model that ``SAYSO_MODEL`` names, or None for the scripted one.

    ``OPENAI_BASE_URL`` (any OpenAI-compatible address) and ``OPENAI_API_KEY`` say where
    and how; alone they change nothing, since many machines have a key lying around.
    Raises AgentRunError when a model is named but neither of the two is there.
    """
    env = os.environ if environ is None else environ
    name = env.get("SAYSO_MODEL", "").strip()
    base_url = env.get("OPENAI_BASE_URL", "").strip()
    key = env.get("OPENAI_API_KEY", "").strip()
    if not name:
        return None
    if not base_url and not key:
        raise AgentRunError(
            "SAYSO_MODEL names a model, but neither OPENAI_BASE_URL nor OPENAI_API_KEY "
            "is set.",
            retryable=True,
        )
    return RealModel(name=name, base_url=base_url or OPENAI, key=key)


def _host(base_url: str) -> str:
    """Host and port only: an address may hold a user name and a password."""
    parts = urlsplit(base_url)
    host = parts.hostname or "?"
    return f"{host}:{parts.port}" if parts.port else host
