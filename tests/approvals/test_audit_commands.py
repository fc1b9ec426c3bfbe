"""verify_audit, export_audit and erase_payload, as an operator runs them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from approvals import audit, services
from approvals.exceptions import InvalidArguments, NotFound
from approvals.models import AuditEntry, AuditHead
from hitlsite.paths import BASE_DIR
from tests.plugins.cast import ballot


@pytest.fixture
def decided(interrupt, rita):
    services.decide(interrupt.pk, ballot(interrupt), reviewer=rita)
    return interrupt


@pytest.fixture
def export(decided, tmp_path):
    path = tmp_path / "chain.jsonl"
    run("export_audit", output=str(path))
    return path


def run(*arguments, **options):
    out = StringIO()
    call_command(*arguments, stdout=out, **options)
    return out.getvalue()


def refused(*arguments, **options):
    with pytest.raises(CommandError) as error:
        run(*arguments, **options)
    return str(error.value)


def rewrite(path, change):
    lines = path.read_text(encoding="utf-8").splitlines()
    change(lines)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def sql(statement, *values):
    with connection.cursor() as cursor:
        cursor.execute(statement, values)


# The stored chain


def test_i23_the_stored_chain_is_verified_against_its_head(decided):
    head = AuditHead.objects.get()
    said = run("verify_audit")
    assert f"{head.number} entries" in said
    assert f"Head: {head.number}:{head.hash}" in said
    assert "--expect" in said


def test_an_empty_chain_is_fine(db):
    services.prepare()
    assert "the chain is empty" in run("verify_audit")


@pytest.mark.parametrize(
    ("statement", "number", "why"),
    [
        ("UPDATE approvals_auditentry SET actor = 'eve' WHERE number = 4", 4, "hash"),
        (
            "UPDATE approvals_auditentry SET payload = '{}' WHERE number = 3",
            3,
            "changed",
        ),
        (
            "UPDATE approvals_auditentry SET salt = 'zz' WHERE number = 3",
            3,
            "none that",
        ),
        ("UPDATE approvals_auditentry SET salt = NULL WHERE number = 2", 2, "half"),
        (
            "UPDATE approvals_auditentry SET salt = NULL, payload = NULL"
            " WHERE number = 2",
            2,
            "no entry says that it was erased",
        ),
        ("DELETE FROM approvals_auditentry WHERE number = 2", 2, "missing"),
        ("DELETE FROM approvals_auditentry WHERE number = 5", 5, "ends at 4"),
        ("DELETE FROM approvals_audithead", 1, "its head is 0"),
        ("UPDATE approvals_audithead SET number = 3", 4, "its head is 3"),
        ("UPDATE approvals_audithead SET hash = 'ab'", 5, "head's hash"),
    ],
)
def test_i23_what_was_changed_behind_the_models_is_named(
    decided, statement, number, why
):
    sql(statement)
    said = refused("verify_audit")
    assert f"Entry {number} does not fit" in said
    assert why in said


@pytest.mark.once  # PostgreSQL's columns hold their types.
@pytest.mark.parametrize("column", ["time", "run"])
def test_columns_that_cannot_be_read_are_named(decided, column):
    change = "UPDATE approvals_auditentry SET {} = 'no such thing' WHERE number = 3"
    sql(change.format(column))
    said = refused("verify_audit")
    assert "Entry 3 does not fit: the columns of entry 3 are damaged" in said
    assert "2 entries before it fit" in said


def test_what_is_appended_while_the_chain_is_read_is_read_too(decided, make_run):
    verifier = audit.Verifier()
    links = audit.stored_chain(batch=1)
    verifier.take_all([next(links)])
    make_run()
    verifier.take_all(links)
    head = AuditHead.objects.get()
    assert verifier.report(head=(head.number, head.hash)).broken is None


# Expectations noted elsewhere


def test_an_entry_noted_earlier_is_found_in_a_chain_that_has_grown(decided):
    entry = AuditEntry.objects.get(number=2)
    assert "all fit" in run("verify_audit", f"--expect=2:{entry.hash}")


def test_a_chain_written_anew_does_not_hold_the_entry_noted_earlier(decided):
    said = refused("verify_audit", f"--expect=2:{'ab' * 32}")
    assert "Entry 2 does not fit: its hash is not the expected one" in said


def test_a_chain_cut_short_with_its_head_is_found_by_the_noted_head(decided):
    entry = AuditEntry.objects.get(number=4)
    last = AuditEntry.objects.get(number=5)
    sql("DELETE FROM approvals_auditentry WHERE number = 5")
    sql("UPDATE approvals_audithead SET number = 4, hash = %s", entry.hash)
    assert "all fit" in run("verify_audit")
    said = refused("verify_audit", f"--expect=5:{last.hash}")
    assert "Entry 5 does not fit: it was expected" in said


@pytest.mark.parametrize("expect", ["5", "0:" + "a" * 64, "5:abc", "x:" + "a" * 64])
def test_an_expectation_that_cannot_be_read_is_refused(db, expect):
    with pytest.raises(CommandError, match="must look like"):
        call_command("verify_audit", f"--expect={expect}")


# Files


def test_an_export_verifies_and_is_for_its_owner_only(export):
    said = run("verify_audit", file=str(export))
    assert "5 entries" in said
    assert f"Head: 5:{AuditHead.objects.get().hash}" in said
    assert export.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in export.parent.iterdir()] == [export.name]


def test_the_export_on_standard_output_is_the_same(export):
    assert run("export_audit") == export.read_text(encoding="utf-8")


def test_every_byte_of_an_export_counts(export):
    """One changed character anywhere, and the line is named (or is the same JSON)."""
    raw = export.read_bytes()
    fit = 0
    for at in range(0, len(raw), 7):
        path = export.with_name("changed.jsonl")
        path.write_bytes(raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :])
        try:
            run("verify_audit", file=str(path))
        except CommandError:
            continue
        fit += 1
    assert fit == 0


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda lines: lines.pop(1), "Entry 2 does not fit: it is missing"),
        (
            lambda lines: lines.insert(2, lines[1]),
            "Entry 3 does not fit: it is missing",
        ),
        (lambda lines: lines.insert(2, ""), "line 3 is no entry"),
        (lambda lines: lines.insert(2, "{"), "line 3 is no entry"),
        (lambda lines: lines.insert(2, '{"a":1}'), "line 3 is no entry"),
        (lambda lines: lines.insert(0, "\ufeff"), "line 1 is no entry"),
        (
            lambda lines: lines.__setitem__(
                2, lines[2].replace('"number":3', '"number":3.0')
            ),
            "line 3 is no entry: number is not a whole number",
        ),
        (
            lambda lines: lines.__setitem__(2, lines[2][:40]),
            "line 3 is no entry",
        ),
        (lambda lines: lines.clear(), "line 1 is no entry"),
    ],
)
def test_i23_a_bad_line_is_named(export, change, said):
    rewrite(export, change)
    assert said in refused("verify_audit", file=str(export))


def test_bytes_that_are_no_text_are_named(export):
    export.write_bytes(export.read_bytes() + b"\xff\xfe\n")
    assert "line 6 is no entry" in refused("verify_audit", file=str(export))


def test_a_line_longer_than_any_entry_is_not_read_to_its_end(export, monkeypatch):
    monkeypatch.setattr(audit, "MAX_LINE", 5_000)
    export.write_bytes(export.read_bytes() + b"x" * 20_000)
    said = refused("verify_audit", file=str(export))
    assert "line 6 is longer than any entry" in said


def test_an_empty_file_and_none_at_all_are_refused(db, tmp_path):
    path = tmp_path / "empty.jsonl"
    path.touch()
    assert "no entries" in refused("verify_audit", file=str(path))
    assert "cannot be read" in refused("verify_audit", file=str(tmp_path / "none"))
    assert "cannot be written" in refused(
        "export_audit", output=str(tmp_path / "no" / "such")
    )


def test_a_file_is_verified_without_a_database(export):
    """In a process whose database does not exist, as an auditor would."""
    result = subprocess.run(
        [sys.executable, "manage.py", "verify_audit", "--file", str(export)],
        cwd=BASE_DIR,
        env={
            **os.environ,
            "DATABASE_URL": "postgres://nobody@127.0.0.1:1/none",
            "SAYSO_DATA": str(export.parent / "data"),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert "5 entries" in result.stdout

    export.write_text(export.read_text(encoding="utf-8").replace('"rita"', '"ravi"'))
    result = subprocess.run(
        [sys.executable, "manage.py", "verify_audit", "--file", "-"],
        cwd=BASE_DIR,
        env={**os.environ, "SAYSO_DATA": str(export.parent / "data")},
        input=export.read_text(encoding="utf-8"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 1
    assert "Entry 5 does not fit" in result.stderr


# Parts of a chain


def test_a_part_is_verified_as_a_part_only(decided, make_run, tmp_path):
    path = tmp_path / "part.jsonl"
    run("export_audit", output=str(path), since=3)
    said = refused("verify_audit", file=str(path))
    assert "Entry 1 does not fit: it is missing" in said
    assert "--partial" in said
    said = run("verify_audit", file=str(path), partial=True)
    assert "3 entries" in said
    assert "a part of a chain" in said
    assert "(1 gap)" in said


def test_the_entries_of_one_run_are_a_part(interrupt, make_interrupts, tmp_path):
    other = make_interrupts(1)[0]
    path = tmp_path / "run.jsonl"
    run("export_audit", output=str(path), run=interrupt.run_id)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert {line["run"] for line in lines} == {str(interrupt.run_id)}
    assert str(other.run_id) not in path.read_text()
    assert "4 entries" in run("verify_audit", file=str(path), partial=True)

    rewrite(path, lambda lines: lines.__setitem__(1, lines[1].replace("worker", "eve")))
    said = refused("verify_audit", file=str(path), partial=True)
    assert f"Entry {lines[1]['number']} does not fit" in said


def test_a_whole_chain_of_two_parts_is_whole(decided, make_run, tmp_path):
    first, second = tmp_path / "1.jsonl", tmp_path / "2.jsonl"
    run("export_audit", output=str(first))
    make_run()
    run("export_audit", output=str(second), since=6)
    first.write_bytes(first.read_bytes() + second.read_bytes())
    assert "6 entries" in run("verify_audit", file=str(first))


def test_a_part_out_of_order_is_refused(export):
    rewrite(export, lambda lines: lines.reverse())
    said = refused("verify_audit", file=str(export), partial=True)
    assert "Entry 4 does not fit: it stands behind entry 5" in said


def test_partial_is_for_files(db):
    assert "for a --file" in refused("verify_audit", partial=True)


# Erasing


def test_an_erased_payload_is_gone_and_the_chain_says_so(decided, tmp_path):
    before = tmp_path / "before.jsonl"
    run("export_audit", output=str(before))
    entry = AuditEntry.objects.get(number=3)
    assert "file-1.txt" in entry.payload

    run("erase_payload", 3, reason="Request 12 of a customer.")

    entry = AuditEntry.objects.get(number=3)
    assert entry.payload is entry.salt is None
    last = AuditEntry.objects.first()
    assert last.action == "audit.erased"
    assert last.actor.startswith("operator:")
    assert last.run == entry.run
    assert json.loads(last.payload) == {
        "number": 3,
        "reason": "Request 12 of a customer.",
    }
    assert "Payloads erased: 1" in run("verify_audit")
    after = tmp_path / "after.jsonl"
    run("export_audit", output=str(after))
    run("verify_audit", file=str(after))
    run("verify_audit", file=str(before))
    part = tmp_path / "part.jsonl"
    run("export_audit", output=str(part), run=entry.run)
    run("verify_audit", file=str(part), partial=True)


def test_what_cannot_be_erased(decided):
    services.erase_payload(3, reason="because", actor="operator:root")
    with pytest.raises(InvalidArguments, match="already erased"):
        services.erase_payload(3, reason="again", actor="operator:root")
    with pytest.raises(InvalidArguments, match="so it stays"):
        services.erase_payload(6, reason="cover up", actor="operator:root")
    with pytest.raises(NotFound):
        services.erase_payload(99, reason="because", actor="operator:root")
    with pytest.raises(InvalidArguments, match="Say why"):
        services.erase_payload(2, reason=" ", actor="operator:root")
    assert "no entry 99" in refused("erase_payload", 99, reason="because")
    assert AuditHead.objects.get().number == 6
