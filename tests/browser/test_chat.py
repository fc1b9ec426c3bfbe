"""Talking to the agent file-ops in a browser, while somebody else decides in another."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from tests.browser.looks import (
    assert_accessible,
    assert_inside,
    in_each_scheme,
    picture,
)
from tests.served import Served

pytestmark = pytest.mark.once


def begin(page, text):
    """Begin a conversation, and mark the page so that a reload would show."""
    page.goto("/agents/file-ops/")
    page.fill("#message", text)
    page.keyboard.press("Control+Enter")
    page.wait_for_url(re.compile(r"/agents/file-ops/[0-9a-f-]{36}/"))
    page.evaluate("window.unreloaded = true")


def say(page, text):
    page.fill("#message", text)
    page.keyboard.press("Control+Enter")


def decide(page, verdict, note=""):
    """In the inbox: open the newest request and decide it."""
    page.goto("/inbox/")
    page.locator(".row-i:not(.is-done) .row-link").last.click()
    page.fill("#decide [data-note]", note)
    page.click(f"#decide button[value={verdict}]")
    if verdict == "approve":
        page.click("dialog[open] [name=confirmed]")


def workspace_files(served, page):
    """The files the agent works on; its folder is made at the first use."""
    thread = page.url.split("/")[-2]
    return {path.name for path in (served.data / "workspaces" / thread).glob("*")}


def test_a_deletion_waits_is_approved_elsewhere_and_happens(served, sign_in):
    member, reviewer = sign_in("member"), sign_in("ops-reviewer")
    begin(member, "list the files")
    expect(member.locator("#run-state")).to_contain_text("Finished")
    say(member, "Please delete report.txt")
    card = member.locator(".icard-open")
    expect(card).to_contain_text("report.txt")
    expect(card).to_contain_text("Waiting for Ops reviewers")
    expect(card.get_by_role("button")).to_have_count(0)
    expect(member.locator("#run-state")).to_contain_text("Waiting for a person")
    assert "report.txt" in workspace_files(served, member)
    picture(member, "chat-waiting")

    member.fill("#message", "Also, which files are")
    member.evaluate("document.querySelector('#message').setSelectionRange(4, 4)")
    decide(reviewer, "approve")

    done = member.locator(".icard-done")
    expect(done).to_contain_text("Approved")
    expect(done).to_contain_text("ops-reviewer")
    expect(member.locator(".icard-done + .call")).to_contain_text("Ran")
    expect(member.locator("#transcript")).to_contain_text("Deleted report.txt.")
    expect(member.locator("#run-state")).to_contain_text("Finished")
    assert "report.txt" not in workspace_files(served, member)
    # All of it without a reload, and without touching what is being typed.
    assert member.evaluate("window.unreloaded")
    assert member.input_value("#message") == "Also, which files are"
    assert member.evaluate(
        "[document.activeElement.id, document.activeElement.selectionStart]"
    ) == ["message", 4]
    picture(member, "chat-done")


def test_a_denial_reaches_the_agent_and_is_never_shown_as_run(served, sign_in):
    member, reviewer = sign_in("member"), sign_in("ops-reviewer")
    begin(member, "Please delete notes.md")
    expect(member.locator(".icard-open")).to_be_visible()
    decide(reviewer, "deny", "The audit needs it")
    expect(member.locator(".icard-done")).to_contain_text("Denied")
    expect(member.locator(".call")).to_contain_text("Not run")
    expect(member.locator(".msg").last).to_contain_text("The audit needs it")
    member.locator(".call summary").click()
    expect(member.locator(".call")).to_contain_text("The agent was told")
    picture(member, "chat-denied")


def test_a_message_while_it_waits_is_kept_and_answered_afterwards(sign_in):
    """B140: words that sound like an approval are none."""
    member, reviewer = sign_in("member"), sign_in("ops-reviewer")
    begin(member, "Please delete customers.csv")
    expect(member.locator(".icard-open")).to_be_visible()
    expect(member.locator("#hint")).to_contain_text("The run is paused.")
    first_run = member.get_attribute("#entries", "data-run")
    say(member, "Yes, go ahead. Which files are there?")
    queued = member.locator(".is-queued")
    expect(queued).to_contain_text("Waits until the run above has ended")
    expect(member.locator(".icard-open")).to_be_visible()
    assert member.input_value("#message") == ""
    assert member.evaluate("document.activeElement.id") == "message"
    picture(member, "chat-queued")

    decide(reviewer, "approve")
    expect(member.locator("#transcript")).to_contain_text("The workspace holds 3 files")
    expect(queued).to_have_count(0)
    assert member.evaluate("window.unreloaded")
    # The socket has moved on to the run that the waiting message started.
    second_run = member.get_attribute("#entries", "data-run")
    assert second_run != first_run
    expect(member.locator("#live")).to_have_attribute(
        "hx-ws:connect", f"/ws/runs/{second_run}/"
    )
    expect(member.locator("[data-conn]:visible")).to_contain_text("Live")
    say(member, "Read notes.md")
    expect(member.locator("#transcript")).to_contain_text("retention period")


def test_a_reload_shows_what_was_written_live(sign_in):
    member, reviewer = sign_in("member"), sign_in("ops-reviewer")
    begin(member, "Read notes.md and customers.csv and delete report.txt")
    expect(member.locator(".icard-open")).to_be_visible()
    decide(reviewer, "approve")
    expect(member.locator(".msg").last).to_contain_text("Birch GmbH")
    expect(member.locator("#run-state")).to_contain_text("Finished")
    expect(member.locator(".tail")).to_have_count(0)
    again = member.context.new_page()
    again.goto(member.url)
    stored = again.inner_text("#entries")
    expect(member.locator("#entries")).to_have_text(stored, use_inner_text=True)


def hear(page, *deltas):
    """Live text as the socket would bring it, in one go."""
    page.evaluate(
        """(deltas) => deltas.forEach((detail) => document.dispatchEvent(
             new CustomEvent('sayso:delta', {detail})))""",
        list(deltas),
    )


def ping(page):
    """Something has happened: wait until the page has asked, and drawn the answer."""
    page.evaluate(
        """() => {
          const mark = document.documentElement
          mark.removeAttribute('data-drawn')
          document.addEventListener('htmx:after:swap', () => { mark.dataset.drawn = '' })
          document.dispatchEvent(new CustomEvent('sayso:live'))
        }"""
    )
    expect(page.locator("html")).to_have_attribute("data-drawn", "")


def test_live_text_goes_on_only_where_nothing_is_missing(sign_in):
    member = sign_in("member")
    begin(member, "Please delete report.txt")
    expect(member.locator(".icard-open")).to_be_visible()
    data = member.evaluate("({...document.querySelector('#entries').dataset})")
    at = {"id": data["run"], "attempt": int(data["attempt"]), "message": "new"}
    # What happened on the way here has been asked for by then.
    member.wait_for_load_state("networkidle")
    asked: list[str] = []
    member.on("request", lambda request: asked.append(request.url))
    texts = member.locator(".tail")

    hear(
        member,
        {**at, "text": "One <b>", "size": 7},
        {**at, "text": "two", "size": 10},
    )
    expect(texts).to_have_text("One <b>two")
    # Heard twice, overlapping, or of another run.
    hear(
        member,
        {**at, "text": "two", "size": 10},
        {**at, "text": "two, three", "size": 17},
        {**at, "id": "00000000-0000-4000-8000-000000000000", "text": "x", "size": 18},
        {**at, "attempt": 0, "text": "x", "size": 18},
    )
    expect(texts).to_have_text("One <b>two, three")
    assert asked == []
    # Something is missing: the page asks, and shows what is stored.
    here = member.url.split("#")[0]
    with member.expect_response(lambda response: response.url == here):
        hear(member, {**at, "text": " five", "size": 40})
    expect(texts).to_have_count(0)
    expect(member.locator(".icard-open")).to_be_visible()


def test_what_was_not_sent_is_told_until_it_can_be(sign_in, complaints):
    member = sign_in("member")
    begin(member, "hello")
    expect(member.locator("#run-state")).to_contain_text("Finished")
    expect(member.locator("[data-conn]:visible")).to_contain_text("Live")
    problem = member.locator("#problem")
    member.context.set_offline(True)
    say(member, "list the files")
    expect(problem).to_contain_text("Not sent.")
    picture(member, "chat-not-sent")
    member.context.set_offline(False)
    expect(problem).to_contain_text("The connection is back")
    expect(problem).not_to_contain_text("Not sent.")
    assert member.input_value("#message") == "list the files"
    for scheme in in_each_scheme(member):
        assert_accessible(member)
        picture(member, f"chat-sendable-{scheme}")
    member.focus("#message")
    member.keyboard.press("Control+Enter")
    expect(member.locator("#transcript")).to_contain_text("The workspace holds")
    expect(problem).to_be_empty()
    assert all("ERR_INTERNET" in each or "fetch" in each for each in complaints)
    complaints.clear()


def test_a_refused_message_stays_in_its_field(sign_in):
    member = sign_in("member")
    begin(member, "hello")
    say(member, "   ")
    expect(member.locator("#refusal")).to_contain_text("Write something first.")
    long = "x" * 100_001
    say(member, long)
    expect(member.locator("#refusal")).to_contain_text("100,001 characters")
    assert member.input_value("#message") == long
    assert_inside(member, "#message", "#composer [aria-label=Send]", "#refusal .note")
    picture(member, "chat-refused")
    say(member, "list the files")
    expect(member.locator("#refusal .note")).to_have_count(0)
    expect(member.locator("#transcript")).to_contain_text("The workspace holds")


def test_a_message_is_sent_once_however_often_send_is_pressed(sign_in):
    member = sign_in("member")
    member.goto("/agents/file-ops/")
    member.fill("#message", "hello")
    member.locator("#composer [aria-label=Send]").dblclick()
    member.wait_for_url(re.compile(r"/agents/file-ops/[0-9a-f-]{36}/"))
    member.fill("#message", "list the files")
    member.locator("#composer [aria-label=Send]").dblclick()
    expect(member.locator("#transcript")).to_contain_text("The workspace holds")
    expect(member.locator(".msg-me")).to_have_count(2)
    expect(member.locator(".talk[aria-current]")).to_have_count(1)


def test_enter_sends_and_shift_enter_begins_a_line(sign_in):
    member = sign_in("member")
    member.goto("/agents/file-ops/")
    field = member.locator("#message")

    field.press("Enter")
    expect(field).to_have_value("")
    field.type("Please delete")
    field.press("Shift+Enter")
    field.type("one.txt")
    expect(field).to_have_value("Please delete\none.txt")
    # An input method takes Enter for itself.
    field.dispatch_event("keydown", {"key": "Enter", "isComposing": True})
    expect(member).to_have_url(re.compile(r"/agents/file-ops/$"))
    field.press("Enter")

    member.wait_for_url(re.compile(r"/agents/file-ops/[0-9a-f-]{36}/"))
    expect(member.locator("#entries")).to_contain_text("delete one.txt")
    # A page that is closed while it connects says so on the console.
    expect(member.locator("[data-conn]:visible")).to_contain_text("Live")


def test_cancel_asks_first(sign_in):
    member = sign_in("member")
    begin(member, "Please delete report.txt")
    expect(member.locator(".icard-open")).to_be_visible()
    member.click("#run-state >> text=Cancel run")
    dialog = member.locator("#cancel-run")
    expect(dialog.get_by_role("button", name="Go back")).to_be_focused()
    picture(member, "chat-cancel")
    dialog.get_by_role("button", name="Go back").click()
    expect(member.locator(".icard-open")).to_be_visible()
    member.click("#run-state >> text=Cancel run")
    dialog.get_by_label("Note").fill("Wrong file")
    dialog.get_by_role("button", name="Cancel the run").click()
    expect(member.locator("#run-state")).to_contain_text("Cancelled")
    expect(member.locator("#transcript")).to_contain_text("member cancelled this run.")
    expect(member.locator("#transcript")).to_contain_text("Wrong file")
    expect(member.locator(".call")).to_contain_text("Not run")
    expect(dialog).to_be_hidden()
    assert member.evaluate("window.unreloaded")


@pytest.fixture
def own_requests(served):
    """Those who ask may decide, where they are reviewers."""
    code = "from approvals.models import Policy; Policy.objects.update(requester_may_decide={})"
    served.manage("shell", "-v0", "-c", code.format(True))
    yield
    served.manage("shell", "-v0", "-c", code.format(False))


def test_a_reviewer_decides_in_the_conversation(sign_in, own_requests):
    reviewer = sign_in("ops-reviewer")
    begin(reviewer, "Please delete report.txt and notes.md")
    cards = reviewer.locator(".icard-open")
    expect(cards).to_have_count(2)
    picture(reviewer, "chat-two-cards")
    assert_accessible(reviewer)

    # A note that is being typed stays through arrivals, caret and all.
    note = cards.nth(1).locator("[data-note]")
    note.fill("Keep the notes")
    note.evaluate("(field) => field.setSelectionRange(4, 4)")
    ping(reviewer)
    assert note.input_value() == "Keep the notes"
    assert note.evaluate("(f) => [f === document.activeElement, f.selectionStart]") == [
        True,
        4,
    ]

    # Refused: the reason stays, through arrivals too.
    first = cards.nth(0)
    first.get_by_role("button", name="Deny").click()
    expect(first.locator("[role=alert]")).to_be_visible()
    ping(reviewer)
    expect(first.locator("[role=alert]")).to_be_visible()

    first.get_by_role("button", name="Approve and delete file").click()
    reviewer.locator("dialog[open] [name=confirmed]").click()
    expect(reviewer.locator(".icard-done")).to_have_count(1)
    expect(reviewer.locator(".icard-done [role=alert]")).to_have_count(0)
    assert cards.locator("[data-note]").input_value() == "Keep the notes"
    cards.first.get_by_role("button", name="Deny").click()
    expect(reviewer.locator(".icard-done")).to_have_count(2)
    expect(reviewer.locator("#run-state")).to_contain_text("Finished")
    expect(reviewer.locator(".call", has_text="Ran")).to_have_count(1)
    expect(reviewer.locator(".call", has_text="Not run")).to_have_count(1)
    assert reviewer.evaluate("window.unreloaded")
    picture(reviewer, "chat-two-decided")


def test_a_note_is_kept_when_somebody_else_was_faster(sign_in, own_requests):
    reviewer, admin = sign_in("ops-reviewer"), sign_in("admin")
    begin(reviewer, "Please delete report.txt")
    reviewer.locator(".icard-open [data-note]").fill("Let me think")
    decide(admin, "deny", "No")
    done = reviewer.locator(".icard-done")
    expect(done).to_contain_text("admin")
    expect(done.locator("[role=alert]")).to_contain_text("Let me think")
    expect(reviewer.locator("#run-state")).to_contain_text("Finished")
    expect(done.locator("[role=alert]")).to_have_count(1)
    picture(reviewer, "chat-note-kept")


def test_b91_decided_requests_get_no_controls_again(sign_in, own_requests):
    reviewer = sign_in("ops-reviewer")
    begin(reviewer, "Please delete report.txt, notes.md and customers.csv")
    cards = reviewer.locator(".icard-open")
    expect(cards).to_have_count(3)
    for left in (2, 1):
        cards.first.locator("[data-note]").fill("Keep it")
        cards.first.get_by_role("button", name="Deny").click()
        expect(cards).to_have_count(left)
    for again in (lambda: ping(reviewer), reviewer.reload, reviewer.reload):
        again()
        expect(reviewer.locator("[data-conn]:visible")).to_contain_text("Live")
        expect(cards).to_have_count(1)
        done = reviewer.locator(".icard-done")
        expect(done).to_have_count(2)
        expect(done.get_by_role("button")).to_have_count(0)
        expect(done.first).to_contain_text("Denied")
        expect(cards.get_by_role("button", name="Deny")).to_be_enabled()


def test_b158_a_second_pause_shows_by_itself(sign_in):
    """The resumed run stops again: its next request appears without a reload."""
    member, reviewer = sign_in("member"), sign_in("ops-reviewer")
    begin(member, "Delete report.txt, then delete notes.md")
    expect(member.locator(".icard-open")).to_contain_text("report.txt")
    decide(reviewer, "approve")
    expect(member.locator(".icard-open")).to_contain_text("notes.md")
    expect(member.locator(".icard-done")).to_contain_text("report.txt")
    expect(member.locator(".call", has_text="Ran")).to_have_count(1)
    expect(member.locator("#hint")).to_contain_text("The run is paused.")
    assert member.evaluate("window.unreloaded")
    decide(reviewer, "deny", "Keep it")
    expect(member.locator("#run-state")).to_contain_text("Finished")
    expect(member.locator(".call", has_text="Ran")).to_have_count(1)


def test_the_end_stays_in_view_only_for_those_who_are_there(sign_in):
    member = sign_in("member", viewport={"width": 1366, "height": 500})
    begin(member, "list the files")
    for _ in range(3):
        expect(member.locator("#run-state")).to_contain_text("Finished")
        say(member, "Read notes.md and customers.csv")
        expect(member.locator("#run-state")).not_to_contain_text("Finished")
    expect(member.locator("#run-state")).to_contain_text("Finished")
    left = "(box) => box.scrollHeight - box.scrollTop - box.clientHeight"
    box = member.locator("#thread")
    for _ in range(100):
        if box.evaluate(left) < 5:
            break
        member.wait_for_timeout(100)
    assert box.evaluate(left) < 5
    expect(member.locator("#to-end")).to_be_hidden()
    box.evaluate("(box) => { box.scrollTop = 40; }")
    expect(member.locator("#to-end")).to_be_visible()
    ping(member)
    assert box.evaluate("(box) => box.scrollTop") == 40
    member.click("#to-end")
    assert box.evaluate(left) < 5


def test_a_failure_says_why_and_can_be_retried(sign_in, tmp_path):
    server = Served(tmp_path)
    server.start(SAYSO_MODEL="no-such-model")
    try:
        member = sign_in("member", base_url=server.url)
        member.goto("/agents/")
        expect(member.locator("[aria-labelledby=agent-file-ops]")).to_contain_text(
            "SAYSO_MODEL names a model"
        )
        begin(member, "hello")
        notice = member.locator(".notice")
        expect(notice).to_contain_text("The run failed. SAYSO_MODEL names a model")
        picture(member, "chat-failed")
        say(member, "list the files")
        expect(member.locator(".msg-me")).to_have_count(2)
        expect(member.locator(".notice")).to_have_count(2)
        before = member.get_attribute("#entries", "data-attempt")
        member.get_by_role("button", name="Retry").click()
        expect(member.locator("#entries")).not_to_have_attribute("data-attempt", before)
        expect(member.locator(".notice").last).to_contain_text("The run failed.")
        # Only the newest run can be retried.
        expect(member.get_by_role("button", name="Retry")).to_have_count(1)
        assert member.evaluate("window.unreloaded")
        member.close()
    finally:
        server.stop()


def test_it_works_without_javascript(sign_in):
    member = sign_in("member", java_script_enabled=False)
    reviewer = sign_in("ops-reviewer")
    member.goto("/agents/")
    member.get_by_role("link", name=re.compile("New conversation")).first.click()
    member.get_by_role("button", name="Please delete report.txt").click()

    def reload_until(words):
        for _ in range(50):
            if words in member.inner_text("#transcript"):
                return
            member.wait_for_timeout(200)
            member.reload()
        pytest.fail(f"never saw {words!r}")

    reload_until("Waiting for Ops reviewers")
    member.fill("#message", "list the files")
    member.click("#composer [aria-label=Send]")
    assert "Waits until the run above has ended" in member.inner_text("#transcript")
    member.fill("#message", "  ")
    member.click("#composer [aria-label=Send]")
    assert "Write something first." in member.inner_text("#refusal")
    decide(reviewer, "approve")
    reload_until("The workspace holds 3 files")
    picture(member, "chat-no-js")
    member.fill("#message", "delete notes.md")
    member.click("#composer [aria-label=Send]")
    reload_until("notes.md?")
    member.get_by_role("link", name="Cancel run…").click()
    member.get_by_role("button", name="Cancel the run").click()
    assert "member cancelled this run." in member.inner_text("#transcript")


@pytest.mark.parametrize("width", [1366, 1000, 390, 320])
def test_the_pages_fit_every_width_and_theme(sign_in, width):
    viewport = {"width": width, "height": 844 if width < 768 else 820}
    member = sign_in("member", viewport=viewport)
    begin(member, "Please read notes.md and delete report.txt")
    expect(member.locator(".icard-open")).to_be_visible()
    say(member, "Thank you")
    expect(member.locator(".is-queued")).to_be_visible()
    chat = member.url
    for name, address in (
        ("chat", chat),
        ("agents", "/agents/"),
        ("new", "/agents/file-ops/"),
    ):
        member.goto(address)
        member.wait_for_timeout(300)
        for scheme in in_each_scheme(member):
            picture(member, f"{name}-{width}-{scheme}")
            if name == "chat":
                assert_inside(
                    member, ".msg .txt", ".said", ".icard", ".call", "#message"
                )
            wide = "document.documentElement.scrollWidth - innerWidth"
            assert member.evaluate(wide) <= 0, name
            if width in {1366, 390}:
                assert_accessible(member)
