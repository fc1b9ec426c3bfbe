from __future__ import annotations

from django.contrib import admin
from django.contrib.auth.views import LogoutView
from django.urls import include, path

from approvals.admin import change_own_password
from hitlsite.views import SignInView

urlpatterns = [
    # In the place of the admin's own.
    path(
        "admin/password_change/",
        admin.site.admin_view(change_own_password, cacheable=True),
        name="own-password",
    ),
    path("admin/", admin.site.urls),
    path("accounts/login/", SignInView.as_view(), name="login"),
    path("accounts/logout/", LogoutView.as_view(), name="logout"),
    path("agents/", include("hitlagents.urls")),
    path("runs/", include("hitlagents.run_urls")),
    path("agui/", include("hitlagents.agui.urls")),
    path("copilotkit/", include("hitlagents.agui.copilotkit")),
    path("", include("approvals.urls")),
]
