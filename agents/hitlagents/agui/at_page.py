"""What a page's own tools gave: its tool messages answer the calls that wait for it.

Only calls of tools that it brought wait for a page. A tool message for anything else is a
page's own idea of a result and changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from approvals import services
from approvals.models import Interrupt
from hitlagents.conversations import MAX_MESSAGE
from hitlagents.models import Thread

if TYPE_CHECKING:
    from django.contrib.auth.models import User


def answer(thread: Thread, results: Mapping[str, str], person: User) -> bool:
    """Answer the waiting calls that these name by their ids. Returns whether any was."""
    if not results:
        return False
    waiting = Interrupt.objects.open().at_page().filter(run__input__thread=thread)
    answered = [
        services.answer_client_call(pk, _fit(results[call_id]), actor=person)
        for pk, call_id in waiting.values_list("pk", "call_id")
        if call_id in results
    ]
    return any(answered)


def _fit(text: str) -> str:
    """What can be stored and told. A page sends it again with every request, so that
    refusing it would end the conversation."""
    if len(text) > MAX_MESSAGE:
        return (
            f"Error: the page answered with {len(text):,} characters; "
            f"{MAX_MESSAGE:,} are allowed."
        )
    return text.encode("utf-8", "replace").decode().replace("\0", "\N{SYMBOL FOR NULL}")
