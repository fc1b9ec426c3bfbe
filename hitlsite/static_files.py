"""Collects and compresses the static files when they have changed."""

from __future__ import annotations

import hashlib
import logging
from pathlib import Path

import django
from django.conf import settings
from django.contrib.staticfiles.finders import get_finders
from django.core.files import locks
from django.core.management import call_command

logger = logging.getLogger(__name__)


def collect_if_changed() -> bool:
    """Bring STATIC_ROOT up to date; say whether there was something to do.

    Call it before the ASGI application is made: the middleware lists the folder once.
    """
    root = Path(settings.STATIC_ROOT)
    root.mkdir(parents=True, exist_ok=True)
    stamp = root.with_name(f"{root.name}.stamp")
    with root.with_name(f"{root.name}.lock").open("w") as lock:
        locks.lock(lock, locks.LOCK_EX)  # Two processes may start at the same moment.
        fingerprint = _fingerprint()
        if stamp.exists() and stamp.read_text(encoding="ascii") == fingerprint:
            return False
        logger.info("Collecting static files into %s.", root)
        call_command("collectstatic", interactive=False, clear=True, verbosity=0)
        stamp.write_text(fingerprint, encoding="ascii")
    return True


def _fingerprint() -> str:
    """Names, sizes and times of all files: reading them would take longer."""
    digest = hashlib.sha256(f"{django.__version__} {settings.STORAGES}".encode())
    for finder in get_finders():
        for name, storage in finder.list(None):
            size = storage.size(name)
            time = storage.get_modified_time(name).timestamp()
            digest.update(f"{name} {size} {time}\n".encode())
    return digest.hexdigest()
