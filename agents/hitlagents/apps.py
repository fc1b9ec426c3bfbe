from __future__ import annotations

from django.apps import AppConfig
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured


class HitlAgentsConfig(AppConfig):
    name = "hitlagents"
    verbose_name = "Hosted agents"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from approvals import hosts, wake
        from approvals.states import Source
        from hitlagents import catalog
        from hitlagents.engine.wake import HostedRuns
        from hitlagents.pages import HostedAgents

        for source in (Source.HOSTED, Source.REMOTE):
            wake.connect(source, HostedRuns())
        hosts.connect(HostedAgents())
        for name in settings.SAYSO_AGENTS:
            try:
                catalog.add(name)
            except catalog.Unusable as error:
                raise ImproperlyConfigured(f"SAYSO_AGENTS: {error}") from error
