"""Where a remote agent may be: which addresses are allowed, and the one that is used.

A name is resolved once, every address it has is checked, and the connection goes to a
checked address. A name that answers differently the second time changes nothing.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Sequence
from urllib.parse import SplitResult, urlsplit

from hitlagents.toolcall import on_tool_thread

type Address = ipaddress.IPv4Address | ipaddress.IPv6Address

#: IPv6 addresses that stand for an IPv4 one behind a translator.
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")


class Refused(Exception):
    """An address that may not be used; the text says why."""


class Unresolved(Exception):
    """A name that has no address now."""


def parsed(url: str, *, allow_private: bool) -> SplitResult:
    """Read the address of an agent. Raises Refused.

    A user name or password in it is refused, since addresses are shown. Plain http is only
    for networks of one's own: what we send may hold a secret.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise Refused("This is no address.") from error
    if parts.scheme not in {"http", "https"} or not parts.hostname or port == 0:
        raise Refused("The address must begin with https:// (or http://) and a host.")
    if parts.username is not None or parts.password is not None:
        raise Refused("The address must not hold a user name or password; use headers.")
    if parts.fragment:
        raise Refused("The address must not hold a fragment (#…).")
    if parts.scheme == "http" and not allow_private:
        raise Refused("Without private addresses only https:// is allowed.")
    return parts


async def resolve(
    host: str, port: int, *, allow_private: bool, patience: float
) -> list[str]:
    """The addresses of a host, all of them allowed. Raises Refused, Unresolved."""
    try:
        async with asyncio.timeout(patience):
            found = await on_tool_thread(lambda: _look_up(host, port))
    except (OSError, UnicodeError, TimeoutError) as error:
        raise Unresolved(f"{host} has no address now.") from error
    for address in found:
        check(address, allow_private=allow_private)
    return [str(address) for address in found]


def _look_up(host: str, port: int) -> Sequence[Address]:
    infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = [ipaddress.ip_address(str(info[4][0])) for info in infos]
    return list(dict.fromkeys(addresses))


def check(address: Address, *, allow_private: bool) -> None:
    """Raises Refused for an address that is not on the public internet.

    With ``allow_private`` only for what can be nobody's address.
    """
    for meant in (address, *_inside(address)):
        if meant.is_multicast or meant.is_unspecified:
            raise Refused(f"{address} is no address of one machine.")
        if not allow_private and not meant.is_global:
            raise Refused(
                f"{address} is not on the public internet. Private addresses must be "
                "allowed for this agent first."
            )


def _inside(address: Address) -> list[Address]:
    """The IPv4 addresses that an IPv6 address leads to."""
    if isinstance(address, ipaddress.IPv4Address):
        return []
    found: list[Address | None] = [address.ipv4_mapped, address.sixtofour]
    if address.teredo is not None:
        found += address.teredo
    if address in _NAT64:
        found.append(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    return [one for one in found if one is not None]
