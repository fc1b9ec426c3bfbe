from __future__ import annotations

pytest_plugins = [
    "tests.plugins.left_out",
    "tests.plugins.machine",
    "tests.plugins.peers",
    "tests.plugins.quick_flush",
    "tests.plugins.cast",
]
