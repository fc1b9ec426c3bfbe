"""How failures of models and frameworks are told."""

from __future__ import annotations

import pytest

from hitlagents.adapters.failures import explained

pytestmark = pytest.mark.once


class Status(Exception):
    def __init__(self, status_code: int) -> None:
        super().__init__("Bearer sk-secret")
        self.status_code = status_code


@pytest.mark.parametrize(
    ("error", "told", "retryable"),
    [
        (Status(401), "does not accept our key (HTTP 401)", True),
        (Status(404), "does not exist at that address (HTTP 404)", True),
        (Status(400), "refused the request (HTTP 400)", False),
        (Status(429), "is not available now (HTTP 429)", True),
        (Status(503), "is not available now (HTTP 503)", True),
        (TimeoutError("sk-secret"), "could not be reached", True),
        (ConnectionError("sk-secret"), "could not be reached", True),
        (KeyError("sk-secret"), "failed: KeyError", True),
    ],
)
def test_failures_are_told_without_what_others_said(error, told, retryable):
    wrapped = RuntimeError("sk-secret")
    wrapped.__cause__ = error
    for failure in (error, wrapped):
        found = explained(failure, "gpt at host")
        assert told in str(found)
        assert str(found).endswith(".")
        assert "secret" not in str(found)
        assert found.retryable is retryable
