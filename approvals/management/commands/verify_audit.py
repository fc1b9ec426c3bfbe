"""Check the audit chain: the stored one, or an export without any database."""

from __future__ import annotations

import re
import sys
import time
from argparse import ArgumentTypeError
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db.utils import OperationalError, ProgrammingError

from approvals import audit


class Command(BaseCommand):
    help = (
        "Checks every entry of the audit chain against its hash, its payload and the "
        "entry before it, names the first that does not fit, and then exits with 1."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--file",
            metavar="FILE",
            help="An export (JSON lines) instead of the database; - for standard input.",
        )
        parser.add_argument(
            "--partial",
            action="store_true",
            help="The file holds a part of a chain, so entries may be left out.",
        )
        parser.add_argument(
            "--expect",
            type=_expected,
            metavar="NUMBER:HASH",
            help="An entry as noted earlier and elsewhere. It must be in the chain.",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        if options["partial"] and not options["file"]:
            raise CommandError("--partial is for a --file.", returncode=2)
        started = time.monotonic()
        if options["file"]:
            verifier = audit.Verifier(
                partial=options["partial"], expect=options["expect"]
            )
            with _opened(options["file"]) as file:
                verifier.take_all(audit.read_lines(file))
            report = verifier.report()
        else:
            try:
                report = audit.verify_stored(expect=options["expect"])
            except (OperationalError, ProgrammingError) as error:
                raise CommandError(
                    f"The database {settings.DATABASES['default']['NAME']} holds no "
                    f"audit log ({str(error).strip()}). Was Sayso started with another "
                    "SAYSO_DATA or DATABASE_URL?",
                    returncode=2,
                ) from error
        took = time.monotonic() - started
        if report.broken:
            raise CommandError(_broken(report, options))
        if options["file"] and not report.count:
            raise CommandError("The file holds no entries.")
        self._say(report, took, options)

    def _say(self, report: audit.Report, took: float, options: dict[str, Any]) -> None:
        rate = f", {report.count / took:,.0f} a second" if took > 0.1 else ""
        self.stdout.write(
            f"{_entries(report.count)} checked in {took:.2f} s{rate}: "
            f"{'all fit' if report.count else 'the chain is empty'}."
        )
        self.stdout.write(f"Head: {report.number}:{report.head}")
        if report.time:
            self.stdout.write(f"Time of the last entry: {report.time}")
        if report.erased:
            self.stdout.write(
                f"Payloads erased: {report.erased:,}, each with an entry that says so."
            )
        if options["partial"]:
            self.stdout.write(
                f"This is a part of a chain: each entry is as it was written, but "
                f"nothing here shows who left out what ({report.gaps:,} "
                f"{'gap' if report.gaps == 1 else 'gaps'})."
            )
        elif not options["expect"]:
            self.stdout.write(
                "Entries cut off at the end, or a chain written anew from the start, "
                "only show against a head that was noted elsewhere (--expect)."
            )


def _broken(report: audit.Report, options: dict[str, Any]) -> str:
    assert report.broken is not None
    text = (
        f"Entry {report.broken.number} does not fit: {report.broken.why}. "
        f"{_entries(report.count)} before it fit."
    )
    if options["file"] and not options["partial"] and not report.count:
        text += " If the file is a part of a chain, say --partial."
    return text


def _entries(count: int) -> str:
    return "1 entry" if count == 1 else f"{count:,} entries"


@contextmanager
def _opened(name: str) -> Iterator[BinaryIO]:
    if name == "-":
        yield sys.stdin.buffer
        return
    try:
        file = open(name, "rb")  # noqa: SIM115  (closed below; only opening may fail so)
    except OSError as error:
        raise CommandError(f"{name} cannot be read: {error}.", returncode=2) from None
    with file:
        yield file


def _expected(text: str) -> tuple[int, str]:
    found = re.fullmatch(r"([1-9][0-9]{0,18}):([0-9a-f]{64})", text.strip().lower())
    if found is None:
        raise ArgumentTypeError("must look like 120:9f86d0… (64 hex digits)")
    return int(found[1]), found[2]
