"""Who somebody is and what they may do, in two small queries for each request."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.backends import ModelBackend
from django.contrib.auth.models import Permission, User

from approvals.prepared import Prepared, Slot

_USER = Prepared(lambda: User.objects.filter(pk=Slot(User, "id")))


def _permissions(**of: Slot) -> Any:
    found = Permission.objects.filter(**of).order_by()
    return found.values_list("content_type__app_label", "codename")


_PERMISSIONS = Prepared(
    lambda: (
        _permissions(user=Slot(User, "id"))
        .union(_permissions(group__user=Slot(User, "id")))
        .order_by()
    )
)


class DatabaseBackend(ModelBackend):
    """Django's own, with the permissions of a person and of their groups read together."""

    def get_user(self, user_id: Any) -> User | None:
        user = _USER.first(id=user_id)
        return user if user is not None and self.user_can_authenticate(user) else None

    def get_all_permissions(self, user_obj: Any, obj: Any = None) -> set[str]:
        if obj is not None or not user_obj.is_active or user_obj.is_superuser:
            return super().get_all_permissions(user_obj, obj)
        if not hasattr(user_obj, "_perm_cache"):
            rows = _PERMISSIONS.all(id=user_obj.pk) if user_obj.pk else []
            user_obj._perm_cache = {f"{app}.{codename}" for app, codename in rows}
        permissions: set[str] = user_obj._perm_cache
        return permissions
