"""The agents of docs/adding-an-agent.md, made from the page and run for real."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import Group
from django.core.exceptions import ImproperlyConfigured

from approvals import services
from approvals.models import Policy, Tool, ToolExecution
from approvals.policies import FALLBACK_GROUP
from approvals.schemas import ClientTool
from approvals.states import Gate, RunStatus, Verdict
from hitlagents import catalog, conversations, registry, runner
from hitlagents.adapters.base import Gating
from hitlagents.inspector import Inspected
from hitlsite.paths import BASE_DIR
from tests.hitlagents.fakes import FakeHost
from tests.hitlagents.fakes import resume as resume_of
from tests.hitlagents.fakes import start as start_of
from tests.hitlagents.reading import said
from tests.plugins.cast import ballot

PAGE = BASE_DIR / "docs" / "adding-an-agent.md"
BLOCK = re.compile(
    r"^```python\n# agents/(\w+)\.py\n(.*?)^```", re.DOTALL | re.MULTILINE
)
FILES = dict(BLOCK.findall(PAGE.read_text(encoding="utf-8")))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A place with the files of the page, where Python finds modules."""
    for name, text in FILES.items():
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(catalog, "_AGENTS", dict(catalog._AGENTS))
    monkeypatch.setattr(registry, "_adapters", {})
    monkeypatch.setattr(registry, "_registered", set())
    monkeypatch.delenv("SAYSO_MODEL", raising=False)
    yield tmp_path
    for name in [*FILES, "odd"]:
        sys.modules.pop(name, None)


@pytest.fixture
def reviewer(make_person):
    """No policy names the new agents, so the fallback group decides."""
    return make_person("nora", FALLBACK_GROUP)


def advance(run):
    # As after a restart: nothing of the first adapter is left.
    registry._adapters.clear()
    async_to_sync(runner.advance)(run.pk, owner="worker")
    run.refresh_from_db()
    return run


def begin(agent, text, person):
    thread = conversations.open_thread(agent, owner=person)
    return thread, advance(conversations.send(thread.pk, text, author=person))


def decide(run, verdict, reviewer, **how):
    (asked,) = run.interrupts.open()
    services.decide(asked.pk, ballot(asked, verdict, **how), reviewer=reviewer)
    return advance(run)


AGENTS = [
    ("invoices", "Remind Dana of invoice 1042", "remind", "Reminded Dana Whitfield"),
    ("clerk", "Please stamp the lease", "stamp", "Stamped the lease."),
]


def test_the_page_has_both_files():
    assert list(FILES) == [agent for agent, *_ in AGENTS]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(("agent", "text", "tool", "effect"), AGENTS)
def test_a_gated_tool_of_the_page_runs_once_and_only_after_the_approval(
    folder, mia, reviewer, agent, text, tool, effect
):
    spec = catalog.add(agent)
    assert catalog.get(agent) is spec
    thread, run = begin(agent, text, mia)
    assert run.status == RunStatus.WAITING, run.error
    assert "I am going to" in said(run)
    assert not ToolExecution.objects.exists()
    (asked,) = run.interrupts.open()
    assert [group.name for group in asked.review_groups.all()] == [FALLBACK_GROUP]

    run = decide(run, Verdict.APPROVE, reviewer)
    assert run.status == RunStatus.FINISHED, run.error
    assert effect in said(run)
    done = ToolExecution.objects.get()
    assert (done.tool, done.status) == (tool, "done")

    # The conversation goes on from the stored state.
    run = advance(conversations.send(thread.pk, text, author=mia))
    assert run.status == RunStatus.WAITING, run.error
    assert ToolExecution.objects.count() == 1


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(("agent", "text", "tool", "effect"), AGENTS)
def test_a_denial_reaches_the_agents_of_the_page(
    folder, mia, reviewer, agent, text, tool, effect
):
    catalog.add(agent)
    _, run = begin(agent, text, mia)
    run = decide(run, Verdict.DENY, reviewer, note="Not this week")
    assert run.status == RunStatus.FINISHED, run.error
    assert "Not this week" in said(run)
    assert effect not in said(run)
    assert not ToolExecution.objects.filter(status="done").exists()


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(("agent", "text", "tool", "effect"), AGENTS)
def test_the_agents_of_the_page_go_on_after_a_run_was_cancelled(
    folder, mia, reviewer, agent, text, tool, effect
):
    catalog.add(agent)
    thread, run = begin(agent, text, mia)
    services.cancel_run(run.pk, actor=mia)
    run = advance(conversations.send(thread.pk, text, author=mia))
    assert run.status == RunStatus.WAITING, run.error
    run = decide(run, Verdict.APPROVE, reviewer)
    assert effect in said(run)


@pytest.mark.django_db(transaction=True)
def test_a_new_framework_takes_changed_arguments_and_an_allowing_rule(
    folder, mia, reviewer
):
    catalog.add("clerk")
    _, run = begin("clerk", "Please stamp the lease", mia)
    run = decide(run, Verdict.APPROVE, reviewer, arguments={"document": "the will"})
    assert "Stamped the will." in said(run)
    Policy.objects.create(name="Stamps", agent_pattern="clerk", gate=Gate.ALLOW)
    _, run = begin("clerk", "Please stamp the lease", mia)
    assert run.status == RunStatus.FINISHED, run.error
    assert "Stamped the lease." in said(run)


def test_m10_a_new_framework_offers_the_tools_of_a_page(folder):
    """Its model only ever stamps, so the page brings a stamp."""
    spec = catalog.add("clerk")
    adapter = spec.build(Gating(allowed=frozenset({"stamp"})))
    brought = [
        ClientTool(
            name="stamp",
            parameters={"type": "object", "properties": {"document": {}}},
        )
    ]
    host = FakeHost(allowed=["stamp"])
    job = start_of(host, client_tools=brought)
    paused = async_to_sync(adapter.start)(job, host)
    (draft,) = paused.interrupts
    answer = host.decide(draft, Verdict.ANSWER, answer="Stamped on the page.")
    job = resume_of(host, paused.state, [answer], brought)
    async_to_sync(adapter.resume)(job, host)
    assert host.results == {draft.call.call_id: "Stamped on the page."}
    assert host.entered == []


@pytest.mark.django_db
def test_the_inspector_knows_the_tools_of_the_page(folder, mia, desk):
    spec = catalog.add("invoices")
    registry.register("invoices")
    tools = {one.name: one for one in Inspected(spec, mia).tools}
    assert tools["remind"].ruling.gate == Gate.HOLD
    assert tools["remind"].rule == "No rule matches, so it is held."
    assert [part.name for part in tools["remind"].parameters] == ["invoice", "text"]
    assert Tool.objects.get(agent="invoices", name="list_unpaid").read_only
    assert Group.objects.filter(name=FALLBACK_GROUP).exists()


# Frameworks are optional


@pytest.mark.django_db(transaction=True)
def test_m13_an_agent_whose_framework_is_missing_breaks_nothing(
    folder, client, mia, monkeypatch
):
    missing = catalog.add("clerk")
    version = catalog.version
    monkeypatch.setattr(
        catalog, "version", lambda spec: None if spec is missing else version(spec)
    )
    client.force_login(mia)
    page = client.get("/agents/").content.decode()
    assert page.count("Not installed") == 1
    assert missing.install in page
    for path in ("/agents/clerk/", "/agents/clerk/inspector/"):
        page = client.get(path).content.decode()
        assert missing.install in page
    _, run = begin("clerk", "Please stamp the lease", mia)
    assert run.status == RunStatus.FAILED
    assert run.retryable
    assert missing.install in run.error
    _, run = begin("file-ops", "What files are there?", mia)
    assert run.status in {RunStatus.FINISHED, RunStatus.WAITING}


#: Makes a Python in which no agent framework is installed.
BARE = """
import importlib.metadata as metadata, sys
GONE = ("agent-framework", "openai", "langgraph", "langchain", "genkit", "pydantic-ai")
MODULES = ("agent_framework", "openai", "agents", "langgraph", "langchain", "genkit")

class Gone:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0].startswith(MODULES):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Gone())
there = metadata.distribution
def distribution(name):
    if name.startswith(GONE):
        raise metadata.PackageNotFoundError(name)
    return there(name)
metadata.distribution = distribution
"""

#: What a person and a worker do there.
VISIT = """
from django.core.management import call_command
call_command("migrate", verbosity=0)
call_command("collectstatic", interactive=False, verbosity=0)
from approvals import services
services.prepare()
from django.contrib.auth.models import User
from django.test import Client
from hitlagents import catalog, registry, runner, tool_reading
from hitlagents.adapters.base import AgentRunError
from hitlagents.engine import worker
browser = Client(headers={"host": "localhost"})
browser.force_login(User.objects.create(username="mia"))
page = browser.get("/agents/").content.decode()
print(page.count("Not installed"), len(catalog.hosted()))
for spec in catalog.hosted():
    assert spec.install in page
    for place in ("", "inspector/"):
        shown = browser.get(f"/agents/{spec.slug}/{place}")
        assert shown.status_code == 200
        assert spec.install in shown.content.decode()
    try:
        registry.adapter_for(spec.slug, frozenset())
    except AgentRunError as error:
        print(spec.install in str(error) and error.retryable)
"""


def start(folder: Path, agents: str, code: str) -> subprocess.CompletedProcess[str]:
    """Start a process of Sayso with agents of one's own, as an operator does."""
    return subprocess.run(
        [sys.executable, "manage.py", "shell", "--no-imports", "-c", code],
        cwd=BASE_DIR,
        env={
            "PATH": "/usr/bin:/bin",
            "PYTHONPATH": str(folder),
            "SAYSO_AGENTS": agents,
            "SAYSO_DATA": str(folder / "data"),
        },
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.once
def test_a_process_takes_agents_up_by_name_and_imports_no_framework(folder):
    code = (
        "import sys; from hitlagents import catalog;"
        "print([(s.slug, catalog.installed(s)) for s in catalog.hosted()][-2:]);"
        "print([n for n in sys.modules if n in ('agent_framework', 'pydantic_ai')])"
    )
    done = start(folder, "invoices, clerk", code)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["[('invoices', True), ('clerk', True)]", "[]"]


@pytest.mark.once
def test_without_any_framework_everything_stands_and_says_how_to_get_them(folder):
    (folder / "sitecustomize.py").write_text(BARE, encoding="utf-8")
    done = start(folder, "invoices,clerk", VISIT)
    assert done.returncode == 0, done.stderr
    counts, *agents = done.stdout.splitlines()
    missing, listed = counts.split()
    assert missing == listed
    assert agents == ["True"] * int(listed)


@pytest.mark.once
def test_a_name_that_is_no_agent_stops_the_start_with_a_sentence(folder):
    done = start(folder, "invoices,nothing_there", "print(1)")
    assert done.returncode != 0
    last = done.stderr.strip().splitlines()[-1]
    assert "SAYSO_AGENTS: 'nothing_there' cannot be imported" in last
    assert ImproperlyConfigured.__name__ in last


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("import nothing_there", "cannot be imported"),
        ("SPEC = 1", "has no AgentSpec"),
        ("", "has no AgentSpec"),
        ("from hitlagents.demo.support import SPEC as A; import dataclasses;"
         "SPEC = dataclasses.replace(A, slug='a/b')", "is no name for an agent"),
        ("from hitlagents.demo.support import SPEC as A; import dataclasses;"
         "SPEC = dataclasses.replace(A, name='x')", "two agents named 'support'"),
    ],
)  # fmt: skip
def test_odd_modules_are_refused_with_a_reason(folder, text, why):
    (folder / "odd.py").write_text(text, encoding="utf-8")
    before = catalog.hosted()
    with pytest.raises(catalog.Unusable, match=why):
        catalog.add("odd")
    assert catalog.hosted() == before


@pytest.mark.parametrize("name", ["", ".", "a b", "os.path.nothing", "../x"])
def test_odd_names_are_refused_with_a_reason(folder, name):
    with pytest.raises(catalog.Unusable, match="cannot be imported"):
        catalog.add(name)
