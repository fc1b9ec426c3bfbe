"""A thread has one run at a time, whoever starts one at the same moment."""

from __future__ import annotations

import pytest

from approvals import services
from approvals.exceptions import ApprovalsError
from approvals.models import Run
from approvals.states import RunStatus
from hitlagents import conversations
from hitlagents.models import QueuedMessage, Thread
from tests.plugins.machine import on_postgresql
from tests.racing import race

pytestmark = pytest.mark.django_db(transaction=True)

ROUNDS = 12 if on_postgresql() else 3


def test_m9_a_retry_and_a_new_message_start_one_run_between_them(mia):
    for number in range(ROUNDS):
        thread = Thread.objects.create(agent="file-ops", owner=mia)
        run = conversations.send(thread.pk, "Delete report.txt", author=mia)
        assert isinstance(run, Run)
        claim = services.claim_run(run.pk, owner="worker")
        assert claim is not None
        services.fail_run(
            run.pk, attempt=claim.attempt, error="The model is away.", retryable=True
        )
        racers = [
            lambda pk=run.pk: services.retry_run(pk, actor=mia),
            lambda pk=thread.pk: conversations.send(pk, "Something else", author=mia),
        ]
        results = race(racers if number % 2 else racers[::-1])
        for result in results:
            assert not isinstance(result, Exception) or isinstance(
                result, ApprovalsError
            ), result
        [active] = Run.objects.active().filter(thread=thread.pk)
        assert active.status == RunStatus.QUEUED
        retried = active.pk == run.pk
        # Nothing that was written is lost: it runs, or waits for the retry.
        assert QueuedMessage.objects.filter(thread=thread).count() == retried
