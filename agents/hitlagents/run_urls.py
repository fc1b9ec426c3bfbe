"""Pages about a run that only hosted runs have; below the desk's own ``/runs/``."""

from __future__ import annotations

from django.urls import URLPattern, URLResolver, path

from hitlagents.views import events

urlpatterns: list[URLPattern | URLResolver] = [
    path("<uuid:pk>/events/", events.events, name="run-events"),
    path("<uuid:pk>/events.jsonl", events.download, name="run-events-download"),
]
