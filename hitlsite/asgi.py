from __future__ import annotations

import os

from channels.routing import ProtocolTypeRouter, URLRouter
from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "hitlsite.settings")

# Loads the applications, which must happen before a module with models is imported.
http_application = get_asgi_application()

from approvals.consumers import SameOriginOnly  # noqa: E402
from approvals.routing import websocket_urlpatterns  # noqa: E402

application = ProtocolTypeRouter(
    {
        "http": http_application,
        # Sessions are read by the endpoint itself, for many sockets at once.
        "websocket": SameOriginOnly(URLRouter(websocket_urlpatterns)),
    }
)
