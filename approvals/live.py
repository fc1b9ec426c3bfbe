"""Telling open pages that something changed. Messages carry no content.

A message is ``{"op", "id"}`` for a set of scopes: ``group.<pk>`` (a review group),
``all`` (people who see everything), ``user.<pk>``, ``run.<uuid>``. Whoever serves sockets
connects a publisher; without one nothing is lost, pages only learn later.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from django.db import transaction

logger = logging.getLogger(__name__)

type Publisher = Callable[[frozenset[str], dict[str, Any]], None]

_publisher: Publisher | None = None


def connect(publisher: Publisher | None) -> None:
    global _publisher
    _publisher = publisher


def publish(scopes: Iterable[str], message: dict[str, Any]) -> None:
    """Send now. Never raises: a dead socket layer must not undo what was committed."""
    if _publisher is None:
        return
    try:
        _publisher(frozenset(scopes), message)
    except Exception:
        logger.exception("live: Could not publish %s.", message.get("op"))


def announce_on_commit(scopes: Iterable[str], op: str, id: object) -> None:
    """Tell the scopes, once the transaction of this moment is committed."""
    message = {"op": op, "id": str(id)}
    transaction.on_commit(partial(publish, frozenset(scopes), message), robust=True)
