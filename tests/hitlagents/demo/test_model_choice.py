"""The model of a demo agent is the one its environment names."""

from __future__ import annotations

import pytest

from hitlagents.adapters.base import AgentRunError, Gating
from hitlagents.demo import banking, file_ops, scheduler, support, writer


@pytest.mark.once
@pytest.mark.parametrize("module", [banking, file_ops, scheduler, support, writer])
def test_a_model_that_cannot_be_had_is_said_in_words(module, monkeypatch):
    for name in ("OPENAI_BASE_URL", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SAYSO_MODEL", "gpt-9")
    with pytest.raises(AgentRunError, match="OPENAI_BASE_URL") as raised:
        module.SPEC.build(Gating(allowed=frozenset()))
    assert raised.value.retryable
    with pytest.raises(AgentRunError, match="OPENAI_BASE_URL"):
        module.SPEC.model_label()
