"""The settings of every kind of installation.

There is one settings module; what differs between a laptop, a server and a test run is
environment variables, which are listed in docs/configuration.md. Combinations that
would be unsafe are refused by the system checks in hitlsite/checks.py.
"""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.utils.csp import CSP

from hitlsite import databases, secret_key
from hitlsite.env import env_bool, env_int, env_list, env_secret, env_str
from hitlsite.hosts import LOOPBACK_NAMES, is_loopback
from hitlsite.paths import BASE_DIR, add_source_root

add_source_root()


def version_from(changelog: Path) -> str:
    found = re.search(
        r"^## (\d+\.\d+\.\d+)", changelog.read_text(encoding="utf-8"), re.MULTILINE
    )
    if found is None:
        raise ImproperlyConfigured(
            f"{changelog.name} has no heading like '## 1.2.3', so the version is unknown."
        )
    return found[1]


SAYSO_VERSION = version_from(BASE_DIR / "CHANGELOG.md")

# Asked of the interpreter and not of the environment: a server that a test starts is a
# process of its own, and must behave like a real one.
TESTING = "pytest" in sys.modules

# --- What this installation is ---------------------------------------------------------

DATABASE_URL = env_secret("DATABASE_URL")
REDIS_URL = env_secret("REDIS_URL")

SAYSO_HOST = env_str("HOST", "127.0.0.1")
SAYSO_PORT = env_int("PORT", 8000, maximum=65535)
SAYSO_HTTPS = env_bool("SAYSO_HTTPS")
ALLOWED_HOSTS = env_list("SAYSO_HOSTS", LOOPBACK_NAMES)
SAYSO_PUBLIC = not is_loopback(SAYSO_HOST) or not all(map(is_loopback, ALLOWED_HOSTS))

DEBUG = env_bool("SAYSO_DEBUG")
SAYSO_DEMO = env_bool("SAYSO_DEMO", default=not SAYSO_PUBLIC and not DATABASE_URL)
SAYSO_PROCESSES = env_int("SAYSO_PROCESSES", 1, minimum=1)
SAYSO_RUNS = env_int("SAYSO_RUNS", 32, minimum=1)
# Modules that bring an agent each, beside those of Sayso itself.
SAYSO_AGENTS = env_list("SAYSO_AGENTS")

# --- Files -----------------------------------------------------------------------------

if TESTING:
    _test_directory = tempfile.TemporaryDirectory(prefix="sayso-test-")
    SAYSO_DATA = Path(_test_directory.name)
else:
    SAYSO_DATA = Path(env_str("SAYSO_DATA", str(BASE_DIR / "var"))).resolve()
    try:
        SAYSO_DATA.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as exc:
        raise ImproperlyConfigured(
            f"SAYSO_DATA is {str(SAYSO_DATA)!r}, which cannot be created: {exc}."
        ) from exc

# --- Secrets ---------------------------------------------------------------------------

SECRET_KEY = env_secret("SAYSO_SECRET_KEY")
SECRET_KEY_FALLBACKS = env_list("SAYSO_SECRET_KEY_FALLBACKS")
if TESTING:
    SECRET_KEY = "only-for-tests-" + "x" * 50
elif not SECRET_KEY and not DATABASE_URL:
    SECRET_KEY = secret_key.read_or_create(SAYSO_DATA / "secret.key")
# With a shared database it stays empty: every process must be given the same key, and
# an empty one makes Django refuse to sign anything.

# --- Database --------------------------------------------------------------------------

if DATABASE_URL:
    _database = databases.postgresql(
        DATABASE_URL, pool_size=env_int("SAYSO_DB_POOL", 10, minimum=2)
    )
else:
    _database = databases.sqlite(
        SAYSO_DATA / "sayso.sqlite3", test_directory=SAYSO_DATA
    )

# No ATOMIC_REQUESTS: on SQLite a transaction takes the write lock at its start, so a
# transaction per request would let one request run at a time.
DATABASES = {"default": _database}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

# --- Applications ----------------------------------------------------------------------

INSTALLED_APPS = [
    # First, since its commands about accounts take the place of Django's.
    "hitlsite",
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "channels",
    "django_htmx",
    "django_tasks_db",
    "lucide",
    "approvals",
    "hitlagents",
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.middleware.csp.ContentSecurityPolicyMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
]

ROOT_URLCONF = "hitlsite.urls"
ASGI_APPLICATION = "hitlsite.asgi.application"

TEMPLATES: list[dict[str, Any]] = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "hitlsite.context_processors.sayso",
                "approvals.context_processors.shell",
            ],
        },
    },
]

# --- Waking and live pages -------------------------------------------------------------

TASKS = {"default": {"BACKEND": "django_tasks_db.DatabaseBackend"}}

CHANNEL_LAYERS: dict[str, dict[str, Any]] = {
    "default": {"BACKEND": "channels.layers.InMemoryChannelLayer"}
}
if REDIS_URL:
    CHANNEL_LAYERS["default"] = {
        "BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer",
        "CONFIG": {
            # redis-py's own read timeout of five seconds would cut idle listeners off.
            "hosts": [{"address": REDIS_URL, "socket_timeout": None}],
            "prefix": env_str("SAYSO_REDIS_PREFIX", "sayso"),
        },
    }

# How often open sockets are checked again; what somebody lost the right to hear stops
# after this many seconds at the latest.
SAYSO_LIVE_CHECK_SECONDS = env_int("SAYSO_LIVE_CHECK_SECONDS", 4, minimum=1, maximum=60)

# --- AG-UI -----------------------------------------------------------------------------

# Most event streams one person may keep open in a process, and most bytes of a request:
# pages send the whole conversation every time.
SAYSO_AGUI_STREAMS = env_int("SAYSO_AGUI_STREAMS", 20, minimum=1)
SAYSO_AGUI_MAX_BODY = env_int("SAYSO_AGUI_MAX_BODY", 8_000_000, minimum=1000)
# Pages elsewhere that may call it, with tokens: cookies never cross.
SAYSO_CORS_ORIGINS = [origin.rstrip("/") for origin in env_list("SAYSO_CORS_ORIGINS")]
for _origin in SAYSO_CORS_ORIGINS:
    if not re.fullmatch(r"https?://[^/\s]+", _origin):
        raise ImproperlyConfigured(
            f"SAYSO_CORS_ORIGINS names {_origin!r}, but an origin looks like "
            "https://pages.example.org."
        )

# --- People ----------------------------------------------------------------------------

AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in (
        "UserAttributeSimilarityValidator",
        "MinimumLengthValidator",
        "CommonPasswordValidator",
        "NumericPasswordValidator",
    )
]
if TESTING:
    PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]

AUTHENTICATION_BACKENDS = ["approvals.backends.DatabaseBackend"]
LOGIN_URL = "login"
LOGIN_REDIRECT_URL = "/"
LOGOUT_REDIRECT_URL = "login"

# --- Browser security ------------------------------------------------------------------

SECURE_CSP: dict[str, list[str]] = {
    "default-src": [CSP.SELF],
    "script-src": [CSP.SELF],
    "style-src": [CSP.SELF],
    "font-src": [CSP.SELF],
    "img-src": [CSP.SELF, "data:"],
    "connect-src": [CSP.SELF],
    "form-action": [CSP.SELF],
    "base-uri": [CSP.NONE],
    "object-src": [CSP.NONE],
    "frame-ancestors": [CSP.NONE],
}
X_FRAME_OPTIONS = "DENY"

# Browsers share cookies between the ports of a host, so names of our own keep a second
# Django project on this machine from signing people out here.
SESSION_COOKIE_NAME = "sayso_session"
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = "Lax"
CSRF_COOKIE_NAME = "sayso_csrf"
CSRF_COOKIE_HTTPONLY = True  # Pages carry the token in their markup.
CSRF_COOKIE_SAMESITE = "Lax"
CSRF_FAILURE_VIEW = "approvals.views.errors.csrf_failure"
if SAYSO_HTTPS:
    SESSION_COOKIE_SECURE = True
    CSRF_COOKIE_SECURE = True
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    SECURE_HSTS_SECONDS = 30 * 24 * 3600

# --- Static files ----------------------------------------------------------------------

STATIC_URL = "/static/"
STATIC_ROOT = SAYSO_DATA / "static"
STATICFILES_DIRS = [BASE_DIR / "static"]
_static_storage = "whitenoise.storage.CompressedManifestStaticFilesStorage"
if TESTING:
    _static_storage = "django.contrib.staticfiles.storage.StaticFilesStorage"
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": _static_storage},
}
WHITENOISE_ALLOW_ALL_ORIGINS = False
WHITENOISE_AUTOREFRESH = WHITENOISE_USE_FINDERS = DEBUG or TESTING

# --- Time and language -----------------------------------------------------------------

USE_TZ = True
TIME_ZONE = env_str("SAYSO_TIME_ZONE", "UTC")
LANGUAGE_CODE = env_str("SAYSO_LANGUAGE", "en")

# --- Log -------------------------------------------------------------------------------

SAYSO_LOG_LEVEL = env_str("SAYSO_LOG_LEVEL", "INFO").upper()
if SAYSO_LOG_LEVEL not in {"DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"}:
    raise ImproperlyConfigured(
        f"SAYSO_LOG_LEVEL is {SAYSO_LOG_LEVEL!r}, but it must be DEBUG, INFO, WARNING, "
        "ERROR or CRITICAL."
    )
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {
        "line": {
            "format": "{asctime} {levelname:<7} {name}: {message}",
            "style": "{",
        }
    },
    "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["console"], "level": "WARNING"},
    "loggers": {
        # Its own handlers are silent unless DEBUG is on; the root's are not.
        "django": {"handlers": [], "level": "INFO", "propagate": True},
        "hitlsite": {"level": SAYSO_LOG_LEVEL},
        # The relay says in one line what this says in a traceback a second.
        "channels_redis": {"level": "CRITICAL"},
        "approvals": {"level": SAYSO_LOG_LEVEL},
        "hitlagents": {"level": SAYSO_LOG_LEVEL},
    },
}
