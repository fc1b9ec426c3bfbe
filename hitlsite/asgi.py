from __future__ import annotations

import os

import django
from channels.routing import ProtocolTypeRouter, URLRouter

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "hitlsite.settings")

# Loads the applications, which must happen before a module with models is imported.
django.setup(set_prefix=False)

from approvals.consumers import SameOriginOnly  # noqa: E402
from approvals.routing import websocket_urlpatterns  # noqa: E402
from hitlsite.handler import Handler  # noqa: E402

application = ProtocolTypeRouter(
    {
        "http": Handler(),
        # Sessions are read by the endpoint itself, for many sockets at once.
        "websocket": SameOriginOnly(URLRouter(websocket_urlpatterns)),
    }
)
