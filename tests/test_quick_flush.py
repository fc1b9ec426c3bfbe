from __future__ import annotations

import pytest
from django.contrib.auth.models import Group, Permission
from django.core.management import call_command

from tests.plugins.cast import OPS


@pytest.mark.django_db(transaction=True)
def test_what_a_test_made_is_gone_and_what_migrate_made_is_the_same(desk):
    made = Group.objects.get(name=OPS)
    before = set(Permission.objects.values_list("pk", "codename"))
    made.permissions.add(Permission.objects.get(codename="view_policy"))
    call_command("flush", interactive=False, verbosity=0)
    assert not Group.objects.exists()
    assert not Permission.objects.filter(group__isnull=False).exists()
    assert set(Permission.objects.values_list("pk", "codename")) == before
