"""Refusals that Django makes before any view of ours is asked."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from django.shortcuts import render
from django.utils.translation import gettext as _

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:
    """The page was too old to send from: say so, and leave what was typed where it is."""
    response = render(request, "403_csrf.html", status=403)
    # A form that shows other refusals in its own place must not show this one there.
    response["HX-Reswap"] = "none"
    text = _(
        "The page was too old to send from. What you typed is kept: copy it, then load "
        "the page again."
    )
    problem = {"text": text, "reload": True}
    response["HX-Trigger"] = json.dumps({"sayso:problem": problem})
    return response
