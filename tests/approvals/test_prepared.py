"""Prepared queries give what the same queryset gives, on every connection."""

from __future__ import annotations

import threading
from uuid import uuid4

import pytest
from django.contrib.auth.models import Permission
from django.db import connection, transaction
from django.db.models import Count
from django.test.utils import CaptureQueriesContext

from approvals import permissions
from approvals.models import Interrupt, Run
from approvals.prepared import Prepared, Slot
from tests.plugins.cast import call

pytestmark = pytest.mark.django_db


def test_objects_come_with_what_they_refer_to(make_interrupts):
    (first,) = make_interrupts([call(filename="a.txt")])
    (other,) = make_interrupts([call(filename="b.txt")])
    prepared = Prepared(
        lambda: Interrupt.objects.filter(pk=Slot(Interrupt, "id")).select_related("run")
    )
    for asked in (first, other, first):
        with CaptureQueriesContext(
            connection,
        ) as queries:
            [found] = prepared.all(id=asked.pk)
            assert found.run == asked.run
        assert len(queries) == 1
        assert found == asked
        assert found.arguments == asked.arguments
        assert found.created == asked.created
    assert prepared.first(id=uuid4()) is None


def test_values_are_named_as_the_slot_says(make_interrupts):
    asked = make_interrupts(
        [call(filename="a.txt"), call(filename="b.txt", call_id="c2")]
    )
    run = asked[0].run
    counted = Prepared(
        lambda: (
            Interrupt.objects.filter(run=Slot(Interrupt, "run", name="of"))
            .order_by()
            .values("run")
            .annotate(n=Count("pk"))
            .values_list("n", "run")
        )
    )
    assert counted.all(of=run.pk) == [(2, run.pk)]
    flat = Prepared(
        lambda: Run.objects.filter(pk=Slot(Run, "id")).values_list("agent", flat=True)
    )
    assert flat.first(id=run.pk) == run.agent
    with pytest.raises(KeyError):
        flat.first(pk=run.pk)


@pytest.mark.django_db(transaction=True)
def test_another_thread_asks_its_own_connection(make_interrupts):
    (asked,) = make_interrupts([call(filename="a.txt")])
    prepared = Prepared(lambda: Interrupt.objects.filter(pk=Slot(Interrupt, "id")))
    assert prepared.first(id=asked.pk) == asked
    found: list[Interrupt | None] = []

    def ask() -> None:
        try:
            found.append(prepared.first(id=asked.pk))
        finally:
            connection.close()

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    assert found == [asked]


def test_m16_a_person_has_their_own_permissions_and_those_of_their_groups(
    make_person, rita, django_assert_num_queries
):
    own = make_person("solo")
    own.user_permissions.add(Permission.objects.get(codename="view_all_interrupts"))
    own = type(own).objects.get(pk=own.pk)
    assert own.get_all_permissions() == {"approvals.view_all_interrupts"}
    assert not own.has_perm("approvals.decide_interrupt")
    rita = type(rita).objects.get(pk=rita.pk)
    with django_assert_num_queries(1):
        assert permissions.sees_inbox(rita)
        assert rita.has_perm("approvals.decide_interrupt")
    rita.is_active = False
    assert not rita.has_perm("approvals.decide_interrupt")


@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)
def test_a_lock_outside_a_transaction_is_refused_every_time(make_run):
    run = make_run()
    locked = Prepared(
        lambda: Run.objects.select_for_update(no_key=True).filter(pk=Slot(Run, "id"))
    )
    with transaction.atomic():
        assert locked.first(id=run.pk) == run
    with pytest.raises(transaction.TransactionManagementError):
        locked.first(id=run.pk)
