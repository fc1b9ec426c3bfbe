from __future__ import annotations

from django.urls import URLPattern, URLResolver, path

from approvals import exports
from approvals.views import audit, deciding, inbox, runs, tokens

urlpatterns: list[URLPattern | URLResolver] = [
    path("", inbox.home, name="home"),
    path("inbox/", inbox.inbox, name="inbox"),
    path("inbox/rows/", inbox.rows, name="inbox-rows"),
    path("inbox/updates/", inbox.updates, name="inbox-updates"),
    path("inbox/<uuid:pk>/", inbox.interrupt, name="interrupt"),
    path("inbox/<uuid:pk>/card/", inbox.card, name="card"),
    path("inbox/<uuid:pk>/decide/", deciding.decide, name="decide"),
    path("inbox/<uuid:pk>/undo/", deciding.undo, name="undo"),
    path("runs/", runs.runs, name="runs"),
    path("runs/<uuid:pk>/", runs.run, name="run"),
    path("runs/<uuid:pk>/cancel/", runs.cancel, name="cancel-run"),
    path("runs/<uuid:pk>/retry/", runs.retry, name="retry-run"),
    path("executions/<int:pk>/settle/", runs.settle, name="settle"),
    path("tokens/", tokens.tokens, name="tokens"),
    path("tokens/<int:pk>/revoke/", tokens.revoke, name="revoke-token"),
    path("audit/", audit.entries, name="audit"),
    path("audit/chain/", audit.chain, name="audit-chain"),
    path("audit/export.jsonl", exports.export, name="audit-export"),
    path("audit/<int:number>/", audit.entry, name="audit-entry"),
]
