"""Who sees what, and who may do what. Every page, socket and service asks here.

Four permissions, given to groups: ``view_interrupt`` (see what one's review groups get),
``decide_interrupt`` (decide it), ``cancel_run``, ``view_auditentry``; beside them
``view_all_interrupts`` for watchers and auditors. What one may not see does not exist.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import TYPE_CHECKING
from uuid import UUID

from django.contrib.auth.models import AnonymousUser, Group, User
from django.db.models import Exists, OuterRef, Q

from approvals.models import AuditEntry, Interrupt, InterruptQuerySet, Run, RunQuerySet
from approvals.prepared import Prepared, Slot

if TYPE_CHECKING:
    from django.db.models import QuerySet

    type Person = User | AnonymousUser

_LINKS = Interrupt.review_groups.through
#: Whom a prepared query is asked for.
_USER = Slot(User, "id", name="user")

DATABASE_BACKEND = "approvals.backends.DatabaseBackend"


def sees_everything(user: Person) -> bool:
    return user.is_active and user.has_perm("approvals.view_all_interrupts")


def sees_inbox(user: Person) -> bool:
    return sees_everything(user) or (
        user.is_active and user.has_perm("approvals.view_interrupt")
    )


def visible_interrupts(user: Person) -> InterruptQuerySet:
    """The requests that exist for this person in the inbox."""
    if sees_everything(user):
        return Interrupt.objects.for_people()
    return _of(user.pk) if sees_inbox(user) else Interrupt.objects.none()


def _of(user: int | Slot | None) -> InterruptQuerySet:
    """What the groups of this person get."""
    # Asked of each row as it is read, so that a page of the list ends after a page of
    # rows. With ``group__in`` SQLite would list all that is mine first, 50,000 or one.
    mine = _LINKS.objects.filter(interrupt_id=OuterRef("pk"), group__user=user)
    return Interrupt.objects.for_people().filter(Exists(mine))


def visible_interrupt(user: Person, pk: UUID) -> Interrupt | None:
    """The request of this id with its run, if it exists for this person."""
    if sees_everything(user):
        return _ANY.first(id=pk)
    return _MINE.first(id=pk, user=user.pk) if sees_inbox(user) else None


def _with_run() -> InterruptQuerySet:
    whole = Interrupt.objects.for_people().select_related("run", "run__requester")
    return whole.order_by().filter(pk=Slot(Interrupt, "id"))


_ANY = Prepared(_with_run)
_MINE = Prepared(lambda: _with_run().filter(review_groups__user=_USER)[:1])


def first_waiting(user: Person, now: datetime) -> UUID | None:
    """The oldest request that waits in this person's inbox."""
    if sees_everything(user):
        found = _FIRST_OF_ALL.first(now=now)
    elif sees_inbox(user):
        found = _FIRST_OF_MINE.first(now=now, user=user.pk)
    else:
        found = None
    return found[0] if found else None


def _first(visible: InterruptQuerySet) -> QuerySet[Interrupt, tuple[UUID]]:
    waiting = visible.open().in_time(Slot(Interrupt, "expires_at", name="now"))
    return waiting.values_list("pk")[:1]


_FIRST_OF_ALL = Prepared(lambda: _first(Interrupt.objects.for_people()))
_FIRST_OF_MINE = Prepared(lambda: _first(_of(_USER)))


def visible_runs(user: Person) -> RunQuerySet:
    """Runs one asked for, and runs that hold a request one may see."""
    if sees_everything(user):
        return Run.objects.all()
    if not user.is_authenticated or not user.is_active:
        return Run.objects.none()
    return _runs_of(user.pk, visible_interrupts(user))


def _runs_of(user: int | Slot | None, visible: InterruptQuerySet) -> RunQuerySet:
    shown = visible.filter(run_id=OuterRef("pk"))
    return Run.objects.filter(Q(requester=user) | Exists(shown))


def sees_run(user: Person, pk: UUID) -> bool:
    """Whether a run that is there is one of ``visible_runs``."""
    if sees_everything(user):
        return True
    if not user.is_active:
        return False
    seen = _SEEN if sees_inbox(user) else _ASKED_FOR
    return bool(seen.all(id=pk, user=user.pk))


def _one(runs: RunQuerySet) -> QuerySet[Run, tuple[UUID]]:
    return runs.filter(pk=Slot(Run, "id")).order_by().values_list("pk")


_SEEN = Prepared(lambda: _one(_runs_of(_USER, _of(_USER))))
_ASKED_FOR = Prepared(lambda: _one(Run.objects.filter(requester=_USER)))


def own_question(user: Person, pk: UUID) -> Interrupt | None:
    """The question of this id with its run, if it was put to this person as whoever the
    agent works for."""
    return _ASKED.first(id=pk, user=user.pk) if user.is_active else None


_ASKED = Prepared(lambda: _with_run().filter(asks_requester=True, run__requester=_USER))


def may_decide(user: Person, interrupt: Interrupt) -> bool:
    """Has the permission and sits in one of the request's groups (superusers sit in all),
    or is the person a question was put to."""
    if not user.is_active:
        return False
    if is_asked(user, interrupt):
        return True
    if not user.has_perm("approvals.decide_interrupt"):
        return False
    if user.is_superuser:
        return True
    return bool(_IN_GROUP.all(interrupt=interrupt.pk, user=user.pk))


_IN_GROUP = Prepared(
    lambda: _LINKS.objects.filter(
        interrupt=Slot(_LINKS, "interrupt"), group__user=_USER
    ).values_list("pk")[:1]
)


def may_answer_for_page(user: User, run: Run) -> bool:
    """Whether a page of this person speaks for the page that brought tools to the run:
    only that of whoever asked for it."""
    return user.is_active and run.requester_id == user.pk


def is_asked(user: Person, interrupt: Interrupt) -> bool:
    """Whether this is a question to the person the agent works for, and they are it."""
    return interrupt.asks_requester and interrupt.run.requester_id == user.pk


def may_read_rule(user: Person, groups: Collection[str]) -> bool:
    """What a rule is called and asks for: for the groups that decide by it, and for who
    sees every request or every policy. Whoever only asks learns where their call waits.
    """
    if not user.is_active:
        return False
    if sees_everything(user) or user.has_perm("approvals.view_policy"):
        return True
    return sees_inbox(user) and user.groups.filter(name__in=list(groups)).exists()


def may_cancel(user: Person, run: Run) -> bool:
    """Reviewers with the permission who see the run, and whoever asked for it."""
    if not user.is_active or not user.is_authenticated:
        return False
    if run.requester_id == user.pk:
        return True
    return user.has_perm("approvals.cancel_run") and sees_run(user, run.pk)


def may_settle(user: Person, run: Run) -> bool:
    return (
        user.is_active
        and user.has_perm("approvals.settle_toolexecution")
        and sees_run(user, run.pk)
    )


def may_retry(user: Person, run: Run) -> bool:
    return may_cancel(user, run)


def may_audit(user: Person) -> bool:
    return user.is_active and user.has_perm("approvals.view_auditentry")


def visible_audit(user: Person) -> QuerySet[AuditEntry]:
    return AuditEntry.objects.all() if may_audit(user) else AuditEntry.objects.none()


def scopes(user: Person) -> frozenset[str]:
    """The live scopes whose changes concern this person (see ``approvals.live``)."""
    if not user.is_authenticated:
        return frozenset()
    return scopes_of([user.pk]).get(user.pk, frozenset())


def scopes_of(people: Collection[int]) -> dict[int, frozenset[str]]:
    """The live scopes of many people in a fixed number of queries.

    Sockets are checked again every few seconds, so asking ``has_perm`` of each person
    would be thousands of queries. Who is inactive or gone has no entry. Only permissions
    that stand in the database count.
    """
    active = User.objects.filter(pk__in=people, is_active=True)
    found = {pk: {f"user.{pk}"} for pk in active.values_list("pk", flat=True)}
    everything = _holders("approvals.view_all_interrupts", found)
    for pk in everything:
        found[pk].add("all")
    inbox = _holders("approvals.view_interrupt", found) - everything
    memberships = User.groups.through.objects.filter(user__in=inbox)
    for pk, group in memberships.values_list("user_id", "group_id"):
        found[pk].add(f"group.{group}")
    return {pk: frozenset(scopes) for pk, scopes in found.items()}


def _holders(permission: str, people: Collection[int]) -> set[int]:
    holders = User.objects.with_perm(permission, backend=DATABASE_BACKEND)
    return set(holders.filter(pk__in=people).values_list("pk", flat=True))


def audiences(runs: Collection[UUID]) -> dict[UUID, frozenset[str]]:
    """The scopes whose holders see a run: ``visible_runs`` for many people and runs."""
    found = {
        pk: {"all", f"user.{requester}"}
        for pk, requester in Run.objects.filter(pk__in=runs).values_list(
            "pk", "requester_id"
        )
    }
    asked = Interrupt.review_groups.through.objects.filter(interrupt__run__in=found)
    for pk, group in asked.values_list("interrupt__run_id", "group_id").distinct():
        found[pk].add(f"group.{group}")
    return {pk: frozenset(scopes) for pk, scopes in found.items()}


def deciders(interrupt: Interrupt) -> list[Group]:
    """The groups whose members may decide it, for "Waiting for Ops reviewers"."""
    return list(interrupt.review_groups.all())
