"""What one advance of a run has to do with its host, whatever the framework."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import ClassVar, NoReturn

from approvals.schemas import Answer, ToolCall
from hitlagents.adapters.base import Body, Happening, Host, Resume, Start, Told
from hitlagents.adapters.failures import damaged, foreign_decisions
from hitlagents.adapters.stored import StoredCall
from hitlagents.toolcall import ToolContext, serving


class HostedAdvance:
    """Lets what the host raises pass unchanged.

    Frameworks make something else of an exception inside their hooks. So it is kept, the
    framework is left by ``halting``, and whoever began the advance ends it by
    ``raise_stop``.
    """

    #: An exception this framework neither swallows nor takes for a tool's failure.
    halting: ClassVar[type[Exception]]

    def __init__(self, host: Host, work: Start | Resume) -> None:
        self.host = host
        self.run_id = work.run_id
        self.thread_id = work.thread_id
        #: What the host raised first.
        self.stopped_by: Exception | None = None

    async def tell(self, happening: Happening) -> None:
        try:
            await self.host.emit(happening)
        except Exception as error:  # noqa: BLE001 (whatever it is, it passes unchanged)
            self.halt(error)

    async def ask(self, call: ToolCall, body: Body) -> Told:
        """What the host's guard gives for the call."""
        try:
            return await self.host.guard(call, body)
        except Exception as error:  # noqa: BLE001 (whatever it is, it passes unchanged)
            self.halt(error)

    def halt(self, error: Exception) -> NoReturn:
        self.stopped_by = self.stopped_by or error
        raise self.halting(type(error).__name__) from error

    def raise_stop(self) -> None:
        if self.stopped_by is not None:
            raise self.stopped_by from None

    def serving(self, call_id: str) -> AbstractContextManager[None]:
        """Around a tool's body: lets it know which call it serves."""
        return serving(
            ToolContext(run_id=self.run_id, thread_id=self.thread_id, call_id=call_id)
        )


def check_decided(
    calls: Mapping[str, StoredCall], answers: Mapping[str, Answer]
) -> None:
    """Raises CheckpointError unless exactly what was asked has been decided. Left to a
    framework, a stray answer would be dropped and the model asked again."""
    asked = {call_id for call_id, call in calls.items() if call.asked}
    if not asked:
        raise damaged()
    if asked != answers.keys():
        raise foreign_decisions()
