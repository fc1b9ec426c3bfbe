"""The contract between the runner and an agent framework.

An adapter translates: it drives its framework by the framework's native API, tells the
host what happens as it happens, asks the host before any tool body runs, and says how the
run ended. It decides nothing and touches no database. Frameworks are imported inside
functions, so that only a worker which uses one pays for it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol
from uuid import UUID

from approvals.schemas import Answer, ClientTool, InterruptDraft, ToolCall, ToolSpec
from approvals.states import Source, Verdict

type State = dict[str, Any]
"""A framework's own state as plain JSON; server-side only, never shown to a browser."""


@dataclass(frozen=True, kw_only=True)
class Finished:
    """The run came to its end; ``state`` is what the next run of the thread starts from."""

    state: State


@dataclass(frozen=True, kw_only=True)
class Interrupted:
    """The run stopped at calls that must be decided first. Never empty.

    Calls that are still open from an earlier pause are named again, with the same key.
    """

    interrupts: Sequence[InterruptDraft]
    state: State
    #: Tools that only now became known, of an agent whose tools run elsewhere.
    tools: Sequence[ToolSpec] = ()


type Outcome = Finished | Interrupted


class AgentRunError(Exception):
    """The agent framework or its model failed.

    ``retryable``: trying again from the last checkpoint may help. The message is shown to
    people, so it must hold no secret.
    """

    def __init__(self, message: str, *, retryable: bool) -> None:
        super().__init__(message)
        self.retryable = retryable


class CheckpointError(AgentRunError):
    """The stored state is damaged, or written by a newer version than this one."""

    def __init__(self, message: str) -> None:
        super().__init__(message, retryable=False)


# What an adapter tells the host while it runs. Each maps onto AG-UI events of that name.


@dataclass(frozen=True, kw_only=True)
class TextDelta:
    message_id: str
    delta: str


@dataclass(frozen=True, kw_only=True)
class ToolCallProposed:
    """The model has proposed this call, and its arguments are complete."""

    call: ToolCall
    message_id: str = ""


@dataclass(frozen=True, kw_only=True)
class ToolCallResult:
    """What the call gave, or what is told instead: ``Told.result``."""

    call_id: str
    content: str


type Happening = TextDelta | ToolCallProposed | ToolCallResult


@dataclass(frozen=True, kw_only=True)
class Told:
    """What the guard has to say of a call."""

    #: What the body gave, or what is said instead of it. Pages show this, and may read
    #: data in it.
    result: str
    #: What the model has to know beside it, such as that a reviewer changed the arguments.
    note: str = ""

    @property
    def text(self) -> str:
        """What the model reads."""
        return f"{self.result}\n\n{self.note}" if self.note else self.result


class Host(Protocol):
    """What the runner offers to an adapter for one advance of one run."""

    run_id: UUID

    async def emit(self, happening: Happening) -> None:
        """Record something for the page. Raises LostLease when the run was taken away."""

    async def guard(self, call: ToolCall, body: Body) -> Told:
        """Run ``body`` if, and only if, a decision or a policy allows exactly this call.

        Returns the body's result, or what is told instead of it (a denial with its note,
        a stored result of an earlier attempt). The model must read all of it. A body that
        raises gives an error text, unless it raises Paused, NoResult or OutcomeLost. Raises
        StopRun, which the adapter must let through unchanged to the caller of start() or
        resume().
        """


type Body = Callable[[Mapping[str, Any]], Awaitable[Any]]
"""The tool itself: takes the effective arguments, which may differ from the proposed ones."""


ANSWER: ContextVar[Any] = ContextVar("answer", default=None)
"""What the reviewer answered beside approving; the host sets it around the body."""


class StopRun(Exception):
    """The host will not go on with this run. Adapters let it pass; the runner knows why.

    Frameworks that swallow exceptions inside tools need it wrapped in their own fatal
    type; the adapter unwraps it again with ``raise stop from None``.
    """


class Paused(Exception):
    """Raised by a body: its framework stopped it to ask a person.

    The host forgets that it was entered and lets this pass to the adapter. Once the answer
    is there, the body is entered again from its start.
    """


class NoResult(Exception):
    """A body has nothing to tell of its tool; the text, for people and the model, says why."""


class OutcomeLost(Exception):
    """Raised by a body that began something elsewhere and will not hear what came of it.

    The call is in doubt from then on, and the guard raises StopRun.
    """


@dataclass(frozen=True, kw_only=True)
class Start:
    """A new user message on a thread."""

    run_id: UUID
    thread_id: UUID
    message: str
    #: State after the thread's previous run, or None. That run may have ended while
    #: calls were open: the adapter then drops them from the state.
    state: State | None
    #: Tools of the page the message came from. They are offered to the model of this run
    #: beside the agent's own, in the place of one that has the same name. A call of one
    #: always pauses, like a held one; its body is never entered, and the guard has the
    #: page's answer.
    client_tools: Sequence[ClientTool] = ()


@dataclass(frozen=True, kw_only=True)
class Resume:
    """Every open call of the pause has been decided."""

    run_id: UUID
    thread_id: UUID
    state: State
    answers: Sequence[Answer]
    #: Those of the run's start.
    client_tools: Sequence[ClientTool] = ()


class Adapter(Protocol):
    """One agent on one framework. Built per job or shared: holds no state of a run."""

    framework: ClassVar[str]
    #: Version of the framework package, stored beside every checkpoint.
    version: str
    #: Version of this adapter's state layout; a checkpoint with a higher one is refused.
    schema: ClassVar[int]
    #: Shown wherever the agent is, for example "Scripted model, no network".
    model_label: str

    @property
    def cancel(self) -> Verdict:
        """What an AG-UI ``cancelled`` means here."""

    @property
    def tools(self) -> Sequence[ToolSpec]: ...

    async def start(self, start: Start, host: Host) -> Outcome: ...

    async def resume(self, resume: Resume, host: Host) -> Outcome: ...


@dataclass(frozen=True, kw_only=True)
class DataPage:
    """What an agent has done, as a page of each conversation with it, for its owner."""

    #: What it is called beside the conversation, such as "Calendar".
    label: str
    #: Name of a Lucide icon.
    icon: str
    #: Draws ``data``, inside the page's frame.
    template: str
    #: Reads ``data`` for a thread. The mapping is the query of the page's address. Changes
    #: nothing, and imports Django inside.
    read: Callable[[UUID, Mapping[str, str]], Mapping[str, Any]]


@dataclass(frozen=True, kw_only=True)
class AgentSpec:
    """An agent as the catalogue lists it; ``build`` imports the framework, so call it late."""

    slug: str
    name: str
    framework: str
    #: The framework's key in the metadata of an AG-UI interrupt.
    metadata_key: str
    description: str
    #: Distribution that must be installed, and the command that installs it.
    distribution: str
    install: str
    build: Callable[[Gating], Adapter]
    suggestions: Sequence[str] = field(default_factory=tuple)
    #: ``Adapter.cancel``, without importing the framework.
    cancel: Verdict = Verdict.CANCEL_RUN
    #: ``Adapter.model_label`` as it would be now, without importing the framework. May
    #: raise AgentRunError when the model is set up wrong.
    model_label: Callable[[], str] = str
    #: The models it can be given, in words, each with how.
    models: Sequence[str] = ()
    #: Where the owner of a conversation sees what the agent did.
    page: DataPage | None = None
    #: Where it runs. One that runs elsewhere is made anew for every job, since its address
    #: may change, and its tools are learned as it asks.
    source: Source = Source.HOSTED

    @property
    def is_remote(self) -> bool:
        return self.source != Source.HOSTED


@dataclass(frozen=True, kw_only=True)
class Gating:
    """Which of an agent's tools run without asking, by the policies of now.

    Everything else pauses, also a tool that nobody registered.
    """

    allowed: frozenset[str]

    def holds(self, tool: str) -> bool:
        return tool not in self.allowed

    def beside(self, brought: Iterable[ClientTool]) -> Gating:
        """The same in a run whose page brings these: they always pause."""
        return Gating(allowed=self.allowed - {tool.name for tool in brought})
