"""M21: where a remote agent may be."""

from __future__ import annotations

import ipaddress
import socket

import pytest
from asgiref.sync import async_to_sync

from hitlagents.remote import addresses
from hitlagents.remote.addresses import Refused, Unresolved

pytestmark = pytest.mark.once

PRIVATE = [
    "127.0.0.1",
    "10.1.2.3",
    "172.16.0.1",
    "192.168.1.1",
    "169.254.169.254",
    "100.64.0.1",
    "::1",
    "fe80::1",
    "fc00::1",
    "::ffff:127.0.0.1",
    "64:ff9b::7f00:1",
    "2002:7f00:1::",
]


@pytest.mark.parametrize("address", PRIVATE)
def test_m21_private_addresses_must_be_allowed(address):
    found = ipaddress.ip_address(address)
    with pytest.raises(Refused, match="public internet"):
        addresses.check(found, allow_private=False)
    addresses.check(found, allow_private=True)


@pytest.mark.parametrize("address", ["0.0.0.0", "224.0.0.1", "::", "ff02::1"])
def test_m21_what_is_nobodys_address_is_never_called(address):
    with pytest.raises(Refused):
        addresses.check(ipaddress.ip_address(address), allow_private=True)


@pytest.mark.parametrize("address", ["93.184.215.14", "2606:4700::1111"])
def test_m21_public_addresses_are_fine(address):
    addresses.check(ipaddress.ip_address(address), allow_private=False)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "agents.example/x",
        "ftp://agents.example/",
        "https://",
        "https://user:secret@agents.example/",
        "https://agents.example/#part",
        "https://agents.example:0/",
        "https://agents.example:port/",
        "http://agents.example/",
        "https://[::1/",
    ],
)
def test_m21_an_address_that_cannot_be_used_is_refused(url):
    with pytest.raises(Refused):
        addresses.parsed(url, allow_private=False)


def test_m21_plain_http_is_for_private_networks():
    parts = addresses.parsed("http://desk.internal:8000/a?b=c", allow_private=True)
    assert (parts.hostname, parts.port) == ("desk.internal", 8000)


def resolved(answers, monkeypatch, **options):
    infos = [(0, 0, 0, "", (answer, 443)) for answer in answers]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *a, **k: infos)
    options = {"allow_private": False, "patience": 5, **options}
    return async_to_sync(addresses.resolve)("agents.example", 443, **options)


def test_m21_every_address_of_a_name_must_be_allowed(monkeypatch):
    with pytest.raises(Refused, match=r"10\.0\.0\.1"):
        resolved(["93.184.215.14", "10.0.0.1"], monkeypatch)


def test_m21_a_name_gives_its_addresses_once_each(monkeypatch):
    assert resolved(["93.184.215.14"] * 3, monkeypatch) == ["93.184.215.14"]


def test_m21_a_name_without_an_address_says_so(monkeypatch):
    def fails(*args, **kwargs):
        raise socket.gaierror

    monkeypatch.setattr(socket, "getaddrinfo", fails)
    with pytest.raises(Unresolved, match="no address now"):
        async_to_sync(addresses.resolve)(
            "agents.example", 443, allow_private=False, patience=5
        )
