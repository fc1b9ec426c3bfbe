"""What a page does with its live line, in a real browser against a real server."""

from __future__ import annotations

import json
import re
import time
import uuid
from pathlib import Path

import pytest
from channels.layers import channel_layers
from django.contrib.sessions.models import Session
from django.template.loader import render_to_string
from playwright.sync_api import expect, sync_playwright

from approvals.relay import Relay
from tests.approvals.pages import ROOT, serving, sign_in

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.once]

CONTENT = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
#: What a browser and htmx say of a server that is gone.
EXPECTED = re.compile(r"WebSocket connection|htmx:ws:error")
LIVE = '<p id="any" data-live hx-get="/seen/any" hx-trigger="live" hx-swap="none"></p>'
FILTERED = (
    '<p id="run" data-live="run" data-live-id="r1" hx-get="/seen/run"'
    ' hx-trigger="live" hx-swap="none"></p>'
)


@pytest.fixture(scope="module")
def browser(chromium):
    with pytest.MonkeyPatch.context() as patch, sync_playwright() as playwright:
        # Playwright runs a loop in this thread, which Django takes for async code.
        patch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")
        browser = playwright.chromium.launch(
            # The page is made by the test, so the browser does not take it for local.
            executable_path=chromium,
            args=["--no-sandbox", "--disable-features=LocalNetworkAccessChecks"],
        )
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def served(django_db_setup, redis_url, tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    prefix = f"test{uuid.uuid4().hex}"
    with serving(folder, REDIS_URL=redis_url, SAYSO_REDIS_PREFIX=prefix) as served:
        yield served


@pytest.fixture
def publish(served, settings):
    """Publish as another process does."""
    settings.CHANNEL_LAYERS = {
        "default": {
            "BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer",
            "CONFIG": {
                "hosts": [served.environment["REDIS_URL"]],
                "prefix": served.environment["SAYSO_REDIS_PREFIX"],
            },
        }
    }
    relay = Relay(
        lambda: channel_layers.make_backend("default"),
        deliver=lambda scopes, fields: None,
        lost=lambda: None,
    )
    yield lambda scope, **fields: relay.send(frozenset({scope}), fields)
    relay.stop()


class Tab:
    """A page of the frame with two live elements, and what it asks for."""

    def __init__(self, browser, served, user):
        self.session = sign_in(user)
        self.context = browser.new_context(base_url=served.origin)
        self.context.add_cookies(
            [{"name": "sayso_session", "value": self.session, "url": served.origin}]
        )
        self.asked, self.problems = [], []
        self.page = self.context.new_page()
        # The page's own clock, which can be put forward.
        self.page.clock.install()
        self.page.on("console", self._console)
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.route("**/static/**", self._static)
        self.page.route("**/seen/*", self._seen)
        self.page.route("**/settled", lambda route: route.fulfill(body=""))
        html = render_to_string("base.html", {"user": user, "title": "Live"})
        html = html.replace("</main>", LIVE + FILTERED + "</main>")
        self.page.route(
            "**/page", lambda r: r.fulfill(body=html, content_type="text/html")
        )
        self.page.add_init_script(
            "window.deltas = []; document.addEventListener('sayso:delta',"
            " (event) => window.deltas.push(event.detail));"
        )
        self.word = self.page.locator(".rail [data-conn-word]")

    def _console(self, message):
        if message.type in {"error", "warning"} and not EXPECTED.search(message.text):
            self.problems.append(message.text)

    def _static(self, route):
        path = ROOT / "static" / route.request.url.split("/static/")[1]
        kind = CONTENT.get(Path(path).suffix, "application/octet-stream")
        route.fulfill(body=path.read_bytes(), content_type=kind)

    def _seen(self, route):
        self.asked.append(route.request.url.rsplit("/", 1)[1])
        route.fulfill(status=200, body="")

    def open(self):
        self.page.goto("/page")
        expect(self.word).to_have_text("Live")
        self.wait_for(lambda: set(self.asked) >= {"any", "run"})
        self.quiet()
        return self

    def wait_for(self, condition, seconds=10.0):
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, "It did not happen in time."
            self.page.wait_for_timeout(20)

    def settle(self):
        """Let what the page is about to ask be asked."""
        self.page.clock.run_for(1600)
        # Comes behind whatever was asked before it.
        self.page.evaluate("fetch('/settled').then(() => null)")

    def quiet(self):
        """Let what is under way end, and forget it."""
        self.settle()
        self.asked.clear()


@pytest.fixture
def tab(browser, served, eve):
    tab = Tab(browser, served, eve).open()
    yield tab
    assert tab.problems == []
    tab.context.close()


def test_news_are_fetched_by_whom_they_concern(tab, publish, eve):
    me = f"user.{eve.pk}"
    publish(me, op="opened", id="i1")
    tab.wait_for(lambda: tab.asked)
    tab.quiet()
    publish(me, op="run", id="r2")
    tab.wait_for(lambda: tab.asked)
    assert tab.asked == ["any"]
    tab.quiet()
    publish(me, op="run", id="r1")
    tab.wait_for(lambda: len(tab.asked) == 2)
    assert sorted(tab.asked) == ["any", "run"]
    tab.quiet()
    for number in range(200):
        publish(me, op="opened", id=str(number))
        time.sleep(0.005)
    tab.settle()
    assert 1 <= len(tab.asked) <= 6


def test_deltas_come_as_events_and_fetch_nothing(tab, publish, eve):
    for seq in range(1, 6):
        fields = {"attempt": 1, "seq": seq, "message": "m", "text": f"{seq}"}
        publish(f"user.{eve.pk}", op="delta", id="r1", **fields)
    tab.wait_for(lambda: "5" in json.dumps(tab.page.evaluate("deltas")))
    deltas = tab.page.evaluate("deltas")
    assert "".join(delta["text"] for delta in deltas) == "12345"
    assert deltas[0]["first"] == 1
    assert deltas[-1]["seq"] == 5
    assert tab.asked == []


def test_a_server_that_goes_and_comes_back(tab, served):
    served.kill()
    expect(tab.word).to_have_text(re.compile(r"^Reconnecting( in \d+ s)?$"))
    expect(tab.word).to_have_text(
        re.compile(r"^Offline, showing \d\d:\d\d"), timeout=15_000
    )
    tab.wait_for(lambda: "any" in tab.asked, 20)
    tab.asked.clear()
    served.start()
    expect(tab.word).to_have_text("Live", timeout=20_000)
    tab.wait_for(lambda: set(tab.asked) == {"any", "run"})


def test_signing_out_is_said_and_final(tab):
    Session.objects.filter(session_key=tab.session).delete()
    expect(tab.word).to_have_text("Signed out", timeout=5_000)
    tab.asked.clear()
    tab.page.clock.run_for(60_000)
    tab.settle()
    expect(tab.word).to_have_text("Signed out")
    assert tab.asked == []


def test_without_sockets_the_page_asks_slowly(browser, served, eve):
    tab = Tab(browser, served, eve)
    tab.page.route_web_socket("**/ws/", lambda socket: None)  # opens, says nothing
    tab.page.goto("/page")
    expect(tab.word).to_have_text("Connecting")
    tab.page.clock.run_for(8_000)
    expect(tab.word).to_have_text(re.compile("^Offline, showing"))
    tab.wait_for(lambda: "any" in tab.asked, 5)
    tab.quiet()
    tab.page.clock.run_for(20_000)
    tab.wait_for(lambda: "any" in tab.asked, 5)
    tab.settle()
    assert tab.asked.count("any") <= 2
    tab.context.close()


def test_coming_back_by_the_back_button_starts_again(tab, publish, eve):
    """B126, as htmx leaves a page: hung up for good, then shown again as it was."""
    tab.page.evaluate(
        "window.dispatchEvent(new PageTransitionEvent('pagehide', {persisted: true}))"
    )
    tab.page.wait_for_timeout(200)
    tab.asked.clear()
    tab.page.evaluate(
        "window.dispatchEvent(new PageTransitionEvent('pageshow', {persisted: true}))"
    )
    tab.wait_for(lambda: set(tab.asked) == {"any", "run"}, 2)
    expect(tab.word).to_have_text("Live")
    tab.quiet()
    publish(f"user.{eve.pk}", op="opened", id="i1")
    tab.wait_for(lambda: tab.asked)


def test_a_script_may_move_the_line_to_another_address(tab):
    tab.page.evaluate(
        """(path) => {
          const line = document.getElementById('live'), moved = line.cloneNode();
          moved.setAttribute('hx-ws:connect', path);
          htmx.swap({sourceElement: line, target: line, swap: 'outerHTML', text: moved.outerHTML});
        }""",
        f"/ws/runs/{uuid.uuid4()}/",
    )
    expect(tab.word).to_have_text("No access")
    tab.wait_for(lambda: "any" in tab.asked)


def test_waking_up_fetches_at_once_and_asks_whether_the_line_is_alive(
    tab, publish, eve
):
    """B90: after ten minutes of sleep."""
    tab.page.goto("/page")
    expect(tab.word).to_have_text("Live")
    tab.page.clock.run_for(3000)
    tab.asked.clear()
    tab.page.clock.fast_forward("10:00")
    tab.page.clock.run_for(1500)
    tab.wait_for(lambda: set(tab.asked) == {"any", "run"}, 3)
    tab.page.clock.run_for(6000)
    expect(tab.word).to_have_text("Live")


def test_a_line_that_is_silently_dead_is_opened_again(browser, served, eve):
    tab = Tab(browser, served, eve)
    opened = []

    def answer(socket):
        opened.append(socket)
        socket.send('{"v": 1, "op": "hello"}')
        if len(opened) > 1:
            socket.on_message(lambda text: socket.send('{"v": 2, "op": "pong"}'))

    tab.page.route_web_socket("**/ws/", answer)
    tab.page.goto("/page")
    expect(tab.word).to_have_text("Live")
    tab.page.clock.run_for(40_000)
    tab.wait_for(lambda: len(opened) == 2, 5)
    expect(tab.word).to_have_text("Live")
    for _ in range(60):
        tab.page.clock.run_for(1000)
        tab.page.evaluate("0")  # Lets the answer arrive.
    assert len(opened) == 2
    tab.context.close()


def test_b130_a_page_where_nothing_happens_asks_for_nothing(browser, served, eve):
    """Five minutes with an open line: a ping now and then, and not one request."""
    tab = Tab(browser, served, eve)
    sent, received, requests = [], [], []

    def hear(line):
        line.on("framesent", lambda frame: sent.append(frame))
        line.on("framereceived", lambda frame: received.append(frame))

    tab.page.on("websocket", hear)
    tab.page.goto("/page")
    expect(tab.word).to_have_text("Live")
    tab.page.clock.run_for(3000)
    tab.wait_for(lambda: set(tab.asked) >= {"any", "run"})
    tab.quiet()
    tab.page.on("request", lambda request: requests.append(request.url))
    sent.clear()
    received.clear()
    for _ in range(150):
        tab.page.clock.run_for(2000)
        tab.page.evaluate("0")
        tab.wait_for(lambda: len(received) >= len(sent), 30)
    expect(tab.word).to_have_text("Live")
    assert requests == []
    assert set(sent) == {'{"op": "ping"}'}
    assert len(sent) <= 12
    assert tab.problems == []
    tab.context.close()
