"""Where the checkout is, and the one place that makes `agents/` importable.

`agents/` has no `__init__.py`: the OpenAI Agents SDK is imported as `agents`, and a
regular package of that name in the project root would hide it. So the folder is a
source root, and the Django app inside it is imported as `hitlagents`.
"""

from __future__ import annotations

import sys
from pathlib import Path

BASE_DIR = Path(__file__).resolve().parent.parent
SOURCE_ROOT = BASE_DIR / "agents"


def add_source_root() -> None:
    if str(SOURCE_ROOT) not in sys.path:
        sys.path.append(str(SOURCE_ROOT))
