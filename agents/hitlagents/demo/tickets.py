"""What the demo agent support knows of customers: a few tickets and invoices, made up."""

from __future__ import annotations

import re
from dataclasses import dataclass

MAX_FOUND = 10


@dataclass(frozen=True, kw_only=True)
class Ticket:
    number: str
    customer: str
    address: str
    invoice: str
    amount: str
    text: str

    def __str__(self) -> str:
        return (
            f"Ticket {self.number} from {self.customer} <{self.address}>: “{self.text}” "
            f"Invoice {self.invoice}, {self.amount}, paid."
        )


TICKETS = (
    Ticket(
        number="8812",
        customer="Dana Whitfield",
        address="dana@whitfield.example",
        invoice="1042",
        amount="129.00",
        text="The lamp arrived with a cracked shade.",
    ),
    Ticket(
        number="8813",
        customer="Omar Reyes",
        address="omar.reyes@mail.example",
        invoice="1043",
        amount="54.50",
        text="I was charged twice for one order.",
    ),
    Ticket(
        number="8820",
        customer="Lena Brandt",
        address="lena@brandt.example",
        invoice="1051",
        amount="310.00",
        text="When will the desk be delivered?",
    ),
    Ticket(
        number="8827",
        customer="Sam O'Neil",
        address="sam@oneil.example",
        invoice="1060",
        amount="18.90",
        text="Please send the invoice again, with our new address.",
    ),
)


def lookup(query: str) -> str:
    """What is on file: by the number of a ticket or an invoice, or a customer's name."""
    found = matching(query)
    if not found:
        return f"There is nothing on file about {_short(query)}."
    return "\n".join(str(ticket) for ticket in found[:MAX_FOUND])


def matching(query: str) -> list[Ticket]:
    numbers = set(re.findall(r"(?<!\d)\d{1,12}(?!\d)", query[:1000]))
    if numbers:
        return [t for t in TICKETS if numbers & {t.number, t.invoice}]
    words = " ".join(query[:1000].casefold().split())
    return [
        ticket
        for ticket in TICKETS
        if words
        and (
            words == ticket.address
            or words in ticket.customer.casefold().split()
            or words == ticket.customer.casefold()
        )
    ]


def by_invoice(number: str) -> Ticket | None:
    return next((t for t in TICKETS if t.invoice == number.strip()), None)


def _short(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:79]}…"
