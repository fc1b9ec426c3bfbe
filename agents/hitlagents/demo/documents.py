"""What the demo agent writer works on: files in a folder, and artifacts of its session.

Both are Genkit's own middleware, with results in words. Imports the framework, so import
this module late.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from genkit.middleware import (
    GenerateMiddlewareContext,
    MultipartToolResponse,
    ToolHookParams,
)
from genkit_middleware import Artifacts

from hitlagents.adapters.genkit_files import ThreadFiles
from hitlagents.adapters.genkit_tools import Next
from hitlagents.demo.workspace import Workspace
from hitlagents.toolcall import TOOL_CONTEXT, ToolError

SEED = {
    "outline.md": "# Release notes\n\n- What is new\n- What was fixed\n",
    "draft.txt": "Sayso holds risky calls until a person decides.\n",
}

_READ = re.compile(
    r"<read_file path=\"(.*?)\" \w+=\"[\d-]+\">\n(.*)\n</read_file>", re.DOTALL
)


class Documents(ThreadFiles):
    """Text files in the thread's workspace, seeded at its first use."""

    def folder(self) -> Path:
        root = Path(self.config.root_dir)
        return Workspace(root, TOOL_CONTEXT.get().thread_id, seed=SEED).folder

    async def wrap_tool(
        self,
        params: ToolHookParams,
        ctx: GenerateMiddlewareContext,
        next_fn: Next[ToolHookParams, MultipartToolResponse[Any]],
    ) -> MultipartToolResponse[Any]:
        response = await super().wrap_tool(params, ctx, next_fn)
        output: Any = response.output
        if params.tool.name == "list_files":
            return MultipartToolResponse(output=_listing(output))
        if read := _READ.fullmatch(str(output)):
            return MultipartToolResponse(output=f"Contents of {read[1]}:\n{read[2]}")
        return response


class Deliverables(Artifacts):
    """Artifacts of the session."""

    async def wrap_tool(
        self,
        params: ToolHookParams,
        ctx: GenerateMiddlewareContext,
        next_fn: Next[ToolHookParams, MultipartToolResponse[Any]],
    ) -> MultipartToolResponse[Any]:
        response = await next_fn(params, ctx)
        output: Any = response.output
        if params.tool.name == "write_artifact":
            return MultipartToolResponse(output=output["status"])
        if params.tool.name == "read_artifact" and output["found"]:
            text = f"Contents of {output['name']}:\n{output['content']}"
            return MultipartToolResponse(output=text)
        if params.tool.name == "read_artifact":
            raise ToolError(output["content"])
        return response


def _listing(entries: list[dict[str, Any]]) -> str:
    if not entries:
        return "The folder is empty."
    lines = [
        f"- {entry['path']}/"
        if entry["is_directory"]
        else f"- {entry['path']} ({entry['size_bytes']} bytes)"
        for entry in entries
    ]
    return "The folder holds:\n" + "\n".join(lines)
