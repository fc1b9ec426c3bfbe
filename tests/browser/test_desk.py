"""The inbox in a browser: what arrives, deciding, losing a race, the keyboard, the phone."""

from __future__ import annotations

import re
from contextlib import suppress

import pytest
from playwright.sync_api import Error, Page, Route, expect

from hitlagents.demo.people import DEMO_PASSWORD
from tests.browser.conftest import FIRST_RUN, PATIENCE
from tests.browser.looks import (
    PHONE,
    REFLOW,
    assert_accessible,
    in_each_scheme,
    picture,
)

pytestmark = pytest.mark.once

FOCUS = """(e => e.id || e.name || e.className)(document.activeElement)"""
TOPS = """[...document.querySelectorAll('.row-i')].map(
    row => [row.id, row.getBoundingClientRect().top])"""


def ask(page: Page, text: str) -> None:
    """Let an agent ask for something, in a conversation of its own."""
    page.goto("/agents/file-ops/")
    page.fill("#message", text)
    page.keyboard.press("Control+Enter")
    expect(page.locator(".icard-open").first).to_be_visible()


def rows(page: Page, title: str):
    return page.locator(".row-i:not(.is-done) .row-link", has_text=title)


def leave_field(page: Page) -> None:
    page.evaluate("document.activeElement.blur()")


def clear(page: Page) -> None:
    """Deny whatever is open."""
    page.goto("/inbox/")
    while page.locator(".row-i:not(.is-done)").count():
        page.locator(".row-i:not(.is-done) .row-link").first.click()
        page.fill("#decide [data-note]", "Clearing up.")
        page.click("#decide button[value=deny]")
        page.wait_for_timeout(300)
        page.goto("/inbox/")


@pytest.fixture
def member(sign_in):
    return sign_in("member")


@pytest.fixture
def reviewer(sign_in):
    page = sign_in("ops-reviewer")
    clear(page)
    return page


def test_arrivals_are_counted_and_pulled_in_when_asked_for(member, reviewer):
    ask(member, "Please delete report.txt")
    reviewer.goto("/inbox/")
    expect(reviewer.locator("[data-conn]:visible")).to_contain_text("Live")
    rows(reviewer, "report.txt").click()
    reviewer.fill("#decide [data-note]", "Still reading")
    before = reviewer.evaluate(TOPS)
    ask(member, "Please delete notes.md")
    expect(reviewer.locator("#arrivals")).to_contain_text("1 new")
    expect(reviewer).to_have_title(re.compile(r"^\(1\) "))
    expect(reviewer.locator("#announcer")).to_have_text(
        "1 new request waits. 1 of high risk."
    )
    assert reviewer.evaluate(TOPS) == before
    assert reviewer.evaluate("document.activeElement.value") == "Still reading"

    leave_field(reviewer)
    reviewer.keyboard.press("n")
    expect(rows(reviewer, "notes.md")).to_be_visible()
    expect(reviewer.locator("#arrivals")).to_have_text("")
    expect(reviewer.locator("#count")).to_have_text("2 pending")
    assert reviewer.input_value("#decide [data-note]") == "Still reading"
    expect(reviewer).not_to_have_title(re.compile(r"^\("))


def test_a_pause_holds_the_page_still(member, reviewer):
    reviewer.goto("/inbox/?q=nothing-yet")
    reviewer.click("[data-pause]")
    expect(reviewer.locator("[data-pause]")).to_have_attribute("aria-pressed", "true")
    ask(member, "Please delete report.txt")
    reviewer.wait_for_timeout(1500)
    expect(reviewer.locator("#count")).to_have_text("0 pending")
    reviewer.click("[data-pause]")
    expect(reviewer.locator("#count")).to_have_text("1 pending")


def test_an_empty_inbox_fills_by_itself(member, reviewer):
    expect(reviewer.locator(".row-i:not(.is-done)")).to_have_count(0)
    ask(member, "Please delete report.txt")
    expect(rows(reviewer, "report.txt")).to_be_visible()
    expect(reviewer.locator("#detail-title")).to_have_text(re.compile("1 request"))
    ask(member, "Please delete notes.md")
    expect(reviewer.locator("#arrivals")).to_contain_text("1 new")
    expect(reviewer.locator("#detail-title")).to_have_text(re.compile("2 requests"))


def test_everything_by_keyboard(member, reviewer):
    for name in ("report.txt", "notes.md"):
        ask(member, f"Please delete {name}")
    reviewer.goto("/inbox/")
    reviewer.wait_for_load_state("networkidle")
    reviewer.keyboard.press("j")
    reviewer.keyboard.press("o")
    expect(reviewer.locator("#detail-title")).to_have_text(re.compile("report.txt"))
    reviewer.keyboard.press("o")
    assert reviewer.evaluate(FOCUS) == "detail-title"

    # Denying wants a note: the field gets the focus and says why.
    reviewer.keyboard.press("d")
    expect(reviewer.locator(".form-error")).to_contain_text("Say why.")
    assert reviewer.evaluate(FOCUS).startswith("note-")
    reviewer.keyboard.type("The audit needs it")
    leave_field(reviewer)
    reviewer.keyboard.press("d")

    # The next one is open, its row has the focus, and what happened is said.
    expect(reviewer.locator("#toast")).to_contain_text("Denied “Delete report.txt”")
    expect(reviewer.locator("#detail-title")).to_have_text(re.compile("notes.md"))
    assert reviewer.evaluate(
        "document.activeElement.matches('.row-link[aria-current]')"
    )
    assert reviewer.locator("[aria-current=true].row-link").count() == 1

    # High risk asks once more, and the harmless button has the focus.
    reviewer.keyboard.press("a")
    dialog = reviewer.locator("dialog[open]")
    expect(dialog).to_contain_text("Delete notes.md?")
    assert reviewer.evaluate("document.activeElement.textContent.trim()") == "Go back"
    reviewer.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    reviewer.keyboard.press("a")
    reviewer.keyboard.press("Tab")
    reviewer.keyboard.press("Enter")
    expect(reviewer.locator("#detail-title")).to_have_text("Nothing is waiting for you")
    expect(reviewer.locator(".row-i.is-done").first).to_be_visible()


def test_shortcuts_can_be_switched_off(member, reviewer):
    ask(member, "Please delete report.txt")
    reviewer.goto("/inbox/")
    # Pressed as soon as the scripts are there.
    reviewer.wait_for_load_state("networkidle")
    reviewer.keyboard.press("?")
    reviewer.locator("#use-keys").uncheck()
    reviewer.keyboard.press("Escape")
    reviewer.keyboard.press("j")
    assert not reviewer.evaluate("document.activeElement.matches('.row-link')")


def test_the_slower_one_is_told_and_keeps_the_note(member, reviewer, sign_in):
    """B90: a press on an old page is judged by the server."""
    ask(member, "Please delete report.txt")
    admin = sign_in("admin")
    for page in (reviewer, admin):
        page.goto("/inbox/")
        rows(page, "report.txt").click()
        expect(page.locator("#decide")).to_be_visible()
    # So that the page of the slower one is still the old one.
    admin.click("[data-pause]")
    admin.fill("#decide [data-note]", "Asked on the phone")
    reviewer.fill("#decide [data-note]", "The audit needs it")
    reviewer.click("#decide button[value=deny]")
    expect(reviewer.locator("#toast")).to_contain_text("Denied")

    admin.click("#decide button[value=approve]")
    admin.click("dialog[open] [name=confirmed]")
    alert = admin.get_by_role("alert")
    expect(alert).to_contain_text("Your approval was not sent.")
    expect(alert).to_contain_text("ops-reviewer denied this")
    expect(alert).to_contain_text("The audit needs it")
    assert admin.evaluate(FOCUS) == "conflict"
    expect(admin.locator("#kept-text")).to_have_text("Asked on the phone")
    assert_accessible(admin)


def test_a_note_being_typed_outlives_the_decision_of_another(member, reviewer, sign_in):
    """B94: who decided is shown, and no controls any more."""
    ask(member, "Please delete report.txt and notes.md")
    admin = sign_in("admin")
    for page in (reviewer, admin):
        page.goto("/inbox/")
        rows(page, "report.txt").click()
        expect(page.locator("#decide")).to_be_visible()
    admin.fill("#decide [data-note]", "Half a thought")
    reviewer.fill("#decide [data-note]", "no")
    reviewer.click("#decide button[value=deny]")
    expect(admin.locator("#detail")).to_contain_text("ops-reviewer denied this.")
    expect(admin.locator("#kept-text")).to_have_text("Half a thought")
    expect(admin.locator("#decide")).to_have_count(0)
    # What follows from the decision draws the request again.
    expect(admin.locator("#detail")).to_contain_text("Waits for 1 other request")
    reviewer.goto("/inbox/")
    rows(reviewer, "notes.md").click()
    reviewer.fill("#decide [data-note]", "no")
    reviewer.click("#decide button[value=deny]")
    expect(admin.locator("#detail")).to_contain_text("Delivered.")
    expect(admin.locator("#kept-text")).to_have_text("Half a thought")
    expect(admin.locator("#kept-text")).to_be_visible()


def test_arguments_are_edited_and_the_tool_runs_with_them(member, reviewer):
    ask(member, "Please delete report.txt")
    reviewer.goto("/inbox/")
    rows(reviewer, "report.txt").click()
    reviewer.fill("#decide [data-note]", "The other one")
    leave_field(reviewer)
    reviewer.keyboard.press("e")
    field = reviewer.locator("[name=argument-filename]")
    expect(field).to_be_focused()
    field.fill("notes.md")
    assert reviewer.input_value("#decide [data-note]") == "The other one"
    reviewer.click("#decide button[value=approve]")
    reviewer.click("dialog[open] [name=confirmed]")
    expect(reviewer.locator("#toast")).to_contain_text("Approved “Delete notes.md”")
    expect(member.locator(".icard-done")).to_contain_text("Delete notes.md")
    expect(member.locator(".icard-done")).to_contain_text("“The other one”")
    reviewer.go_back()
    expect(reviewer.locator(".diff ins").first).to_have_text("notes")
    expect(reviewer.locator("#detail-title")).to_contain_text("Delete notes.md")
    expect(reviewer.locator("#detail s")).to_have_text("Delete report.txt")
    picture(reviewer, "edited-inbox")
    picture(member, "edited-chat")


def test_a_watcher_reads_and_is_told_who_decides(member, reviewer, sign_in):
    ask(member, "Please delete report.txt")
    watcher = sign_in("watcher")
    watcher.goto("/inbox/")
    rows(watcher, "report.txt").click()
    expect(watcher.locator("#decide")).to_have_text(
        re.compile("You can read this. Ops reviewers can decide.")
    )


def test_all_of_it_without_javascript(member, reviewer, sign_in):
    ask(member, "Please delete report.txt")
    plain = sign_in("admin", java_script_enabled=False)
    plain.goto("/inbox/")
    rows(plain, "report.txt").click()
    plain.click("#decide button[value=deny]")
    expect(plain.locator(".form-error")).to_contain_text("Say why.")
    plain.click("#decide button[value=approve]")
    plain.click("dialog [name=confirmed]")
    expect(plain.locator(".toast-x")).to_contain_text("Approved “Delete report.txt”")


@pytest.mark.parametrize("script", [True, False], ids=["script", "plain"])
def test_m3_cancelling_a_call_asks_once_more(member, sign_in, script):
    member.goto("/agents/scheduler/")
    member.fill("#message", "Please schedule a 1:1 with Alice")
    member.keyboard.press("Control+Enter")
    expect(member.locator(".icard-open").first).to_be_visible(timeout=FIRST_RUN)
    person = sign_in("support-reviewer", java_script_enabled=script)
    person.goto("/inbox/")
    rows(person, "Alice").first.click()
    if script:
        person.fill("#decide [data-note]", "On holiday")
        person.click("[popovertarget=more]")
        person.get_by_role("link", name="Cancel this call").click()
        person.click("dialog:modal [data-close]")
        expect(person.locator(".d-top .st")).to_have_text("Pending")
        person.click("[popovertarget=more]")
        person.get_by_role("link", name="Cancel this call").click()
        expect(person.locator("#cancel-call [data-close]")).to_be_focused()
    else:
        person.goto(f"{person.url.partition('?')[0]}?cancel")
        person.fill("#decide [data-note]", "On holiday")
        expect(person.locator("#cancel-call a")).to_have_text("Go back")
    person.click("#cancel-call [name=confirmed]")
    told = "#toast" if script else ".toast-x"
    expect(person.locator(told)).to_contain_text(
        "Cancelled “Schedule “1:1” with Alice”"
    )
    expect(member.locator(".icard-done")).to_contain_text("“On holiday”")


@pytest.mark.parametrize("size", [None, PHONE, REFLOW], ids=["desk", "phone", "narrow"])
def test_every_page_is_accessible_and_fits(member, reviewer, sign_in, size):
    ask(member, "Please delete report.txt")
    admin = sign_in("admin", **({"viewport": size} if size else {}))
    admin.goto("/inbox/")
    request = admin.locator(".row-i:not(.is-done) .row-link").first.get_attribute(
        "href"
    )
    assert request is not None
    admin.goto("/runs/")
    run = admin.locator(".line-x a.whole").first.get_attribute("href")
    pages = {
        "inbox": "/inbox/",
        "request": request,
        "edit": f"{request}?edit=1",
        "empty": "/inbox/?q=nothing-like-this",
        "runs": "/runs/",
        "run": run,
        "cancel": f"{run}cancel/",
        "audit": "/audit/?verify=1",
        "entry": "/audit/1/",
        "tokens": "/tokens/",
    }
    for name, address in pages.items():
        admin.goto(address)
        expect(admin.locator("main")).to_be_visible()
        for scheme in in_each_scheme(admin):
            assert_accessible(admin)
            width = admin.evaluate("document.documentElement.scrollWidth")
            assert width <= admin.viewport_size["width"], name
            picture(admin, f"desk-{name}-{admin.viewport_size['width']}-{scheme}")


def test_a_new_token_is_shown_once_and_a_reload_makes_no_other(sign_in):
    phone = sign_in("member", viewport=PHONE)
    phone.goto("/tokens/")
    phone.fill("[name=name]", "My page")
    phone.get_by_role("button", name="Create token").click()
    expect(phone.locator("#secret")).to_be_focused()
    for scheme in in_each_scheme(phone):
        assert_accessible(phone)
        picture(phone, f"desk-token-{scheme}")
    phone.reload()
    expect(phone.locator("#secret")).to_have_count(0)
    expect(phone.get_by_role("cell", name="My page", exact=True)).to_have_count(1)


def test_what_is_hidden_stands_among_what_is_edited(member, reviewer):
    member.goto("/agents/writer/")
    member.fill("#message", "Write “go with token=abcdef12345 now” to status.md")
    member.keyboard.press("Control+Enter")
    expect(member.locator(".icard-open").first).to_be_visible(timeout=FIRST_RUN)
    open_request(reviewer, "status.md")
    reviewer.keyboard.press("e")
    hidden = reviewer.locator("#what .hidden-x")
    expect(hidden).to_have_text("go with token=⟦hidden, 11 characters⟧ now")
    for scheme in in_each_scheme(reviewer):
        assert_accessible(reviewer)
        picture(reviewer, f"desk-hidden-{scheme}")


def test_a_phone_has_the_list_and_the_request_as_pages(member, reviewer, sign_in):
    ask(member, "Please delete report.txt")
    phone = sign_in("ops-reviewer", viewport=PHONE, has_touch=True)
    phone.goto("/inbox/")
    expect(phone.locator("#detail")).to_be_hidden()
    rows(phone, "report.txt").click()
    phone.wait_for_url(re.compile("/inbox/[0-9a-f-]{36}/"))
    expect(phone.locator("#list")).to_be_hidden()
    expect(phone.locator("#place")).to_contain_text("1 of 1")
    phone.fill("#decide [data-note]", "no")
    phone.click("#decide button[value=deny]")
    expect(phone.locator("#detail-title")).to_have_text("Nothing is waiting for you")


def test_a_session_that_ended_takes_nothing_away(member, reviewer):
    ask(member, "Please delete report.txt")
    reviewer.goto("/inbox/")
    word = reviewer.locator("[data-conn]:visible")
    expect(word).to_contain_text("Live")
    rows(reviewer, "report.txt").click()
    reviewer.fill("#decide [data-note]", "What I think")
    reviewer.context.clear_cookies(name="sayso_session")
    reviewer.click("#decide button[value=deny]")
    expect(reviewer.locator("#problem")).to_contain_text("You are signed out")
    assert reviewer.input_value("#decide [data-note]") == "What I think"
    # What the page fetches by itself moves nobody either.
    reviewer.evaluate(
        "document.querySelector('[data-live]').dispatchEvent(new CustomEvent('live'))"
    )
    reviewer.wait_for_timeout(1000)
    assert "/inbox/" in reviewer.url
    # Who wants to go somewhere is asked to sign in, and then gets there.
    reviewer.locator(".row-link").last.click()
    reviewer.wait_for_url(re.compile("/accounts/login/"))
    assert "next=%2Finbox%2F" in reviewer.url


def test_a_page_that_is_too_old_keeps_what_was_typed(member, reviewer, complaints):
    ask(member, "Please delete report.txt")
    reviewer.goto("/inbox/")
    rows(reviewer, "report.txt").click()
    reviewer.fill("#decide [data-note]", "What I think")
    reviewer.context.clear_cookies(name="sayso_csrf")
    reviewer.click("#decide button[value=deny]")
    expect(reviewer.locator("#problem")).to_contain_text("too old to send from")
    assert reviewer.input_value("#decide [data-note]") == "What I think"
    assert complaints[0].endswith("403 (Forbidden)")
    complaints.clear()


# What happens at the same time


class Held:
    """Requests of a page that are not answered until the test lets them."""

    def __init__(self, page: Page, address: str | re.Pattern[str]) -> None:
        self.page = page
        self.waiting: list[Route] = []
        page.route(address, lambda route: self.waiting.append(route))

    def until(self, count: int) -> None:
        for _ in range(PATIENCE // 50):
            if len(self.waiting) >= count:
                return
            self.page.wait_for_timeout(50)
        pytest.fail(f"only {len(self.waiting)} of {count} requests came")

    def release(self) -> None:
        """Let all go on; what the page has given up meanwhile is no matter."""
        while self.waiting:
            with suppress(Error):
                self.waiting.pop(0).continue_()


def open_request(page: Page, name: str) -> None:
    page.goto("/inbox/")
    expect(page.locator("[data-conn]:visible")).to_contain_text("Live")
    rows(page, name).click()
    expect(page.locator("#detail-title")).to_have_text(re.compile(name))


def test_b04_while_one_decision_is_sent_no_other_can_be(member, reviewer):
    ask(member, "Please delete report.txt")
    open_request(reviewer, "report.txt")
    reviewer.fill("#decide [data-note]", "Both at once")
    held = Held(reviewer, re.compile("/decide/"))
    reviewer.locator("#decide [name=verdict][value=approve]").focus()
    reviewer.keyboard.press("Enter")
    reviewer.keyboard.press("Tab")
    reviewer.keyboard.press("Enter")
    held.until(1)
    buttons = reviewer.locator("#decide button, button[form=decide]")
    assert buttons.count() == 6
    for button in buttons.all():
        expect(button).to_be_disabled()
    reviewer.locator("#decide button[value=deny]").dispatch_event("click")
    leave_field(reviewer)
    reviewer.keyboard.press("d")
    reviewer.wait_for_timeout(500)
    assert len(held.waiting) == 1
    held.release()
    expect(reviewer.locator("#toast")).to_contain_text("Approved")
    expect(reviewer.get_by_role("alert")).to_have_count(0)
    expect(member.locator(".call")).to_contain_text("Ran")


def test_b17_deciding_one_request_leaves_the_other_of_its_run_usable(member, reviewer):
    ask(member, "Please delete report.txt and notes.md")
    open_request(reviewer, "report.txt")
    reviewer.evaluate("window.unreloaded = true")
    reviewer.fill("#decide [data-note]", "no")
    reviewer.click("#decide button[value=deny]")
    expect(reviewer.locator("#detail-title")).to_have_text(re.compile("notes.md"))
    expect(rows(reviewer, "notes.md")).to_have_count(1)
    expect(rows(reviewer, "report.txt")).to_have_count(0)
    expect(reviewer.locator("[data-count=inbox]").first).to_contain_text("1")
    expect(reviewer.locator("#count")).to_have_text("1 pending")
    reviewer.fill("#decide [data-note]", "no")
    reviewer.click("#decide button[value=deny]")
    expect(reviewer.locator("#count")).to_have_text("0 pending")
    assert reviewer.evaluate("window.unreloaded")


def test_b98_the_last_choice_stays_whichever_answer_is_slower(member, reviewer):
    """Filters are plain links, so their order is the browser's own affair."""
    ask(member, "Please delete report.txt and notes.md")
    reviewer.goto("/inbox/")
    first = rows(reviewer, "report.txt").get_attribute("href")
    held = Held(reviewer, re.compile(f"{first}$"))
    rows(reviewer, "report.txt").click()
    held.until(1)
    rows(reviewer, "notes.md").click()
    expect(reviewer.locator("#detail-title")).to_have_text(re.compile("notes.md"))
    held.release()
    reviewer.wait_for_timeout(1000)
    expect(reviewer.locator("#detail-title")).to_have_text(re.compile("notes.md"))
    expect(rows(reviewer, "notes.md")).to_have_attribute("aria-current", "true")


def test_b170_a_late_answer_revives_no_decided_request(member, reviewer):
    ask(member, "Please delete report.txt and notes.md")
    open_request(reviewer, "report.txt")
    late = Held(reviewer, re.compile("/inbox/updates/"))
    reviewer.evaluate(
        "document.querySelector('[data-live]').dispatchEvent(new CustomEvent('live'))"
    )
    late.until(1)
    # One that the connection asked for may be among them.
    old = late.waiting[-1]
    answer = old.fetch()
    reviewer.fill("#decide [data-note]", "no")
    reviewer.click("#decide button[value=deny]")
    expect(reviewer.locator("#toast")).to_contain_text("Denied")
    with suppress(Error):
        old.fulfill(response=answer)
    late.waiting.remove(old)
    late.release()
    reviewer.unroute_all()
    reviewer.wait_for_timeout(1000)
    expect(rows(reviewer, "report.txt")).to_have_count(0)
    expect(reviewer.locator("#count")).to_have_text("1 pending")


def test_b122_a_failure_of_the_server_is_told_beside_what_was_open(
    member, reviewer, complaints
):
    ask(member, "Please delete report.txt and notes.md")
    open_request(reviewer, "report.txt")
    whole = "<!doctype html><html><body><h1>A whole page</h1></body></html>"
    reviewer.route(
        re.compile("/inbox/.+"), lambda route: route.fulfill(status=500, body=whole)
    )
    rows(reviewer, "notes.md").click()
    expect(reviewer.locator("#problem")).not_to_be_empty()
    reviewer.fill("#decide [data-note]", "What I think")
    reviewer.click("#decide button[value=deny]")
    expect(reviewer.locator("#problem")).to_contain_text("Not sent")
    expect(reviewer.get_by_text("A whole page")).to_have_count(0)
    assert reviewer.input_value("#decide [data-note]") == "What I think"
    reviewer.unroute_all()
    reviewer.click("#decide button[value=deny]")
    expect(reviewer.locator("#toast")).to_contain_text("Denied")
    expect(reviewer.locator("#problem")).to_be_empty()
    assert all("500" in each for each in complaints)
    complaints.clear()


# Away and back


def listed(page: Page) -> list[str]:
    """The rows with their states, as somebody reads them."""
    return page.evaluate(
        """[...document.querySelectorAll('.row-i')].map((row) =>
           row.id + ' ' + row.querySelector('[name=row]').value.split('.')[1])"""
    )


def test_b87_after_a_lost_connection_the_list_is_that_of_a_fresh_page(
    member, reviewer, sign_in
):
    ask(member, "Please delete report.txt")
    up, lines = [True], []

    def line(socket):
        if up[0]:
            socket.connect_to_server()
            lines.append(socket)
        else:
            socket.close()

    reviewer.route_web_socket(re.compile("/ws/"), line)
    reviewer.goto("/inbox/")
    word = reviewer.locator("[data-conn]:visible")
    expect(word).to_contain_text("Live")
    reviewer.evaluate("window.unreloaded = true")
    up[0] = False
    for each in lines:
        each.close()
    expect(word).not_to_contain_text("Live")
    ask(member, "Please delete notes.md and customers.csv")
    admin = sign_in("admin")
    open_request(admin, "report.txt")
    admin.fill("#decide [data-note]", "no")
    admin.click("#decide button[value=deny]")
    expect(admin.locator("#toast")).to_contain_text("Denied")
    up[0] = True
    expect(word).to_contain_text("Live", timeout=40_000)
    expect(reviewer.locator("#count")).to_have_text("2 pending")
    expect(rows(reviewer, "report.txt")).to_have_count(0)
    # What came while something was still open is only counted until it is asked for.
    reviewer.keyboard.press("n")
    expect(rows(reviewer, "notes.md")).to_be_visible()
    fresh = sign_in("ops-reviewer")
    fresh.goto("/inbox/")
    assert sorted(listed(reviewer)) == sorted(listed(fresh))
    assert reviewer.inner_text("#count") == fresh.inner_text("#count") == "2 pending"
    assert reviewer.evaluate("window.unreloaded")


def expire(served, name: str) -> None:
    """As if its deadline had passed; nobody is told."""
    served.manage(
        "shell",
        "-v0",
        "-c",
        "from django.utils import timezone; from approvals.models import Interrupt;"
        f"Interrupt.objects.filter(status='open', title__contains='{name}')"
        ".update(expires_at=timezone.now())",
    )


def test_b68_what_expired_while_one_was_offline_stays_expired(served, member, reviewer):
    ask(member, "Please delete report.txt")
    open_request(reviewer, "report.txt")
    reviewer.click("[data-pause]")  # So that the page of before is still there.
    reviewer.fill("#decide [data-note]", "Too late")
    reviewer.context.set_offline(True)
    expire(served, "report.txt")
    reviewer.context.set_offline(False)
    reviewer.click("#decide button[value=deny]")
    alert = reviewer.get_by_role("alert")
    expect(alert).to_contain_text("xpired")
    expect(alert).to_contain_text("Your denial was not sent.")
    expect(reviewer.locator("#decide")).to_have_count(0)
    expect(rows(reviewer, "report.txt")).to_have_count(0)
    reviewer.goto("/inbox/")
    expect(rows(reviewer, "report.txt")).to_have_count(0)
    expect(reviewer.locator("#count")).to_have_text("0 pending")
    member.reload()
    expect(member.locator(".icard-done")).to_contain_text("Expired")
    expect(member.locator(".call")).to_contain_text("Not run")


def test_b126_coming_back_from_another_site_shows_what_is_now(
    member, reviewer, sign_in
):
    ask(member, "Please delete report.txt and notes.md")
    open_request(reviewer, "report.txt")
    reviewer.goto("about:blank")
    admin = sign_in("admin")
    open_request(admin, "report.txt")
    admin.fill("#decide [data-note]", "no")
    admin.click("#decide button[value=deny]")
    expect(admin.locator("#toast")).to_contain_text("Denied")
    reviewer.go_back()
    expect(reviewer.locator("[data-conn]:visible")).to_contain_text("Live")
    expect(reviewer.locator("#detail")).to_contain_text("admin denied this.")
    expect(reviewer.locator("#decide")).to_have_count(0)
    expect(rows(reviewer, "report.txt")).to_have_count(0)
    rows(reviewer, "notes.md").click()
    reviewer.fill("#decide [data-note]", "no")
    reviewer.click("#decide button[value=deny]")
    expect(reviewer.locator("#count")).to_have_text("0 pending")


def test_b115_a_page_of_an_earlier_sign_in_says_so_and_decides_nothing(
    member, reviewer, complaints
):
    ask(member, "Please delete report.txt")
    open_request(reviewer, "report.txt")
    reviewer.fill("#decide [data-note]", "What I think")
    other = reviewer.context.new_page()
    other.goto("/inbox/")
    other.evaluate("document.querySelector('form[action$=\"/logout/\"]').submit()")
    other.wait_for_url(re.compile("/accounts/login/"))
    other.fill("[name=username]", "ops-reviewer")
    other.fill("[name=password]", DEMO_PASSWORD)
    other.get_by_role("button", name="Sign in", exact=True).click()
    other.wait_for_url(re.compile("/inbox/"))
    reviewer.click("#decide button[value=deny]")
    problem = reviewer.locator("#problem")
    expect(problem).to_contain_text("too old to send from")
    assert reviewer.input_value("#decide [data-note]") == "What I think"
    expect(rows(other, "report.txt")).to_be_visible()
    problem.get_by_role("link", name="Load it again").click()
    expect(problem).to_be_empty()
    reviewer.fill("#decide [data-note]", "What I think")
    reviewer.click("#decide button[value=deny]")
    expect(reviewer.locator("#toast")).to_contain_text("Denied")
    assert complaints[0].endswith("403 (Forbidden)")
    complaints.clear()


# What arrives


def test_b123_a_long_note_outlives_everything_that_arrives(member, reviewer, sign_in):
    ask(member, "Please delete report.txt and notes.md")
    open_request(reviewer, "report.txt")
    note = reviewer.locator("#decide [data-note]")
    half = "Half of a longer thought, with “quotes” and 🗂. ".ljust(100, "x")
    note.fill(half)
    names = ", ".join(f"file-{n}.txt" for n in range(1, 11))
    ask(member, f"Please delete {names}")
    admin = sign_in("admin")
    open_request(admin, "notes.md")
    admin.fill("#decide [data-note]", "no")
    admin.click("#decide button[value=deny]")
    expect(reviewer.locator("#arrivals")).to_contain_text("10 new")
    expect(rows(reviewer, "notes.md")).to_have_count(0)
    assert note.evaluate("(f) => [f === document.activeElement, f.selectionStart]") == [
        True,
        note.evaluate("(f) => f.value.length"),
    ]
    reviewer.keyboard.type("y" * 100)
    typed = half + "y" * 100
    assert note.input_value() == typed
    reviewer.click("#decide button[value=deny]")
    expect(reviewer.locator("#toast")).to_contain_text("Denied")
    rows_done = reviewer.locator(".row-i.is-done .row-link", has_text="report.txt")
    rows_done.first.click()
    expect(reviewer.locator("#detail")).to_contain_text(typed)


def test_b131_a_filtered_list_fills_with_what_matches(member, reviewer):
    reviewer.goto("/inbox/?q=report")
    expect(reviewer.locator("[data-conn]:visible")).to_contain_text("Live")
    reviewer.evaluate("window.unreloaded = true")
    ask(member, "Please delete notes.md")
    expect(reviewer.locator("#count")).to_have_text("1 pending")
    expect(reviewer.locator(".row-i:not(.is-done)")).to_have_count(0)
    ask(member, "Please delete report.txt")
    expect(rows(reviewer, "report.txt")).to_be_visible()
    expect(rows(reviewer, "notes.md")).to_have_count(0)
    assert reviewer.evaluate("window.unreloaded")
