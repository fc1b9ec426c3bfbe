from __future__ import annotations

import os
from contextlib import nullcontext
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils.module_loading import import_string

from approvals import services
from hitlagents.demo import people
from hitlagents.engine.worker import WorkerThread
from hitlsite import checks, installation


class Command(BaseCommand):
    help = (
        "Start Sayso: bring the database up to date, serve the pages, and run agents. "
        "Everything is set by environment variables (docs/configuration.md)."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--no-worker",
            action="store_false",
            dest="worker",
            help="only serve pages; `manage.py worker` runs the agents elsewhere",
        )

    def handle(self, *args: Any, worker: bool, **options: Any) -> None:
        embedded = not settings.DATABASE_URL
        if not worker and not embedded:
            checks.refuse_several_processes()
        alone = installation.only_process(settings.SAYSO_DATA)
        try:
            with alone if embedded else nullcontext():
                if embedded:
                    services.keep_work_to_this_process()
                installation.bring_up_to_date()
                self._serve(worker=worker)
        except installation.AlreadyRunning as error:
            raise CommandError(str(error)) from error

    def _serve(self, *, worker: bool) -> None:
        # Late, because it installs a reactor that only a serving process wants.
        from hitlsite import server

        try:
            server.serve(
                import_string(settings.ASGI_APPLICATION),
                host=settings.SAYSO_HOST,
                port=settings.SAYSO_PORT,
                worker=(
                    WorkerThread(concurrency=settings.SAYSO_RUNS) if worker else None
                ),
                ready=self._say_ready,
            )
        except server.CannotListen as error:
            raise CommandError(str(error)) from error

    def _say_ready(self, port: int) -> None:
        host = settings.SAYSO_HOST
        if host in {"0.0.0.0", "::"}:  # noqa: S104  (compared, not bound)
            host = settings.ALLOWED_HOSTS[0]
        if ":" in host and not host.startswith("["):
            host = f"[{host}]"
        lines = [f"Sayso is ready on http://{host}:{port} (Ctrl+C stops it)."]
        if accounts := people.accounts():
            names = ", ".join(account.username for account in accounts)
            lines.append(f"Sign in as {names}; password: {people.DEMO_PASSWORD}")
        self.stdout.write(os.linesep.join(lines))
        self.stdout.flush()
