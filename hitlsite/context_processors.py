from __future__ import annotations

from django.conf import settings
from django.http import HttpRequest


def sayso(request: HttpRequest) -> dict[str, object]:
    return {
        "sayso_version": settings.SAYSO_VERSION,
        "sayso_demo": settings.SAYSO_DEMO,
    }
