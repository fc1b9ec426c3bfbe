"""What people do with hosted agents: open a thread, send a message.

A thread has one run at a time. A message that comes while one is under way, also while it
waits for a decision, is kept and starts the next run when that one has ended.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING
from uuid import UUID, uuid4

from django.db.models import Count

from approvals import services
from approvals.exceptions import ApprovalsError, InvalidArguments, NotFound
from approvals.hiding import masked_text
from approvals.models import Run
from approvals.prepared import Prepared, Slot
from approvals.schemas import ClientTool
from approvals.states import RunStatus, Source
from hitlagents import catalog, client_tools
from hitlagents.models import QueuedMessage, RunInput, Thread

if TYPE_CHECKING:
    from django.contrib.auth.models import User
    from django.db.models import QuerySet

MAX_MESSAGE = 100_000
MAX_QUEUED = 20


class TooManyQueued(ApprovalsError):
    """This thread already holds as many waiting messages as it may."""

    http_status = 409
    code = "too_many_queued"


def threads_of(user: User, agent: str | None = None) -> QuerySet[Thread]:
    """The threads a person may open: their own."""
    threads = Thread.objects.filter(owner=user)
    return threads if agent is None else threads.filter(agent=agent)


def open_thread(agent: str, *, owner: User, client_key: str = "") -> Thread:
    """Begin a conversation, or find the one that this key of a page stands for.

    Raises NotFound for an agent that is not hosted here.
    """
    if catalog.get(agent) is None:
        raise NotFound(f"There is no agent named {agent}.")
    if not client_key:
        return Thread.objects.create(agent=agent, owner=owner)
    return Thread.objects.get_or_create(
        agent=agent, owner=owner, client_key=client_key
    )[0]


def send(
    thread_id: UUID,
    text: str,
    *,
    author: User,
    message_id: str = "",
    tools: Sequence[ClientTool] = (),
) -> Run | QueuedMessage:
    """Send a message: it starts a run, or waits for the one that is under way. What that
    one waits for a page to answer is answered by it: the person went on. ``tools`` are
    those of the page it comes from.

    With a ``message_id`` that the thread has already, it is the same message sent again:
    what became of it is returned. Raises NotFound, InvalidArguments (empty, too long, or
    holding a NUL), TooManyQueued.
    """
    sent = _send(thread_id, _checked(text), author, message_id, tools)
    if isinstance(sent, QueuedMessage):
        # Behind the commit: a run is locked before its thread, never after.
        waiting = Run.objects.filter(thread=thread_id, status=RunStatus.WAITING)
        for run in waiting:
            services.pass_over_client_calls(run.pk, actor=author)
    return sent


def _send(
    thread_id: UUID,
    text: str,
    author: User,
    message_id: str,
    tools: Sequence[ClientTool],
) -> Run | QueuedMessage:
    with services.unit_of_work() as work:
        thread = _lock(threads_of(author), thread_id)
        if message_id and (earlier := _sent(thread, message_id)):
            return earlier
        message_id = message_id or f"user-{uuid4()}"
        if not thread.title:
            thread.title = _title(text)
        thread.save()
        waiting = _QUEUED.first(thread=thread.pk) or 0
        if waiting >= MAX_QUEUED:
            raise TooManyQueued
        if not waiting and not _is_busy(thread):
            return _start(thread, text, message_id, client_tools.to_store(tools))
        message = QueuedMessage.objects.create(
            thread=thread,
            text=text,
            message_id=message_id,
            client_tools=client_tools.to_store(tools),
        )
        run = start_next(thread)
        if run is None:
            work.tell("thread", thread.pk, {f"user.{thread.owner_id}"})
            return message
        return run


def after_run(run_id: UUID) -> None:
    """A run has ended: start the next one if a message is waiting.

    Not after a failure: a person may want to retry it first. Their next message, or the
    retry's end, lets the waiting ones go on.
    """
    thread = _GOES_ON.first(run=run_id)
    if thread is not None:
        start_next(thread)


def hold(thread_id: UUID) -> None:
    """Take a thread's lock, so that nobody starts a run on it until the transaction ends."""
    _locking(Thread.objects.filter(pk=thread_id)).first()


def start_next(thread: Thread) -> Run | None:
    """Turn the oldest waiting message of a locked thread into a run, if it is free."""
    message = _WAITING.first(thread=thread.pk)
    if message is None or _is_busy(thread):
        return None
    message.delete()
    return _start(thread, message.text, message.message_id, message.client_tools)


def known_messages(thread: Thread, ids: Collection[str]) -> set[str]:
    """Which of these messages the thread has."""
    return {
        known
        for rows in (thread.inputs, thread.queued)
        for known in rows.filter(message_id__in=ids).values_list(
            "message_id", flat=True
        )
    }


def _sent(thread: Thread, message_id: str) -> Run | QueuedMessage | None:
    given = thread.inputs.filter(message_id=message_id).select_related("run").first()
    if given is not None:
        return given.run
    return thread.queued.filter(message_id=message_id).first()


def _is_busy(thread: Thread) -> bool:
    return _BUSY.first(thread=thread.pk) is not None


def _start(thread: Thread, text: str, message_id: str, tools: str) -> Run:
    spec = catalog.get(thread.agent)
    last = _LAST.first(thread=thread.pk)
    run = services.queue_run(
        agent=thread.agent,
        framework=spec.framework if spec else "",
        thread=thread.pk,
        requester=thread.owner,
        title=_title(text),
        source=spec.source if spec else Source.HOSTED,
    )
    RunInput.objects.create(
        run=run,
        thread=thread,
        message=text,
        message_id=message_id,
        client_tools=tools,
        after_id=last,
    )
    return run


def _title(message: str) -> str:
    """The beginning of a message: others read it, in lists and beside requests."""
    return masked_text(" ".join(message[:1000].split()))[:200]


def _locking(threads: QuerySet[Thread]) -> QuerySet[Thread]:
    locking = threads.select_for_update(no_key=True, of=("self",)).order_by()
    return locking.select_related("owner")


#: The thread of a run that ended well, locked.
_GOES_ON = Prepared(
    lambda: _locking(Thread.objects.all()).filter(
        inputs__run=Slot(RunInput, "run"),
        inputs__run__status__in=[RunStatus.FINISHED, RunStatus.CANCELLED],
    )
)
_WAITING = Prepared(
    lambda: QueuedMessage.objects.filter(thread=Slot(QueuedMessage, "thread"))[:1]
)
_QUEUED = Prepared(
    lambda: (
        QueuedMessage.objects.filter(thread=Slot(QueuedMessage, "thread"))
        .order_by()
        .values("thread")
        .annotate(n=Count("pk"))
        .values_list("n", flat=True)
    )
)
_BUSY = Prepared(
    lambda: (
        Run.objects.active()
        .filter(thread=Slot(Run, "thread"))
        .order_by()
        .values_list("pk", flat=True)[:1]
    )
)
_LAST = Prepared(
    lambda: (
        RunInput.objects.filter(thread=Slot(RunInput, "thread"))
        .order_by("-run__created", "-run_id")
        .values_list("run", flat=True)[:1]
    )
)


def _lock(threads: QuerySet[Thread], thread_id: UUID) -> Thread:
    thread = _locking(threads).filter(pk=thread_id).first()
    if thread is None:
        raise NotFound("There is no such thread.")
    return thread


def _checked(text: str) -> str:
    text = text.replace("\r\n", "\n").strip()
    if not text:
        raise InvalidArguments("Write something first.")
    if len(text) > MAX_MESSAGE:
        raise InvalidArguments(
            f"The message has {len(text):,} characters; {MAX_MESSAGE:,} are allowed."
        )
    if "\0" in text:
        raise InvalidArguments("The message holds a NUL character.")
    return text
