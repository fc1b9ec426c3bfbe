from __future__ import annotations

from django.urls import URLPattern, URLResolver, path

from hitlagents import views

urlpatterns: list[URLPattern | URLResolver] = [
    path("", views.agents, name="agents"),
    path("<slug:slug>/", views.agent, name="agent"),
    path("<slug:slug>/<uuid:pk>/", views.thread, name="thread"),
    path("<slug:slug>/<uuid:pk>/retry/", views.retry, name="thread-retry"),
    path("<slug:slug>/<uuid:pk>/cancel/", views.cancel, name="thread-cancel"),
]
