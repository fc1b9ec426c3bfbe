from __future__ import annotations

from django.apps import AppConfig


class HitlAgentsConfig(AppConfig):
    name = "hitlagents"
    verbose_name = "Hosted agents"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from approvals import wake
        from approvals.states import Source
        from hitlagents.engine.wake import HostedRuns

        wake.connect(Source.HOSTED, HostedRuns())
