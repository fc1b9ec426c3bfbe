from __future__ import annotations

from typing import Any

from django.contrib.auth.views import LoginView

from hitlagents.demo import people


class SignInView(LoginView):
    """Django's own, and in demo mode the accounts one can try."""

    redirect_authenticated_user = True

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        return super().get_context_data(**kwargs) | people.sign_in_context()
