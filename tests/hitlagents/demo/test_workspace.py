"""The workspace: what it does, and that nothing gets out of it."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from uuid import uuid4

import pytest

from hitlagents.demo.workspace import MAX_BYTES, SEED, Workspace, WorkspaceError

pytestmark = pytest.mark.once


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    (tmp_path / "secret.txt").write_text("secret")
    return Workspace(tmp_path / "workspaces", uuid4())


def test_it_is_seeded_once(workspace, tmp_path):
    assert {path.name for path in workspace.folder.iterdir()} == set(SEED)
    workspace.delete("report.txt")
    thread_id = workspace.folder.name
    again = Workspace(tmp_path / "workspaces", thread_id)
    assert "report.txt" not in again.listing()
    assert oct(workspace.folder.stat().st_mode & 0o777) == "0o700"


def test_first_uses_at_once_meet_in_one_folder(tmp_path):
    thread_id, gate, seen = uuid4(), threading.Barrier(8), []

    def use() -> None:
        gate.wait()
        seen.append(Workspace(tmp_path, thread_id).listing())

    threads = [threading.Thread(target=use) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(seen)) == 1
    assert len(seen) == 8
    assert [path.name for path in tmp_path.iterdir()] == [str(thread_id)]


def test_threads_have_workspaces_of_their_own(tmp_path):
    one, other = Workspace(tmp_path, uuid4()), Workspace(tmp_path, uuid4())
    one.delete("report.txt")
    assert "report.txt" in other.listing()


def test_it_lists_reads_and_deletes(workspace):
    (workspace.folder / "folder").mkdir()
    assert workspace.listing().startswith("The workspace holds 4 files:\n- customers")
    assert workspace.read("notes.md").startswith("Contents of notes.md:\n# Notes")
    assert workspace.delete("notes.md") == "Deleted notes.md."
    with pytest.raises(WorkspaceError, match=r"no file named notes\.md"):
        workspace.delete("notes.md")
    for name in set(SEED) - {"notes.md"}:
        workspace.delete(name)
    assert workspace.listing() == "The workspace is empty."


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("", "is empty"),
        ("  ", "is empty"),
        (".", "is a path"),
        ("..", "is a path"),
        ("../secret.txt", "is a path"),
        ("../../secret.txt", "is a path"),
        ("/etc/passwd", "is a path"),
        ("..\\secret.txt", "is a path"),
        ("C:\\secret.txt", "is a path"),
        ("C:secret.txt", "is a path"),
        ("report.txt/", "is a path"),
        ("./report.txt", "is a path"),
        ("report.txt\0.png", "NUL"),
        ("\0", "NUL"),
        ("\ud800.txt", "not valid text"),
        ("x" * 256, "too long"),
        ("é" * 200, "too long"),
        ("x" * 1_000_000, "too long"),
        ("NUL", "device"),
        ("con.txt", "device"),
        ("COM1", "device"),
        ("link.txt", "is a link"),
        ("dangling", "is a link"),
        ("folder", "is a folder"),
        ("folder-link", "is a link"),
        ("pipe", "not a plain file"),
        ("gone.txt", "no file named gone.txt"),
        ("REPORT.TXT ", "no file named"),
        ("report.txt\u202e", "no file named"),
    ],
)
@pytest.mark.parametrize("verb", ["read", "delete"])
def test_odd_names_are_refused_in_words(workspace, tmp_path, name, told, verb):
    folder = workspace.folder
    (folder / "folder").mkdir()
    (folder / "link.txt").symlink_to(tmp_path / "secret.txt")
    (folder / "dangling").symlink_to(tmp_path / "nothing")
    (folder / "folder-link").symlink_to(tmp_path)
    os.mkfifo(folder / "pipe")
    before = sorted(path.name for path in folder.iterdir())
    with pytest.raises(WorkspaceError, match=told) as raised:
        getattr(workspace, verb)(name)
    assert len(str(raised.value)) < 200
    assert "secret\n" not in str(raised.value)
    assert sorted(path.name for path in folder.iterdir()) == before
    assert (tmp_path / "secret.txt").read_text() == "secret"


def test_a_link_put_in_place_of_the_file_is_not_followed(workspace, tmp_path):
    report = workspace.folder / "report.txt"
    report.unlink()
    report.symlink_to(tmp_path / "secret.txt")
    with pytest.raises(WorkspaceError, match="is a link"):
        workspace.read("report.txt")
    assert "report.txt" not in workspace.listing()


def test_large_and_binary_files_are_read_in_part_and_as_text(workspace):
    (workspace.folder / "large").write_bytes(b"\xff" * (MAX_BYTES + 10))
    text = workspace.read("large")
    assert text.endswith(f"(only the first {MAX_BYTES} bytes)")
    assert "\ufffd" in text


def test_many_files_are_listed_in_part(workspace):
    for number in range(300):
        (workspace.folder / f"n{number}").touch()
    assert workspace.listing().endswith("- and 104 more")
