"""With or without the slash at the end: a POST cannot be sent on."""

from __future__ import annotations

from django.urls import URLPattern, URLResolver, re_path

from hitlagents.agui import views

urlpatterns: list[URLPattern | URLResolver] = [
    re_path(r"^(?P<slug>[-\w]+)/?$", views.run, name="agui"),
    re_path(r"^(?P<slug>[-\w]+)/connect/?$", views.connect, name="agui-connect"),
]
