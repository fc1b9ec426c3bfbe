"""Questions and the time picker in a browser: in the chat, in the inbox, on a phone."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser.looks import PHONE, assert_accessible, assert_inside, picture

pytestmark = pytest.mark.once

LOS_ANGELES = {"timezone_id": "America/Los_Angeles"}


def ask(page: Page, text: str) -> None:
    page.goto("/agents/scheduler/")
    page.fill("#message", text)
    page.get_by_role("button", name="Send", exact=True).click()
    page.wait_for_url(re.compile(r"/agents/scheduler/[0-9a-f-]{36}/"))


def drawn(page: Page) -> str:
    """The first proposed time as the element draws it, once its script is there: not its
    text for browsers without scripts."""
    draws = "one => one.shadowRoot?.textContent ?? ''"
    for _ in range(100):
        if text := page.locator(".slot relative-time").first.evaluate(draws):
            return str(text)
        page.wait_for_timeout(100)
    raise AssertionError("The times were never drawn.")


def test_m10_the_person_in_the_chat_picks_a_time_of_their_own_zone(sign_in):
    member = sign_in("member", **LOS_ANGELES)
    ask(member, "Please book an intro call with the sales team to discuss pricing.")
    card = member.locator(".icard-open")
    expect(card.get_by_role("heading")).to_have_text(
        "Pick a time: Intro call to discuss pricing"
    )
    expect(card.locator("legend")).to_contain_text("America/Los_Angeles")
    # Ten o'clock in UTC, the zone of the house, told like every time of the site.
    assert re.fullmatch(r"\w{3} \d\d \w{3}, 0[23]:00", drawn(member))
    assert_accessible(member)
    expect(card.get_by_label("Date and time")).to_be_hidden()
    card.get_by_label("Another time").check()
    card.get_by_label("Date and time").fill("2099-12-24T10:00")
    # What happens around it meanwhile leaves what was filled in as it is.
    member.fill("#message", "and then?")
    member.get_by_role("button", name="Send", exact=True).click()
    expect(member.locator(".is-queued")).to_be_visible()
    expect(card.get_by_label("Another time")).to_be_checked()
    picture(member, "asking-chat")
    card.get_by_role("button", name="Send the answer").click()
    expect(member.locator("#transcript")).to_contain_text(
        "with sales team suits you on Thu 24 Dec 2099, 10:00 PST."
    )
    expect(member.locator(".icard-done")).to_contain_text("Answered")


def test_nothing_picked_is_told_and_none_of_these_is_an_answer(sign_in):
    phone = sign_in("member", viewport=PHONE, color_scheme="dark")
    ask(phone, "Please book a call with Ann")
    card = phone.locator(".icard-open")
    card.get_by_role("button", name="Send the answer").click()
    expect(card.locator(".form-error")).to_have_text("Pick a time.")
    assert_inside(phone, ".icard", ".slot", ".slot-other", ".icard [name=note]")
    assert_accessible(phone)
    picture(phone, "asking-phone")
    card.get_by_label("Another time").check()
    card.get_by_role("button", name="Send the answer").click()
    expect(card.locator(".form-error")).to_have_text("Enter a date and a time.")
    expect(card.get_by_label("Another time")).to_be_checked()
    card.get_by_label("None of these work").check()
    card.get_by_role("button", name="Send the answer").click()
    expect(phone.locator("#transcript")).to_contain_text("None of the times suits you")


def test_m8_a_reviewer_picks_the_time_by_keyboard(sign_in):
    member, reviewer = sign_in("member"), sign_in("support-reviewer", **LOS_ANGELES)
    ask(member, "Schedule a 1:1 with Alice")
    expect(member.locator(".icard-open")).to_contain_text("Waiting for Support review")
    assert member.locator(".icard-open [type=radio]").count() == 0
    reviewer.goto("/inbox/")
    reviewer.locator(".row-i:not(.is-done) .row-link").first.click()
    expect(reviewer.locator("#answer legend")).to_contain_text("America/Los_Angeles")
    assert_accessible(reviewer)
    picture(reviewer, "asking-inbox")
    # Six times are proposed.
    reviewer.keyboard.press("7")
    expect(reviewer.get_by_label("Another time")).to_be_checked()
    reviewer.keyboard.press("2")
    expect(reviewer.locator("#answer [type=radio]").nth(1)).to_be_checked()
    reviewer.keyboard.press("a")
    expect(reviewer.locator(".toast-x")).to_contain_text("Approved")
    expect(member.locator("#transcript")).to_contain_text(
        re.compile(r"Booked “1:1” with Alice, \w{3} \d\d \w{3} \d{4}, 06:30 P.T")
    )


def test_it_works_without_javascript(sign_in):
    member = sign_in("member", java_script_enabled=False, **LOS_ANGELES)
    ask(member, "Please book a call with Bob")
    for _ in range(50):
        if member.locator(".icard-open").count():
            break
        member.wait_for_timeout(200)
        member.reload()
    address = member.url
    expect(member.locator(".slot").first).to_contain_text(re.compile("10:00 UTC"))
    member.locator(".slot input").first.check()
    member.get_by_role("button", name="Send the answer").click()
    assert member.url == address.partition("#")[0]
    for _ in range(50):
        if "with Bob suits you on" in member.inner_text("#transcript"):
            break
        member.wait_for_timeout(200)
        member.reload()
    assert re.search(
        r"with Bob suits you on .*, 10:00 UTC\.", member.inner_text("#transcript")
    )
