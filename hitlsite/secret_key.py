"""The signing key of an installation that was given none."""

from __future__ import annotations

import os
import secrets
from pathlib import Path


def read_or_create(path: Path) -> str:
    """Return the key in the file, and make one the first time.

    A second process that starts at the same moment must end up with the same key, so
    the finished file is linked into place, which only one of them can do.
    """
    if not path.exists():
        draft = path.with_name(f"{path.name}.{os.getpid()}")
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(secrets.token_urlsafe(64))
        try:
            os.link(draft, path)
        except FileExistsError:
            pass
        finally:
            draft.unlink()
    return path.read_text(encoding="ascii").strip()
