"""The settings and the system checks, as a fresh process with an environment sees them."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from django.core.exceptions import ImproperlyConfigured

from hitlsite import databases
from hitlsite.hosts import is_loopback
from hitlsite.paths import BASE_DIR

pytestmark = pytest.mark.once

OURS = ("SAYSO_", "DATABASE_URL", "REDIS_URL", "DJANGO_", "PYTEST_")


def manage(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith(OURS)}
    return subprocess.run(
        [sys.executable, "manage.py", *arguments],
        cwd=BASE_DIR,
        env={**clean, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def read(expression: str, **environment: str):
    script = f"import json; from django.conf import settings as s; print(json.dumps({expression}))"
    done = manage("shell", "--no-imports", "-c", script, **environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def data(tmp_path: Path) -> dict[str, str]:
    return {"SAYSO_DATA": str(tmp_path / "data")}


def test_a_start_without_any_setting_is_a_safe_demo_on_this_machine(data):
    values = read("[s.DEBUG, s.SAYSO_DEMO, s.SAYSO_HOST, s.ALLOWED_HOSTS]", **data)
    assert values == [False, True, "127.0.0.1", ["localhost", "127.0.0.1", "[::1]"]]
    done = manage("check", "--fail-level", "WARNING", **data)
    assert done.returncode == 0, done.stderr


def test_the_secret_key_is_made_once_and_only_its_owner_may_read_it(data):
    first = read("s.SECRET_KEY", **data)
    assert read("s.SECRET_KEY", **data) == first
    assert len(first) >= 64
    path = Path(data["SAYSO_DATA"], "secret.key")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [p.name for p in path.parent.glob("secret*")] == ["secret.key"]


def test_a_database_server_turns_the_demo_off(data):
    url = "postgres://sayso@db.example/sayso"
    values = read("s.SAYSO_DEMO", DATABASE_URL=url, SAYSO_SECRET_KEY="x", **data)
    assert values is False


def test_redis_is_read_without_a_time_limit(data):
    layer = read("s.CHANNEL_LAYERS['default']", REDIS_URL="redis://r:6379/0", **data)
    assert layer["BACKEND"].endswith("RedisPubSubChannelLayer")
    assert layer["CONFIG"]["hosts"] == [
        {"address": "redis://r:6379/0", "socket_timeout": None}
    ]


@pytest.mark.parametrize(
    ("environment", "ids"),
    [
        ({"HOST": "0.0.0.0", "SAYSO_DEMO": "1"}, ["hitlsite.E001"]),
        ({"SAYSO_HOSTS": "desk.example", "SAYSO_DEMO": "1"}, ["hitlsite.E001"]),
        ({"HOST": "::", "SAYSO_DEBUG": "1"}, ["hitlsite.E002"]),
        ({"SAYSO_PROCESSES": "2"}, ["hitlsite.E003", "hitlsite.E004"]),
        ({"DATABASE_URL": "postgres://db.example/sayso"}, ["hitlsite.E005"]),
        ({"HOST": "0.0.0.0"}, ["hitlsite.W001", "hitlsite.W002"]),
    ],
)
def test_an_unsafe_start_is_refused(data, environment, ids):
    done = manage("check", "--fail-level", "WARNING", **data, **environment)
    assert done.returncode == 1
    assert set(ids) <= set(_ids(done.stderr))
    if ids[0].startswith("hitlsite.E"):
        assert "SystemCheckError" in done.stderr


def _ids(output: str) -> list[str]:
    marks = [part.split(")")[0] for part in output.split("(hitlsite.")[1:]]
    return [f"hitlsite.{mark}" for mark in marks]


def test_an_installation_for_others_passes(data):
    done = manage(
        "check",
        "--fail-level",
        "WARNING",
        HOST="0.0.0.0",
        SAYSO_HOSTS="desk.example",
        SAYSO_HTTPS="1",
        SAYSO_PROCESSES="3",
        SAYSO_SECRET_KEY="k" * 60,
        DATABASE_URL="postgres://db.example/sayso",
        REDIS_URL="redis://redis.example",
        **data,
    )
    assert done.returncode == 0, done.stderr


def test_a_value_that_cannot_be_read_is_told_in_a_sentence(data):
    done = manage("check", SAYSO_DEBUG="maybe", **data)
    assert done.returncode == 1
    assert "SAYSO_DEBUG is 'maybe', but it must be one of" in done.stderr


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("localhost", True),
        ("127.8.0.1", True),
        ("[::1]", True),
        ("desk.localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("*", False),
        ("192.168.0.4", False),
        ("localhost.example", False),
    ],
)
def test_which_hosts_are_this_machine(host, expected):
    assert is_loopback(host) is expected


def test_a_database_address_is_taken_apart():
    entry = databases.postgresql(
        "postgres://al%40ice:p%2Fw@db.example:6543/desk?sslmode=require", pool_size=4
    )
    assert entry["USER"] == "al@ice"
    assert entry["PASSWORD"] == "p/w"
    assert (entry["HOST"], entry["PORT"]) == ("db.example", "6543")
    assert entry["NAME"] == "desk"
    assert entry["CONN_MAX_AGE"] == 0
    assert entry["OPTIONS"]["sslmode"] == "require"
    assert entry["OPTIONS"]["pool"]["max_size"] == 4


def test_a_database_address_may_name_a_socket():
    entry = databases.postgresql("postgres:///desk?host=/run/postgresql", pool_size=4)
    assert (entry["HOST"], entry["PORT"]) == ("/run/postgresql", "")


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("mysql://db/desk", "must be a postgres:// address"),
        ("postgres://db", "names no database"),
        ("postgres://db:port/desk", "port that is not a number"),
    ],
)
def test_a_database_address_that_cannot_be_used_is_refused(url, message):
    with pytest.raises(ImproperlyConfigured, match=message):
        databases.postgresql(url, pool_size=4)


def test_origins_of_other_pages_are_none_unless_they_are_named(data):
    assert read("s.SAYSO_CORS_ORIGINS", **data) == []
    named = "https://a.example.org, http://127.0.0.1:3000/"
    assert read("s.SAYSO_CORS_ORIGINS", **data, SAYSO_CORS_ORIGINS=named) == [
        "https://a.example.org",
        "http://127.0.0.1:3000",
    ]


@pytest.mark.parametrize("origin", ["*", "a.example.org", "https://a/b", "null"])
def test_what_is_no_origin_is_refused_in_a_sentence(data, origin):
    done = manage("check", **data, SAYSO_CORS_ORIGINS=origin)
    assert done.returncode != 0
    assert f"SAYSO_CORS_ORIGINS names '{origin}'" in done.stderr
