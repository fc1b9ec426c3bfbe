"""Rules for what a page may contain: the content security policy has no exceptions."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TEMPLATES = [
    *sorted((ROOT / "templates").rglob("*.html")),
    *sorted((ROOT / "agents").rglob("templates/**/*.html")),
]

FORBIDDEN = {
    "an inline style": re.compile(r"""\sstyle\s*=|<style\b""", re.IGNORECASE),
    "an inline event handler": re.compile(r"""\son[a-z]+\s*=\s*["']""", re.IGNORECASE),
    "an hx-on attribute": re.compile(r"\shx-on\b"),
    "a trigger filter": re.compile(r"""hx-trigger="[^"]*\["""),
    "a script in a value": re.compile(r"""(?:javascript|js):""", re.IGNORECASE),
    "an outside address": re.compile(r"""(?:src|href)="https?://""", re.IGNORECASE),
}


@pytest.mark.parametrize("what", FORBIDDEN)
@pytest.mark.parametrize("template", TEMPLATES, ids=lambda path: path.name)
def test_no_template_needs_a_laxer_policy(template, what):
    assert not FORBIDDEN[what].search(template.read_text(encoding="utf-8"))


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda path: path.name)
def test_scripts_are_files(template):
    for script in re.findall(r"<script\b[^>]*>", template.read_text(encoding="utf-8")):
        assert " src=" in script


@pytest.mark.parametrize(
    ("what", "planted"),
    [
        ("an inline style", '<p style="color: red">'),
        ("an inline style", "<style>p {}</style>"),
        ("an inline event handler", '<a onclick="go()">'),
        ("an hx-on attribute", '<a hx-on:click="go()">'),
        ("a trigger filter", '<a hx-trigger="keyup[key==1]">'),
        ("a script in a value", """<a hx-vals='js:{"a": 1}'>"""),
        ("an outside address", '<script src="https://example.org/a.js">'),
    ],
)
def test_a_planted_violation_is_found(what, planted):
    assert FORBIDDEN[what].search(planted)


OWN_FORM = re.compile(r"%[HMSdbY]\b|\|(?:date|time)\b")


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda path: path.name)
def test_times_are_told_by_the_tags(template):
    """One place says how: ``approvals.wording``."""
    assert not OWN_FORM.search(template.read_text(encoding="utf-8"))


def test_a_planted_time_is_found():
    assert OWN_FORM.search('{% clock run.created "%H:%M" %}')
    assert OWN_FORM.search('{{ run.created|date:"Y" }}')
