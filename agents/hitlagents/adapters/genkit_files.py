"""Genkit's Filesystem middleware for agents that pause, with one folder per thread.

Imports the framework, so import this module late.
"""

from __future__ import annotations

from pathlib import Path

from genkit import GenkitError
from genkit.middleware import (
    GenerateMiddlewareContext,
    MultipartToolResponse,
    ToolHookParams,
)
from genkit_middleware import Filesystem

from hitlagents.adapters.genkit_tools import Next
from hitlagents.toolcall import TOOL_CONTEXT


class FileError(Exception):
    """Why a file could not be used, as a sentence for the model."""


class ThreadFiles(Filesystem):
    """``Filesystem`` on ``root_dir``/<thread>, telling all it has to say as the result.

    The original puts the contents of a file, and what went wrong, into a message for the
    next question to the model. That message is kept by nobody while the turn is paused,
    and by no ledger. It would also name the folder in full.
    """

    def folder(self) -> Path:
        """The folder of the thread whose call is served, made at its first use."""
        folder = Path(self.config.root_dir) / str(TOOL_CONTEXT.get().thread_id)
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        return folder

    @property
    def _root_abs(self) -> str:
        return str(self.folder().resolve())

    async def wrap_tool(
        self,
        params: ToolHookParams,
        ctx: GenerateMiddlewareContext,
        next_fn: Next[ToolHookParams, MultipartToolResponse],
    ) -> MultipartToolResponse:
        try:
            response = await next_fn(params, ctx)
        except GenkitError as error:
            if isinstance(error.cause, OSError):
                raise FileError(f"{error.cause.strerror}.") from error
            raise
        told = [part for message in self._message_queue for part in message.content]
        self._message_queue.clear()
        if not told:
            return response
        texts = [part.text for part in told if part.text is not None]
        if len(texts) < len(told):
            raise FileError("It is an image. Only text can be read here.")
        return MultipartToolResponse(output="\n".join(texts))
