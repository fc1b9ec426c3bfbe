"""The form of a remote agent. Headers can be put in, and never read again."""

from __future__ import annotations

import re
from typing import Any

from django import forms
from django.contrib.admin.widgets import AdminBigIntegerFieldWidget
from django.core.exceptions import ValidationError

from hitlagents import catalog
from hitlagents.models import RemoteAgent
from hitlagents.remote import addresses

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
#: Headers that are the client's own.
_OURS = frozenset(
    {
        "accept",
        "accept-encoding",
        "connection",
        "content-length",
        "content-type",
        "host",
        "transfer-encoding",
    }
)


class RemoteAgentForm(forms.ModelForm[RemoteAgent]):
    new_headers = forms.CharField(
        label="Headers",
        required=False,
        max_length=20_000,
        widget=forms.Textarea(attrs={"rows": 4, "autocomplete": "off"}),
        help_text="One “Name: value” in a line, such as “Authorization: Bearer …”. They "
        "are encrypted and never shown again. Empty: those that are stored stay; anything "
        "else replaces all of them.",
    )
    remove_headers = forms.BooleanField(label="Remove all headers", required=False)

    class Meta:
        model = RemoteAgent
        fields = (
            "slug",
            "name",
            "description",
            "url",
            "profile",
            "together",
            "connect_seconds",
            "idle_seconds",
            "total_seconds",
            "max_event_bytes",
            "max_run_bytes",
            "may_repost",
            "allow_private",
            "enabled",
        )
        widgets = {
            "url": forms.URLInput(attrs={"class": "vURLField"}),
            # Numbers of seven digits and more do not fit into the usual ones.
            "max_event_bytes": AdminBigIntegerFieldWidget,
            "max_run_bytes": AdminBigIntegerFieldWidget,
        }

    def clean_slug(self) -> str:
        slug: str = self.cleaned_data["slug"]
        if slug in {spec.slug for spec in catalog.hosted()}:
            raise ValidationError(f"An agent that is hosted here is named {slug}.")
        return slug

    def clean_new_headers(self) -> dict[str, str]:
        headers: dict[str, str] = {}
        for line in self.cleaned_data["new_headers"].splitlines():
            if not line.strip():
                continue
            name, colon, value = line.partition(":")
            name, value = name.strip(), value.strip()
            if not colon or not _NAME.fullmatch(name) or not value:
                # The line itself may be a secret that somebody pasted alone.
                raise ValidationError("Every line must be “Name: value”.")
            if not value.isascii() or not value.isprintable():
                raise ValidationError(f"The value of {name} must be plain ASCII text.")
            if name.lower() in _OURS:
                raise ValidationError(f"{name} is set by Sayso and cannot be given.")
            if name.lower() in {other.lower() for other in headers}:
                raise ValidationError(f"{name} is given twice.")
            headers[name] = value
        return headers

    def clean(self) -> dict[str, Any]:
        data = super().clean() or {}
        try:
            addresses.parsed(
                data.get("url", ""), allow_private=data.get("allow_private", False)
            )
        except addresses.Refused as error:
            self.add_error("url", str(error))
        if data.get("new_headers") and data.get("remove_headers"):
            self.add_error("remove_headers", "Either remove headers or enter new ones.")
        return data

    def save(self, commit: bool = True) -> RemoteAgent:  # noqa: FBT001, FBT002
        data = self.cleaned_data
        if data["new_headers"] or data["remove_headers"]:
            self.instance.headers = data["new_headers"]
        return super().save(commit)
