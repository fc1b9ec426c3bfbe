"""M20, M22: who comes in, what is refused and how, and CopilotKit's four routes."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import httpx
import pytest
from ag_ui.core import AgentCapabilities
from django.conf import settings
from django.db import connections

from approvals.models import Run, Tool
from approvals.schemas import ClientTool
from approvals.states import TokenScope
from hitlagents import catalog, tool_reading
from hitlagents.agui import intake
from hitlagents.models import Thread
from tests.approvals.pages import sign_in
from tests.hitlagents.agui.conftest import CSRF, YES, resolved
from tests.plugins.cast import AGENT, TOOLS

PAGES = "https://pages.example.org"
ADDRESSES = (
    f"/agui/{AGENT}/",
    f"/agui/{AGENT}",
    f"/agui/{AGENT}/connect/",
    f"/copilotkit/agent/{AGENT}/run",
    f"/copilotkit/agent/{AGENT}/connect",
    f"/copilotkit/agent/{AGENT}/stop/t1",
)
HELLO = {
    "threadId": "t1",
    "runId": "r1",
    "messages": [{"id": "m1", "role": "user", "content": "hello"}],
}


def problem(response, status, code):
    """A refusal is JSON with a sentence, and never a page or a redirect."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    error = response.json()["error"]
    assert error["code"] == code
    assert error["message"].endswith((".", "…")) or ": " in error["message"]
    return error


# Who


@pytest.mark.parametrize("address", ADDRESSES)
def test_m20_nobody_comes_in_without_saying_who(server, address):
    for headers in ({}, {"Authorization": "Bearer sayso_nobody"}):
        response = httpx.post(server.url + address, json=HELLO, headers=headers)
        code = "bad_token" if headers else "not_signed_in"
        problem(response, 401, code)
        assert response.headers["www-authenticate"] == "Bearer"
    assert not Thread.objects.exists()


def session_of(user):
    return {settings.SESSION_COOKIE_NAME: sign_in(user)}


def test_m20_a_page_of_this_site_comes_in_with_its_session(server, mia):
    cookies = session_of(mia) | {settings.CSRF_COOKIE_NAME: CSRF}
    headers = {"X-CSRFToken": CSRF, "Origin": server.url}
    response = httpx.post(
        f"{server.url}/agui/{AGENT}/", json=HELLO, cookies=cookies, headers=headers
    )
    assert response.status_code == 200
    assert "You said: hello" in response.text.replace('", "', "")
    assert Thread.objects.get().owner == mia


@pytest.mark.parametrize("address", ADDRESSES)
@pytest.mark.parametrize(
    "headers",
    [{}, {"X-CSRFToken": "d" * 32}, {"X-CSRFToken": CSRF, "Origin": PAGES}],
)
def test_k33_a_session_alone_is_not_enough(server, mia, address, headers):
    """Another site's page makes a browser send the cookie, and no more."""
    cookies = session_of(mia) | {settings.CSRF_COOKIE_NAME: CSRF}
    response = httpx.post(
        server.url + address, json=HELLO, cookies=cookies, headers=headers
    )
    problem(response, 403, "csrf")
    assert not Thread.objects.exists()


def test_m22_a_token_needs_the_scope(open_page, mia):
    page = open_page(mia, TokenScope.DECIDE)
    problem(page.raw(), 403, "out_of_scope")


@pytest.mark.parametrize("address", ADDRESSES)
def test_m20_other_methods_are_refused_in_json(server, address):
    response = httpx.get(server.url + address, follow_redirects=False)
    problem(response, 405, "wrong_method")
    assert response.headers["allow"] == "POST"


def test_m20_an_agent_nobody_knows(open_page, mia):
    for agent in ("nobody", "clerk2"):
        error = problem(open_page(mia, agent=agent).raw(), 404, "not_found")
        assert error["message"] == f"There is no agent named {agent}."


# What


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"threadId": None}, "threadId"),
        ({"threadId": 7}, "threadId"),
        ({"threadId": ""}, "threadId"),
        ({"threadId": "a\0b"}, "threadId"),
        ({"threadId": "\ud800"}, "threadId"),
        ({"threadId": "x" * 201}, "threadId"),
        ({"runId": ""}, "runId"),
        ({"runId": {}}, "runId"),
        ({"messages": None}, "messages"),
        ({"messages": {}}, "messages"),
        ({"messages": ["hello"]}, "messages.0"),
        ({"messages": [{"role": "user", "content": "x"}]}, "messages.0.id"),
        ({"messages": [{"id": "1", "role": "user"}]}, "messages.0.content"),
        ({"messages": [{"id": "1", "role": "king", "content": ""}]}, "messages.0"),
        ({"messages": [{"id": "1", "role": "user", "content": " "}]},
         "messages.0.content"),
        ({"messages": [{"id": "1", "role": "user", "content": "a\0"}]},
         "messages.0.content"),
        ({"messages": [{"id": "1", "role": "user", "content": "x" * 100_001}]},
         "messages.0.content"),
        ({"messages": [{"id": "x" * 201, "role": "user", "content": "x"}]},
         "messages.0.id"),
        ({"resume": {}}, "resume"),
        ({"resume": [{}]}, "resume.0.interruptId"),
        (
            {
                "resume": [
                    {"interruptId": "x", "status": "resolved", "payload": n}
                    for n in range(201)
                ]
            },
            "resume",
        ),
        ({"resume": [{"interruptId": "x", "status": "done"}]}, "resume.0.status"),
        ({"tools": [{"description": "x"}]}, "tools.0.name"),
        ({"tools": "all"}, "tools"),
    ],
)  # fmt: skip
def test_m20_a_malformed_body_names_its_field(open_page, mia, change, field):
    page = open_page(mia)
    body = {key: v for key, v in (HELLO | change).items() if v is not None}
    response = httpx.post(
        page.address(),
        content=json.dumps(body),
        headers=page.headers() | {"Content-Type": "application/json"},
    )
    error = problem(response, 422, "invalid_input")
    assert error["field"] == field
    assert error["message"].startswith(field)
    assert not Thread.objects.exists()


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"NaN", b"\xff", b"[" * 5000, b'{"a": Infinity}']
)
def test_m20_what_is_no_json_object_is_refused(open_page, mia, content):
    page = open_page(mia)
    headers = page.headers() | {"Content-Type": "application/json"}
    response = httpx.post(page.address(), content=content, headers=headers)
    problem(response, 422, "invalid_input")


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", ""]
)
def test_m20_only_json_is_read(open_page, mia, kind):
    page = open_page(mia)
    headers = page.headers() | {"Content-Type": kind}
    response = httpx.post(page.address(), content=b"a=b", headers=headers)
    problem(response, 415, "not_json")


def test_m20_a_body_that_is_too_large_is_refused(open_page, mia):
    page = open_page(mia)
    response = page.raw(state={"x": "y" * 200_001})
    error = problem(response, 413, "too_large")
    assert "200,000" in error["message"]
    assert page.say("hello").outcome == "success"


def test_m20_a_body_of_protocol_0_1_is_taken(open_page, mia):
    page = open_page(mia, modern=False)
    answer = page.say(
        "hello",
        state=None,
        tools=[],
        context=[{"description": "zone", "value": "UTC"}],
        forwardedProps=None,
        unknown={"member": 1},
    )
    assert answer.text == "You said: hello"


def test_m20_a_message_that_was_refused_does_not_block_the_page(open_page, mia):
    """Pages keep what was refused, and send it again with every request."""
    page = open_page(mia)
    page.messages.append({"id": "m0", "role": "user", "content": "x" * 100_001})
    problem(page.raw(), 422, "invalid_input")
    assert page.say("hello").text == "You said: hello"


@pytest.mark.parametrize(
    ("names", "field", "twice"),
    [
        (["delete_file"], "tools.0.name", "delete_file"),
        (["pick", "pay"], "tools.1.name", "pay"),
        (["pick", "other", "pick"], "tools.2.name", "pick"),
    ],
)
def test_m5_two_tools_of_one_name_are_refused_in_words(
    open_page, mia, server, names, field, twice
):
    tools = [{"name": name, "description": "", "parameters": {}} for name in names]
    page = open_page(mia)
    page.messages = HELLO["messages"]
    error = problem(page.raw(tools=tools), 422, "duplicate_tool_name")
    assert error["message"] == f"Duplicate tool name: {twice}"
    assert error["field"] == field
    assert not Thread.objects.exists()
    assert server.heard() == []


def test_m5_the_first_request_of_an_agent_waits_until_its_tools_are_read(
    open_page, mia
):
    """Nothing has run yet, so nobody has registered them."""
    Tool.objects.all().delete()
    tools = [{"name": "pay", "description": ""}]
    page = open_page(mia)
    problem(page.raw(tools=tools), 422, "duplicate_tool_name")
    assert Tool.objects.filter(agent=AGENT).count() == len(TOOLS)


def test_m5_tools_that_cannot_be_read_hold_nobody_up(open_page, mia, server):
    page = open_page(mia, agent="broken")
    page.messages = HELLO["messages"]
    answer = page.post(tools=[{"name": "pay", "description": ""}])
    assert "set up wrong" in answer.end["message"]


@pytest.mark.django_db(transaction=True)
def test_m5_waiting_for_tools_leaves_threads_to_others(mia, monkeypatch):
    """No worker is there. Every page, also the inbox, is answered by the same few."""
    monkeypatch.setattr(intake, "TOOLS_WITHIN", 3.0)
    monkeypatch.setattr(tool_reading, "ask", lambda agent, person: None)
    spec = catalog.get("file-ops")
    tools = [ClientTool(name="pick_colour")]

    def ask(_):
        began = time.monotonic()
        try:
            intake.refuse_duplicate_tools(spec, tools, person=mia)
            return time.monotonic() - began
        finally:
            connections.close_all()

    with ThreadPoolExecutor(6) as threads:
        took = list(threads.map(ask, range(6)))
    assert sum(seconds >= 3.0 for seconds in took) == 2


# Pages elsewhere


def preflight(server, origin, address=f"/agui/{AGENT}/"):
    headers = {
        "Origin": origin,
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization,content-type",
    }
    return httpx.options(server.url + address, headers=headers)


@pytest.mark.parametrize("address", [*ADDRESSES, "/copilotkit/info"])
def test_m20_a_page_of_an_allowed_origin_may_call(server, address):
    asked = preflight(server, PAGES, address)
    assert asked.status_code == 204
    assert asked.headers["access-control-allow-origin"] == PAGES
    assert "Authorization" in asked.headers["access-control-allow-headers"]
    assert "access-control-allow-credentials" not in asked.headers
    refused = httpx.post(server.url + address, json=HELLO, headers={"Origin": PAGES})
    assert refused.headers["access-control-allow-origin"] == PAGES
    assert "Origin" in refused.headers["vary"]


@pytest.mark.parametrize(
    "origin", ["https://evil.example.org", "null", PAGES + ".evil.org", PAGES + ":444"]
)
def test_k33_other_origins_may_not(server, origin):
    asked = preflight(server, origin)
    assert asked.status_code == 204
    assert not [name for name in asked.headers if name.startswith("access-control")]


def test_m20_no_origin_is_allowed_unless_it_is_named():
    assert settings.SAYSO_CORS_ORIGINS == []


# CopilotKit


def bearer(page):
    return {"Authorization": f"Bearer {page.secret}"}


def test_m20_copilotkit_asks_which_agents_there_are(open_page, mia, server):
    response = httpx.get(
        f"{server.url}/copilotkit/info", headers=bearer(open_page(mia))
    )
    told = response.json()
    assert told["mode"] == "sse"
    assert told["version"] == settings.SAYSO_VERSION
    assert set(told["agents"]) == {
        "broken",
        *(spec.slug for spec in catalog.hosted()),
        AGENT,
    }
    declared = told["agents"]["clerk"].pop("capabilities")
    assert AgentCapabilities.model_validate(declared, extra="forbid")
    assert declared["humanInTheLoop"]["interrupts"] is True
    assert declared["tools"]["clientProvided"] is True
    assert declared["identity"]["name"] == "Clerk"
    assert told["agents"]["clerk"] == {
        "name": "clerk",
        "description": "Does what it is told.",
        "className": "SaysoAgent",
    }
    problem(httpx.get(f"{server.url}/copilotkit/info"), 401, "not_signed_in")


def test_m20_a_page_of_this_site_learns_its_csrf_token(server, mia, open_page):
    """Its cookie cannot be read by scripts. A token needs none, and a page of another
    origin could not read the answer to a session."""
    info = f"{server.url}/copilotkit/info"
    with httpx.Client(cookies=session_of(mia)) as page:
        answer = page.get(info, headers={"Origin": PAGES})
        assert "access-control-allow-credentials" not in answer.headers
        assert answer.headers["cache-control"] == "no-store"
        own = {"X-CSRFToken": answer.json()["csrfToken"], "Origin": server.url}
        said = page.post(f"{server.url}/agui/{AGENT}/", json=HELLO, headers=own)
    assert said.status_code == 200
    assert Thread.objects.get().owner == mia
    assert "csrfToken" not in httpx.get(info, headers=bearer(open_page(mia))).json()


def test_m20_copilotkits_routes_are_the_same_thread(ritas, open_page, rita, server):
    routes = {"root": "copilotkit/agent/{}/", "run": "run", "modern": False}
    page = open_page(rita, thread=ritas.thread, **routes)
    (interrupt,) = page.say("delete a.txt").interrupts
    page.messages = []
    assert page.post(path="connect").interrupts == [interrupt]
    assert page.resume(resolved(interrupt, YES)).text == "Done."
    assert ritas.show().messages == page.messages


def test_m20_copilotkit_stops_a_run(open_page, mia, eve, server):
    page = open_page(mia, thread="a thread/of mine")
    page.say("delete a.txt")
    stop = f"{server.url}/copilotkit/agent/{AGENT}/stop/a%20thread%2Fof%20mine"
    problem(httpx.post(stop, headers=bearer(open_page(eve))), 404, "not_found")
    for stopped in (True, False):
        answer = httpx.post(stop, headers=bearer(page), json={"runId": str(uuid4())})
        assert answer.json() == {"stopped": stopped}
    assert Run.objects.get().status == "cancelled"
    assert page.show().outcome == "success"
