"""How a page looks: what may be wrong with it, and a picture of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

OUT = Path(__file__).parent / "out"
PHONE = {"width": 390, "height": 844}
#: The narrowest page that must not scroll sideways (WCAG 1.4.10).
REFLOW = {"width": 320, "height": 640}


def picture(page: Page, name: str) -> None:
    OUT.mkdir(exist_ok=True)
    page.screenshot(path=OUT / f"{name}.png")


def in_each_scheme(page: Page) -> Iterator[str]:
    """Show the page in light and in dark colours, as the system asks for them."""
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        page.locator(f"html[data-bs-theme={scheme}]").wait_for()
        yield scheme


def assert_accessible(page: Page) -> None:
    # Without an account of all that is right, which takes as long again.
    found = Axe().run(page, options={"resultTypes": ["violations"]})
    assert [
        (one["id"], [node["html"][:120] for node in one["nodes"]])
        for one in found.response["violations"]
    ] == []


def assert_inside(page: Page, *selectors: str) -> None:
    """These can be seen whole, across: a page that hides what sticks out hides it from
    its own scroll width too."""
    size = page.viewport_size
    assert size is not None
    for selector in selectors:
        box = page.locator(selector).last.bounding_box()
        assert box is not None, selector
        assert box["width"] > 30, selector
        assert box["x"] >= 0, selector
        assert box["x"] + box["width"] <= size["width"], selector
