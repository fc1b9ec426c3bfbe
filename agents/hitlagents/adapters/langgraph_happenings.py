"""What a run on LangGraph says while it runs: words of models, messages of nodes, calls.

As callbacks, which the framework waits for: so everything is told in the order it
happened, and nothing goes on when the host refuses to hear it. The framework's own stream
of messages is a queue that runs beside the tools.

Imports the framework, so import this module late.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

from langchain_core.callbacks import AsyncCallbackHandler
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, LLMResult
from langgraph.types import Command

from hitlagents.adapters.base import TextDelta
from hitlagents.adapters.written import is_whole

if TYPE_CHECKING:
    from hitlagents.adapters.langgraph_run import Advance

#: LangChain's tag for a request whose answer is not for the chat, and LangGraph's for
#: parts that are nobody's business.
SILENT = frozenset({"nostream", "langsmith:hidden"})


@dataclass(kw_only=True)
class Piece:
    """One call as the model wrote it."""

    call_id: str
    name: str
    arguments: str


class Pieces:
    """Joins the chunks of one model turn to calls, with their arguments as written.

    LangChain's own joining repairs arguments that were cut off and joins calls that share
    an id.
    """

    def __init__(self) -> None:
        self.calls: list[Piece] = []
        self._at: dict[Any, Piece] = {}

    def add(self, chunk: Mapping[str, Any]) -> None:
        call_id, name = chunk.get("id") or "", chunk.get("name") or ""
        text = chunk.get("args") or ""
        place = chunk.get("index")
        if place is None:
            place = call_id or "last"
        call = self._at.get(place)
        if call is None and not name and not call_id and self.calls:
            call = self.calls[-1]
        if call is None or _is_another(call, call_id, name, text):
            call = Piece(call_id=call_id, name="", arguments="")
            self.calls.append(call)
        self._at[place] = self._at["last"] = call
        call.call_id = call.call_id or call_id
        call.name = call.name or name
        call.arguments += text


def _is_another(call: Piece, call_id: str, name: str, text: str) -> bool:
    """Whether a chunk for the place of ``call`` starts another call: nothing can follow
    arguments that are complete."""
    if call_id and call.call_id and call_id != call.call_id:
        return True
    return bool(name and text.strip()) and is_whole(call.arguments)


@dataclass(kw_only=True)
class Turn:
    """One request to a model."""

    number: int
    silent: bool
    message_id: str = field(default_factory=lambda: f"msg-{uuid4().hex}")
    pieces: Pieces = field(default_factory=Pieces)
    #: Whether the answer came in chunks.
    streamed: bool = False
    #: How often its text began; what comes between ends a message.
    parts: int = 0
    #: The message its text goes to now.
    speaks_as: str = ""
    #: Text that waits while another message has the floor.
    waiting: str = ""


class Happenings(AsyncCallbackHandler):
    raise_error = True
    run_inline = True

    def __init__(self, advance: Advance) -> None:
        self.advance = advance
        self.turns: dict[UUID, Turn] = {}
        #: Finished turns by the id of their message.
        self.answered: dict[str, Turn] = {}
        self._nodes: set[UUID] = set()
        self._seen: set[str] = set()
        #: The message that is streamed. Others at the same time wait until it has ended,
        #: so that words of two do not mix.
        self._speaker: Turn | None = None
        #: Turns that have ended while another had the floor, and called nothing.
        self._heard_out: list[Turn] = []

    # With these two, models stream although nobody iterates over them.

    def tap_output_aiter(
        self, run_id: UUID, output: AsyncIterator[Any]
    ) -> AsyncIterator[Any]:
        return output

    def tap_output_iter(self, run_id: UUID, output: Iterator[Any]) -> Iterator[Any]:
        return output

    # Models

    async def on_chat_model_start(
        self,
        serialized: dict[str, Any],
        messages: list[list[BaseMessage]],
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        tags: list[str] | None = None,
        metadata: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        number = self.advance.begin_turn()
        silent = not SILENT.isdisjoint(tags or ())
        self.turns[run_id] = Turn(number=number, silent=silent)

    async def on_llm_new_token(
        self,
        token: str | list[str | dict[str, Any]],
        *,
        chunk: Any = None,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        tags: list[str] | None = None,
        **kwargs: Any,
    ) -> None:
        turn = self.turns.get(run_id)
        if turn is None or not isinstance(chunk, ChatGenerationChunk):
            return
        turn.streamed = True
        for piece in getattr(chunk.message, "tool_call_chunks", ()):
            turn.pieces.add(piece)
        await self._say(turn, str(chunk.message.text))

    async def on_llm_end(
        self,
        response: LLMResult,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        tags: list[str] | None = None,
        **kwargs: Any,
    ) -> None:
        turn = self.turns.pop(run_id, None)
        if turn is None:
            return
        generation = next((each for row in response.generations for each in row), None)
        if not isinstance(generation, ChatGeneration):
            await self._end(turn)
            return
        message = generation.message
        if not turn.streamed:
            await self._say(turn, str(message.text))
        await self._end(turn)
        if message.id and not turn.silent:
            self._seen.add(message.id)
        self._seen.add(turn.message_id)
        self.answered[message.id or ""] = turn

    async def on_llm_error(
        self,
        error: BaseException,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        tags: list[str] | None = None,
        **kwargs: Any,
    ) -> None:
        if turn := self.turns.pop(run_id, None):
            await self._end(turn)

    async def _say(self, turn: Turn, text: str) -> None:
        if not text or turn.silent:
            return
        turn.waiting += text
        self._speaker = self._speaker or turn
        if self._speaker is turn:
            await self._tell_waiting(turn)

    async def _end(self, turn: Turn) -> None:
        """Say what waits, and free the floor.

        Words before calls must be told before these are; other words can wait for the end
        of the message they would cut in two.
        """
        if self._speaker is None or self._speaker is turn:
            self._speaker = None
            await self._tell_waiting(turn)
            while self._heard_out and self._speaker is None:
                await self._tell_waiting(self._heard_out.pop(0))
        elif turn.pieces.calls:
            await self._tell_waiting(turn)
        elif turn.waiting:
            self._heard_out.append(turn)

    async def _tell_waiting(self, turn: Turn) -> None:
        text, turn.waiting = turn.waiting, ""
        if text:
            await self._tell(turn, text)

    async def _tell(self, turn: Turn, text: str) -> None:
        if self.advance.last_text != turn.speaks_as or not turn.parts:
            turn.parts += 1
            number = f"-{turn.parts}" if turn.parts > 1 else ""
            turn.speaks_as = turn.message_id + number
        await self.advance.tell(TextDelta(message_id=turn.speaks_as, delta=text))

    # Nodes that write messages themselves

    async def on_chain_start(
        self,
        serialized: dict[str, Any],
        inputs: Any,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        tags: list[str] | None = None,
        metadata: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        node = (metadata or {}).get("langgraph_node")
        if node is None or kwargs.get("name") != node:
            return
        if SILENT.isdisjoint(tags or ()):
            self._nodes.add(run_id)
        self._seen.update(message.id for message in _messages(inputs) if message.id)

    async def on_chain_end(
        self,
        outputs: Any,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        tags: list[str] | None = None,
        **kwargs: Any,
    ) -> None:
        if run_id not in self._nodes:
            return
        self._nodes.discard(run_id)
        for message in _messages(outputs):
            if not isinstance(message, AIMessage):
                continue
            message.id = message.id or f"msg-{uuid4().hex}"
            text = str(message.text)
            if message.id not in self._seen and text:
                # Whole already: a turn that ends, and waits while a model is speaking.
                whole = Turn(number=0, silent=False, message_id=message.id)
                whole.waiting = text
                await self._end(whole)
            self._seen.add(message.id)


def _messages(value: Any) -> Iterator[BaseMessage]:
    """The messages in what a node was given or gave."""
    if isinstance(value, BaseMessage):
        yield value
    elif isinstance(value, Command):
        yield from _messages(value.update)
    elif isinstance(value, Mapping):
        for item in value.values():
            if isinstance(item, BaseMessage) or _is_list(item):
                yield from _messages(item)
    elif _is_list(value):
        for item in value:
            if isinstance(item, BaseMessage | Command):
                yield from _messages(item)


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)
