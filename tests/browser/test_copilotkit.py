"""A real CopilotKit page, `examples/copilotkit/`, in front of a served desk.

Built as for production and served by its own `vite preview`: once as a page of another
origin with a token, and once, through Vite's proxy, as a page of the desk's own site with
a session. No Node server stands between the page and the desk.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import httpx
import pytest
from playwright.sync_api import Locator, Page, Request, expect

from bench.served import SELF_APPROVAL
from hitlagents.demo.people import DEMO_PASSWORD
from hitlsite.paths import BASE_DIR
from tests import npm
from tests.browser.conftest import FIRST_RUN
from tests.browser.looks import PHONE, assert_inside, picture
from tests.browser.test_chat import decide
from tests.served import STARTS_WITHIN, Served

pytestmark = pytest.mark.once

EXAMPLE = BASE_DIR / "examples" / "copilotkit"
HERE = "127.0.0.1"
WAYS = ("in-chat", "beside", "headless")


class Chat:
    """The example page in one window."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.requests = page.locator(".request:not(.is-held)")
        self.transcript = page.locator(".chat")
        self.state = page.locator(".state")

    def say(self, text: str) -> None:
        self.page.get_by_test_id("copilot-chat-textarea").fill(text)
        # Not by the key: CopilotKit drops what is sent before it is connected.
        self.page.get_by_test_id("copilot-send-button").click()

    def ask(self, text: str, requests: int = 1) -> None:
        """Say what makes the agent ask. Its first run imports a framework."""
        self.say(text)
        expect(self.requests).to_have_count(requests, timeout=FIRST_RUN)

    def press(self, name: str, within: Locator | None = None) -> None:
        place = within or self.page
        place.get_by_role("button", name=name, exact=True).click()

    def calls(self, tool: str) -> Locator:
        """How the calls of a tool are told, with their results."""
        return self.page.locator(f"details[data-tool={tool}] summary")


def answers(url: str) -> bool:
    try:
        return httpx.get(url).is_success
    except httpx.TransportError:
        return False


def free_port() -> int:
    with socket.socket() as found:
        found.bind((HERE, 0))
        port: int = found.getsockname()[1]
        return port


@pytest.fixture(scope="module")
def origin() -> str:
    """Where the page will be: the desk has to know before it starts."""
    return f"http://{HERE}:{free_port()}"


@pytest.fixture(scope="module")
def served(origin: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A demo in which those who may decide may also decide for themselves."""
    server = Served(tmp_path_factory.mktemp("served"))
    server.start(SAYSO_CORS_ORIGINS=origin)
    server.manage("shell", "--no-imports", "-c", SELF_APPROVAL)
    yield server
    server.stop()


@pytest.fixture(scope="session")
def built(node: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page, checked and built as `npm run build` does."""
    folder = tmp_path_factory.mktemp("copilotkit")
    npm.install(EXAMPLE)
    done = subprocess.run(
        ["npm", "run", "build", "--", "--outDir", str(folder), "--emptyOutDir"],
        cwd=EXAMPLE,
        env=os.environ | npm.QUIET,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def address(
    built: Path,
    node: str,
    origin: str,
    served: Served,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[str]:
    """Where the page is, with the desk around it."""
    vite = EXAMPLE / "node_modules" / "vite" / "bin" / "vite.js"
    port = str(urlsplit(origin).port)
    log = tmp_path_factory.mktemp("preview") / "log"
    with log.open("wb") as file:
        process = subprocess.Popen(
            [node, vite, "preview", "--outDir", built, "--port", port, "--strictPort"],
            cwd=EXAMPLE,
            env=os.environ | npm.QUIET | {"SAYSO_URL": served.url},
            stdout=file,
            stderr=subprocess.STDOUT,
        )
    found = f"{origin}/chat/"
    until = time.monotonic() + STARTS_WITHIN
    while not answers(found):
        assert process.poll() is None, log.read_text("utf-8")
        assert time.monotonic() < until, log.read_text("utf-8")
        time.sleep(0.1)
    yield found
    process.terminate()
    process.wait(30)


@pytest.fixture(scope="module")
def token_of(served: Served) -> Callable[[str], str]:
    @cache
    def make(username: str) -> str:
        return served.manage("create_token", username).splitlines()[-1]

    return make


@pytest.fixture
def open_page(
    open_window: Callable[..., Page], complaints: list[str]
) -> Callable[..., Page]:
    """A window that may ask nobody but this machine."""

    def hear(request: Request) -> None:
        parts = urlsplit(request.url)
        if parts.scheme not in {"blob", "data"} and parts.hostname != HERE:
            complaints.append(f"asked somebody else: {request.url}")

    def make(**options: object) -> Page:
        page = open_window(**options)
        page.context.on("request", hear)
        return page

    return make


@pytest.fixture
def open_chat(
    open_page: Callable[..., Page],
    address: str,
    served: Served,
    token_of: Callable[[str], str],
) -> Callable[..., Chat]:
    """The page of somebody who brings a token: ``open_chat("admin", agent="file-ops")``.

    ``place`` is what its address says.
    """

    def enter(
        username: str,
        *,
        options: dict[str, object] | None = None,
        **place: str,
    ) -> Chat:
        page = open_page(**(options or {}))
        page.goto(f"{address}?{urlencode({'agent': 'file-ops'} | place)}")
        page.get_by_label("Address of the desk").fill(served.url)
        page.get_by_label("API token").fill(token_of(username))
        page.get_by_role("button", name="Connect").click()
        expect(page.get_by_role("combobox", name="Agent")).to_be_visible()
        return Chat(page)

    return enter


def test_the_guard_hears_of_requests_to_others(open_page, address, complaints):
    page = open_page()
    page.goto(address)
    assert complaints == []
    page.evaluate("fetch('https://telemetry.example/').catch(() => {})")
    assert "asked somebody else: https://telemetry.example/" in complaints
    complaints.clear()


@pytest.mark.parametrize("way", WAYS)
def test_m1_an_approval_in_each_of_the_three_ways(open_chat, way):
    chat = open_chat("admin", way=way)
    chat.ask("Please delete report.txt")
    expect(chat.requests).to_contain_text("Approve running delete_file?")
    expect(chat.requests.locator(".facts")).to_contain_text("report.txt")
    expect(chat.state).to_have_text("1 open request")
    inside = chat.transcript.locator(".request")
    expect(inside).to_have_count(1 if way == "in-chat" else 0)
    picture(chat.page, f"copilotkit-{way}")

    chat.press("Approve")
    expect(chat.transcript).to_contain_text("Deleted report.txt.")
    expect(chat.requests).to_have_count(0)
    # The tool's own result, and not what the page made up of the answer.
    expect(chat.calls("delete_file")).to_contain_text("deleted", ignore_case=True)
    expect(chat.calls("delete_file")).not_to_contain_text("approved")


def test_m3_a_denial_brings_its_note_to_the_agent(open_chat):
    chat = open_chat("admin", way="beside")
    chat.ask("Please delete notes.md")
    chat.requests.get_by_label("Note").fill("The audit needs it")
    chat.press("Deny")
    expect(chat.calls("delete_file")).to_contain_text("Not executed")
    expect(chat.transcript.locator("[data-message-id]").last).to_contain_text(
        "The audit needs it"
    )
    expect(chat.state).to_have_text("At rest")


def test_m3_a_cancelled_run_ends_and_the_conversation_goes_on(open_chat):
    chat = open_chat("admin", way="headless")
    chat.ask("Please delete notes.md")
    chat.press("Cancel")
    expect(chat.calls("delete_file")).to_contain_text("the run was cancelled")
    expect(chat.state).to_have_text("At rest")
    chat.say("Which files are there?")
    expect(chat.transcript).to_contain_text("The workspace holds 4 files")


@pytest.mark.parametrize("way", ["in-chat", "headless"])
def test_m3_two_requests_with_mixed_answers(open_chat, way):
    chat = open_chat("admin", way=way)
    chat.ask("Please delete report.txt and notes.md", 2)
    first, second = chat.requests.nth(0), chat.requests.nth(1)
    # Another answer counts, as long as none was sent.
    chat.press("Approve", second)
    expect(second).to_contain_text("Approved. Sent once the other one is answered.")
    second.get_by_label("Note").fill("Not that one")
    chat.press("Deny", second)
    expect(second).to_contain_text("Denied. Sent once the other one is answered.")
    chat.press("Approve", first)
    expect(chat.requests).to_have_count(0)
    expect(chat.calls("delete_file").nth(0)).to_contain_text("Deleted")
    expect(chat.calls("delete_file").nth(1)).to_contain_text("Not that one")
    expect(chat.state).to_have_text("At rest")


@pytest.mark.parametrize("way", ["in-chat", "headless"])
def test_m9_a_reload_while_it_waits_loses_nothing(open_chat, way):
    chat = open_chat("admin", way=way)
    chat.ask("Please delete report.txt")
    where = chat.page.url
    chat.page.reload()
    expect(chat.requests).to_contain_text("report.txt")
    assert chat.page.url == where
    expect(chat.transcript).to_contain_text("Please delete report.txt")
    chat.press("Approve")
    expect(chat.transcript).to_contain_text("Deleted report.txt.")
    expect(chat.calls("delete_file")).to_have_count(1)


@pytest.mark.parametrize("way", WAYS)
def test_m6_a_message_while_a_request_is_open_waits_for_it(open_chat, way):
    chat = open_chat("admin", way=way)
    chat.ask("Please delete report.txt")
    expect(chat.transcript).to_contain_text("reaches the agent after the open request")
    chat.say("Which files are there?")
    expect(chat.state).to_have_text("1 open request")
    expect(chat.page.get_by_role("alert")).to_have_count(0)
    expect(chat.requests).to_have_count(1)
    picture(chat.page, f"copilotkit-meanwhile-{way}")
    chat.press("Approve")
    expect(chat.transcript).to_contain_text("Deleted report.txt.")
    expect(chat.transcript).to_contain_text("The workspace holds 3 files")
    expect(chat.state).to_have_text("At rest")


def test_m2_who_may_not_decide_is_told_and_asked_again(open_chat):
    chat = open_chat("member")
    chat.ask("Please delete report.txt")
    chat.press("Approve")
    expect(chat.transcript).to_contain_text(
        "You may not decide this request. It waits for Ops reviewers."
    )
    # Again, and the page is as alive as before.
    with chat.page.expect_response(re.compile("/run$")):
        chat.press("Deny")
    expect(chat.state).to_have_text("1 open request")
    chat.press("Cancel")
    expect(chat.calls("delete_file")).to_contain_text("the run was cancelled")
    chat.say("Which files are there?")
    expect(chat.transcript).to_contain_text("The workspace holds 4 files")


def test_m6_a_decision_in_the_inbox_is_seen_by_looking_again(open_chat, sign_in):
    chat, reviewer = open_chat("member"), sign_in("ops-reviewer")
    chat.ask("Please delete report.txt")
    decide(reviewer, "approve")
    expect(reviewer.locator("#toast")).to_contain_text("Approved")
    chat.press("Look again")
    expect(chat.requests).to_have_count(0)
    expect(chat.transcript).to_contain_text("Deleted report.txt.")
    chat.say("Which files are there?")
    expect(chat.transcript).to_contain_text("The workspace holds 3 files")


def test_m6_an_answer_after_the_decision_in_the_inbox_is_told_so(open_chat, sign_in):
    chat, reviewer = open_chat("admin"), sign_in("ops-reviewer")
    chat.ask("Please delete report.txt")
    decide(reviewer, "deny", "The audit needs it")
    expect(reviewer.locator("#toast")).to_contain_text("Denied")
    chat.press("Approve")
    expect(chat.transcript).to_contain_text("ops-reviewer")
    expect(chat.calls("delete_file")).to_contain_text("The audit needs it")
    expect(chat.state).to_have_text("At rest")


def test_m6_a_page_that_holds_gets_the_result_by_itself(open_chat, sign_in):
    chat, reviewer = open_chat("member", hold="1"), sign_in("ops-reviewer")
    chat.say("Please delete report.txt")
    held = chat.page.locator(".is-held")
    expect(held).to_contain_text("Waiting for a decision", timeout=FIRST_RUN)
    expect(held.get_by_role("button")).to_have_count(0)
    # So does one that comes later.
    chat.page.reload()
    expect(held).to_contain_text("report.txt")
    picture(chat.page, "copilotkit-held")
    decide(reviewer, "approve")
    expect(chat.transcript).to_contain_text("Deleted report.txt.")
    expect(held).to_have_count(0)


def test_m3_the_stop_button_cancels_what_is_held(open_chat):
    chat = open_chat("member", hold="1")
    chat.say("Please delete report.txt")
    expect(chat.page.locator(".is-held")).to_be_visible(timeout=FIRST_RUN)
    with chat.page.expect_response(re.compile("/stop/")) as stopped:
        chat.page.get_by_test_id("copilot-send-button").click()
    assert stopped.value.json() == {"stopped": True}
    chat.press("Look again")
    expect(chat.calls("delete_file")).to_contain_text("the run was cancelled")
    expect(chat.page.locator(".is-held")).to_have_count(0)


def test_m8_an_approval_that_brings_a_time(open_chat):
    chat = open_chat("admin", agent="scheduler", way="beside")
    chat.ask("Please schedule a 1:1 with Alice")
    approve = chat.requests.get_by_role("button", name="Approve")
    expect(approve).to_be_disabled()
    time = chat.requests.get_by_role("group", name="When").get_by_role("button").nth(1)
    label = time.get_attribute("aria-label")
    assert label is not None
    time.click()
    expect(time).to_have_attribute("aria-pressed", "true")
    picture(chat.page, "copilotkit-time")
    approve.click()
    expect(chat.calls("schedule_meeting")).to_contain_text("Booked")
    expect(chat.calls("schedule_meeting")).to_contain_text(label)


def test_m10_a_tool_of_the_page_asks_its_person(open_chat):
    """The model calls book_call, a card of the page asks, and nothing waits on the desk."""
    chat = open_chat("member", agent="scheduler")
    chat.ask("Please book an intro call with sales to discuss pricing")
    times = chat.requests.get_by_role("group", name="When").get_by_role("button")
    expect(times).to_have_count(6)
    # It is still there to be answered after a reload.
    chat.page.reload()
    expect(chat.requests).to_contain_text("“Intro call to discuss pricing” with sales")
    label = times.nth(2).get_attribute("aria-label")
    assert label is not None
    times.nth(2).click()
    picture(chat.page, "copilotkit-book-call")
    chat.press("Pick this time")
    expect(chat.transcript).to_contain_text(f"with sales suits you on {label}.")
    expect(chat.requests).to_contain_text(label)
    chat.page.reload()
    expect(chat.requests).to_contain_text(label)
    expect(chat.requests.get_by_role("button")).to_have_count(0)


def test_m10_a_tool_of_the_page_beside_an_approval(open_chat):
    """One turn asks the person and the desk; the agent goes on when both have answered."""
    chat = open_chat("admin", way="beside")
    chat.ask(
        'Please use book_call with {"topic": "Pricing", "attendee": "Ann"} '
        'and delete_file with {"filename": "report.txt"}',
        requests=2,
    )
    card = chat.transcript.locator(".request")
    request = chat.page.locator(".side .request")
    expect(card).to_contain_text("“Pricing” with Ann")
    expect(request).to_contain_text("report.txt")
    expect(card).to_contain_text("After the open request.")
    card.get_by_role("group", name="When").get_by_role("button").first.click()
    expect(card.get_by_role("button", name="Pick this time")).to_be_disabled()
    chat.press("Approve", request)
    chat.press("Pick this time", card)
    expect(chat.calls("delete_file")).to_contain_text("Deleted")
    expect(chat.transcript).to_contain_text("When I wanted to use book_call")
    expect(chat.state).to_have_text("At rest")


def test_m10_a_question_of_the_desk_is_answered_here(open_chat, sign_in):
    """The conversation began in the desk's own chat, which brings no tools."""
    person = sign_in("member")
    person.goto("/agents/scheduler/")
    person.fill("#message", "Please book an intro call with sales to discuss pricing")
    person.keyboard.press("Control+Enter")
    expect(person.locator(".icard-open")).to_be_visible()
    thread = urlsplit(person.url).path.split("/")[-2]

    chat = open_chat("member", agent="scheduler", thread=thread)
    expect(chat.requests).to_have_count(1)
    expect(chat.requests).to_contain_text("Pick a time: Intro call to discuss pricing")
    chat.requests.get_by_role("group", name="When").get_by_role("button").first.click()
    chat.press("Answer")
    expect(chat.transcript).to_contain_text("with sales suits you on")
    expect(person.locator("#transcript")).to_contain_text("with sales suits you on")


def test_m5_a_page_of_the_site_needs_no_token(open_page, address):
    """By the session of the desk, and what proves that the page is of its site."""
    page = open_page()
    page.goto(address)
    page.get_by_role("link", name="Sign in on this site").click()
    page.fill("[name=username]", "admin")
    page.fill("[name=password]", DEMO_PASSWORD)
    page.get_by_role("button", name="Sign in", exact=True).click()
    # Whoever has signed in is let in without another click.
    page.get_by_role("combobox", name="Agent").select_option("file-ops")
    chat = Chat(page)
    chat.press("Please delete report.txt")
    expect(chat.requests.get_by_role("link", name="On the desk")).to_have_attribute(
        "href", re.compile(re.escape(address.removesuffix("chat/")))
    )
    chat.press("Approve")
    expect(chat.transcript).to_contain_text("Deleted report.txt.")
    chat.press("Leave")
    expect(page.locator(".entrance")).to_contain_text("You are signed in on this site")
    expect(page.get_by_role("link", name="Sign in on this site")).to_have_count(0)
    picture(page, "copilotkit-left")


def test_a_token_stands_in_no_address_and_is_forgotten_on_leaving(
    open_chat, token_of, address
):
    chat = open_chat("admin")
    asked: list[str] = []
    chat.page.on("request", lambda request: asked.append(request.url))
    chat.page.reload()
    chat.say("Which files are there?")
    expect(chat.transcript).to_contain_text("The workspace holds 4 files")
    assert asked
    secret = token_of("admin")
    assert not [url for url in [chat.page.url, *asked] if secret in url]
    chat.press("Leave")
    chat.page.goto(address)
    expect(chat.page.get_by_label("API token")).to_have_value("")
    assert secret not in chat.page.evaluate("JSON.stringify({...sessionStorage})")


def test_a_refusal_is_told_in_words(open_chat, open_page, served, address, complaints):
    page = open_page()
    page.goto(address)
    page.get_by_role("button", name="Connect").click()
    expect(page.get_by_role("alert")).to_contain_text("sign in on this site")
    page.get_by_label("Address of the desk").fill(served.url)
    page.get_by_label("API token").fill("sayso_wrong")
    page.get_by_role("button", name="Connect").click()
    expect(page.get_by_role("alert")).to_contain_text("token")
    picture(page, "copilotkit-refused")
    assert len(complaints) == 2
    assert all("status of 401" in complaint for complaint in complaints)
    complaints.clear()


@pytest.mark.parametrize(("way", "scheme"), [("in-chat", "light"), ("beside", "dark")])
def test_it_fits_a_phone(open_chat, way, scheme):
    options = {"viewport": PHONE, "color_scheme": scheme}
    chat = open_chat("admin", way=way, agent="scheduler", options=options)
    chat.ask("Please schedule a 1:1 with Alice")
    chat.requests.scroll_into_view_if_needed()
    picture(chat.page, f"copilotkit-phone-{way}-{scheme}")
    assert_inside(chat.page, ".request", ".bar", ".times", ".chat textarea")
    wide = "document.documentElement.scrollWidth - innerWidth"
    assert chat.page.evaluate(wide) <= 0
