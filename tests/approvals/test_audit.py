from __future__ import annotations

import pytest
from django.db import connection

from approvals import audit, services
from approvals.models import AuditEntry, AuditHead
from tests.plugins.cast import ballot


@pytest.fixture
def chain(interrupt, rita):
    services.decide(interrupt.pk, ballot(interrupt), reviewer=rita)
    return [audit.from_json_line(audit.to_json_line(e)) for e in audit.stored_chain()]


def changed(chain, at, **values):
    return [*chain[:at], chain[at]._replace(**values), *chain[at + 1 :]]


def head():
    row = AuditHead.objects.get()
    return row.number, row.hash


def test_m19_the_chain_verifies_from_the_database_and_from_the_export(chain):
    assert audit.verify(audit.stored_chain(), expected_head=head()).broken is None
    report = audit.verify(chain, expected_head=head())
    assert report.broken is None
    assert report.count == len(chain) >= 5


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("actor", "eve"),
        ("action", "interrupt.denied"),
        ("payload", "{}"),
        ("hash", "0" * 64),
        ("previous", "1" * 64),
        ("payload_mac", "2" * 64),
        ("run", None),
        ("salt", None),
    ],
)
def test_i23_a_changed_entry_is_named(chain, field, value):
    broken = audit.verify(changed(chain, 2, **{field: value})).broken
    assert broken is not None
    assert broken.number == 3


def test_i23_deletion_insertion_reordering_and_cutting_are_named(chain):
    assert audit.verify(chain[:1] + chain[2:]).broken.number == 2
    assert audit.verify(chain[:2] + chain[1:]).broken.number == 3
    swapped = [*chain[:1], chain[2], chain[1], *chain[3:]]
    assert audit.verify(swapped).broken.number == 2
    cut = audit.verify(chain[:-1], expected_head=head())
    assert cut.broken.number == len(chain)


def test_an_entry_rewritten_with_its_own_hash_breaks_the_next_link(chain):
    forged = chain[2]._replace(actor="eve")
    forged = forged._replace(hash=audit.entry_hash(forged))
    assert audit.verify([*chain[:2], forged, *chain[3:]]).broken.number == 4


def test_k35_rows_cannot_be_changed_through_the_models(chain):
    entry = AuditEntry.objects.first()
    with pytest.raises(TypeError):
        entry.save()
    with pytest.raises(TypeError):
        entry.delete()
    with pytest.raises(TypeError):
        AuditEntry.objects.all().delete()
    with pytest.raises(TypeError):
        AuditEntry.objects.update(actor="eve")


def test_a_row_changed_behind_the_models_is_found(chain):
    with connection.cursor() as cursor:
        cursor.execute("UPDATE approvals_auditentry SET actor = 'eve' WHERE number = 4")
    assert audit.verify(audit.stored_chain()).broken.number == 4


def test_a_rolled_back_step_leaves_no_entry(interrupt, rita):
    before = head()

    def decide_and_stumble():
        with services.unit_of_work():
            services.decide(interrupt.pk, ballot(interrupt), reviewer=rita)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        decide_and_stumble()
    assert head() == before
    interrupt.refresh_from_db()
    assert interrupt.is_open
