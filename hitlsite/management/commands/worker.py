from __future__ import annotations

import signal
from types import FrameType
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand

from hitlagents.engine import worker
from hitlsite import checks, installation
from hitlsite.leaving import leave_soon


class Command(BaseCommand):
    help = "Run agents beside web processes that share the same PostgreSQL database."

    def handle(self, *args: Any, **options: Any) -> None:
        checks.refuse_several_processes()
        installation.bring_up_to_date()
        # Rows come from other processes, which cannot ring the bell of this one.
        working = worker.Worker(concurrency=settings.SAYSO_RUNS, poll=0.2)

        def stop(number: int, frame: FrameType | None) -> None:
            working.stop()

        signal.signal(signal.SIGTERM, stop)
        signal.signal(signal.SIGINT, stop)
        self.stdout.write(f"This worker runs up to {settings.SAYSO_RUNS} runs at once.")
        self.stdout.flush()
        worker.run(working)
        leave_soon()
