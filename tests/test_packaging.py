from __future__ import annotations

import json
import re
import tomllib

import pytest
from django.conf import settings
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from hitlsite.paths import BASE_DIR

pytestmark = pytest.mark.once

PROJECT = tomllib.loads((BASE_DIR / "pyproject.toml").read_text())["project"]
RUN = PROJECT["dependencies"] + [
    requirement
    for extra, requirements in PROJECT["optional-dependencies"].items()
    if extra != "dev"
    for requirement in requirements
]
DEV = PROJECT["optional-dependencies"]["dev"]


def pins(name: str) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    text = (BASE_DIR / name).read_text()
    for package, version in re.findall(r"^([\w.-]+)(?:\[.*\])?==(\S+)", text, re.M):
        found.setdefault(canonicalize_name(package), set()).add(version)
    return found


@pytest.mark.parametrize(
    ("name", "requirements"),
    [("requirements.lock", RUN), ("requirements-dev.lock", RUN + DEV)],
)
def test_a_lock_holds_what_the_project_asks_for(name, requirements):
    locked = pins(name)
    for line in requirements:
        wanted = Requirement(line)
        versions = locked.get(canonicalize_name(wanted.name), set())
        assert versions, f"{wanted.name} is missing; run ./dev lock"
        assert all(wanted.specifier.contains(v) for v in versions), line


def test_the_development_lock_agrees_with_the_other_one():
    run, dev = pins("requirements.lock"), pins("requirements-dev.lock")
    assert run == {name: dev.get(name) for name in run}


@pytest.mark.parametrize("name", ["requirements.lock", "requirements-dev.lock"])
def test_a_lock_names_no_place_and_has_hashes(name):
    text = (BASE_DIR / name).read_text()
    assert "://" not in text
    assert not re.search(r"^\s*--(?!hash=)", text, re.M)
    entries = re.split(r"^(?=\S)", text, flags=re.M)[1:]
    assert all("--hash=sha256:" in entry for entry in entries)


def test_a_lock_of_npm_packages_names_no_registry_and_has_hashes():
    locks = list(BASE_DIR.glob("*/*/package-lock.json"))
    assert locks
    for lock in locks:
        packages = json.loads(lock.read_text("utf-8"))["packages"]
        packages.pop("")
        assert not [name for name, each in packages.items() if "resolved" in each]
        assert all(each["integrity"] for each in packages.values()), lock


def test_the_version_is_the_newest_of_the_changelog():
    assert PROJECT["version"] == settings.SAYSO_VERSION
