"""The files of others that we ship are the ones the manifest names, byte for byte."""

from __future__ import annotations

import hashlib
import json

import pytest

from hitlsite.paths import BASE_DIR

pytestmark = pytest.mark.once

VENDOR = BASE_DIR / "static" / "vendor"
MANIFEST = json.loads((VENDOR / "manifest.json").read_text())


@pytest.mark.parametrize("entry", MANIFEST, ids=lambda entry: entry["file"])
def test_a_vendored_file_is_unchanged(entry):
    content = (VENDOR / entry["file"]).read_bytes()
    assert hashlib.sha512(content).hexdigest() == entry["sha512"]
    assert entry["version"] in entry["file"]
    assert (VENDOR / entry["licence_text"]).stat().st_size > 0


def test_every_vendored_file_is_listed():
    listed = {"manifest.json"}
    for entry in MANIFEST:
        listed |= {entry["file"], entry["licence_text"]}
    found = {
        str(path.relative_to(VENDOR)) for path in VENDOR.rglob("*") if path.is_file()
    }
    assert found == listed


@pytest.mark.parametrize("entry", MANIFEST, ids=lambda entry: entry["file"])
def test_a_vendored_file_points_to_no_source_map(entry):
    assert b"sourceMappingURL=" not in (VENDOR / entry["file"]).read_bytes()
