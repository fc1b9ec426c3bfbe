"""The demo outbox: mails the agent support has sent, which go no further than here.

Functions are for database threads. Django is imported when one is called, so that
importing this costs nothing and needs no settings.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from hitlagents.adapters.base import DataPage
from hitlagents.toolcall import ToolError

MAX_LINE = 200
MAX_BODY = 20_000

#: One address, plainly written.
ADDRESS = r"^[^@\s,;<>]{1,64}@[^@\s,;<>]{1,120}$"


class OutboxError(ToolError):
    """Why nothing was sent, as a sentence for the model."""


@dataclass(frozen=True, kw_only=True)
class Mail:
    """Raises OutboxError for what is no mail."""

    to: str
    subject: str
    body: str

    def __post_init__(self) -> None:
        if not re.fullmatch(ADDRESS, self.to):
            raise OutboxError("The address is not one e-mail address.")
        if not self.subject.strip() or len(self.subject) > MAX_LINE:
            raise OutboxError(f"The subject has 1 to {MAX_LINE} characters.")
        if len(self.subject.splitlines()) > 1:
            raise OutboxError("The subject is one line.")
        if not self.body.strip() or len(self.body) > MAX_BODY:
            raise OutboxError(f"The text has 1 to {MAX_BODY} characters.")


def send(mail: Mail, *, thread_id: UUID, run_id: UUID, call_id: str) -> str:
    """Put a mail into the outbox, once however often this call is made."""
    from hitlagents.models import OutboxMail

    sent, _ = OutboxMail.objects.get_or_create(
        run_id=run_id,
        call_id=call_id,
        defaults={
            "thread_id": thread_id,
            "to": mail.to,
            "subject": mail.subject,
            "body": mail.body,
        },
    )
    return f"Sent “{sent.subject}” to {sent.to}."


def refund(
    invoice: str, mail: Mail, *, thread_id: UUID, run_id: UUID, call_id: str
) -> str:
    """Confirm a refund by a mail. Raises OutboxError for a second one in this thread."""
    from hitlagents.models import OutboxMail

    earlier = OutboxMail.objects.filter(thread_id=thread_id, refund_of=invoice).first()
    if earlier is not None and (earlier.run_id, earlier.call_id) != (run_id, call_id):
        raise OutboxError(f"Invoice {invoice} was refunded before.")
    OutboxMail.objects.get_or_create(
        run_id=run_id,
        call_id=call_id,
        defaults={
            "thread_id": thread_id,
            "to": mail.to,
            "subject": mail.subject,
            "body": mail.body,
            "refund_of": invoice,
        },
    )
    return f"Refunded invoice {invoice} and wrote to {mail.to}."


def page(thread_id: UUID, asked: Mapping[str, str]) -> Mapping[str, Any]:
    """The mails that were sent in a thread, newest first."""
    from hitlagents.models import OutboxMail

    return {"mails": OutboxMail.objects.filter(thread_id=thread_id).order_by("-pk")}


PAGE = DataPage(
    label="Outbox",
    icon="mails",
    template="hitlagents/data/outbox.html",
    read=page,
)
