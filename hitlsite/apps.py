from __future__ import annotations

from django.apps import AppConfig


class SiteConfig(AppConfig):
    name = "hitlsite"
    verbose_name = "Sayso"

    def ready(self) -> None:
        from hitlsite import checks  # noqa: F401  (registers the system checks)
