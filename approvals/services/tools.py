"""The registry of tools, and whether arguments fit a schema."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any
from uuid import UUID

from jsonschema import Draft202012Validator, FormatChecker
from jsonschema.exceptions import SchemaError
from jsonschema.exceptions import ValidationError as JSONSchemaFault
from pydantic import ValidationError
from referencing import Registry
from referencing.exceptions import Unresolvable

from approvals import canonical, wording
from approvals.hiding import BY_LOOKS, Hiding, texts_of
from approvals.models import Interrupt, Tool
from approvals.policies import Rulebook
from approvals.schemas import ClientTool, Suggest, ToolSpec
from approvals.services.bounded import Bounded, Uncheckable, faults
from approvals.services.work import unit_of_work
from approvals.states import InterruptKind, Risk

#: Schemas stand for themselves: what one refers to is never fetched from an address.
NOWHERE_ELSE: Registry[Any] = Registry()

#: What checking a value may come to, other than faults.
UNCHECKABLE = (Unresolvable, OverflowError, RecursionError, Uncheckable)

MAX_TITLE = 200
#: A title without a template names so many arguments.
MAX_PARTS = 3
#: So many examples are told with what does not have their form.
MAX_EXAMPLES = 3

#: In the schema of a time: propose some (``schemas.Suggest``).
SUGGEST = "x-suggest"


def register_tools(agent: str, specs: Sequence[ToolSpec]) -> None:
    """Make the registry say what the code says now; tools that are gone leave it.

    Raises ValueError for two tools of one name, and for an answer that cannot be asked for.
    """
    names = [spec.name for spec in specs]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"Duplicate tool name: {', '.join(twice)} of {agent}.")
    for spec in specs:
        if spec.kind == InterruptKind.CLIENT:
            raise ValueError(f"{spec.name}: only a page brings a front-end tool.")
        _check_answer(spec)
    with unit_of_work():
        Tool.objects.filter(agent=agent).exclude(name__in=names).delete()
        for spec in specs:
            Tool.objects.update_or_create(
                agent=agent, name=spec.name, defaults=_columns(spec)
            )


def learn_tools(agent: str, specs: Sequence[ToolSpec]) -> None:
    """Add tools that an agent only now named; what is known of others stays.

    A tool that said nothing of its parameters keeps what it said before.
    """
    with unit_of_work():
        for spec in specs:
            columns = _columns(spec)
            if spec.parameters == ToolSpec(name=spec.name).parameters:
                Tool.objects.get_or_create(
                    agent=agent, name=spec.name, defaults=columns
                )
            else:
                Tool.objects.update_or_create(
                    agent=agent, name=spec.name, defaults=columns
                )


def brought(tools: Sequence[ClientTool], book: Rulebook) -> dict[str, Tool]:
    """Tools of a page as the registry would have them, by name; stored nowhere.

    What the agent's own tool of the name keeps secret stays so.
    """
    found = {}
    for tool in tools:
        own = book.tools.get(tool.name)
        spec = ToolSpec(
            name=tool.name,
            description=tool.description,
            parameters=tool.parameters,
            kind=InterruptKind.CLIENT,
            risk=Risk.LOW,
            secrets=tuple(own.secrets) if own else (),
            plain=tuple(own.plain) if own else (),
        )
        found[tool.name] = Tool(agent=book.agent, name=tool.name, **_columns(spec))
    return found


def _columns(spec: ToolSpec) -> dict[str, Any]:
    schema = canonical.dumps(spec.parameters)
    return {
        "description": spec.description,
        "schema": schema,
        "schema_digest": canonical.plain_digest("sayso.schema.v1", schema),
        "risk": spec.risk,
        "read_only": spec.read_only,
        "secrets": list(spec.secrets),
        "plain": list(spec.plain),
        "title": spec.title,
        "approve_label": spec.approve_label,
        "consequence": spec.consequence,
        "kind": spec.kind,
        "answer_schema": "" if spec.answer is None else canonical.dumps(spec.answer),
        "card": spec.card,
    }


def _check_answer(spec: ToolSpec) -> None:
    """Raises ValueError: people must be able to give what the tool wants to hear."""
    if spec.answer is None:
        return
    properties = spec.answer.get("properties")
    if spec.answer.get("type") != "object" or not isinstance(properties, dict):
        raise ValueError(f"The answer to {spec.name} is not an object with properties.")
    if "approved" in properties:
        raise ValueError(f"The answer to {spec.name} cannot have a part “approved”.")
    try:
        Draft202012Validator.check_schema(spec.answer)
        for part in properties.values():
            if isinstance(part, dict) and SUGGEST in part:
                Suggest.model_validate(part[SUGGEST])
    except (SchemaError, ValidationError) as error:
        raise ValueError(f"The answer to {spec.name} is broken: {error}") from error


TIMES = FormatChecker(formats=())


@TIMES.checks("date-time")
def _is_moment(value: object) -> bool:
    return not isinstance(value, str) or wording.moment_of(value) is not None


def misfit_of_answer(schema: str, value: str) -> str:
    """Why a canonical answer does not fit; empty if it does. Beside the schema itself, a
    ``date-time`` has to be a moment, with its zone."""
    return _misfit(schema, value, typed=True, times=True)


def misfit(
    schema: str, value: str, *, hiding: Hiding = BY_LOOKS, typed: bool = False
) -> str:
    """Why canonical ``value`` does not fit canonical ``schema``; empty if it does. Without
    what ``hiding`` hides: it is told to the model and recorded.

    ``typed``: a person wrote it. Then keys the schema does not name are refused too, and
    patterns are told in words; a model reads the pattern itself.
    """
    return _misfit(schema, value, typed=typed, closed=typed, hiding=hiding)


def faults_of_answer(schema: str, value: str) -> list[tuple[str, str]]:
    """What does not fit in a canonical answer, by the property it is in; empty for the
    answer as a whole. A schema that cannot be followed finds no fault here."""
    return _by_property(schema, value, times=True)


def faults_of_arguments(schema: str, value: str) -> list[tuple[str, str]]:
    """The same of canonical arguments that a person typed."""
    return _by_property(schema, value, closed=True)


def _misfit(
    schema: str,
    value: str,
    *,
    typed: bool,
    closed: bool = False,
    times: bool = False,
    hiding: Hiding = BY_LOOKS,
) -> str:
    if not schema:
        return ""
    try:
        found = _faults(_validator(schema, closed=closed, times=times), value)
    except SchemaError as error:
        return f"The tool's own schema is broken: {error.message}."
    except Unresolvable as error:
        return f"The schema refers to what is not in it: {error.ref}."
    except UNCHECKABLE:
        return "The value cannot be checked against the schema."
    lines = []
    secrets = _secrets_in(value, hiding) if found else frozenset()
    for wrong in found[:5]:
        where = ".".join(str(part) for part in wrong.absolute_path) or "the arguments"
        lines.append(f"{where}: {_message(wrong, hiding, secrets, typed=typed)}")
    return "; ".join(lines)


def _by_property(
    schema: str, value: str, *, closed: bool = False, times: bool = False
) -> list[tuple[str, str]]:
    try:
        found = _faults(_validator(schema, closed=closed, times=times), value)
    except (SchemaError, *UNCHECKABLE):
        return []
    secrets = _secrets_in(value, BY_LOOKS) if found else frozenset()
    return [
        (
            str(wrong.absolute_path[0]) if wrong.absolute_path else "",
            _message(wrong, BY_LOOKS, secrets, typed=True),
        )
        for wrong in found
    ]


def _faults(validator: Draft202012Validator, value: str) -> list[JSONSchemaFault]:
    found = faults(validator, canonical.loads(value))
    return sorted(found, key=lambda wrong: str(wrong.path))


def _secrets_in(value: str, hiding: Hiding) -> frozenset[Any]:
    """What is hidden, piece by piece: a fault is told without what stands around it."""
    return frozenset(texts_of(hiding.found(canonical.loads(value))))


def _message(
    wrong: JSONSchemaFault, hiding: Hiding, secrets: frozenset[Any], *, typed: bool
) -> str:
    names = [part for part in wrong.absolute_path if isinstance(part, str)]
    if (
        any(map(hiding.hides_name, names))
        or hiding.found(wrong.instance)
        or not secrets.isdisjoint(texts_of([wrong.instance]))
    ):
        return f"what was given does not fit “{wrong.validator}”"
    text = wrong.message
    if typed and wrong.validator == "pattern":
        text = f"“{_short(wrong.instance)}” {_form_asked(wrong.schema)}"
    return text if len(text) <= 300 else f"{text[:300]}…"


def _form_asked(schema: Any) -> str:
    """A pattern as people are told of it: in the words of who wrote the schema."""
    said = schema.get("description")
    examples = schema.get("examples")
    texts = [
        f"“{_short(each)}”"
        for each in (examples if isinstance(examples, list) else [])[:MAX_EXAMPLES]
        if isinstance(each, str)
    ]
    told = "does not have the form that is asked for"
    if isinstance(said, str) and said.strip():
        told += f": {' '.join(said.split()).rstrip('.')}"
    return f"{told}, such as {', '.join(texts)}." if texts else f"{told}."


@lru_cache(maxsize=256)
def _validator(schema: str, *, closed: bool, times: bool) -> Draft202012Validator:
    loaded = canonical.loads(schema)
    if closed and isinstance(loaded, dict) and "properties" in loaded:
        loaded.setdefault("additionalProperties", False)
    if '"unevaluatedProperties"' in schema and '"patternProperties"' in schema:
        raise SchemaError(
            "unevaluatedProperties and patternProperties cannot be checked together"
        )
    Draft202012Validator.check_schema(loaded)
    return Bounded(
        loaded, format_checker=TIMES if times else None, registry=NOWHERE_ELSE
    )


def decided_title(interrupt: Interrupt) -> str:
    """The title of what was decided: of the changed call, where a reviewer changed it."""
    return decided_titles([interrupt])[interrupt.pk]


def decided_titles(interrupts: Iterable[Interrupt]) -> dict[UUID, str]:
    """``decided_title`` of each, with one look at the registry for all of them."""
    found = list(interrupts)
    changed = {
        each.pk: decision.arguments
        for each in found
        if (decision := each.decision) and decision.arguments is not None
    }
    titles = {each.pk: each.title for each in found}
    if not changed:
        return titles
    named = Tool.objects.filter(name__in={each.tool for each in found})
    tools = {(tool.agent, tool.name): tool for tool in named}
    for each in found:
        tool = tools.get((each.run.agent, each.tool))
        if each.pk in changed and tool is not None and _names_call(each, tool):
            titles[each.pk] = title_of(tool, each.tool, changed[each.pk])
    return titles


def _names_call(interrupt: Interrupt, tool: Tool) -> bool:
    """Whether its title was made from the call, and not of what the agent said."""
    return bool(tool.title) or interrupt.title.startswith(wording.humanise(tool.name))


def title_of(tool: Tool | None, name: str, arguments: str) -> str:
    """The effect in one line, such as "Delete report.txt", at most 200 characters.

    From the tool's own template, of which only ``{parameter}`` is replaced; without one,
    the tool's name and its arguments. Never with a secret.
    """
    values = canonical.loads(arguments)
    if not isinstance(values, dict):
        values = {}
    hiding = tool.hiding if tool is not None else BY_LOOKS
    shown = hiding.masked(values)
    told = {key: shown[key] for key in values if not hiding.hides(values, key)}
    template = tool.title if tool is not None else ""
    if not template:
        return _plain_title(name, told, whole=len(told) == len(values))

    def value_of(match: re.Match[str]) -> str:
        return _short(told[match[1]]) if match[1] in told else "…"

    return re.sub(r"\{(\w+)\}", value_of, template)[:MAX_TITLE]


def _plain_title(name: str, told: Mapping[str, Any], *, whole: bool) -> str:
    """Such as "Delete file: report.txt" and "Pay: amount 20, to Ann, …". ``whole``: nothing
    was taken out of what is told."""
    simple = {
        key: value
        for key, value in told.items()
        if isinstance(value, str | int | float) and _short(value)
    }
    parts = [
        _short(value) if whole and len(told) == 1 else f"{key} {_short(value)}"
        for key, value in list(simple.items())[:MAX_PARTS]
    ]
    if parts and not (whole and len(parts) == len(told)):
        parts.append("…")
    title = ": ".join(filter(None, (wording.humanise(name), ", ".join(parts))))
    return title if len(title) <= MAX_TITLE else f"{title[: MAX_TITLE - 1]}…"


def _short(value: Any) -> str:
    """A value in a title: one line of it, and not all of a long one."""
    text = value if isinstance(value, str) else canonical.dumps(value)
    text = " ".join(text.split())
    return text if len(text) <= 80 else f"{text[:79]}…"
