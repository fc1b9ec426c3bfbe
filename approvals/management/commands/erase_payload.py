"""Make the audit forget what one entry says, and record that it did."""

from __future__ import annotations

import getpass
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from approvals import services
from approvals.exceptions import ApprovalsError


class Command(BaseCommand):
    help = (
        "Erases the payload and the salt of one audit entry, for good. Number, time, "
        "actor and action stay, the chain still verifies, and an entry says who erased "
        "it and why. What the request, the run or an earlier export or backup holds is "
        "not touched."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("number", type=int, help="Number of the entry.")
        parser.add_argument(
            "--reason", required=True, help="Why. It is recorded and cannot be erased."
        )

    def handle(self, *args: Any, **options: Any) -> None:
        number: int = options["number"]
        try:
            entry = services.erase_payload(
                number, reason=options["reason"], actor=f"operator:{_account()}"
            )
        except ApprovalsError as error:
            raise CommandError(error.message) from None
        self.stdout.write(
            f"The payload of entry {number} ({entry.action}) is erased, and that is "
            "recorded."
        )


def _account() -> str:
    """The account of this machine that runs the command."""
    try:
        return getpass.getuser()
    except OSError:
        return "unknown"
