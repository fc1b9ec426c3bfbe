"""How many streams each person has in this process: nobody may have all there is."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

from django.conf import settings

from approvals.exceptions import ApprovalsError


class TooManyStreams(ApprovalsError):
    """You have too many open streams."""

    http_status = 429
    code = "too_many_streams"


@dataclass(eq=False)
class Place:
    """One stream's place among those of its reader."""

    user: int
    taken: float
    #: It is being read; a place whose stream never began is free again soon.
    begun: bool = False

    def release(self) -> None:
        places.give_back(self)


class Places:
    """Who has how many streams in this process."""

    START = 30.0

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._taken: dict[int, set[Place]] = {}

    def take(self, user: int) -> Place:
        """Raises TooManyStreams."""
        now = time.monotonic()
        with self._lock:
            own = self._taken.setdefault(user, set())
            for place in [p for p in own if not p.begun and now - p.taken > self.START]:
                own.discard(place)
            if len(own) >= settings.SAYSO_AGUI_STREAMS:
                raise TooManyStreams(
                    f"You have {len(own)} open streams, and no more are kept for one "
                    "person. Close some first."
                )
            place = Place(user, now)
            own.add(place)
            return place

    def give_back(self, place: Place) -> None:
        with self._lock:
            own = self._taken.get(place.user, set())
            own.discard(place)
            if not own:
                self._taken.pop(place.user, None)


places = Places()
