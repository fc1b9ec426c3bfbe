"""Remote agents in Django's admin: staff add and change them, and ask if one is there."""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, path, reverse
from django.views.decorators.http import require_POST

from approvals.admin import Recorded
from hitlagents.models import RemoteAgent
from hitlagents.remote import sealing
from hitlagents.remote.changes import changing_remotes
from hitlagents.remote.forms import RemoteAgentForm


@admin.register(RemoteAgent)
class RemoteAgentAdmin(Recorded):
    """Every change is an audit entry, with the names of headers and never their values."""

    changing = staticmethod(changing_remotes)
    form = RemoteAgentForm
    change_form_template = "admin/hitlagents/remoteagent/change_form.html"
    list_display = ("name", "slug", "host", "profile", "enabled", "check_passed")
    list_filter = ("enabled", "profile")
    search_fields = ("name", "slug", "url")
    readonly_fields = ("stored_headers", "heard", "protocol_version", "health")
    fieldsets = (
        (None, {"fields": ("name", "slug", "description", "enabled")}),
        ("Where it is", {"fields": ("url", "allow_private")}),
        ("Headers", {"fields": ("stored_headers", "new_headers", "remove_headers")}),
        ("How it is answered", {"fields": ("profile", "together", "may_repost")}),
        (
            "Limits",
            {
                "fields": (
                    ("connect_seconds", "idle_seconds", "total_seconds"),
                    ("max_event_bytes", "max_run_bytes"),
                )
            },
        ),
        (
            "What is known of it",
            {
                "fields": ("heard", "protocol_version", "health"),
                "description": "The check is a GET: it starts no run and no tool.",
            },
        ),
    )

    def get_fieldsets(
        self, request: HttpRequest, obj: RemoteAgent | None = None
    ) -> Any:
        if obj is not None:
            return self.fieldsets
        # Nothing is stored or known of one that is only being added.
        return [
            (title, {"fields": ("new_headers",)} if title == "Headers" else options)
            for title, options in self.fieldsets
            if "health" not in options["fields"]
        ]

    def get_readonly_fields(
        self, request: HttpRequest, obj: RemoteAgent | None = None
    ) -> tuple[str, ...]:
        # Policies, conversations and runs know it by this name.
        return (*self.readonly_fields, "slug") if obj else self.readonly_fields

    @admin.display(description="stored headers")
    def stored_headers(self, agent: RemoteAgent) -> str:
        try:
            return ", ".join(sorted(agent.headers)) or "None"
        except sealing.Unreadable as error:
            return str(error)

    @admin.display(description="health")
    def health(self, agent: RemoteAgent) -> str:
        if agent.checked is None:
            return "Not checked yet."
        return f"{agent.check_result} ({agent.checked:%Y-%m-%d %H:%M:%S} UTC)"

    # Health

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(require_POST(self.check_view))
        own = path("<int:pk>/check/", view, name="hitlagents_remoteagent_check")
        return [own, *super().get_urls()]

    def check_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Ask the agent whether it is there, and show what it said on its page."""
        agent = self.get_object(request, str(pk))
        if agent is None:
            raise Http404
        if not self.has_change_permission(request, agent):
            raise PermissionDenied
        # Here, because a web process needs no HTTP client until somebody presses this.
        from hitlagents.remote import health

        found = health.check(agent)
        level = messages.SUCCESS if found.passed else messages.WARNING
        self.message_user(request, found.words, level=level)
        return HttpResponseRedirect(
            reverse("admin:hitlagents_remoteagent_change", args=[pk])
        )
