from __future__ import annotations

import pytest
from django.core.exceptions import ImproperlyConfigured

from hitlsite.env import env_bool, env_int, env_list, env_secret, env_str

pytestmark = pytest.mark.once


def test_a_text_that_is_set_to_nothing_counts_as_not_set(monkeypatch):
    monkeypatch.setenv("SAYSO_X", " ")
    assert env_str("SAYSO_X", "default") == "default"


@pytest.mark.parametrize(
    ("value", "expected"), [("1", True), ("Yes", True), ("off", False), ("0", False)]
)
def test_a_switch_has_several_spellings(monkeypatch, value, expected):
    monkeypatch.setenv("SAYSO_X", value)
    assert env_bool("SAYSO_X", default=not expected) is expected


def test_a_switch_that_cannot_be_read_stops_the_start(monkeypatch):
    monkeypatch.setenv("SAYSO_X", "ture")
    with pytest.raises(ImproperlyConfigured, match=r"SAYSO_X is 'ture', but .*\.$"):
        env_bool("SAYSO_X")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("many", "must be a whole number"),
        ("0", "must be between 1 and 9"),
        ("10", "must be between 1 and 9"),
    ],
)
def test_a_number_outside_its_bounds_stops_the_start(monkeypatch, value, message):
    monkeypatch.setenv("SAYSO_X", value)
    with pytest.raises(ImproperlyConfigured, match=message):
        env_int("SAYSO_X", 5, minimum=1, maximum=9)


def test_a_number_is_read(monkeypatch):
    monkeypatch.setenv("SAYSO_X", "7")
    assert env_int("SAYSO_X", 5) == 7
    assert env_int("SAYSO_Y", 5) == 5


def test_a_list_is_split_at_commas(monkeypatch):
    monkeypatch.setenv("SAYSO_X", "a, b,,c ")
    assert env_list("SAYSO_X") == ["a", "b", "c"]
    assert env_list("SAYSO_Y", ["d"]) == ["d"]


def test_a_secret_comes_from_a_file_too(monkeypatch, tmp_path):
    path = tmp_path / "secret"
    path.write_text("sesame\n")
    monkeypatch.setenv("SAYSO_X_FILE", str(path))
    assert env_secret("SAYSO_X") == "sesame"


def test_a_secret_given_twice_stops_the_start(monkeypatch, tmp_path):
    monkeypatch.setenv("SAYSO_X", "sesame")
    monkeypatch.setenv("SAYSO_X_FILE", str(tmp_path / "secret"))
    with pytest.raises(ImproperlyConfigured, match="only one of them"):
        env_secret("SAYSO_X")


@pytest.mark.parametrize(
    ("content", "message"), [(None, "cannot be read"), ("\n", "which is empty")]
)
def test_a_secret_file_without_a_secret_stops_the_start(
    monkeypatch, tmp_path, content, message
):
    path = tmp_path / "secret"
    if content is not None:
        path.write_text(content)
    monkeypatch.setenv("SAYSO_X_FILE", str(path))
    with pytest.raises(ImproperlyConfigured, match=message):
        env_secret("SAYSO_X")
