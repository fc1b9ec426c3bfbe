"""Write the audit chain as JSON lines, enough to verify it without this installation."""

from __future__ import annotations

import os
from argparse import ArgumentTypeError
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

from django.core.management.base import BaseCommand, CommandError, CommandParser

from approvals import audit
from approvals.models import AuditHead


class Command(BaseCommand):
    help = (
        "Writes the audit chain as JSON lines, oldest first. Check the file with "
        "`verify_audit --file FILE`; a part of a chain also needs --partial there."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--output", metavar="FILE", help="Write here instead of standard output."
        )
        parser.add_argument(
            "--since", type=_number, default=1, metavar="N", help="From entry N on."
        )
        parser.add_argument(
            "--run", type=UUID, metavar="UUID", help="Only the entries of this run."
        )

    def handle(self, *args: Any, **options: Any) -> None:
        # What is appended while this runs belongs to the next export.
        head = AuditHead.objects.first()
        links = audit.stored_chain(
            after=options["since"] - 1,
            upto=head.number if head else 0,
            run=options["run"],
        )
        try:
            if options["output"]:
                self._write(links, Path(options["output"]))
            else:
                self._print(links)
        except audit.Unreadable as error:
            raise CommandError(f"The export is incomplete: {error}.") from None

    def _print(self, links: Iterator[audit.Link]) -> None:
        if hasattr(self.stdout, "reconfigure"):
            self.stdout.reconfigure(encoding="utf-8")
        for link in links:
            self.stdout.write(audit.to_json_line(link))

    def _write(self, links: Iterator[audit.Link], path: Path) -> None:
        """Write beside the file and rename, so that half an export has no such name."""
        part = path.with_name(f"{path.name}.part")
        count, last = 0, None
        try:
            # What agents proposed and people wrote is in it: for this account only.
            descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                for link in links:
                    file.write(f"{audit.to_json_line(link)}\n".encode())
                    count, last = count + 1, link
                file.flush()
                os.fsync(file.fileno())
            part.replace(path)
        except OSError as error:
            raise CommandError(f"{path} cannot be written: {error}.") from None
        finally:
            part.unlink(missing_ok=True)
        entries = "entry" if count == 1 else "entries"
        self.stdout.write(f"{count:,} {entries} written to {path}.")
        if last is not None:
            self.stdout.write(f"Last entry: {last.number}:{last.hash}")


def _number(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) < 2**63:
        raise ArgumentTypeError("must be the number of an entry, from 1")
    return int(text)
