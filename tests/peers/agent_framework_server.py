"""An Agent Framework agent behind its own AG-UI endpoint, with a model that needs no net.

``/plain`` is as the package serves it, ``/bare`` without the call it makes up for its pages.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from typing import Any
from uuid import uuid4

from agent_framework import (
    Agent,
    BaseChatClient,
    ChatMiddlewareLayer,
    ChatResponse,
    ChatResponseUpdate,
    Content,
    FunctionInvocationLayer,
    Message,
    ResponseStream,
    tool,
)
from agent_framework_ag_ui import (
    AgentFrameworkAgent,
    add_agent_framework_fastapi_endpoint,
)
from fastapi import FastAPI

from tests.peers.serving import asked, note, reply, run, serve


@tool(approval_mode="always_require")
def delete_file(filename: str) -> str:
    """Delete a file."""
    return run("delete_file", filename=filename)


@tool
def list_files() -> str:
    """List the files."""
    return run("list_files")


class Model(
    FunctionInvocationLayer[Any], ChatMiddlewareLayer[Any], BaseChatClient[Any]
):
    """Calls what the last message asks for, then says what came of it."""

    def _inner_get_response(
        self,
        *,
        messages: Sequence[Message],
        stream: bool,
        options: Mapping[str, Any],
        **kwargs: Any,
    ) -> (
        Awaitable[ChatResponse[Any]]
        | ResponseStream[ChatResponseUpdate, ChatResponse[Any]]
    ):
        updates = self._build_response_stream(self._updates(messages))
        return updates if stream else updates.get_final_response()

    async def _updates(
        self, messages: Sequence[Message]
    ) -> AsyncIterator[ChatResponseUpdate]:
        told = [_plain(message) for message in messages]
        note("told", told)
        place = max(n for n, (role, _) in enumerate(told) if role == "user")
        results = [text for role, text in told[place:] if role == "tool"]
        calls = asked(told[place][1]) if not results else []
        contents = [
            Content.from_function_call(f"call-{uuid4().hex[:8]}", name, arguments=given)
            for name, given in calls
        ] or [Content.from_text(reply(results))]
        message_id = uuid4().hex
        for content in contents:
            yield ChatResponseUpdate(
                role="assistant", contents=[content], message_id=message_id
            )


def _plain(message: Message) -> tuple[str, str]:
    results = [
        str(content.result)
        for content in message.contents
        if content.type == "function_result"
    ]
    return str(message.role), message.text or " ".join(results)


app = FastAPI()
agent = Agent(client=Model(), tools=[delete_file, list_files])
add_agent_framework_fastapi_endpoint(app, agent, "/plain", single_user=True)
add_agent_framework_fastapi_endpoint(
    app,
    AgentFrameworkAgent(agent, require_confirmation=False),
    "/bare",
    single_user=True,
)

if __name__ == "__main__":
    serve(app)
