"""The registry of tools, and whether arguments fit a schema."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError

from approvals import canonical
from approvals.models import Tool
from approvals.schemas import ToolSpec
from approvals.services.work import unit_of_work


def register_tools(agent: str, specs: Sequence[ToolSpec]) -> None:
    """Make the registry say what the code says now; tools that are gone leave it.

    Raises ValueError for two tools of one name.
    """
    names = [spec.name for spec in specs]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"Duplicate tool name: {', '.join(twice)} of {agent}.")
    with unit_of_work():
        Tool.objects.filter(agent=agent).exclude(name__in=names).delete()
        for spec in specs:
            Tool.objects.update_or_create(
                agent=agent, name=spec.name, defaults=_columns(spec)
            )


def _columns(spec: ToolSpec) -> dict[str, Any]:
    schema = canonical.dumps(spec.parameters)
    return {
        "description": spec.description,
        "schema": schema,
        "schema_digest": canonical.plain_digest("sayso.schema.v1", schema),
        "risk": spec.risk,
        "read_only": spec.read_only,
        "secrets": list(spec.secrets),
        "title": spec.title,
        "approve_label": spec.approve_label,
        "consequence": spec.consequence,
    }


def misfit(schema: str, value: str, *, closed: bool = False) -> str:
    """Why canonical ``value`` does not fit canonical ``schema``; empty if it does.

    ``closed`` also refuses keys the schema does not name, for what a person typed.
    """
    if not schema:
        return ""
    loaded = canonical.loads(value)
    try:
        validator = _validator(schema, closed=closed)
    except SchemaError as error:
        return f"The tool's own schema is broken: {error.message}."
    found = sorted(validator.iter_errors(loaded), key=lambda wrong: str(wrong.path))
    lines = []
    for wrong in found[:5]:
        where = ".".join(str(part) for part in wrong.absolute_path) or "the arguments"
        message = wrong.message
        if len(message) > 300:
            message = f"{message[:300]}…"
        lines.append(f"{where}: {message}")
    return "; ".join(lines)


@lru_cache(maxsize=256)
def _validator(schema: str, *, closed: bool) -> Draft202012Validator:
    loaded = canonical.loads(schema)
    if closed and isinstance(loaded, dict) and "properties" in loaded:
        loaded.setdefault("additionalProperties", False)
    Draft202012Validator.check_schema(loaded)
    return Draft202012Validator(loaded)


def title_of(tool: Tool | None, name: str, arguments: str) -> str:
    """The effect in one line, such as "Delete report.txt", at most 200 characters.

    Only ``{parameter}`` of the tool's own template is replaced, and never a secret.
    """
    template = tool.title if tool is not None else ""
    if not template:
        return f"Run {name}"[:200]
    values = canonical.loads(arguments)
    secrets = set(tool.secrets) if tool is not None else set()

    def value_of(match: re.Match[str]) -> str:
        key = match[1]
        if not isinstance(values, dict) or key not in values or key in secrets:
            return "…"
        value = values[key]
        text = value if isinstance(value, str) else canonical.dumps(value)
        text = " ".join(text.split())
        return text if len(text) <= 80 else f"{text[:79]}…"

    return re.sub(r"\{(\w+)\}", value_of, template)[:200]
