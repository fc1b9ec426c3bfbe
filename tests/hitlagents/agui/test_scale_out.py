"""M23: the endpoint in one process, the agent in another."""

from __future__ import annotations

import subprocess
import sys

import pytest
from django.contrib.auth.models import Group

from approvals import services
from approvals.models import Policy
from hitlsite.paths import BASE_DIR
from tests.approvals.pages import served_environment
from tests.hitlagents.agui.conftest import PROGRAM, YES, Page, resolved
from tests.plugins.cast import OPS
from tests.served import Served


@pytest.fixture
def page(transactional_db, rita, redis_url, tmp_path):
    play = tmp_path / "play"
    play.mkdir()
    environment = served_environment(
        tmp_path, PORT="0", SAYSO_PLAY=str(play), REDIS_URL=redis_url
    )
    web = Served(tmp_path, program=PROGRAM, environment=environment)
    web.start("--no-worker")
    with (tmp_path / "worker.log").open("wb") as log:
        worker = subprocess.Popen(
            [sys.executable, *PROGRAM, "worker"],
            cwd=BASE_DIR,
            env=environment,
            stdout=log,
            stderr=log,
        )
    Policy.objects.update(requester_may_decide=True)
    assert Group.objects.filter(name=OPS, user=rita).exists()
    _, secret = services.create_token(rita, name="Page", actor=rita)
    yield Page(web.url, secret)
    web.stop()
    worker.terminate()
    worker.wait(30)
    for log in ("serve.log", "worker.log"):
        said = (tmp_path / log).read_text("utf-8")
        assert "Traceback" not in said, said


@pytest.mark.postgresql
def test_m20_m23_words_and_decisions_cross_processes(page):
    answer = page.say("talk 30")
    words = [event["delta"] for event in answer.of("TEXT_MESSAGE_CONTENT")]
    assert "".join(words) == "".join(f"word {n} " for n in range(30))
    # Stored pieces alone would be fewer: most words came live, over the relay.
    assert len(words) > 10
    (interrupt,) = page.say("delete a.txt").interrupts
    answer = page.resume(resolved(interrupt, YES))
    assert (answer.outcome, answer.text) == ("success", "Done.")
