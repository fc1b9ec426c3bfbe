"""The routes a CopilotKit page calls under its ``runtimeUrl``, with no Node in between."""

from __future__ import annotations

from django.urls import URLPattern, URLResolver, re_path

from hitlagents.agui import views

urlpatterns: list[URLPattern | URLResolver] = [
    re_path(r"^info/?$", views.info, name="copilotkit-info"),
    re_path(r"^agent/(?P<slug>[-\w]+)/run/?$", views.run, name="copilotkit-run"),
    re_path(
        r"^agent/(?P<slug>[-\w]+)/connect/?$",
        views.connect,
        name="copilotkit-connect",
    ),
    re_path(
        r"^agent/(?P<slug>[-\w]+)/stop/(?P<thread_key>.+?)/?$",
        views.stop,
        name="copilotkit-stop",
    ),
]
