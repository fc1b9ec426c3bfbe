from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from django.contrib.staticfiles import storage
from django.test import override_settings

from hitlsite.static_files import collect_if_changed

pytestmark = pytest.mark.once

STORAGES = {
    "staticfiles": {
        "BACKEND": "whitenoise.storage.CompressedManifestStaticFilesStorage"
    }
}


@pytest.fixture
def source(tmp_path: Path):
    folder = tmp_path / "source"
    folder.mkdir()
    folder.joinpath("page.css").write_text("p { color: red }\n" * 200)
    changes = {
        "STATIC_ROOT": tmp_path / "collected",
        "STATICFILES_DIRS": [folder],
        "STATICFILES_FINDERS": [
            "django.contrib.staticfiles.finders.FileSystemFinder",
        ],
        "STORAGES": STORAGES,
    }
    with override_settings(**changes):
        yield folder


def test_files_are_collected_once_and_again_when_one_changes(source, settings):
    assert collect_if_changed() is True
    assert collect_if_changed() is False

    page = source / "page.css"
    page.write_text("p { color: blue }\n" * 200)
    os.utime(page, (1, 1))
    assert collect_if_changed() is True
    collected = Path(settings.STATIC_ROOT, "page.css").read_text()
    assert "blue" in collected


def test_files_are_named_by_content_and_compressed(source, settings):
    collect_if_changed()
    root = Path(settings.STATIC_ROOT)
    name = json.loads((root / "staticfiles.json").read_text())["paths"]["page.css"]
    assert name != "page.css"
    assert (root / f"{name}.gz").exists()
    assert storage.staticfiles_storage.url("page.css") == f"/static/{name}"
