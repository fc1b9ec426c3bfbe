"""Which names and addresses mean this machine only."""

from __future__ import annotations

import ipaddress

LOOPBACK_NAMES = ["localhost", "127.0.0.1", "[::1]"]


def is_loopback(host: str) -> bool:
    host = host.strip().strip("[]").lower()
    if host in {"localhost", ".localhost"} or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
