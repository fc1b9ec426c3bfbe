"""A folder of files, one per thread, that a tool cannot get out of.

Names come from a model. Only a plain name of a plain file directly in the folder is
taken; everything else is refused with a sentence the model can act on.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import UUID

from hitlagents.adapters.base import DataPage
from hitlagents.toolcall import ToolError

MAX_BYTES = 100_000
MAX_LISTED = 200
MAX_NAME_BYTES = 255

SEED = {
    "report.txt": (
        "Quarterly report, third quarter\n\n"
        "Revenue: 1.24 million, up 8 % on the second quarter.\n"
        "Open points: the contract with the carrier ends in November.\n"
    ),
    "notes.md": (
        "# Notes\n\n- Ask legal about the retention period.\n- Move the backups.\n"
    ),
    "q3-forecast-draft.xlsx": "A draft forecast, superseded by report.txt.\n",
    "customers.csv": "id,name,since\n1,Aster Ltd,2019\n2,Birch GmbH,2021\n",
}

# Names that open a device instead of a file on Windows, with any extension.
_DEVICES = frozenset(
    ["con", "prn", "aux", "nul"]
    + [f"{port}{number}" for port in ("com", "lpt") for number in range(10)]
)


class WorkspaceError(ToolError):
    """Why a name was refused or a file could not be used, as a sentence for the model."""


@dataclass(frozen=True, kw_only=True)
class File:
    """A file as a list shows it."""

    name: str
    size: int
    changed: datetime

    @property
    def size_words(self) -> str:
        if self.size < 1000:
            return f"{self.size} bytes"
        return f"{self.size / 1000:.1f} KB"

    @property
    def address(self) -> str:
        """The name for an address; also for names that are no text."""
        return quote(os.fsencode(self.name), safe="")


class Workspace:
    """The files of one thread below ``root``, seeded on first use."""

    def __init__(
        self, root: Path, thread_id: UUID, *, seed: Mapping[str, str] = SEED
    ) -> None:
        self.folder = root / str(thread_id)
        if not self.folder.exists():
            self._seed(seed)

    def _seed(self, seed: Mapping[str, str]) -> None:
        """Make the folder beside its place and move it there, so that it is never seen
        half filled and two first uses at once do not meet."""
        fresh = self.folder.with_name(f".{self.folder.name}-{os.urandom(6).hex()}")
        fresh.mkdir(parents=True, mode=0o700)
        for name, text in seed.items():
            (fresh / name).write_text(text, encoding="utf-8")
        try:
            fresh.rename(self.folder)
        except OSError:  # another first use was faster
            for path in fresh.iterdir():
                path.unlink()
            fresh.rmdir()

    @classmethod
    def existing(cls, root: Path, thread_id: UUID) -> Workspace | None:
        """The files of a thread whose agent has looked at them; looking makes none."""
        return cls(root, thread_id) if (root / str(thread_id)).exists() else None

    def files(self) -> list[File]:
        """The plain files, by name."""
        found = []
        for entry in os.scandir(self.folder):
            if entry.is_file(follow_symlinks=False):
                known = entry.stat(follow_symlinks=False)
                changed = datetime.fromtimestamp(known.st_mtime, UTC)
                found.append(File(name=entry.name, size=known.st_size, changed=changed))
        return sorted(found, key=lambda file: file.name)

    def listing(self) -> str:
        files = self.files()
        if not files:
            return "The workspace is empty."
        lines = [f"- {file.name} ({file.size_words})" for file in files[:MAX_LISTED]]
        if len(files) > MAX_LISTED:
            lines.append(f"- and {len(files) - MAX_LISTED} more")
        return f"The workspace holds {_count(len(files))}:\n" + "\n".join(lines)

    def read(self, name: str) -> str:
        return f"Contents of {name}:\n{self.text(name)}"

    def text(self, name: str) -> str:
        """What a file holds, as text, its beginning if it is large."""
        descriptor = self._open(name)
        with os.fdopen(descriptor, "rb") as file:
            raw = file.read(MAX_BYTES + 1)
        text = raw[:MAX_BYTES].decode("utf-8", errors="replace")
        more = f"\n(only the first {MAX_BYTES} bytes)" if len(raw) > MAX_BYTES else ""
        return f"{text}{more}"

    def delete(self, name: str) -> str:
        os.close(self._open(name))
        try:
            (self.folder / name).unlink()
        except FileNotFoundError:
            raise _missing(name) from None
        except OSError as error:
            raise WorkspaceError(
                f"{_short(name)} cannot be deleted: {error.strerror}."
            ) from error
        return f"Deleted {name}."

    def _open(self, name: str) -> int:
        """A descriptor of the plain file ``name``; never of a link, folder or device."""
        self._check(name)
        flags = (
            os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
        )
        path = self.folder / name
        try:
            if path.is_symlink():
                raise WorkspaceError(
                    f"{_short(name)} is a link. Links are not followed."
                )
            if path.is_dir():
                raise WorkspaceError(f"{_short(name)} is a folder, not a file.")
            descriptor = os.open(path, flags)
        except FileNotFoundError:
            raise _missing(name) from None
        except OSError as error:
            raise WorkspaceError(
                f"{_short(name)} cannot be opened: {error.strerror}."
            ) from error
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise WorkspaceError(f"{_short(name)} is not a plain file.")
        return descriptor

    def _check(self, name: str) -> None:
        if not name.strip():
            raise WorkspaceError("The file name is empty.")
        if "\0" in name:
            raise WorkspaceError("The file name holds a NUL character.")
        if "/" in name or "\\" in name or name in {".", ".."} or ":" in name:
            raise WorkspaceError(
                f"{_short(name)} is a path. Only files directly in the workspace can be "
                "used, by their plain name."
            )
        try:
            length = len(os.fsencode(name))
        except UnicodeEncodeError:
            raise WorkspaceError("The file name is not valid text.") from None
        if length > MAX_NAME_BYTES:
            raise WorkspaceError(
                f"The file name is too long ({length} bytes, {MAX_NAME_BYTES} at most)."
            )
        if name.partition(".")[0].strip().lower() in _DEVICES:
            raise WorkspaceError(f"{_short(name)} is the name of a device.")


def _missing(name: str) -> WorkspaceError:
    return WorkspaceError(f"There is no file named {_short(name)} in the workspace.")


def _short(name: str) -> str:
    return name if len(name) <= 80 else f"{name[:77]}…"


def _count(files: int) -> str:
    return "1 file" if files == 1 else f"{files} files"


def files_page(root: Callable[[], Path]) -> DataPage:
    """The page of an agent that works on files; ``root`` is asked when it is read."""

    def read(thread_id: UUID, asked: Mapping[str, str]) -> Mapping[str, Any]:
        workspace = Workspace.existing(root(), thread_id)
        if workspace is None:
            return {"files": None}
        files = workspace.files()
        data: dict[str, Any] = {
            "files": files[:MAX_LISTED],
            "more": max(0, len(files) - MAX_LISTED),
            "name": asked.get("file", ""),
        }
        if data["name"]:
            try:
                data["text"] = workspace.text(data["name"])
            except WorkspaceError as error:
                data["problem"] = str(error)
        return data

    return DataPage(
        label="Files",
        icon="folder-open",
        template="hitlagents/data/files.html",
        read=read,
    )
