"""daphne in this process, with a worker beside it.

Importing this module installs Twisted's reactor, so only `manage.py serve` does.
"""

from __future__ import annotations

import errno
import sys
from collections.abc import Callable

# First: whoever imports Twisted's reactor before it gets another loop.
from daphne.server import Server  # isort: skip

from daphne.endpoints import build_endpoint_description_strings
from twisted.internet import reactor
from twisted.internet.threads import deferToThread
from twisted.python.failure import Failure

from hitlagents.engine.worker import WorkerThread
from hitlsite.leaving import leave_soon


class CannotListen(Exception):
    """The address cannot be had; the message says why and what to do."""


def serve(
    application: object,
    *,
    host: str,
    port: int,
    worker: WorkerThread | None,
    ready: Callable[[int], None],
) -> None:
    """Serve until a signal comes. ``ready`` is called with the port once it listens.

    Raises CannotListen.
    """
    problems: list[BaseException | None] = []
    server = Server(
        application,
        endpoints=build_endpoint_description_strings(host=host, port=port),
        # Sockets stay as long as the page does; daphne would close them after a day.
        websocket_timeout=-1,
        ping_interval=20,
        # A page sends a few bytes; what is larger need not even be read to its end.
        websocket_max_message_size=4096,
        websocket_max_frame_size=4096,
        server_name="sayso",
    )

    def listening(listener: object) -> None:
        ready(listener.getHost().port)  # type: ignore[attr-defined]

    def not_listening(failure: Failure) -> None:
        problems.append(failure.value)
        server.stop()

    server.listen_success = listening
    server.listen_error = not_listening
    if worker is not None:
        # A thread that makes a page hands over after 1 ms instead of 5: a run passes
        # through several short calls on its way to the tool, and waits at each of them.
        sys.setswitchinterval(0.001)
        # daphne has no start event for applications; and at import it would be too early.
        reactor.callWhenRunning(worker.start)
        reactor.addSystemEventTrigger(  # zope's interfaces are declared without self
            "before",
            "shutdown",  # type: ignore[arg-type]
            deferToThread,
            worker.stop,
        )
    server.run()
    if problems:
        raise CannotListen(_sentence(problems[0], host, port))
    leave_soon()


def _sentence(problem: BaseException | None, host: str, port: int) -> str:
    error = getattr(problem, "socketError", problem)
    match getattr(error, "errno", None):
        case errno.EADDRINUSE:
            why = "another program uses it. Stop that, or choose another with PORT"
        case errno.EACCES:
            why = "this account may not use it. Choose one above 1023 with PORT"
        case errno.EADDRNOTAVAIL:
            why = "this machine does not have that address. Choose another with HOST"
        case _:
            why = f"{error}"
    return f"Cannot listen on port {port} of {host}: {why}."
