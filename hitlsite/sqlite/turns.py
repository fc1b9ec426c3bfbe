"""A lock that is given in the order in which it was asked for."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager


class Turns:
    """One at a time, first come first served.

    Python's own locks are given to whoever asks at the right moment, so a thread that
    releases and asks again can keep others out for as long as it likes.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._taken = False
        self._waiting: deque[threading.Event] = deque()

    def take(self, timeout: float) -> bool:
        """Wait for one's turn; False if it did not come in time."""
        with self._guard:
            if not self._taken:
                self._taken = True
                return True
            called = threading.Event()
            self._waiting.append(called)
        if called.wait(timeout):
            return True
        with self._guard:
            # Called at the very last moment: then the turn is ours after all.
            if called.is_set():
                return True
            self._waiting.remove(called)
            return False

    def leave(self) -> None:
        """Hand over to whoever has waited longest."""
        with self._guard:
            if self._waiting:
                self._waiting.popleft().set()
            else:
                self._taken = False

    @contextmanager
    def taken(self, timeout: float) -> Iterator[None]:
        """Hold one's turn for a block. Raises TimeoutError."""
        started = time.monotonic()
        if not self.take(timeout):
            waited = time.monotonic() - started
            raise TimeoutError(f"no turn came in {waited:.0f} s")
        try:
            yield
        finally:
            self.leave()
