"""Driving an agent in a test, through JSON and with an adapter of its own for every advance."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from approvals.schemas import Answer, ClientTool
from hitlagents.adapters.base import Adapter, Interrupted, Outcome
from tests.hitlagents.fakes import FakeHost, resume, start


class Bench(ABC):
    """One agent and its host."""

    host: FakeHost
    #: Those of the page, in every run.
    client_tools: Sequence[ClientTool] = ()

    @property
    @abstractmethod
    def adapter(self) -> Adapter:
        """A new one each time."""

    def start(self, message: str = "go", **how: Any) -> Outcome:
        job = start(self.host, message, client_tools=self.client_tools, **how)
        return asyncio.run(self.adapter.start(job, self.host))

    def pause(self, message: str = "go", **how: Any) -> Interrupted:
        outcome = self.start(message, **how)
        assert isinstance(outcome, Interrupted)
        return outcome

    def resume(self, paused: Outcome, answers: Sequence[Answer]) -> Outcome:
        job = resume(self.host, paused.state, answers, self.client_tools)
        return asyncio.run(self.adapter.resume(job, self.host))

    def next_run(self) -> FakeHost:
        self.host = FakeHost(allowed=self.host.allowed)
        return self.host
