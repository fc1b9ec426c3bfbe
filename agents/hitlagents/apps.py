from __future__ import annotations

from django.apps import AppConfig


class HitlAgentsConfig(AppConfig):
    name = "hitlagents"
    verbose_name = "Hosted agents"
    default_auto_field = "django.db.models.BigAutoField"
