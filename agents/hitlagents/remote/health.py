"""Whether a remote agent is there, asked without starting anything.

A GET, which by HTTP's own definition changes nothing. An agent only takes POST, and says
so; a POST of any kind might begin a run, and with it a tool.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import httpx
from asgiref.sync import async_to_sync
from django.utils import timezone

from hitlagents.models import RemoteAgent
from hitlagents.remote import client, sealing
from hitlagents.remote.client import EVENT_STREAM, Endpoint, Limits

#: A page waits for it.
PATIENCE = 5.0


@dataclass(frozen=True, kw_only=True)
class Health:
    """What a check found, in a sentence."""

    passed: bool
    words: str


def check(agent: RemoteAgent) -> Health:
    """Ask, and keep the answer with the agent."""
    try:
        found = async_to_sync(ask)(agent.endpoint())
    except sealing.Unreadable as error:
        found = Health(passed=False, words=str(error))
    RemoteAgent.objects.filter(pk=agent.pk).update(
        checked=timezone.now(), check_passed=found.passed, check_result=found.words
    )
    return found


async def ask(endpoint: Endpoint) -> Health:
    """What the address answers to a GET."""
    limits = Limits(connect=PATIENCE, idle=PATIENCE)
    try:
        async with client.answer(replace(endpoint, limits=limits), "GET") as response:
            return _judged(response)
    except client.RemoteError as error:
        return Health(passed=False, words=str(error))


def _judged(response: httpx.Response) -> Health:
    status = response.status_code
    content_type = response.headers.get("Content-Type", "").partition(";")[0].strip()
    kind = content_type[:60] or "no content type"
    said = f"HTTP {status}, {kind}"
    if status == 405 or (status == 200 and content_type.lower() == EVENT_STREAM):
        return Health(passed=True, words=f"Reachable: {said}.")
    if status in {400, 422}:
        return Health(passed=True, words=f"Reachable, and wants a request: {said}.")
    if status in {401, 403}:
        words = f"Reachable, but does not accept our headers: {said}."
    elif status == 404:
        words = f"Reachable, but there is nothing at this address: {said}."
    elif 300 <= status < 400:
        words = f"Leads elsewhere, and redirects are not followed: {said}."
    elif status >= 500:
        words = f"Reachable, but not working: {said}."
    else:
        words = f"Reachable, but this looks like no AG-UI agent: {said}."
    return Health(passed=False, words=words)
