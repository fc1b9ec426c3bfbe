"""The demo bank: a few accounts per person and the transfers between them, in the database.

Amounts have two decimal places and no currency. Functions are for database threads. Django
is imported when one is called, so that importing this costs nothing and needs no settings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from uuid import UUID

from hitlagents.adapters.base import DataPage
from hitlagents.toolcall import ToolError

if TYPE_CHECKING:
    from django.db.models import QuerySet

    from hitlagents.models import BankAccount, LedgerEntry

MAX_AMOUNT = Decimal("1000000000")

#: Transfers on the page.
MAX_SHOWN = 100

#: Transfers come from here.
MAIN = "1001"

#: Number, name and what is on it before the first transfer.
ACCOUNTS = (
    (MAIN, "Main", Decimal(5000)),
    ("1002", "Savings", Decimal(1200)),
    ("12345", "Landlord", Decimal(0)),
    ("777", "Electricity", Decimal(0)),
)


class BankError(ToolError):
    """Why nothing was transferred or found, as a sentence for the model."""


@dataclass(frozen=True, kw_only=True)
class Balance:
    """An account and what is on it now."""

    account: BankAccount
    amount: Decimal


def transfer(
    thread_id: UUID, *, run_id: UUID, call_id: str, amount: Decimal, to: str
) -> str:
    """Move money from the main account, once however often this call is made.

    Raises BankError for an amount or an account that will not do.
    """
    from django.db import transaction

    from hitlagents.models import LedgerEntry

    with transaction.atomic():
        # Its lock keeps two transfers from spending the same money.
        source = _opened(_owner(thread_id)).select_for_update().get(number=MAIN)
        entry = LedgerEntry.objects.filter(run_id=run_id, call_id=call_id).first()
        if entry is None:
            target = _named(source.owner_id, to)
            _check(amount, source, target)
            entry = LedgerEntry.objects.create(
                run_id=run_id,
                call_id=call_id,
                source=source,
                target=target,
                amount=amount,
            )
    return (
        f"Transferred {money(entry.amount)} to {described(entry.target)}. "
        f"{described(source)} now holds {money(_balance(source))}."
    )


def balance(thread_id: UUID, account: str) -> str:
    """Raises BankError when there is no such account."""
    found = _named(_owner(thread_id), account)
    return f"{described(found)} holds {money(_balance(found))}."


def balances(owner_id: int) -> list[Balance]:
    """A person's accounts with what is on them; none before their first use."""
    return [
        Balance(account=account, amount=_balance(account))
        for account in _accounts(owner_id)
    ]


def ledger(owner_id: int) -> QuerySet[LedgerEntry]:
    """A person's transfers, newest first, with the accounts on both sides."""
    from hitlagents.models import LedgerEntry

    return (
        LedgerEntry.objects.filter(source__owner_id=owner_id)
        .select_related("source", "target")
        .order_by("-pk")
    )


def page(thread_id: UUID, asked: Mapping[str, str]) -> Mapping[str, Any]:
    """The accounts of the thread's owner, and their newest transfers."""
    owner_id = _owner(thread_id)
    return {
        "balances": [
            {"account": each.account, "amount": money(each.amount)}
            for each in balances(owner_id)
        ],
        "transfers": [
            {"entry": entry, "amount": money(entry.amount)}
            for entry in ledger(owner_id)[:MAX_SHOWN]
        ],
    }


PAGE = DataPage(
    label="Bank",
    icon="landmark",
    template="hitlagents/data/bank.html",
    read=page,
)


def money(amount: Decimal) -> str:
    """An amount as 1,250.00: no currency, since the bank knows of none."""
    return f"{amount:,.2f}"


def described(account: BankAccount) -> str:
    return f"Account {account.number} ({account.name})"


def _check(amount: Decimal, source: BankAccount, target: BankAccount) -> None:
    if not amount.is_finite() or amount <= 0:
        raise BankError("The amount must be more than zero.")
    if amount > MAX_AMOUNT:
        raise BankError(f"The amount can be {money(MAX_AMOUNT)} at most.")
    if amount != round(amount, 2):
        raise BankError("The amount can have two decimal places at most.")
    if source.pk == target.pk:
        raise BankError(
            f"{described(source)} is the account the money would come from."
        )
    available = _balance(source)
    if amount > available:
        raise BankError(
            f"{described(source)} holds {money(available)}, which is not enough for "
            f"{money(amount)}."
        )


def _owner(thread_id: UUID) -> int:
    """Whose bank it is: the person's who talks to the agent."""
    from hitlagents.models import Thread

    return Thread.objects.values_list("owner_id", flat=True).get(pk=thread_id)


def _accounts(owner_id: int) -> QuerySet[BankAccount]:
    """The person's accounts: none before the agent first looks at them."""
    from hitlagents.models import BankAccount

    return BankAccount.objects.filter(owner_id=owner_id).order_by("pk")


def _opened(owner_id: int) -> QuerySet[BankAccount]:
    """The person's accounts, opened at their first use."""
    from hitlagents.models import BankAccount

    accounts = _accounts(owner_id)
    if not accounts.exists():
        BankAccount.objects.bulk_create(
            [
                BankAccount(
                    owner_id=owner_id, number=number, name=name, opening=opening
                )
                for number, name, opening in ACCOUNTS
            ],
            ignore_conflicts=True,  # another first use at the same time
        )
    return accounts


def _named(owner_id: int, name: str) -> BankAccount:
    """An account by its number or its name."""
    wanted = " ".join(name.split()).casefold()
    for account in _opened(owner_id):
        if wanted in {account.number.casefold(), account.name.casefold()}:
            return account
    raise BankError(f"There is no account {_short(name)}.")


def _balance(account: BankAccount) -> Decimal:
    from django.db.models import Sum

    added = account.credits.aggregate(sum=Sum("amount"))["sum"] or Decimal(0)
    taken = account.debits.aggregate(sum=Sum("amount"))["sum"] or Decimal(0)
    total: Decimal = account.opening + added - taken
    return total


def _short(text: str) -> str:
    line = " ".join(text.replace("\0", "").split())
    return f"“{line}”" if len(line) <= 80 else f"“{line[:77]}…”"
