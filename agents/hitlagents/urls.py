from __future__ import annotations

from django.urls import URLPattern, URLResolver, path

from hitlagents.views import chat, data, inspector

urlpatterns: list[URLPattern | URLResolver] = [
    path("", chat.agents, name="agents"),
    path("<slug:slug>/", chat.agent, name="agent"),
    path("<slug:slug>/inspector/", inspector.inspector, name="inspector"),
    path("<slug:slug>/inspector/tools/", inspector.read_tools, name="read-tools"),
    path("<slug:slug>/<uuid:pk>/", chat.thread, name="thread"),
    path("<slug:slug>/<uuid:pk>/data/", data.data, name="thread-data"),
    path("<slug:slug>/<uuid:pk>/retry/", chat.retry, name="thread-retry"),
    path("<slug:slug>/<uuid:pk>/cancel/", chat.cancel, name="thread-cancel"),
]
