"""What templates need to draw a request: thin wrappers over `approvals.display`."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING

from django import template
from django.forms import BoundField
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import get_language
from django.utils.translation import gettext as _
from lucide.templatetags.lucide import lucide

from approvals import display, wording
from approvals.hiding import Hiding

if TYPE_CHECKING:
    from django.contrib.auth.models import User

register = template.Library()

register.filter("visible", display.visible)
register.filter("plain", display.plain)
register.filter("markdown", display.markdown)
register.filter("humanise", wording.humanise)
register.filter("approve_label", wording.approve_label)
register.filter("risk_word", wording.risk_word)
register.filter("risk_notice", wording.risk_notice)
register.filter("state_of", wording.state_of)
register.filter("state_word", wording.state_word)
register.filter("json_text", display.json_text)
register.filter("duration", wording.duration)
register.filter("arguments_of", display.arguments_of)


@lru_cache(maxsize=256)
def _icon(name: str, classes: str) -> SafeString:
    svg = lucide(
        name, size=16, **{"class": f"i {classes}".strip(), "aria-hidden": "true"}
    )
    return mark_safe(svg.replace("\n", "").replace("  ", ""))  # noqa: S308  our own drawing


@register.simple_tag
def icon(name: str, classes: str = "") -> SafeString:
    """A Lucide icon, silent for screen readers: a word always stands beside it."""
    return _icon(name, classes)


@register.simple_tag
def state_badge(status: str, word: str = "") -> SafeString:
    """Icon and word, never colour alone."""
    state = wording.state_of(status)
    return format_html(
        '<span class="st st-{}">{}{}</span>',
        state,
        _icon(wording.icon_of(status), ""),
        word or wording.state_word(status),
    )


@register.simple_tag
def state_icon(status: str) -> SafeString:
    return _icon(wording.icon_of(status), "")


@register.simple_tag
def avatar(name: object, classes: str = "") -> SafeString:
    text = str(name)
    return format_html(
        '<span class="avatar av-{} {}" aria-hidden="true">{}</span>',
        wording.avatar_colour(text),
        classes,
        wording.initials(text),
    )


@register.simple_tag
def ago(then: datetime | None, words: str = "") -> SafeString:
    """A time that keeps telling its age; a plain clock time without JavaScript."""
    if then is None:
        return SafeString("")
    return format_html(
        '<relative-time datetime="{}" threshold="P30D" title="{}">{}</relative-time>',
        then.isoformat(),
        wording.exact_time(then),
        words or wording.time_of(then),
    )


@register.simple_tag
def clock(then: datetime | None, to: wording.Precision = "minute") -> SafeString:
    """A time of day in the zone of the site, with its day where that is not today."""
    return SafeString("") if then is None else _time(then, wording.time_of(then, to))


@register.simple_tag
def day(then: datetime) -> SafeString:
    return _time(then, f"{timezone.localtime(then):%d %b %Y}")


@register.simple_tag
def full_moment(then: datetime) -> SafeString:
    """A moment with weekday, year and zone."""
    return _time(then, wording.moment(then))


@register.simple_tag
def age(then: datetime) -> SafeString:
    """The short age at the end of a row."""
    return _time(then, wording.age(then, timezone.now()))


def _time(then: datetime, words: str) -> SafeString:
    return format_html(
        '<time datetime="{}" title="{}">{}</time>',
        then.isoformat(),
        wording.exact_time(then),
        words,
    )


@register.simple_tag
def moment(then: datetime) -> SafeString:
    """A moment with its weekday in the zone of the browser; without JavaScript, in that of
    the site, which is named."""
    # Plain English is told by browsers as in America: not like the times of all pages.
    language = get_language()
    return format_html(
        '<relative-time datetime="{}" lang="{}" format="datetime" weekday="short" '
        'day="2-digit" month="short" hour="2-digit" minute="2-digit" hour-cycle="h23" '
        "no-title>{}</relative-time>",
        then.isoformat(),
        "en-GB" if language == "en" else language,
        wording.moment(then),
    )


@register.filter
def form_attribute(owner: str) -> SafeString:
    """Names the form of a field that stands elsewhere on the page. A field inside its form
    has none: while one card takes the place of another, both forms have the same id, and
    the radio buttons of both would be one group, of which only one can be checked."""
    return format_html(' form="{}"', owner) if owner else SafeString("")


@register.simple_tag
def field_of(field: BoundField, owner: str) -> SafeString:
    """A field of a form, wherever on the page the form itself is (``form_attribute``)."""
    return field.as_widget(attrs={"form": owner} if owner else {})


@register.simple_tag
def countdown(until: datetime) -> SafeString:
    """ "12 min left", counted down in the browser."""
    return format_html(
        '<bdi><relative-time datetime="{}" format="duration" format-style="short" '
        'precision="minute" no-title>{}</relative-time> {}</bdi>',
        until.isoformat(),
        wording.duration(max(until - timezone.now(), timedelta())),
        _("left"),
    )


@register.filter
def shown_text(text: str) -> SafeString:
    """A result as it is, its end behind a click where it is long."""
    shown = display.show(text)
    if shown.rest is None:
        return shown.html
    return format_html(
        "{}<details><summary>{}</summary>{}</details>",
        shown.html,
        _("Show all (%s)") % shown.size_words,
        shown.rest,
    )


@register.filter
def called(agent: str, names: Mapping[str, str]) -> str:
    """An agent as people know it. ``names``: ``agent_names``, which every page has."""
    return names[agent]


@register.filter
def person(user: User | None) -> str:
    return wording.person(user)


@register.simple_tag
def time_left(until: datetime) -> str:
    return wording.time_left(until, timezone.now())


@register.inclusion_tag("approvals/arguments.html")
def argument_list(
    text: str, tool: str = "", tool_kind: str = "", hiding: Hiding | None = None
) -> dict[str, object]:
    """The typed list of what a call will run with."""
    arguments = display.arguments_of(text, hiding=hiding)
    return {
        "tool": tool,
        "tool_kind": tool_kind,
        "arguments": arguments,
        "hidden": any(argument.hidden for argument in arguments),
        "warnings": [
            warning for argument in arguments for warning in argument.warnings
        ],
    }
