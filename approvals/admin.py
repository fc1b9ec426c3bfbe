"""Records to look at, and policies to edit, in Django's admin.

What happened is read-only here for everybody, superusers included. The admin knows no
review groups, so requests and runs need the permission to see all of them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, ClassVar

from django.contrib import admin
from django.contrib.auth.admin import GroupAdmin, UserAdmin
from django.contrib.auth.models import Group, User
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.utils.html import format_html, format_html_join

from approvals import audit, canonical, permissions, services, wording
from approvals.display import visible
from approvals.exceptions import InvalidArguments
from approvals.hiding import Hiding
from approvals.models import (
    ApiToken,
    AuditEntry,
    Decision,
    Interrupt,
    Policy,
    Run,
    Tool,
    ToolExecution,
    Vote,
)

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from django.db.models import QuerySet

    from approvals.permissions import Person

    Records = admin.ModelAdmin[Any]

    Accounts = UserAdmin[User]
    type Changing = Callable[..., AbstractContextManager[None]]
else:
    Records = admin.ModelAdmin
    Accounts = UserAdmin


def recorded(
    changing: Changing,
    view: Callable[..., Any],
    request: HttpRequest,
    *args: Any,
    **kwargs: Any,
) -> Any:
    """A view of the admin that changes something, with every difference in the audit."""
    if request.method != "POST":
        return view(request, *args, **kwargs)
    actor: User = request.user  # type: ignore[assignment]  # the admin let them in
    with changing(actor=actor):
        return view(request, *args, **kwargs)


class Recorded(Records):
    """Rows whose changes here are in the audit, by whichever of the doors they come."""

    #: What records them.
    changing: ClassVar[Changing]

    def changeform_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        view = super().changeform_view
        return recorded(type(self).changing, view, request, *args, **kwargs)

    def delete_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        view = super().delete_view
        return recorded(type(self).changing, view, request, *args, **kwargs)

    def changelist_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        view = super().changelist_view
        return recorded(type(self).changing, view, request, *args, **kwargs)


#: What the filters of the admin's lists ask of their columns.
HARMLESS_LOOKUPS = frozenset(
    {"exact", "in", "isnull", "id", "pk", "gte", "lt", "year", "month", "day"}
)


class ReadOnly(Records):
    """Rows that nobody adds, changes or deletes here, by form, address or action."""

    #: Who may look. Beside a seat among the staff.
    may_see: ClassVar[Callable[[Person], bool]] = permissions.sees_everything
    actions = None
    list_per_page = 50
    show_full_result_count = False

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest) -> bool:
        """Only what the page itself offers. Any other address would tell letter by letter
        what stands in a column that is shown to nobody, or look for what takes for ever."""
        column, *how = lookup.split("__")
        offered: set[object] = {self.date_hierarchy}
        for each in self.get_list_filter(request):
            offered.add(getattr(each, "parameter_name", None) or each)
        return column in offered and HARMLESS_LOOKUPS.issuperset(how)

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return type(self).may_see(request.user)

    def has_module_permission(self, request: HttpRequest) -> bool:
        return self.has_view_permission(request)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        # Bulk actions come as a POST; without any, Django would just show the list.
        if request.method == "POST":
            raise PermissionDenied
        return super().changelist_view(request, extra_context)


def shown_json(text: str | None, *, hiding: Hiding | None = None) -> str:
    """Stored JSON for a person: indented, without secrets, with what cannot be seen."""
    if text is None:
        return "-"
    try:
        value = canonical.loads(text)
    except InvalidArguments:
        return "(cannot be read)"
    if hiding is not None:
        value = hiding.masked(value)
    lines = json.dumps(value, indent=2, ensure_ascii=False).split("\n")
    shown = format_html_join("\n", "{}", ([visible(line)] for line in lines))
    return format_html("<pre>{}</pre>", shown)


class ActionFilter(admin.SimpleListFilter):
    """By the table of everything that can happen, not by a scan of what did."""

    title = "what"
    parameter_name = "action"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return list(audit.ACTIONS.items())

    def queryset(
        self, request: HttpRequest, queryset: QuerySet[AuditEntry]
    ) -> QuerySet[AuditEntry]:
        return queryset.filter(action=self.value()) if self.value() else queryset


@admin.register(AuditEntry)
class AuditEntryAdmin(ReadOnly):
    may_see = permissions.may_audit
    list_display = ("number", "time", "wording", "actor", "run", "interrupt")
    list_filter = (ActionFilter,)
    # Exact, so that the indexes serve.
    search_fields = ("number__exact", "run__exact", "interrupt__exact", "actor__exact")
    search_help_text = "Number, run, request or actor, exactly."
    fields = (
        "number",
        "time",
        "wording",
        "action",
        "actor",
        "run",
        "interrupt",
        "contents",
        "fits",
        "payload_mac",
        "previous",
        "hash",
    )

    @admin.display(description="what", ordering="action")
    def wording(self, entry: AuditEntry) -> str:
        return audit.ACTIONS.get(entry.action, entry.action)

    @admin.display(description="payload")
    def contents(self, entry: AuditEntry) -> str:
        return "(erased)" if entry.payload is None else shown_json(entry.payload)

    @admin.display(description="matches its hash", boolean=True)
    def fits(self, entry: AuditEntry) -> bool:
        return not audit.contents_misfit(audit.link_of(entry))


@admin.register(Run)
class RunAdmin(ReadOnly):
    list_display = ("id", "agent", "title", "state", "requester", "source", "created")
    list_filter = ("status", "source")
    list_select_related = ("requester",)
    search_fields = (
        "id__exact",
        "thread__exact",
        "agent__exact",
        "requester__username__exact",
        "title",
    )
    date_hierarchy = "created"  # has an index; the larger tables have none

    def get_queryset(self, request: HttpRequest) -> QuerySet[Run]:
        return Run.objects.with_state()

    @admin.display(description="status", ordering="status")
    def state(self, run: Any) -> str:
        return wording.state_word(run.state)


@admin.register(Interrupt)
class InterruptAdmin(ReadOnly):
    list_display = ("title", "tool", "status", "risk", "run", "created", "decided_at")
    list_filter = ("status", "risk", "kind", "review_groups")
    list_select_related = ("run",)
    search_fields = ("id__exact", "run__id__exact", "call_id__exact", "tool", "title")
    # Left out: the salt, which would let a hidden value be guessed from its digest.
    fields = (
        "id",
        "run",
        ("turn", "call_id", "framework_ref"),
        ("kind", "reason"),
        "message",
        "said",
        "title",
        "tool",
        "shown_arguments",
        "arguments_digest",
        "shown_schema",
        "schema_digest",
        "shown_response_schema",
        "verdicts",
        "editable",
        "takes_note",
        "card",
        "together",
        "risk",
        "consequence",
        "approve_label",
        ("secrets", "plain"),
        "policy",
        "review_groups",
        "asks_requester",
        "status",
        ("created", "expires_at", "decided_at"),
    )

    @admin.display(description="arguments")
    def shown_arguments(self, interrupt: Interrupt) -> str:
        return shown_json(interrupt.arguments, hiding=interrupt.hiding)

    @admin.display(description="tool schema")
    def shown_schema(self, interrupt: Interrupt) -> str:
        return shown_json(interrupt.tool_schema or None)

    @admin.display(description="response schema")
    def shown_response_schema(self, interrupt: Interrupt) -> str:
        return shown_json(interrupt.response_schema or None)


@admin.register(Vote)
class VoteAdmin(ReadOnly):
    list_display = ("interrupt", "verdict", "voter", "created", "void_at")
    list_filter = ("verdict",)
    list_select_related = ("interrupt", "voter")
    search_fields = ("interrupt__id__exact", "voter__username")


@admin.register(Decision)
class DecisionAdmin(ReadOnly):
    list_display = (
        "interrupt",
        "verdict",
        "by",
        "channel",
        "delivery",
        "created",
        "undone_at",
    )
    list_filter = ("verdict", "delivery")
    list_select_related = ("interrupt", "reviewer")
    search_fields = (
        "interrupt__id__exact",
        "interrupt__run__id__exact",
        "reviewer__username",
        "channel__exact",
    )
    fields = (
        "interrupt",
        "verdict",
        "by",
        "channel",
        "note",
        "edited_arguments",
        "given_answer",
        "given_output",
        "shown_digest",
        "effective_digest",
        "dwell_ms",
        ("created", "dispatch_at", "undone_at"),
        "delivery",
    )

    @admin.display(description="by", ordering="reviewer")
    def by(self, decision: Decision) -> str:
        return decision.by

    @admin.display(description="edited arguments")
    def edited_arguments(self, decision: Decision) -> str:
        return shown_json(decision.arguments, hiding=decision.interrupt.hiding)

    @admin.display(description="answer")
    def given_answer(self, decision: Decision) -> str:
        return shown_json(decision.answer)

    @admin.display(description="output")
    def given_output(self, decision: Decision) -> str:
        return shown_json(decision.output)


@admin.register(ToolExecution)
class ToolExecutionAdmin(ReadOnly):
    list_display = (
        "tool",
        "call_id",
        "status",
        "run",
        "attempt",
        "started",
        "ended_at",
    )
    list_filter = ("status", "read_only")
    list_select_related = ("run",)
    search_fields = ("run__id__exact", "call_id__exact", "tool")
    fields = (
        "run",
        "interrupt",
        ("turn", "call_id"),
        "tool",
        "read_only",
        "executed_arguments",
        "arguments_digest",
        "status",
        ("attempt", "owner"),
        "result",
        ("started", "ended_at"),
    )

    @admin.display(description="arguments")
    def executed_arguments(self, execution: ToolExecution) -> str:
        return shown_json(execution.arguments, hiding=_hiding_of(execution))


def _hiding_of(execution: ToolExecution) -> Hiding:
    if execution.interrupt is not None:
        return execution.interrupt.hiding
    tool = Tool.objects.filter(agent=execution.run.agent, name=execution.tool).first()
    # Of a tool that is gone nobody knows what it kept secret.
    return tool.hiding if tool else Hiding.of(canonical.loads(execution.arguments))


@admin.register(Tool)
class ToolAdmin(ReadOnly):
    """The registry, which the code fills at every start."""

    list_display = ("name", "agent", "risk", "read_only", "title")
    list_filter = ("agent", "risk", "read_only")
    search_fields = ("name", "agent", "description")
    fields = (
        "agent",
        "name",
        "description",
        "risk",
        "read_only",
        ("secrets", "plain"),
        "title",
        "approve_label",
        "consequence",
        "shown_schema",
        "schema_digest",
    )

    @admin.display(description="schema")
    def shown_schema(self, tool: Tool) -> str:
        return shown_json(tool.schema)


@admin.register(ApiToken)
class ApiTokenAdmin(ReadOnly):
    """Everybody's tokens. Their secrets are stored nowhere."""

    list_display = (
        "name",
        "user",
        "created",
        "expires_at",
        "last_used_at",
        "revoked_at",
    )
    list_select_related = ("user",)
    search_fields = ("name", "user__username__exact")
    fields = (
        "user",
        "name",
        "scopes",
        ("created", "expires_at"),
        ("last_used_at", "revoked_at"),
    )


@admin.register(Policy)
class PolicyAdmin(Recorded):
    """Rules. Every change is an audit entry with the rule as it was and as it became."""

    changing = staticmethod(services.changing_policies)
    list_display = (
        "position",
        "name",
        "enabled",
        "agent_pattern",
        "tool_pattern",
        "gate",
        "deciders",
        "approvals_required",
    )
    list_display_links = ("name",)
    list_filter = ("enabled", "gate", "groups")
    search_fields = ("name", "agent_pattern", "tool_pattern")
    filter_horizontal = ("groups",)
    fieldsets = (
        (None, {"fields": ("name", "enabled", "position")}),
        ("Which calls", {"fields": ("agent_pattern", "tool_pattern", "gate")}),
        (
            "Who decides a held call",
            {
                "fields": (
                    "groups",
                    "approvals_required",
                    "requester_may_decide",
                    "asks_requester",
                    "note_rule",
                )
            },
        ),
        (
            "Until when",
            {"fields": ("deadline_seconds", "on_deadline", "undo_seconds")},
        ),
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[Policy]:
        return super().get_queryset(request).prefetch_related("groups")

    @admin.display(description="who decides")
    def deciders(self, policy: Policy) -> str:
        groups = ", ".join(str(group) for group in policy.groups.all()) or "Reviewers"
        return f"{groups}; questions: who asked" if policy.asks_requester else groups


admin.site.unregister([Group, User])


@admin.register(User)
class AccountAdmin(Recorded, Accounts):
    """Accounts. Who may do what decides who decides."""

    changing = staticmethod(services.changing_access)

    def user_change_password(
        self, request: HttpRequest, *args: Any, **kwargs: Any
    ) -> Any:
        view = super().user_change_password
        return recorded(self.changing, view, request, *args, **kwargs)


def change_own_password(request: HttpRequest) -> Any:
    return recorded(services.changing_access, admin.site.password_change, request)


@admin.register(Group)
class ReviewGroupAdmin(Recorded, GroupAdmin):
    """Groups, of which those that a policy or a request names stay."""

    changing = staticmethod(services.changing_access)

    def get_deleted_objects(
        self, objs: Iterable[Group], request: HttpRequest
    ) -> tuple[list[Any], dict[str, int], set[str], list[Any]]:
        listed, counts, lacking, protected = super().get_deleted_objects(
            list(objs), request
        )
        pks = [group.pk for group in objs]
        policies = Policy.objects.filter(groups__in=pks).distinct()
        # Without its group a rule would silently pass to the reviewers of everything.
        protected = [*protected, *(f"Policy: {policy}" for policy in policies)]
        waiting = Interrupt.objects.filter(review_groups__in=pks).distinct().count()
        if waiting:
            protected.append(f"Requests that this group decided or decides: {waiting}")
        return listed, counts, lacking, protected
