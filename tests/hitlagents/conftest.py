from __future__ import annotations

import pytest

from hitlagents import registry


@pytest.fixture
def fresh(desk, monkeypatch):
    """A registry of adapters that has seen nothing yet."""
    monkeypatch.setattr(registry, "_adapters", {})
    monkeypatch.setattr(registry, "_registered", set())
    monkeypatch.delenv("SAYSO_MODEL", raising=False)
