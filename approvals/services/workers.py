"""Who holds a lease, and whether that process is known to be gone."""

from __future__ import annotations

import hashlib
import os
import socket
import threading
import uuid

#: Set where a lock keeps the database to this process.
_alone = threading.Event()


def keep_work_to_this_process() -> None:
    """Say that no other process can work on this database: what others held is free."""
    _alone.set()


def worker_name() -> str:
    """Who holds leases here: host and place, process, and when the process began."""
    return f"{_here()}:{os.getpid()}:{_process_start(os.getpid())}"


def worker_is_gone(owner: str) -> bool:
    """Whether that worker's process is known to have ended. Of another place: not known.

    Nobody, an empty name, is gone: whoever it was has let go.
    """
    if not owner:
        return True
    if _alone.is_set():
        return owner != worker_name()
    here, _, pid = owner.rpartition(":")[0].rpartition(":")
    if here != _here() or not pid.isdigit() or not _sees_itself():
        return False
    return _process_start(int(pid)) != owner.rpartition(":")[2]


def _here() -> str:
    """Where numbers of processes mean the same. Several machines may have one name, as
    containers often do, and several containers of a machine number their processes alike.
    """
    return (
        f"{socket.gethostname()}/{hashlib.sha256(_place().encode()).hexdigest()[:12]}"
    )


def _place() -> str:
    """This start of this machine, and the room its processes are numbered in."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as boot:
            return f"{boot.read().strip()} {os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        # Elsewhere the address of the network card, or else another number each time.
        return f"{uuid.getnode():x}"


def _sees_itself() -> bool:
    """Not where /proc is that of other processes, as inside some containers."""
    try:
        return os.readlink("/proc/self") == str(os.getpid())
    except OSError:
        return not os.path.exists("/proc")


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
