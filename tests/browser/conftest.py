"""Sayso as people meet it: `manage.py serve` in a process of its own, and Chromium.

Each test module gets one server on a fresh data folder in demo mode, and one browser. A
test signs people in; whatever their pages complain about on the console fails it, which
is also how every page is held to the content security policy.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import (
    Browser,
    ConsoleMessage,
    Page,
    expect,
    sync_playwright,
)

from hitlagents.demo.people import DEMO_PASSWORD
from tests.served import Served

#: How long anything may take to appear, in milliseconds.
PATIENCE = 20_000
#: And what comes of the first run of an agent: it imports a framework.
FIRST_RUN = 90_000
expect.set_options(timeout=PATIENCE)

#: The console repeats the status of refusals that pages answer in words, and tells that a
#: page was left before its live line stood.
EXPECTED = re.compile(
    r"Failed to load resource: .* status of 4(09|22)"
    r"|WebSocket connection to .* closed before the connection is established"
)
#: Whatever a page asks for, it stays on this machine.
NOBODY_ELSE = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Sayso in demo mode on an empty database."""
    server = Served(tmp_path_factory.mktemp("served"))
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def browser(chromium: str) -> Iterator[Browser]:
    # Ends with the module: while it is there its event loop runs in this thread, where
    # other tests want to run theirs.
    with sync_playwright() as playwright:
        yield playwright.chromium.launch(
            executable_path=chromium, args=["--no-sandbox", NOBODY_ELSE]
        )


@pytest.fixture
def complaints() -> Iterator[list[str]]:
    """What the consoles of all pages said; a test that expects something clears it."""
    found: list[str] = []
    yield found
    assert not found, "The console says:\n" + "\n".join(found)


@pytest.fixture
def open_window(
    browser: Browser, complaints: list[str]
) -> Iterator[Callable[..., Page]]:
    """Make a browser window of its own, whose console is heard."""
    contexts = []

    def hear(message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"} and not EXPECTED.match(message.text):
            complaints.append(f"{message.type}: {message.text}")

    def make(**options: Any) -> Page:
        settings: dict[str, Any] = {
            "viewport": {"width": 1366, "height": 820},
            "reduced_motion": "reduce",
            "locale": "en-GB",
            "timezone_id": "UTC",
        }
        context = browser.new_context(**(settings | options))
        contexts.append(context)
        context.set_default_timeout(PATIENCE)
        page = context.new_page()
        page.on("console", hear)
        page.on("pageerror", lambda error: complaints.append(f"raised: {error}"))
        return page

    yield make
    for context in contexts:
        context.close()


@pytest.fixture(scope="module")
def sessions() -> dict[tuple[str, str], Any]:
    """The cookies of who has signed in, by server and name."""
    return {}


@pytest.fixture
def sign_in(
    served: Served,
    open_window: Callable[..., Page],
    sessions: dict[tuple[str, str], Any],
) -> Callable[..., Page]:
    """Make a window of its own for a demo account: ``sign_in("member")``.

    A password is checked on purpose slowly, so a session that is still good is kept.
    """

    def enter(username: str, *, base_url: str = served.url, **options: Any) -> Page:
        page = open_window(base_url=base_url, **options)
        page.context.add_cookies(sessions.get((base_url, username), []))
        page.goto("/")
        if "/login/" in page.url:
            page.fill("[name=username]", username)
            page.fill("[name=password]", DEMO_PASSWORD)
            page.get_by_role("button", name="Sign in", exact=True).click()
            page.wait_for_url(lambda url: "/login/" not in url)
            sessions[base_url, username] = page.context.cookies()
        return page

    return enter
