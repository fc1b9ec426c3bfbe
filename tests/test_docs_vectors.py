"""The test vectors and the verifier of docs/canonical.md, read from the page itself."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import uuid

import pytest

from approvals import audit, canonical, services
from approvals.exceptions import InvalidArguments
from approvals.models import Interrupt, Run
from approvals.policies import Ruling
from hitlsite.paths import BASE_DIR
from tests.plugins.cast import ballot

PAGE = (BASE_DIR / "docs" / "canonical.md").read_text(encoding="utf-8")


def block(kind):
    (found,) = re.findall(rf"^```{kind}\n(.*?)^```$", PAGE, re.M | re.S)
    return found.rstrip("\n")


def pairs(kind):
    lines = block(f"vectors {kind}").split("\n")
    assert all(line.startswith("→ ") for line in lines[1::2])
    return [
        (given, wanted.removeprefix("→ "))
        for given, wanted in zip(lines[::2], lines[1::2], strict=True)
    ]


def digests():
    return [
        dict(line.split(maxsplit=1) for line in part.split("\n"))
        for part in block("vectors digests").split("\n\n")
    ]


@pytest.mark.parametrize(("given", "wanted"), pairs("canonical"))
def test_canonical_text(given, wanted):
    if wanted == "refused":
        with pytest.raises(InvalidArguments):
            canonical.dumps(canonical.loads(given))
        return
    assert canonical.dumps(canonical.loads(given)) == wanted
    assert canonical.dumps(canonical.loads(wanted)) == wanted


@pytest.mark.parametrize("vector", digests(), ids=lambda vector: vector["domain"])
def test_digests(vector):
    if "salt" in vector:
        found = canonical.keyed_digest(vector["salt"], vector["domain"], vector["text"])
    else:
        found = canonical.plain_digest(vector["domain"], vector["text"])
    assert found == vector["digest"]


def test_what_was_shown():
    """The page's object is what the code hashes, member for member."""
    ((text, digest),) = pairs("shown")
    shown = json.loads(text)
    assert canonical.dumps(shown) == text
    salt = digests()[0]["salt"]
    assert canonical.keyed_digest(salt, "sayso.shown.v1", text) == digest

    renamed = {
        "interrupt": ("id", uuid.UUID(shown["interrupt"])),
        "tool_schema": ("schema_digest", shown["tool_schema"]),
    }
    ruling = Ruling.model_validate(shown.pop("policy"))
    run = Run(id=uuid.UUID(shown.pop("run")), agent=shown.pop("agent"))
    fields = dict(renamed.get(name, (name, value)) for name, value in shown.items())
    interrupt = Interrupt(run=run, salt=salt, **fields)
    assert services.shown_digest(interrupt, ruling) == digest


def test_the_chain():
    links = [audit.from_json_line(line) for line in block("vectors chain").split("\n")]
    report = audit.verify(links)
    assert (report.broken, report.count) == (None, 2)
    assert [audit.to_json_line(link) for link in links] == block("vectors chain").split(
        "\n"
    )


def test_every_domain_of_the_code_is_on_the_page():
    found = {
        domain
        for path in (BASE_DIR / "approvals").rglob("*.py")
        for domain in re.findall(
            r'"(sayso\.[a-z.]+\.v\d+)"', path.read_text(encoding="utf-8")
        )
    }
    assert found == set(re.findall(r"^\| `(sayso\.[a-z.]+\.v\d+)`", PAGE, re.M))


def verified(export):
    program = block("python")
    assert len(program.split("\n")) <= 40
    return subprocess.run(
        [sys.executable, "-I", "-c", program],
        input=export.encode(),
        capture_output=True,
        check=False,
    )


def test_the_verifier_of_the_page_on_a_real_chain(interrupt, rita):
    sent = ballot(interrupt, note="Löschen 🗂\u2028\n")
    services.decide(interrupt.pk, sent, reviewer=rita)
    services.erase_payload(2, reason="because", actor="operator:root")
    lines = [audit.to_json_line(link) for link in audit.stored_chain()]

    result = verified("".join(f"{line}\n" for line in lines))
    assert result.returncode == 0, result.stderr
    report = audit.verify_stored()
    assert f"Head: {report.number}:{report.head}" in result.stdout.decode()

    for changed in (
        [*lines[:2], lines[2].replace("clerk", "Clerk"), *lines[3:]],
        [*lines[:2], lines[2].replace("delete_file", "create_file"), *lines[3:]],
        [*lines[:2], *lines[3:]],
        [*lines[:2], "{", *lines[3:]],
    ):
        result = verified("".join(f"{line}\n" for line in changed))
        assert result.returncode == 1
        assert b"Entry 3 does not fit" in result.stderr


def test_the_verifier_of_the_page_on_the_vectors():
    assert verified(block("vectors chain") + "\n").returncode == 0
