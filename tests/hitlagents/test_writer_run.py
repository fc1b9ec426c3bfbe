"""The agent writer in one process: the real framework, its middleware, runner and files."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from approvals import services
from approvals.models import ToolExecution
from approvals.policies import load_rules, rule_on
from approvals.states import Gate, RunStatus, Verdict
from hitlagents import conversations, registry
from hitlagents.adapters import genkit_models
from hitlagents.demo import people, scripted_writer, writer
from hitlagents.demo.artifacts import Artifact, artifacts
from hitlagents.demo.scripted import Reply
from hitlagents.models import Thread
from tests.hitlagents.driving import advance, decide, results, rules, yes
from tests.hitlagents.fakes import call, heard, plays
from tests.hitlagents.openai_stub import OpenAIStub
from tests.hitlagents.reading import said

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def root(tmp_path, monkeypatch) -> Path:
    monkeypatch.setattr(writer, "workspaces", lambda: tmp_path)
    return tmp_path


@pytest.fixture
def thread(mia, fresh, root):
    rules("writer", "list_files", "read_*")
    return Thread.objects.create(agent="writer", owner=mia)


@pytest.fixture
def say(thread, mia):
    return lambda text: advance(conversations.send(thread.pk, text, author=mia))


@pytest.fixture
def folder(root, thread) -> Path:
    return root / str(thread.pk)


def scripts(monkeypatch, *turns) -> None:
    model = genkit_models.scripted(plays(*turns))
    monkeypatch.setattr(writer, "from_environment", lambda _: model)


def reply(*calls):
    return Reply("", calls)


def test_m12_a_file_is_written_when_somebody_agrees(say, rita, folder):
    run = say("Write “Ready for review.” to status.md")
    assert run.status == RunStatus.WAITING, run.error
    assert not (folder / "status.md").exists()
    run = decide(run, rita, yes())
    assert run.status == RunStatus.FINISHED, run.error
    assert (folder / "status.md").read_text() == "Ready for review."
    assert said(run).endswith("File status.md written successfully.")


def test_reading_waits_for_nobody_and_its_contents_are_the_result(say):
    run = say("Read draft.txt and list the files")
    assert run.status == RunStatus.FINISHED, run.error
    assert results(run) == [
        "Contents of draft.txt:\nSayso holds risky calls until a person decides.\n",
        "The folder holds:\n- draft.txt (48 bytes)\n- outline.md (48 bytes)",
    ]
    assert "until a person decides" in said(run)


def test_an_edit_changes_what_it_names(say, rita, folder):
    say("list the files")
    run = decide(say("In draft.txt, replace “risky” with “dangerous”"), rita, yes())
    assert "dangerous calls" in (folder / "draft.txt").read_text()
    run = decide(say("replace “nothing” with “x” in draft.txt"), rita, yes())
    assert run.status == RunStatus.FINISHED, run.error
    assert "old_string not found" in said(run)


def test_to_append_it_reads_first(say, rita, folder):
    run = say("append “Soon.” to draft.txt")
    assert run.status == RunStatus.WAITING, run.error
    assert "Contents of draft.txt" in results(run)[0]
    run = decide(run, rita, yes())
    text = (folder / "draft.txt").read_text()
    assert text == "Sayso holds risky calls until a person decides.\nSoon.\n"
    assert "not found" in said(say("append “x” to missing.txt"))


def test_a_denied_write_leaves_everything(say, rita, folder):
    say("list the files")
    run = say("Write “x” to draft.txt")
    run = decide(run, rita, (Verdict.DENY, {"note": "Not that one."}))
    assert "risky" in (folder / "draft.txt").read_text()
    assert "the reviewer said “Not that one.”." in said(run)


def test_m12_an_artifact_is_carried_over_pauses_and_runs(say, rita, thread):
    run = say("Write an artifact plan.md: one\ntwo\n, then write “x” to x.txt")
    assert artifacts(thread.pk) == []
    run = decide(run, rita, yes())
    assert run.status == RunStatus.FINISHED, run.error
    text = "one\ntwo\n, then write “x” to x.txt"
    assert artifacts(thread.pk) == [Artifact(name="plan.md", text=text)]
    run = say("Write “y” to y.txt")
    assert run.status == RunStatus.WAITING
    assert [a.name for a in artifacts(thread.pk)] == ["plan.md"]
    decide(run, rita, yes())
    run = say("read the artifact plan.md")
    assert results(run) == [f"Contents of plan.md:\n{text}"]
    assert said(say("which artifacts are there?")) == (
        "The artifacts of this conversation: plan.md."
    )
    assert "Error: Artifact" in results(say("read the artifact other"))[0]


def test_m12_an_artifact_survives_a_failure_after_it_was_written(
    say, rita, mia, thread, monkeypatch
):
    failures = [ConnectionError("reset")]

    def script(history):
        if failures and any(type(item).__name__ == "Result" for item in history):
            raise failures.pop()
        return scripted_writer.reply(history)

    model = genkit_models.scripted(script)
    monkeypatch.setattr(writer, "from_environment", lambda _: model)
    run = decide(say("write an artifact plan.md: one"), rita, yes())
    assert run.status == RunStatus.FAILED
    services.retry_run(run.pk, actor=mia)
    run = advance(run)
    assert run.status == RunStatus.FINISHED, run.error
    assert [a.name for a in artifacts(thread.pk)] == ["plan.md"]
    assert ToolExecution.objects.get(run=run).status == "done"


def test_what_was_read_beside_a_held_call_is_not_lost(say, rita, monkeypatch):
    """The framework's own middleware would forget it over the pause."""
    read = call("read_file", "c1", file_path="draft.txt")
    write = call("write_file", "c2", file_path="a.txt", content="A")
    scripts(monkeypatch, reply(read, write), heard)
    run = decide(say("go"), rita, yes())
    assert "until a person decides" in said(run)


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("../../etc/passwd", "escapes the root directory"),
        (
            "/passwd",
            "written successfully",
        ),  # below the folder, whatever it begins with
        ("a\0b", "NUL|null"),
        ("n" * 300, "File name too long."),
        ("sub", "Is a directory."),
    ],
)
def test_nothing_gets_out_of_the_folder(
    say, rita, monkeypatch, root, folder, path, told
):
    outside = root / "outside.txt"
    outside.write_text("mine")
    made = [call("write_file", "c1", file_path="sub/x.txt", content="x")]
    made.append(call("write_file", "c2", file_path=path, content="x"))
    scripts(monkeypatch, reply(*made), heard)
    run = say("go")
    run = decide(run, rita, *[yes() for _ in run.interrupts.open()])
    assert run.status == RunStatus.FINISHED, run.error
    assert str(root) not in said(run)
    assert re.search(told, said(run))
    assert outside.read_text() == "mine"
    inside = {p.relative_to(root).parts[0] for p in root.rglob("*")}
    assert inside == {"outside.txt", folder.name}


def test_a_link_out_of_the_folder_is_not_followed(say, rita, monkeypatch, root, folder):
    say("list the files")
    (folder / "link").symlink_to(root.parent)
    scripts(
        monkeypatch,
        reply(call("write_file", "c1", file_path="link/x.txt", content="x")),
        heard,
    )
    monkeypatch.setattr(registry, "_adapters", {})
    run = decide(say("go"), rita, yes())
    assert "escapes the root directory" in said(run)
    assert not (root.parent / "x.txt").exists()


def test_an_image_is_refused_in_words(say, folder, monkeypatch):
    say("list the files")
    (folder / "a.png").write_bytes(b"\x89PNG")
    assert "It is an image." in said(say("read a.png"))


def test_threads_do_not_see_each_other(say, rita, mia, root):
    decide(say("Write “x” to status.md"), rita, yes())
    other = Thread.objects.create(agent="writer", owner=mia)
    run = advance(conversations.send(other.pk, "list the files", author=mia))
    assert "status.md" not in said(run)


def test_ops_decides_writing_in_the_demo(db):
    services.prepare()
    people.seed()
    rules = load_rules()
    for tool in ("write_file", "edit_file", "write_artifact"):
        assert rule_on("writer", tool, rules=rules).groups == (people.OPS,)
    for tool in ("list_files", "read_file", "read_artifact"):
        assert rule_on("writer", tool, rules=rules).gate == Gate.ALLOW


def test_the_arguments_are_shown_as_they_are(say):
    run = say("write to a.md: <b>x</b> {{ y }}")
    [waiting] = run.interrupts.open()
    assert json.loads(waiting.arguments)["content"] == "<b>x</b> {{ y }}"
    assert waiting.title == "Write a.md"


def test_m12_a_real_model_by_environment_takes_the_same_way(
    say, rita, thread, folder, monkeypatch
):
    with OpenAIStub(scripted_writer.reply) as stub:
        for name, value in stub.environ.items():
            monkeypatch.setenv(name, value)
        run = decide(say("append “Soon.” to draft.txt"), rita, yes())
        assert run.status == RunStatus.FINISHED, run.error
        assert (folder / "draft.txt").read_text().endswith("decides.\nSoon.\n")
        decide(say("write an artifact plan.md: one"), rita, yes())
        assert "Contents of plan.md:\none" in results(say("read the artifact plan.md"))
    assert [a.name for a in artifacts(thread.pk)] == ["plan.md"]
    systems = [
        m["content"] for m in stub.requests[-1]["messages"] if m["role"] == "system"
    ]
    assert len(systems) == 1
    assert "plan.md (3 chars)" in systems[0]
