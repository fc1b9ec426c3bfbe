from __future__ import annotations

import asyncio
import contextvars
import threading

import pytest
from django.db import DatabaseError, connection

from approvals.models import Run
from hitlagents.engine import threads

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def pool():
    pool = threads.Threads("test", 1)
    yield pool
    pool.close()


def test_a_call_runs_elsewhere_with_its_arguments_and_its_context(pool):
    word = contextvars.ContextVar("word", default="")

    def call(first, *, call):
        return first, call, word.get(), threading.current_thread()

    async def scenario():
        word.set("kept")
        return await pool.run(call, 1, call=2)

    first, second, kept, thread = asyncio.run(scenario())
    assert (first, second, kept) == (1, 2, "kept")
    assert thread is not threading.current_thread()


def test_a_connection_that_broke_is_replaced(pool):
    def fail():
        with connection.cursor() as cursor:
            cursor.execute("SELECT nonsense FROM nowhere")

    with pytest.raises(DatabaseError):
        asyncio.run(pool.run(fail))
    assert asyncio.run(pool.run(Run.objects.count)) == 0


def test_sqlite_stays_open_and_a_server_gets_its_connection_back(pool):
    def state():
        before = connection.connection
        Run.objects.count()
        return before is not None

    asyncio.run(pool.run(state))
    was_open = asyncio.run(pool.run(state))
    assert was_open is (connection.vendor == "sqlite")


def test_closed_threads_are_made_again(pool):
    assert asyncio.run(pool.run(Run.objects.count)) == 0
    pool.close()
    assert asyncio.run(pool.run(Run.objects.count)) == 0


def test_a_connection_to_sqlite_is_set_up_whenever_it_is_opened():
    pool = threads.Threads("test", 1, setup="PRAGMA synchronous = NORMAL")

    def synchronous():
        if connection.vendor != "sqlite":
            return 1
        with connection.cursor() as cursor:
            return cursor.execute("PRAGMA synchronous").fetchone()[0]

    assert asyncio.run(pool.run(synchronous)) == 1
    asyncio.run(pool.run(connection_is_lost))
    assert asyncio.run(pool.run(synchronous)) == 1
    pool.close()


def connection_is_lost():
    connection.close()
