from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.contrib.auth.models import User
from django.core.management.base import BaseCommand, CommandError, CommandParser

from approvals import clock, services
from approvals.exceptions import ApprovalsError
from approvals.states import TokenScope


class Command(BaseCommand):
    help = (
        "Make an API token for a person. The last line is the secret, which is shown "
        "this once."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("username")
        parser.add_argument("--name", default="command line", help="what it is for")
        parser.add_argument("--days", type=int, help="how long it is valid")
        parser.add_argument(
            "--scope",
            action="append",
            dest="scopes",
            choices=TokenScope.values,
            help="what it may do; can be given again (default: everything)",
        )

    def handle(
        self,
        *args: Any,
        username: str,
        name: str,
        days: int | None,
        scopes: list[str] | None,
        **options: Any,
    ) -> None:
        try:
            user = User.objects.get(username=username)
        except User.DoesNotExist as error:
            raise CommandError(f"There is nobody named {username}.") from error
        if not user.is_active:
            raise CommandError(f"The account {username} is locked.")
        if days is not None and not 1 <= days <= 36_500:
            raise CommandError("--days must be between 1 and 36500.")
        try:
            token, secret = services.create_token(
                user,
                name=name,
                actor=None,
                scopes=[TokenScope(each) for each in scopes or TokenScope.values],
                expires_at=clock.now() + timedelta(days=days) if days else None,
            )
        except ApprovalsError as error:
            raise CommandError(error.message) from error
        until = token.expires_at.isoformat() if token.expires_at else "it is revoked"
        self.stdout.write(
            f"Token “{token.name}” of {username}, valid until {until}. "
            "Keep the secret; it is not shown again."
        )
        self.stdout.write(secret)
