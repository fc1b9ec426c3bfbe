"""What a page's own tools gave: its tool messages answer the calls that wait for it.

Only calls of tools that it brought wait for a page. A tool message for anything else is a
page's own idea of a result and changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from approvals import services
from approvals.exceptions import TakenBack
from approvals.models import Interrupt
from hitlagents.agui.frames import Notice
from hitlagents.conversations import MAX_MESSAGE
from hitlagents.models import Thread

if TYPE_CHECKING:
    from django.contrib.auth.models import User


def answer(
    thread: Thread, results: Mapping[str, str], person: User
) -> tuple[bool, list[Notice]]:
    """Answer the waiting calls that these name by their ids. Returns whether that changed
    anything, and what the person should know of it."""
    changed, notices = False, list[Notice]()
    if not results:
        return changed, notices
    waiting = Interrupt.objects.open().at_page().filter(run__input__thread=thread)
    for pk, call_id in waiting.values_list("pk", "call_id"):
        if call_id not in results:
            continue
        try:
            text = _fit(results[call_id])
            changed |= services.answer_client_call(pk, text, actor=person)
        except TakenBack as error:
            changed = True
            notices.append(
                Notice(code=error.code, message=error.message, interrupt=str(pk))
            )
    return changed, notices


def _fit(text: str) -> str:
    """What can be stored and told. A page sends it again with every request, so that
    refusing it would end the conversation."""
    if len(text) > MAX_MESSAGE:
        return (
            f"Error: the page answered with {len(text):,} characters; "
            f"{MAX_MESSAGE:,} are allowed."
        )
    return text.encode("utf-8", "replace").decode().replace("\0", "\N{SYMBOL FOR NULL}")
