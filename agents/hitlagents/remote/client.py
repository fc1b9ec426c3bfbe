"""One POST to a remote agent, and the events it answers with.

Nothing is trusted: where it leads, how long it takes, how much comes and of what kind.
What goes wrong is one of two things: the request surely took no effect (``NotTaken``), or
nobody can say (``Lost``).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import httpx

from hitlagents.remote import addresses
from hitlagents.remote.sse import EventParser, StreamError

EVENT_STREAM = "text/event-stream"

#: Statuses by which a server says that it did nothing with a request.
_NOT_TAKEN = frozenset({400, 401, 403, 404, 405, 406, 410, 411, 413, 415, 422, 429})


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How long to wait, in seconds, and how much to take."""

    connect: float = 10.0
    #: Between two pieces of the answer; comments that keep a line alive count.
    idle: float = 120.0
    total: float = 900.0
    max_event: int = 1_000_000
    max_run: int = 20_000_000


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """Where an agent is, and how it is reached."""

    url: str
    #: May hold secrets, so they are not in any text about this object.
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    allow_private: bool = False
    limits: Limits = field(default_factory=Limits)

    @property
    def host(self) -> str:
        """Host and port only: the rest of an address may say too much."""
        return urlsplit(self.url).netloc.rpartition("@")[2]


class RemoteError(Exception):
    """A request to a remote agent went wrong. The text is for people, without secrets."""


class NotTaken(RemoteError):
    """The request took no effect there, so that it may be made again."""


class Lost(RemoteError):
    """The request may have taken effect, and what came of it is not known."""


type Event = dict[str, Any]


async def events(endpoint: Endpoint, body: Mapping[str, Any]) -> AsyncGenerator[Event]:
    """Send a ``RunAgentInput`` and give the events of the answer, as JSON objects.

    Ends when the stream ends: whether that was the end of the run is the reader's to say.
    Raises NotTaken, Lost.
    """
    limits = endpoint.limits
    parser = EventParser(max_event=limits.max_event)
    deadline = asyncio.get_running_loop().time() + limits.total
    taken = 0
    try:
        async with AsyncExitStack() as stack:
            # Around each wait, not around what the caller does between two events.
            async with asyncio.timeout_at(deadline):
                response = await stack.enter_async_context(
                    answer(endpoint, "POST", body)
                )
            _check_head(response)
            chunks = response.aiter_raw()
            while True:
                async with asyncio.timeout_at(deadline):
                    chunk = await anext(chunks, None)
                if chunk is None:
                    return
                taken += len(chunk)
                if taken > limits.max_run:
                    raise Lost(
                        f"The agent's answer is longer than the {limits.max_run:,} bytes "
                        "allowed."
                    )
                for data in parser.feed(chunk):
                    yield _event(data)
    except TimeoutError as error:
        raise Lost(
            f"The agent was not done within {limits.total:g} seconds."
        ) from error
    except StreamError as error:
        raise Lost(str(error)) from error


@asynccontextmanager
async def answer(
    endpoint: Endpoint, method: str, body: Mapping[str, Any] | None = None
) -> AsyncIterator[httpx.Response]:
    """Open one request on a connection to an address that was checked.

    No redirect is followed, no proxy of the environment used, no cookie kept. Raises
    NotTaken, Lost.
    """
    limits = endpoint.limits
    timeout = httpx.Timeout(limits.idle, connect=limits.connect)
    # A client of its own: connections belong to one event loop and one advance.
    async with httpx.AsyncClient(
        timeout=timeout, trust_env=False, follow_redirects=False
    ) as client:
        response = await _send(client, endpoint, method, body)
        try:
            yield response
        except httpx.ReadTimeout as error:
            raise Lost(
                f"The agent sent nothing for {limits.idle:g} seconds."
            ) from error
        except httpx.HTTPError as error:
            raise Lost("The connection to the agent broke off.") from error
        finally:
            await response.aclose()


async def _send(
    client: httpx.AsyncClient,
    endpoint: Endpoint,
    method: str,
    body: Mapping[str, Any] | None,
) -> httpx.Response:
    """Try the addresses of the host in turn, until one takes the connection."""
    limits, host = endpoint.limits, endpoint.host
    try:
        parts = addresses.parsed(endpoint.url, allow_private=endpoint.allow_private)
        assert parts.hostname is not None
        found = await addresses.resolve(
            parts.hostname,
            parts.port or (443 if parts.scheme == "https" else 80),
            allow_private=endpoint.allow_private,
            patience=limits.connect,
        )
    except addresses.Refused as error:
        raise NotTaken(f"The agent at {host} was not called: {error}") from error
    except addresses.Unresolved as error:
        raise NotTaken(f"The agent at {host} has no address now.") from error
    for address in found:
        try:
            request = _request(client, endpoint, method, body, address)
        except (httpx.InvalidURL, UnicodeError, ValueError) as error:
            raise NotTaken(f"The address of the agent at {host} is none.") from error
        try:
            return await client.send(request, stream=True)
        except (httpx.ConnectError, httpx.ConnectTimeout):
            continue
        except httpx.ReadTimeout as error:
            raise Lost(
                f"The agent did not answer for {limits.idle:g} seconds."
            ) from error
        except httpx.HTTPError as error:
            raise Lost(f"The request to the agent at {host} broke off.") from error
    raise NotTaken(f"The agent at {host} could not be reached.")


def _request(
    client: httpx.AsyncClient,
    endpoint: Endpoint,
    method: str,
    body: Mapping[str, Any] | None,
    address: str,
) -> httpx.Request:
    """The request, bound to one address; the name stays in ``Host`` and for TLS."""
    url = httpx.URL(endpoint.url)
    headers = {
        "Accept": EVENT_STREAM,
        # Packed bytes would become more than the limits let in.
        "Accept-Encoding": "identity",
        "User-Agent": "Sayso",
        **endpoint.headers,
        "Host": endpoint.host,
    }
    content = None
    if body is not None:
        headers["Content-Type"] = "application/json"
        content = json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")
    return client.build_request(
        method,
        url.copy_with(host=address),
        headers=headers,
        content=content,
        extensions={"sni_hostname": url.host},
    )


def _check_head(response: httpx.Response) -> None:
    status = response.status_code
    if status in _NOT_TAKEN:
        raise NotTaken(f"The agent {_words(status)} (HTTP {status}).")
    if 300 <= status < 400:
        raise Lost(
            f"The agent's address leads elsewhere (HTTP {status}); redirects are not "
            "followed."
        )
    if status != 200:
        raise Lost(f"The agent answered with HTTP {status}.")
    content_type = response.headers.get("Content-Type", "")
    if content_type.partition(";")[0].strip().lower() != EVENT_STREAM:
        kind = content_type[:60] or "nothing"
        raise Lost(f"The agent answered with {kind} instead of {EVENT_STREAM}.")
    if response.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise Lost("The agent packed its answer, which it was asked not to.")


def _words(status: int) -> str:
    if status in {401, 403}:
        return "does not accept our headers"
    if status in {404, 405, 410}:
        return "is not at that address"
    if status == 429:
        return "has too much to do"
    return "refused the request"


def _event(data: str) -> Event:
    try:
        event = json.loads(data)
        if "\\u" in data or "\0" in data:
            event = _storable(event)
    except (ValueError, RecursionError) as error:
        raise StreamError("An event of the agent is no JSON.") from error
    if not isinstance(event, dict) or not isinstance(event.get("type"), str):
        raise StreamError("An event of the agent has no type.")
    return event


def _storable(value: Any) -> Any:
    """The same without what no database takes: NUL and halves of characters."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode().replace("\0", "␀")
    if isinstance(value, list):
        return [_storable(part) for part in value]
    if isinstance(value, dict):
        return {_storable(key): _storable(part) for key, part in value.items()}
    return value
