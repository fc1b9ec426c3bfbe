"""How a serving process ends although a tool of an agent never returns."""

from __future__ import annotations

import os
import threading

#: Seconds for threads to end and for last messages to leave.
PATIENCE = 2.0


def leave_soon() -> None:
    """End this process in any case, a little later, if it does not end by itself.

    Python waits for all threads, and nothing can stop one that is inside a tool. The
    ledger knows that the tool was entered, so nothing is lost by leaving it behind.
    """
    watchdog = threading.Timer(PATIENCE, os._exit, [0])
    watchdog.daemon = True
    watchdog.start()
