"""Rules about the code itself, each proven on a violation that is planted for it."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from django.core.management import call_command

from approvals.models import Policy
from hitlsite.paths import BASE_DIR

pytestmark = pytest.mark.once

ROOMS = ("approvals", "agents", "hitlsite")
SOURCES = [
    path.relative_to(BASE_DIR)
    for room in ROOMS
    for path in sorted((BASE_DIR / room).rglob("*.py"))
    if "migrations" not in path.parts
]
SERVICES = Path("approvals/services")

#: Columns whose values only the services may set.
GUARDED = {"status", "undone_at", "void_at", "delivery", "attempt", "lease_until"}
#: Rows that only the services may make or destroy.
EVIDENCE = {"Run", "Interrupt", "Vote", "Decision", "ToolExecution"}
CHAIN = {"AuditEntry", "AuditHead"}
MAKERS = {
    "abulk_create",
    "acreate",
    "aget_or_create",
    "aupdate_or_create",
    "bulk_create",
    "create",
    "get_or_create",
    "update_or_create",
}

type Rule = Callable[[ast.AST], Iterator[str]]


def guarded_columns(node: ast.AST) -> Iterator[str]:
    """``.status = x``, ``setattr(…, "status", x)``, ``.update(status=x)`` and the like."""
    match node:
        case ast.Attribute(attr=name, ctx=ast.Store()) if name in GUARDED:
            yield f"sets .{name}"
        case ast.Call(
            func=ast.Name(id="setattr"), args=[_, ast.Constant(value=name), *_]
        ) if name in GUARDED:
            yield f"sets .{name}"
        case ast.Call(func=ast.Attribute(attr="update" | "aupdate"), keywords=words):
            yield from (
                f"updates {w.arg}"
                for w in words
                if w.arg in GUARDED and not _of_the_task_queue(w.value)
            )
        case ast.Call(func=ast.Attribute(attr="bulk_update" | "abulk_update")):
            yield from (
                f"updates {part.value}"
                for part in ast.walk(node)
                if isinstance(part, ast.Constant) and part.value in GUARDED
            )


def _of_the_task_queue(value: ast.expr) -> bool:
    """Whether it is a status of a queue's row, which only wakes and decides nothing."""
    match value:
        case ast.Attribute(value=ast.Name(id="TaskResultStatus")):
            return True
    return False


def made(node: ast.AST, models: set[str]) -> Iterator[str]:
    """``Model(…)`` and ``Model.objects.create(…)``, also at the end of a longer chain."""
    match node:
        case ast.Call(func=ast.Name(id=name)) if name in models:
            yield f"makes {name}"
        case ast.Call(func=ast.Attribute(attr=verb, value=value)) if verb in MAKERS:
            yield from (
                f"makes {part.id}"
                for part in ast.walk(value)
                if isinstance(part, ast.Name) and part.id in models
            )


def evidence(node: ast.AST) -> Iterator[str]:
    yield from made(node, EVIDENCE)


def chain(node: ast.AST) -> Iterator[str]:
    yield from made(node, CHAIN)
    match node:
        case ast.Attribute(value=ast.Name(id="QuerySet"), attr="update" | "delete"):
            yield f"goes round the guard of {node.attr}"


def signals(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.ImportFrom(module="django.db.models.signals"):
            yield "imports model signals"
        case ast.ImportFrom(module="django.db.models" | "django.db", names=names):
            yield from ("imports signals" for n in names if n.name == "signals")
        case ast.Import(names=names):
            yield from (
                "imports model signals"
                for n in names
                if n.name == "django.db.models.signals"
            )
        case ast.Attribute(attr="signals", value=ast.Name(id="models")):
            yield "uses model signals"


def outside_services(path: Path) -> bool:
    return SERVICES not in path.parents


def outside_the_chain(path: Path) -> bool:
    return path not in {
        Path("approvals/audit.py"),
        # The first head, of an empty chain.
        SERVICES / "setup.py",
    }


def anywhere(path: Path) -> bool:
    return True


RULES: dict[str, tuple[Rule, Callable[[Path], bool]]] = {
    "only services set a status": (guarded_columns, outside_services),
    "only services make evidence": (evidence, outside_services),
    "only the chain makes entries": (chain, outside_the_chain),
    "no model signals": (signals, anywhere),
}


def violations(rule: Rule, source: str) -> list[str]:
    return [
        f"line {getattr(node, 'lineno', 0)} {what}"
        for node in ast.walk(ast.parse(source))
        for what in rule(node)
    ]


@pytest.mark.parametrize("name", RULES)
def test_the_code_keeps_the_rule(name):
    rule, applies = RULES[name]
    found = {
        str(path): broken
        for path in SOURCES
        if applies(path)
        and (broken := violations(rule, (BASE_DIR / path).read_text(encoding="utf-8")))
    }
    assert found == {}


@pytest.mark.parametrize(
    ("name", "planted"),
    [
        ("only services set a status", "run.status = 'queued'"),
        ("only services set a status", "run.attempt += 1"),
        ("only services set a status", "a, run.status = 1, 'queued'"),
        ("only services set a status", "interrupt.status: str = 'open'"),
        ("only services set a status", "setattr(run, 'status', 'queued')"),
        ("only services set a status", "Run.objects.filter(pk=1).update(status='x')"),
        ("only services set a status", "decisions.update(note='', undone_at=None)"),
        ("only services set a status", "Decision.objects.aupdate(delivery='sent')"),
        ("only services set a status", "Run.objects.bulk_update(runs, ['status'])"),
        ("only services make evidence", "Decision(interrupt=interrupt)"),
        ("only services make evidence", "Run.objects.create(agent='x')"),
        ("only services make evidence", "Vote.objects.get_or_create(voter=1)"),
        ("only services make evidence", "Interrupt.objects.open().bulk_create([])"),
        ("only the chain makes entries", "AuditEntry.objects.bulk_create([])"),
        ("only the chain makes entries", "AuditEntry(number=1)"),
        ("only the chain makes entries", "AuditHead.objects.update_or_create(pk=1)"),
        (
            "only the chain makes entries",
            "QuerySet.update(AuditEntry.objects.all(), actor='')",
        ),
        ("no model signals", "from django.db.models.signals import post_save"),
        ("no model signals", "import django.db.models.signals"),
        ("no model signals", "from django.db.models import signals"),
        ("no model signals", "models.signals.post_save.connect(f)"),
    ],
)
def test_a_planted_violation_is_found(name, planted):
    rule, _ = RULES[name]
    assert violations(rule, f"def view():\n    {planted}\n") != []


def test_the_rules_look_at_the_whole_code():
    assert SERVICES / "deciding.py" in SOURCES
    assert Path("agents/hitlagents/runner.py") in SOURCES
    assert not outside_services(SERVICES / "deciding.py")
    assert outside_services(Path("approvals/models.py"))


# Imports: the contracts of pyproject.toml, which `./dev check` holds the code to

PLANTED = {
    "approvals/states.py": "import approvals.models",
    "approvals/models.py": "import approvals.services",
    "approvals/clock.py": "import hitlagents.models",
    "approvals/wake.py": "import agent_framework",
    "agents/hitlagents/adapters/base.py": "import django.db",
}


def test_every_import_contract_finds_its_planted_violation(tmp_path):
    for room in ROOMS:
        shutil.copytree(
            BASE_DIR / room,
            tmp_path / room,
            ignore=shutil.ignore_patterns("__pycache__", "migrations"),
        )
    shutil.copy(BASE_DIR / "pyproject.toml", tmp_path)
    for name, line in PLANTED.items():
        path = tmp_path / name
        path.write_text(f"{path.read_text(encoding='utf-8')}\n{line}\n", "utf-8")
    result = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{tmp_path / 'agents'}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 1
    verdicts = [
        line
        for line in result.stdout.splitlines()
        if line.endswith((" BROKEN", " KEPT"))
    ]
    assert len(verdicts) >= 4
    assert [line for line in verdicts if not line.endswith(" BROKEN")] == []


# The OpenAI Agents SDK beside our folder `agents`


def test_the_openai_agents_sdk_is_what_agents_means(tmp_path):
    """From the project's root and under its settings, in a process of its own."""
    code = (
        "import django; django.setup()\n"
        "from agents import Agent, Runner\n"
        "import agents, hitlagents\n"
        "print(agents.__file__, hitlagents.__file__)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code],
        cwd=BASE_DIR,
        env={
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "hitlsite.settings",
            "SAYSO_DATA": str(tmp_path),
            "OPENAI_AGENTS_DISABLE_TRACING": "1",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    sdk, ours = result.stdout.split()
    assert "site-packages" in sdk
    assert ours == str(BASE_DIR / "agents" / "hitlagents" / "__init__.py")


def test_the_folder_agents_is_no_package():
    assert not (BASE_DIR / "agents" / "__init__.py").exists()


# Migrations


def test_the_migrations_say_what_the_models_say(db):
    call_command("makemigrations", "--check", "--dry-run", verbosity=0)


def test_a_model_that_ran_ahead_is_found(db, monkeypatch):
    monkeypatch.setattr(Policy._meta.get_field("name"), "max_length", 7)
    with pytest.raises(SystemExit):
        call_command("makemigrations", "--check", "--dry-run", verbosity=0)
