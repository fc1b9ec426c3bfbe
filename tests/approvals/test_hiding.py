"""B86: secrets that no tool declared are shown nowhere, and decided and run as they are."""

from __future__ import annotations

import json
import time

import pytest
from django.core.management import call_command
from django.test import Client

from approvals import canonical, display, services
from approvals.forms import ArgumentsForm
from approvals.hiding import Hiding, masked_text, restored, sounds_secret
from approvals.models import AuditEntry
from approvals.schemas import InterruptDraft, ToolSpec
from approvals.services.tools import misfit
from tests.plugins.cast import AGENT, TOOLS, ballot, call

ADDRESS = "https://rita:Pass-w0rd@desk.example.org/a?token=q-token"
ARGUMENTS = {
    "clientSecret": "s3cr3t-client",
    "authorization": "raw-credential",
    "note": "send it with Bearer abc-123-def please",
    "address": ADDRESS,
    "headers": {"X-Api-Key": "key-xylo", "Accept": "text/plain"},
    "env": [{"name": "DB_PASSWORD", "value": "db-xylo"}],
    "maxTokens": 512,
}
#: No hexadecimal digits alone: those stand in digests by chance.
SECRET = ("s3cr3t", "raw-cred", "abc-123", "Pass-w0rd", "q-token", "xylo")


@pytest.fixture
def connect(desk, make_interrupts):
    """A request of a tool that declares nothing, with secrets all over."""

    def make(**fields):
        spec = ToolSpec(name="delete_connection", title="Go to {address}", **fields)
        services.register_tools(AGENT, [*TOOLS, spec])
        [interrupt] = make_interrupts([call("delete_connection", **ARGUMENTS)])
        return interrupt

    return make


def pages_of(person):
    client = Client()
    client.force_login(person)
    return client


def shows_none(text):
    return not [secret for secret in SECRET if secret in text]


@pytest.mark.parametrize(
    "name",
    [
        "password", "dbPassword", "password2", "passwd", "user_passphrase", "clientSecret",
        "AWS_SECRET_ACCESS_KEY", "api_key", "apiKey", "APIKEY", "X-Api-Key", "privateKey",
        "private_key_pem", "token", "accessToken", "refresh_token", "authorization",
        "Proxy-Authorization", "credentials", "Set-Cookie", "cvv",
    ],
)  # fmt: skip
def test_b86_names_of_secrets(name):
    assert sounds_secret(name)


@pytest.mark.parametrize(
    "name",
    [
        "", "maxTokens", "tokens", "token_count", "nextPageToken", "next_token", "key",
        "keys", "sort_key", "public_key", "secretary", "author", "monkey", "keyboard",
        "passenger", "compass", "session_id", "password_reset_url", "secretName",
        "authorization_amount", "private_key_path",
    ],
)  # fmt: skip
def test_b86_names_of_nothing_secret(name):
    assert not sounds_secret(name)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Bearer abc", "Bearer ⟦hidden, 3 characters⟧"),
        ("use Bearer abc-1.x now", "use Bearer ⟦hidden, 7 characters⟧ now"),
        (
            "-H 'Authorization: Basic dTpw'",
            "-H 'Authorization: Basic ⟦hidden, 4 characters⟧'",
        ),
        ("pg://u:p%40w@db/x", "pg://u:⟦hidden, 5 characters⟧@db/x"),
        ("x --api-key=k1 --n=2", "x --api-key=⟦hidden, 2 characters⟧ --n=2"),
        ("/a?page=2&access_token=t", "/a?page=2&access_token=⟦hidden, 1 characters⟧"),
        (
            "-----BEGIN EC PRIVATE KEY-----\nMHc=\n-----END EC PRIVATE KEY-----",
            "-----BEGIN EC PRIVATE KEY-----⟦hidden, 6 characters⟧-----END EC PRIVATE KEY-----",
        ),
        (
            "-----BEGIN PRIVATE KEY-----cut",
            "-----BEGIN PRIVATE KEY-----⟦hidden, 3 characters⟧",
        ),
        ("the key sk-abcdefghijklmnop", "the key ⟦hidden, 19 characters⟧"),
        ('{"password": "x1"', '{"password": "⟦hidden, 2 characters⟧"'),
    ],
)
def test_b86_credentials_in_texts(text, shown):
    assert masked_text(text) == shown
    assert masked_text(shown) == shown


@pytest.mark.parametrize(
    "text",
    [
        "The bearer of this letter",
        "https://desk.example.org:81/a@b?page_token=3",
        "C++ a::b, at 12:30, x=1",
        "-----BEGIN PUBLIC KEY-----\nMHc=\n-----END PUBLIC KEY-----",
        # What is no credential by its form is not hidden by what stands before it.
        "token=$(reboot)",
        "token=abc|reboot",
        "token=../../etc/passwd",
        "deploy --api-key=`reboot` --n=2",
        "Authorization: $(cat /etc/shadow)",
        "Basic $(reboot)",
        "https://user:$(reboot)@desk.example.org/",
        "-----BEGIN PRIVATE KEY-----; rm -rf / #-----END PRIVATE KEY-----",
    ],
)
def test_b86_texts_without_any(text):
    assert masked_text(text) == text


@pytest.mark.parametrize(
    "part",
    ["a.", "a", "://", "://a:", "bearer ", "authorization: ", "a=", "eyJ", "sk-",
     "-----BEGIN PRIVATE KEY-----"],
)  # fmt: skip
def test_b86_no_text_takes_long(part):
    began = time.thread_time()
    masked_text(part * (300_000 // len(part)))
    assert time.thread_time() - began < 2


def test_b86_what_is_too_deep_is_not_looked_through():
    deep = {"password": "x"}
    for _ in range(600):
        deep = {"a": [deep]}
    masked = json.dumps(Hiding().masked(deep))
    assert "too deep" in masked
    assert "password" not in masked


def test_b86_no_entry_gets_the_secret_of_another():
    hosts = [{"host": "a", "password": "one"}, {"host": "b", "password": "two"}]
    masked = Hiding().masked({"hosts": hosts})
    fewer = {"hosts": masked["hosts"][1:]}
    assert restored(fewer, masked, {"hosts": hosts}) == fewer
    pair = {"env": {"name": "API_KEY", "value": "one"}}
    renamed = {"env": {"name": "NOTE", "value": "hidden, 3 characters"}}
    assert restored(renamed, Hiding().masked(pair), pair) == renamed


def test_b86_a_fault_does_not_say_the_secret():
    text = {"type": "string", "maxLength": 3}
    schema = canonical.dumps(
        {"type": "object", "properties": {"password": text, "pin": text, "to": text}}
    )
    given = {"password": "s3cr3t", "pin": "4711", "to": "Anna"}
    told = misfit(schema, canonical.dumps(given), hiding=Hiding.of(["pin"]))
    assert "s3cr3t" not in told
    assert "4711" not in told
    assert "'Anna' is too long" in told


def test_b86_what_gives_nothing_away_is_shown():
    harmless = {"password_length": 12, "needs_password": True, "token": None, "pwd": ""}
    assert Hiding().masked(harmless) == harmless


def test_b86_a_tool_says_what_only_looks_like_a_secret():
    given = {"token": "word", "inside": {"token": "x", "password": "y"}, "pin": "1"}
    hiding = Hiding.of(["pin"], ["token"])
    assert hiding.masked(given) == {
        "token": "word",
        "inside": {"token": "x", "password": "hidden, 1 characters"},
        "pin": "hidden, 1 characters",
    }
    assert hiding.found(given) == ["y", "1"]


def test_b86_what_a_page_leaves_hidden_stands_for_the_value():
    masked = Hiding().masked(ARGUMENTS)
    assert restored(masked, masked, ARGUMENTS) == ARGUMENTS
    edited = json.loads(json.dumps(masked)) | {"maxTokens": 1}
    edited["headers"]["Accept"] = "*/*"
    edited["env"].append({"name": "B", "value": "c"})
    assert restored(edited, masked, ARGUMENTS) == ARGUMENTS | {
        "maxTokens": 1,
        "headers": {"X-Api-Key": "key-xylo", "Accept": "*/*"},
        "env": [*ARGUMENTS["env"], {"name": "B", "value": "c"}],
    }


VARIABLE = {"name": "API_KEY", "value": "key-xylo", "scope": "all"}


def test_b86_a_name_and_its_secret_may_be_the_arguments_themselves():
    for name in ("name", "key"):
        given = {name: "API_KEY", "value": "key-xylo", "scope": "all"}
        assert Hiding().masked(given) == given | {"value": "hidden, 8 characters"}
        assert Hiding().found(given) == ["key-xylo"]
        assert Hiding().hides(given, "value")
        assert not Hiding().changes(given, name)


@pytest.mark.parametrize(
    "given",
    [
        {"name": "GREETING", "value": "key-xylo"},
        {"name": "API_KEY", "value": 5},
        {"name": ["API_KEY"], "value": "key-xylo"},
        {"value": "key-xylo"},
        # A tool might run it, and the model chose the name beside it.
        {"name": "API_KEY", "value": "rm -rf /"},
        {"name": "API_KEY", "value": "$(reboot)"},
        {"name": "API_KEY", "value": "../../etc/passwd"},
    ],
)
def test_b86_no_other_value_is_hidden_by_the_name_beside_it(given):
    assert Hiding().masked(given) == given


def test_b86_a_tool_says_that_a_named_value_is_none():
    for plain in ("API_KEY", "value"):
        assert Hiding.of([], [plain]).masked(VARIABLE) == VARIABLE
        assert Hiding.of([], [plain]).masked({"env": [VARIABLE]}) == {"env": [VARIABLE]}


def test_b86_what_stands_beside_a_pair_is_looked_through():
    pair = VARIABLE | {"password": "xylo", "value": "rm -rf /"}
    (masked,) = Hiding().masked({"env": [pair]})["env"]
    assert masked["value"] == "hidden, 8 characters"
    assert masked["password"] == "hidden, 4 characters"


def test_b86_a_fault_of_a_named_value_does_not_say_it():
    value = {"type": "string", "maxLength": 3}
    part = {"type": "object", "properties": {"value": value}}
    env = {"type": "array", "items": part}
    schema = canonical.dumps(part | {"properties": {"value": value, "env": env}})
    told = misfit(schema, canonical.dumps(VARIABLE | {"env": [VARIABLE]}))
    assert told == (
        "env.0.value: what was given does not fit “maxLength”; "
        "value: what was given does not fit “maxLength”"
    )


def test_b86_no_other_name_uncovers_a_value(desk, make_interrupts, rita):
    services.register_tools(AGENT, [*TOOLS, ToolSpec(name="delete_variable")])
    [interrupt] = make_interrupts([call("delete_variable", **VARIABLE)])
    assert "key-xylo" not in interrupt.title
    page = pages_of(rita).get(f"/inbox/{interrupt.pk}/").content.decode()
    assert "API_KEY" in page
    assert "key-xylo" not in page
    form = ArgumentsForm(interrupt.arguments, "", hiding=interrupt.hiding)
    assert list(form.fields) == ["scope"]
    page = pages_of(rita).get(f"/inbox/{interrupt.pk}/?edit").content.decode()
    assert "The value that goes with this name is hidden." in page
    assert "key-xylo" not in page


def test_b86_pages_show_none_and_say_so(connect, rita):
    interrupt = connect()
    client = pages_of(rita)
    for address in (f"/inbox/{interrupt.pk}/", f"/runs/{interrupt.run_id}/", "/inbox/"):
        page = client.get(address).content.decode()
        assert shows_none(page)
    page = client.get(f"/inbox/{interrupt.pk}/").content.decode()
    assert "a decision holds for that value only" in page
    assert "https://rita:⟦hidden, 9 characters⟧@desk.example.org/" in page
    assert "512" in page
    assert "text/plain" in page
    assert interrupt.title.startswith("Go to https://rita:⟦hidden")


def test_b86_what_the_agent_said_before_is_shown_without(make_run, rita):
    run = make_run()
    claim = services.claim_run(run.pk, owner="worker")
    said = "I am going to use Bearer abc-123-def now."
    draft = InterruptDraft(call=call(), said=said)
    services.open_interrupts(run.pk, attempt=claim.attempt, drafts=[draft])
    page = pages_of(rita).get(f"/inbox/{run.interrupts.get().pk}/").content.decode()
    assert "I am going to use Bearer ⟦hidden, 11 characters⟧ now." in page


def test_b86_records_and_exports_have_none(connect, rita, tmp_path):
    interrupt = connect()
    services.decide(interrupt.pk, ballot(interrupt), reviewer=rita)
    assert shows_none("".join(AuditEntry.objects.values_list("payload", flat=True)))
    path = tmp_path / "chain.jsonl"
    call_command("export_audit", output=str(path))
    assert shows_none(path.read_text("utf-8"))
    assert "512" in path.read_text("utf-8")


def test_b86_the_real_values_are_decided_and_run(connect, rita):
    interrupt = connect()
    assert canonical.loads(interrupt.arguments) == ARGUMENTS
    services.decide(interrupt.pk, ballot(interrupt), reviewer=rita)
    claim = services.claim_run(interrupt.run_id, owner="worker")
    permit = services.begin_execution(
        interrupt.run_id,
        attempt=claim.attempt,
        call=claim.answers[0].call,
        owner="worker",
    )
    assert permit.arguments == ARGUMENTS
    page = pages_of(rita).get(f"/runs/{interrupt.run_id}/").content.decode()
    assert shows_none(page)


def test_b86_what_is_not_shown_whole_cannot_be_edited_in_the_form(connect, rita):
    interrupt = connect()
    form = ArgumentsForm(interrupt.arguments, "", hiding=interrupt.hiding)
    assert list(form.fields) == ["maxTokens"]
    changed = ARGUMENTS | {"clientSecret": "other-xylo", "maxTokens": 9}
    services.decide(interrupt.pk, ballot(interrupt, arguments=changed), reviewer=rita)
    interrupt.refresh_from_db()
    found = {
        str(change.name.html): str(change.html)
        for change in display.changes(
            interrupt.arguments, interrupt.decision.arguments, hiding=interrupt.hiding
        )
    }
    assert found["clientSecret"] == "changed, hidden"
    told = services.answers.beside_text(interrupt.decision)
    assert "clientSecret (changed, not shown)" in told
    assert shows_none(told)


def test_b86_a_tool_may_show_what_only_looks_like_one(connect, rita):
    interrupt = connect(plain=("clientSecret",))
    page = pages_of(rita).get(f"/inbox/{interrupt.pk}/").content.decode()
    assert "s3cr3t-client" in page
    assert "Pass-w0rd" not in page
