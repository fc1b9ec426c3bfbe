"""The Inspector, the raw events and what agents did, in a browser."""

from __future__ import annotations

import json
import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser.looks import (
    PHONE,
    REFLOW,
    assert_accessible,
    in_each_scheme,
    picture,
)

pytestmark = pytest.mark.once


def ask(page: Page, agent: str, text: str) -> str:
    """Let an agent ask for something; gives the path of the conversation."""
    page.goto(f"/agents/{agent}/")
    page.fill("#message", text)
    page.keyboard.press("Control+Enter")
    expect(page.locator(".icard-open").first).to_be_visible()
    return re.sub("^https?://[^/]+|#.*$", "", page.url)


def test_m13_a_worker_reads_the_tools_for_the_page_that_asked(sign_in):
    member = sign_in("member")
    member.goto("/agents/")
    member.locator("section", has_text="Customer support").get_by_role(
        "link", name="Inspector"
    ).click()
    member.wait_for_url("**/agents/support/inspector/")
    expect(member.locator("#inspector")).to_contain_text("not known yet")
    member.evaluate("window.unreloaded = true")
    member.get_by_role("button", name="Let a worker read them").click()
    refund = member.locator(".tool-x", has_text="refund_invoice")
    expect(refund).to_contain_text("A call waits for Finance reviewers.")
    expect(refund).not_to_contain_text("Rule:")
    assert member.evaluate("window.unreloaded")
    finance = sign_in("finance-reviewer")
    finance.goto("/agents/support/inspector/")
    expect(finance.locator(".tool-x", has_text="refund_invoice")).to_contain_text(
        "Rule: Refunds"
    )
    expect(finance.locator(".tool-x", has_text="send_email")).not_to_contain_text(
        "Rule:"
    )


def test_a_schema_is_copied_as_json(sign_in):
    member = sign_in("member")
    member.context.grant_permissions(["clipboard-read", "clipboard-write"])
    ask(member, "file-ops", "Please delete report.txt")
    member.goto("/agents/file-ops/inspector/")
    tool = member.locator(".tool-x", has_text="delete_file")
    tool.locator("summary").click()
    tool.get_by_role("button", name="Copy").click()
    expect(member.locator("#announcer")).to_have_text("Copied.")
    schema = json.loads(member.evaluate("navigator.clipboard.readText()"))
    assert schema["required"] == ["filename"]


def test_the_outbox_fills_while_it_is_open(sign_in):
    member, reviewer = sign_in("member"), sign_in("finance-reviewer")
    ask(member, "support", "Look up ticket 8812 and refund invoice 1042")
    member.get_by_role("link", name="Outbox").click()
    expect(member.locator("#data")).to_contain_text("Nothing has been sent.")
    expect(member.locator("[data-conn]:visible")).to_contain_text("Live")
    reviewer.goto("/inbox/")
    reviewer.locator(".row-i:not(.is-done) .row-link").first.click()
    reviewer.click("#decide button[value=approve]")
    reviewer.click("dialog[open] [name=confirmed]")
    expect(member.locator(".mail-x")).to_contain_text("Refund of invoice 1042")


def test_all_of_it_without_javascript(sign_in):
    path = ask(sign_in("member"), "file-ops", "Read notes.md and delete report.txt")
    plain = sign_in("member", java_script_enabled=False)
    plain.goto(path)
    plain.get_by_role("link", name="Files").click()
    expect(plain.locator("#data")).to_contain_text("not looked at its files yet")
    plain.goto(path)
    plain.get_by_role("link", name="its events").click()
    plain.get_by_role("link", name="TOOL_CALL_ARGS").click()
    expect(plain.locator(".json-x").first).to_contain_text("notes.md")
    with plain.expect_download() as download:
        plain.get_by_role("link", name="Download").click()
    lines = download.value.path().read_text(encoding="utf-8").splitlines()
    assert json.loads(lines[0])["event"]["type"] == "RUN_STARTED"
    plain.goto("/agents/scheduler/inspector/")
    plain.get_by_role("button", name="Let a worker read them").click()
    for _ in range(60):
        if plain.locator(".tool-x").count():
            break
        plain.wait_for_timeout(500)
        plain.reload()
    expect(plain.locator(".tool-x").first).to_be_visible()


@pytest.mark.parametrize("viewport", [{"width": 1366, "height": 820}, PHONE, REFLOW])
def test_every_page_is_accessible(sign_in, viewport):
    admin = sign_in("admin", viewport=viewport)
    files = ask(admin, "file-ops", "Read notes.md and delete report.txt")
    run = admin.locator("#run-about a[href^='/runs/']").first.get_attribute("href")
    pages = {
        "agents": "/agents/",
        "chat": files,
        "inspector": "/agents/file-ops/inspector/",
        "events": f"{run}events/",
        "files": f"{files}data/?file=notes.md",
        "outbox": ask(admin, "support", "Refund invoice 1042") + "data/",
        "calendar": ask(admin, "scheduler", "Schedule a 1:1 with Alice") + "data/",
    }
    for name, address in pages.items():
        admin.goto(address)
        expect(admin.locator("main")).to_be_visible()
        admin.evaluate(
            "document.querySelectorAll('details').forEach(d => d.open = true)"
        )
        for scheme in in_each_scheme(admin):
            assert_accessible(admin)
            width = admin.evaluate("document.documentElement.scrollWidth")
            assert width <= viewport["width"], name
            picture(admin, f"agents-{name}-{viewport['width']}-{scheme}")
