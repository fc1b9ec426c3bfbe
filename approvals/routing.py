from __future__ import annotations

from typing import Any

from django.urls import path, re_path

from approvals.consumers import LiveConsumer, Refusal

# The stubs know routes to views only.
endpoint: Any = LiveConsumer.as_asgi()
refusal: Any = Refusal.as_asgi()

websocket_urlpatterns: list[Any] = [
    path("ws/", endpoint),
    path("ws/runs/<uuid:run>/", endpoint),
    # Without a route the router raises, and every such try leaves a traceback.
    re_path("", refusal),
]
