"""Writers of one process wait in line, so a busy one cannot starve the others."""

from __future__ import annotations

import contextlib
import threading
import time

import pytest
from django.contrib.auth.models import Group
from django.db import (
    OperationalError,
    connection,
    connections,
    transaction,
)

from hitlsite.sqlite.turns import Turns

pytestmark = pytest.mark.once


def in_thread(work):
    def run():
        try:
            work()
        finally:
            connections.close_all()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


def wait_for(condition):
    until = time.monotonic() + 10
    while not condition() and time.monotonic() < until:
        time.sleep(0.001)
    assert condition()


def test_turns_come_in_the_order_they_were_asked_for():
    turns, served, threads = Turns(), [], []
    turns.take(1)
    for number in range(5):

        def work(number=number):
            with turns.taken(10):
                served.append(number)

        threads.append(in_thread(work))
        wait_for(lambda number=number: len(turns._waiting) == number + 1)
    turns.leave()
    for thread in threads:
        thread.join(10)
    assert served == [0, 1, 2, 3, 4]
    assert turns.take(0)


def test_who_gives_up_is_not_waited_for():
    turns = Turns()
    turns.take(1)
    with pytest.raises(TimeoutError), turns.taken(0.01):
        pass
    assert not turns.take(0.01)
    turns.leave()
    assert turns.take(0.01)


def test_a_turn_that_comes_at_the_last_moment_is_taken(monkeypatch):
    turns = Turns()
    turns.take(1)

    class Late(threading.Event):
        def wait(self, timeout=None):
            turns.leave()
            return False

    monkeypatch.setattr(threading, "Event", Late)
    assert turns.take(1)
    assert turns._taken
    assert not turns._waiting


@pytest.fixture
def short_patience(transactional_db):
    connection.settings_dict["OPTIONS"]["timeout"], kept = (
        0.2,
        connection.settings_dict["OPTIONS"]["timeout"],
    )
    yield
    connection.settings_dict["OPTIONS"]["timeout"] = kept


def blocked_write(write):
    """What a write in another thread meets while this one holds a transaction."""
    met = []

    def work():
        try:
            write()
        except OperationalError as error:
            met.append(str(error))

    with transaction.atomic():
        Group.objects.create(name="held")
        in_thread(work).join(10)
    return met


@pytest.mark.parametrize("in_transaction", [True, False])
def test_a_writer_waits_for_its_turn_and_no_longer(short_patience, in_transaction):
    def write():
        if in_transaction:
            with transaction.atomic():
                Group.objects.create(name="other")
        else:
            Group.objects.filter(name="none").update(name="other")

    (message,) = blocked_write(write)
    assert "database is locked" in message
    # Nothing is left behind: the next one gets in at once.
    in_thread(write).join(10)
    assert Group.objects.filter(name="other").exists() is in_transaction


def test_readers_do_not_wait(transactional_db):
    assert blocked_write(Group.objects.count) == []


@pytest.mark.parametrize("end", ["error", "commit", "close"])
def test_a_turn_ends_with_its_transaction(transactional_db, end):
    def work():
        with transaction.atomic():
            Group.objects.create(name=end)
            if end == "error":
                raise ValueError
            if end == "close":
                connection.close()

    with contextlib.suppress(ValueError):
        work()
    assert not connection._has_turn
    done = []
    in_thread(lambda: done.append(Group.objects.create(name="next"))).join(10)
    assert len(done) == 1


def test_k47_a_greedy_writer_keeps_nobody_out(transactional_db):
    stop, waits = threading.Event(), []

    def greedy():
        number = 0
        while not stop.is_set():
            number += 1
            with transaction.atomic():
                Group.objects.create(name=f"greedy {number}")

    def modest(name):
        started = time.monotonic()
        with transaction.atomic():
            Group.objects.create(name=name)
        waits.append(time.monotonic() - started)

    writer = in_thread(greedy)
    threads = [in_thread(lambda at=at: modest(f"modest {at}")) for at in range(20)]
    for thread in threads:
        thread.join(30)
    stop.set()
    writer.join(30)
    assert len(waits) == 20
