"""Who holds a lease, and whether that process is known to be gone."""

from __future__ import annotations

import os
import socket


def worker_name() -> str:
    """Who holds leases here: host, process, and when the process began."""
    return f"{socket.gethostname()}:{os.getpid()}:{_process_start(os.getpid())}"


def worker_is_gone(owner: str) -> bool:
    """Whether that worker's process is known to have ended. Another host: not known.

    Nobody, an empty name, is gone: whoever it was has let go.
    """
    if not owner:
        return True
    host, _, rest = owner.rpartition(":")[0].rpartition(":")
    if host != socket.gethostname() or not rest.isdigit():
        return False
    return _process_start(int(rest)) != owner.rpartition(":")[2]


def _process_start(pid: int) -> str:
    """Start time of a process in clock ticks since boot; empty if there is none.

    Linux keeps it as field 22 of /proc/<pid>/stat. Elsewhere a living process gives "0".
    """
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as stat:
            return stat.read().rpartition(")")[2].split()[19]
    except FileNotFoundError:
        pass
    if os.path.exists("/proc/self/stat"):
        return ""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return ""
    except PermissionError:
        return "0"
    return "0"
