"""Models that write what databases do not take: NUL, half characters, endless ids."""

from __future__ import annotations

import pytest
from asgiref.sync import async_to_sync

from approvals import services
from approvals.states import RunStatus
from hitlagents import conversations, events, registry, runner
from hitlagents.demo.scripted import Call, Reply
from hitlagents.models import Thread
from tests.hitlagents.adapters.harness import (
    AgentFrameworkHarness,
    GenkitHarness,
    LangGraphHarness,
    OpenAIAgentsHarness,
)
from tests.hitlagents.fakes import Tools, plays
from tests.plugins.cast import AGENT, ballot

pytestmark = pytest.mark.django_db(transaction=True)

#: Genkit itself cannot hold half characters.
FRAMEWORKS = (AgentFrameworkHarness, OpenAIAgentsHarness, LangGraphHarness)


def delete(call_id: str) -> Call:
    return Call(call_id, "delete", '{"filename": "report.txt"}')


ODD = {
    "an id with NUL": Reply("", [delete("call\0")]),
    "a long id": Reply("", [delete("c" * 300)]),
    "an id with half a character": Reply("", [delete("call\ud800")]),
    "text with half a character": Reply("Gone\ud83d\0", [delete("call-1")]),
}


@pytest.mark.parametrize(
    ("harness", "odd"),
    [
        *((harness, odd) for harness in FRAMEWORKS for odd in ODD),
        *((GenkitHarness, odd) for odd in list(ODD)[:2]),
    ],
)
def test_b49_what_a_database_does_not_take_fails_no_run(
    harness, odd, mia, ada, monkeypatch
):
    tools = Tools()
    adapter = harness().build(plays(ODD[odd], Reply("Done.")), tools)
    services.register_tools(AGENT, adapter.tools)
    monkeypatch.setattr(registry, "adapter_for", lambda slug, allowed: adapter)
    thread = Thread.objects.create(agent=AGENT, owner=mia)
    run = conversations.send(thread.pk, "Go.", author=mia)
    async_to_sync(runner.advance)(run.pk, owner="worker")
    run.refresh_from_db()
    assert run.status == RunStatus.WAITING, run.error
    [asked] = run.interrupts.open()
    services.decide(asked.pk, ballot(asked), reviewer=ada)
    async_to_sync(runner.advance)(run.pk, owner="worker")
    run.refresh_from_db()
    assert run.status == RunStatus.FINISHED, run.error
    assert tools.effects == ["delete report.txt"]


@pytest.mark.parametrize("harness", [*FRAMEWORKS, GenkitHarness])
@pytest.mark.parametrize("name", ["dele\ud800te", "dele\0te", "delete\u202e", ""])
def test_b49_a_tool_with_an_odd_name_is_one_that_does_not_exist(
    harness, name, mia, monkeypatch
):
    tools = Tools()
    odd = Call("call-1", name, "{}")
    adapter = harness().build(plays(Reply("", [odd]), Reply("Done.")), tools)
    services.register_tools(AGENT, adapter.tools)
    monkeypatch.setattr(registry, "adapter_for", lambda slug, allowed: adapter)
    thread = Thread.objects.create(agent=AGENT, owner=mia)
    run = conversations.send(thread.pk, "Go.", author=mia)
    async_to_sync(runner.advance)(run.pk, owner="worker")
    run.refresh_from_db()
    assert run.status == RunStatus.FINISHED, run.error
    told = [m for e, m in events.shown(run) if e.type == "TOOL_CALL_RESULT"]
    assert "there is no tool" in told[0]["content"]
    assert tools.effects == []
