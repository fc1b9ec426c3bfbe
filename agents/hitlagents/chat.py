"""A conversation as its owner sees it, and the list of their conversations. Reads only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING
from uuid import UUID

from django.db.models import OuterRef, Subquery
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from approvals import canonical, cards, permissions
from approvals.cases import Case, happened
from approvals.forms import AnswerForm
from approvals.hiding import Hiding
from approvals.models import AuditEntry, Run, Tool, run_state
from approvals.states import RUN_AT_PAGE, InterruptKind, RunStatus
from hitlagents import catalog, conversations, events
from hitlagents.adapters.base import AgentRunError, AgentSpec
from hitlagents.models import QueuedMessage, RunInput, Thread
from hitlagents.transcript import Entry, Story, transcript

if TYPE_CHECKING:
    from django.contrib.auth.models import User
    from django.db.models import QuerySet

#: Runs shown at once; the rest is a click away.
SHOWN_RUNS = 30
#: Conversations listed beside an open one, and on the list of agents.
LISTED, LISTED_SHORT = 50, 4


@dataclass(frozen=True, kw_only=True)
class Listed:
    """One agent of the catalogue, and what this person has with it."""

    spec: AgentSpec
    installed: bool
    model: str
    threads: Sequence[Thread]
    more: int


def listed(person: User) -> list[Listed]:
    """Every agent, whether or not its framework is here. Imports none."""
    found = []
    for spec in catalog.agents():
        threads = threads_with_state(person, spec.slug)
        found.append(
            Listed(
                spec=spec,
                installed=catalog.installed(spec),
                model=model_label(spec),
                threads=list(threads[:LISTED_SHORT]),
                more=max(0, threads.count() - LISTED_SHORT),
            )
        )
    return found


def threads_with_state(person: User, agent: str) -> QuerySet[Thread]:
    """A person's conversations with an agent, newest first, with ``state`` of their
    last run."""
    last = Run.objects.filter(thread=OuterRef("pk")).order_by("-created", "-id")
    return conversations.threads_of(person, agent).annotate(
        state=Subquery(last.values(told=run_state())[:1])
    )


def model_label(spec: AgentSpec | None) -> str:
    """The model an agent would use now, named without importing its framework."""
    if spec is None:
        return ""
    try:
        return spec.model_label()
    except AgentRunError as error:
        return str(error)


class Card(Case):
    """A request as it stands in a conversation."""

    @property
    def answer_form(self) -> AnswerForm | None:
        """What it asks beside yes and no, of those who may answer it."""
        if not self.takes_answer or not cards.asks_answer(self.interrupt):
            return None
        return cards.answer_form(self.interrupt)


class Chat:
    """One open conversation. Everything asked twice is kept."""

    def __init__(self, thread: Thread, person: User, *, whole: bool = False) -> None:
        self.thread = thread
        self.person = person
        self.whole = whole
        self.spec = catalog.get(thread.agent)

    @property
    def name(self) -> str:
        return self.spec.name if self.spec else self.thread.agent

    @cached_property
    def inputs(self) -> list[RunInput]:
        """What started the runs that are shown, oldest first."""
        newest = (
            self.thread.inputs.order_by("-run__created", "-run_id")
            .select_related("run", "run__requester")
            .prefetch_related(
                "run__events",
                "run__executions",
                "run__interrupts__review_groups",
                "run__interrupts__decisions__reviewer",
            )
        )
        found = list(newest if self.whole else newest[: SHOWN_RUNS + 1])
        return found[::-1]

    @property
    def hides_earlier(self) -> bool:
        return not self.whole and len(self.inputs) > SHOWN_RUNS

    @cached_property
    def run(self) -> Run | None:
        """The newest run, the one that can be under way."""
        return self.inputs[-1].run if self.inputs else None

    @cached_property
    def queued(self) -> list[QueuedMessage]:
        return list(self.thread.queued.all())

    @cached_property
    def entries(self) -> list[Entry]:
        inputs = self.inputs[1:] if self.hides_earlier else self.inputs
        return transcript([self._story(given) for given in inputs], self.queued)

    def _story(self, given: RunInput) -> Story:
        run = given.run
        cards = []
        for interrupt in run.interrupts.all():
            interrupt.run = run
            cards.append(Card(interrupt, self.person))
        who, note = self._cancelled.get(run.pk, ("", ""))
        return Story(
            run=run,
            message=given.message,
            events=events.shown(run),
            cases=cards,
            executions=list(run.executions.all()),
            hiding=self._hiding,
            cancelled_by=who,
            cancel_note=note,
        )

    @cached_property
    def _hiding(self) -> dict[str, Hiding]:
        tools = Tool.objects.filter(agent=self.thread.agent)
        return {tool.name: tool.hiding for tool in tools}

    @cached_property
    def _cancelled(self) -> dict[UUID | None, tuple[str, str]]:
        """Who cancelled which run, and why, as the audit has it."""
        runs = [
            given.run_id
            for given in self.inputs
            if given.run.status == RunStatus.CANCELLED
        ]
        if not runs:
            return {}
        found = list(AuditEntry.objects.filter(action="run.cancelled", run__in=runs))
        return {
            entry.run: (line.actor, _note(entry))
            for entry, line in zip(found, happened(found), strict=True)
        }

    # What may be done

    @property
    def can_cancel(self) -> bool:
        run = self.run
        return bool(run and not run.ended and permissions.may_cancel(self.person, run))

    @property
    def can_retry(self) -> bool:
        run = self.run
        return (
            run is not None
            and run.status == RunStatus.FAILED
            and permissions.may_retry(self.person, run)
        )

    @property
    def suggestions(self) -> Sequence[str]:
        """What one may begin with; nothing once the conversation has begun."""
        if self.spec is None or self.inputs or self.queued:
            return ()
        return self.spec.suggestions

    # What it says

    @cached_property
    def _waits_for_page(self) -> bool:
        """Whether all that is open is for a page to answer that brought its own tools."""
        run = self.run
        if run is None or run.status != RunStatus.WAITING:
            return False
        kinds = {each.kind for each in run.interrupts.all() if each.is_open}
        return kinds == {InterruptKind.CLIENT}

    @property
    def state(self) -> str:
        """The newest run's status as pages tell it; empty before there is one."""
        if self.run is None:
            return ""
        return RUN_AT_PAGE if self._waits_for_page else self.run.status

    @property
    def hint(self) -> str:
        """What happens to a message that is sent now."""
        if self._waits_for_page:
            return _(
                "The run waits for the page that brought a tool. A new message goes on "
                "without its answer."
            )
        status = self.run.status if self.run else ""
        said = (
            {
                RunStatus.WAITING: _(
                    "The run is paused. A new message reaches the agent after the request "
                    "above is answered."
                ),
                RunStatus.QUEUED: _("A new message reaches the agent after this run."),
                RunStatus.RUNNING: _("A new message reaches the agent after this run."),
                RunStatus.IN_DOUBT: _(
                    "The run stands still. A new message reaches the agent after somebody "
                    "has settled what happened."
                ),
            }.get(RunStatus(status))
            if status
            else None
        )
        waiting = len(self.queued)
        if said and waiting:
            said += " " + ngettext(
                "%(n)s message waits.", "%(n)s messages wait.", waiting
            ) % {"n": waiting}
        return said or ""


def _note(entry: AuditEntry) -> str:
    payload = canonical.loads(entry.payload) if entry.payload else {}
    return str(payload.get("note", ""))
