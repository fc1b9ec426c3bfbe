"""What reviewers send. Answer forms are made from the schema the agent gave."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from datetime import date
from typing import Any

from django import forms
from django.core.validators import validate_email
from django.forms import BoundField
from django.utils import timezone
from django.utils.dateparse import parse_date, parse_datetime
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from approvals import canonical, display, services, wording
from approvals.exceptions import InvalidArguments
from approvals.hiding import BY_LOOKS, Hiding
from approvals.states import Settlement, TokenScope, Verdict

#: Keys of a response schema that the desk itself fills.
OURS = frozenset({"approved", "accepted", "editedArgs"})
#: More choices than this become a list to select from.
MAX_CARDS = 8


class DecisionForm(forms.Form):
    """A verdict on what a page showed.

    ``confirmed`` is the button of the confirmation: it carries the verdict it confirms.
    """

    verdict = forms.CharField(required=False)
    confirmed = forms.CharField(required=False)
    note = forms.CharField(required=False, max_length=10_000)
    shown = forms.CharField(max_length=64)

    def clean(self) -> dict[str, Any]:
        data = super().clean() or {}
        said = data.get("confirmed") or data.get("verdict")
        if said not in set(Verdict) - {Verdict.CANCEL_RUN, Verdict.RESPOND}:
            raise forms.ValidationError("Unknown verdict.")
        data["verdict"] = Verdict(said)
        return data


class SettleForm(forms.Form):
    """What somebody found out about a tool call whose outcome was unknown."""

    settlement = forms.ChoiceField(choices=Settlement.choices)
    note = forms.CharField(
        max_length=10_000,
        error_messages={"required": gettext_lazy("Say how you found out.")},
    )
    result = forms.CharField(required=False, max_length=100_000)


class Choice(forms.ChoiceField):
    """One of fixed values of any JSON type; nothing is chosen beforehand."""

    def __init__(self, values: list[tuple[Any, str]], **options: Any) -> None:
        self.values = {str(at): value for at, (value, _label) in enumerate(values)}
        labels = [(str(at), label) for at, (_value, label) in enumerate(values)]
        few = len(labels) <= MAX_CARDS
        super().__init__(
            choices=labels if few else [("", _("Choose one")), *labels],
            widget=forms.RadioSelect
            if few
            else forms.Select(attrs={"class": "form-select"}),
            **options,
        )

    def clean(self, value: Any) -> Any:
        key = super().clean(value)
        return self.values[key] if key else None


class Choices(forms.MultipleChoiceField):
    """Any number of fixed values of any JSON type, in their order.

    Where the list is ``required``, none is an answer too: how many there have to be, the
    schema says itself.
    """

    def __init__(self, values: list[tuple[Any, str]], **options: Any) -> None:
        self.values = {str(at): value for at, (value, _label) in enumerate(values)}
        super().__init__(
            choices=[(str(at), label) for at, (_value, label) in enumerate(values)],
            widget=forms.CheckboxSelectMultiple,
            **options,
        )

    def validate(self, value: Any) -> None:
        if value:
            super().validate(value)

    def clean(self, value: Any) -> list[Any] | None:
        chosen = super().clean(value)
        if not chosen and not self.required:
            return None
        return [one for key, one in self.values.items() if key in chosen]


class Number(forms.CharField):
    """A number, exact: an integer of any size, or a finite decimal."""

    def __init__(self, *, whole: bool, **options: Any) -> None:
        self.whole = whole
        mode = "numeric" if whole else "decimal"
        super().__init__(
            max_length=400,
            widget=forms.TextInput(attrs={"class": "form-control", "inputmode": mode}),
            **options,
        )

    def clean(self, value: Any) -> int | float | None:
        text = super().clean(value)
        if not text:
            return None
        try:
            number = int(text) if self.whole else canonical.loads(text)
        except (ValueError, InvalidArguments):
            number = None
        # What is too large becomes infinite, which JSON cannot hold.
        if isinstance(number, float) and not math.isfinite(number):
            number = None
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise forms.ValidationError(_("Enter a number."))
        return number


class Moment(forms.CharField):
    """A date and time in the reader's zone, sent with its offset."""

    def __init__(self, **options: Any) -> None:
        super().__init__(
            widget=forms.TextInput(
                attrs={"class": "form-control", "type": "datetime-local"}
            ),
            **options,
        )

    def clean(self, value: Any) -> str | None:
        text = super().clean(value)
        if not text:
            return None
        try:
            moment = parse_datetime(text)
        except ValueError:
            moment = None
        if moment is None:
            raise forms.ValidationError(_("Enter a date and a time."))
        return (
            moment if timezone.is_aware(moment) else timezone.make_aware(moment)
        ).isoformat()


class Day(forms.CharField):
    def __init__(self, **options: Any) -> None:
        super().__init__(
            widget=forms.TextInput(attrs={"class": "form-control", "type": "date"}),
            **options,
        )

    def clean(self, value: Any) -> str | None:
        text = super().clean(value)
        if not text:
            return None
        try:
            day: date | None = parse_date(text)
        except ValueError:
            day = None
        if day is None:
            raise forms.ValidationError(_("Enter a date."))
        return day.isoformat()


class AnyJSON(forms.CharField):
    """Where nothing better fits: the JSON itself."""

    def __init__(self, **options: Any) -> None:
        attributes = {"class": "form-control mono", "rows": 4, "spellcheck": "false"}
        super().__init__(widget=forms.Textarea(attrs=attributes), **options)

    def clean(self, value: Any) -> Any:
        text = super().clean(value)
        if not text:
            return None
        try:
            value = canonical.loads(text)
            # Not everything that can be read can be kept: NUL, half characters.
            canonical.dumps(value)
        except InvalidArguments as error:
            raise forms.ValidationError(str(error)) from error
        return value


def choices_of(schema: Mapping[str, Any]) -> list[tuple[Any, str]]:
    """The fixed values of a schema with their labels; empty if it is open."""
    options = listed(schema, "oneOf") or listed(schema, "anyOf")
    if options and all(isinstance(o, dict) and "const" in o for o in options):
        return [(o["const"], label_of(o["const"], o.get("title", ""))) for o in options]
    return [(value, label_of(value, "")) for value in listed(schema, "enum")]


def listed(schema: Mapping[str, Any], name: str) -> list[Any]:
    """A list in a schema. Whoever wrote the schema may have put anything there."""
    found = schema.get(name)
    return found if isinstance(found, list) else []


def kind_of(schema: Mapping[str, Any]) -> str:
    """The one type a value has beside null; empty where there is none or a choice."""
    kind = schema.get("type")
    kinds = [kind] if isinstance(kind, str) else listed(schema, "type")
    kinds = [each for each in kinds if each != "null"]
    return str(kinds[0]) if len(kinds) == 1 else ""


def label_of(value: Any, title: str) -> str:
    """A choice in words. A moment is told by the calendar, the agent's words as a quote."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    moment = wording.moment_of(value)
    if moment is not None:
        words = wording.moment(moment)
        return f"{words} “{title}”" if title else words
    return title or text


def _field(name: str, schema: Any, *, required: bool) -> forms.Field:
    schema = schema if isinstance(schema, dict) else {}
    options: dict[str, Any] = {
        "required": required,
        "label": str(schema.get("title") or wording.humanise(name)),
        "help_text": str(schema.get("description") or ""),
    }
    kind = kind_of(schema)
    default = schema.get("default")
    choices = choices_of(schema)
    if not choices and kind == "boolean":
        choices = [(True, _("Yes")), (False, _("No"))]
    if choices:
        return Choice(choices, initial=next(_places(choices, [default]), ""), **options)
    if kind == "array" and (choices := choices_of(_items(schema))):
        chosen = default if isinstance(default, list) else []
        return Choices(choices, initial=list(_places(choices, chosen)), **options)
    if kind in {"integer", "number"}:
        if isinstance(default, int | float) and not isinstance(default, bool):
            options["initial"] = canonical.dumps(default)
        return Number(whole=kind == "integer", **options)
    if kind != "string":
        if "default" in schema:
            options["initial"] = canonical.dumps(default)
        return AnyJSON(**options)
    form = schema.get("format")
    if isinstance(default, str):
        options["initial"] = _as_typed(default) if form == "date-time" else default
    if form == "date-time":
        return Moment(**options)
    if form == "date":
        return Day(**options)
    if form == "email":
        options["validators"] = [validate_email]
    limit = schema.get("maxLength")
    short = form in {"email", "uri"} or (isinstance(limit, int) and limit <= 200)
    widget = (
        forms.TextInput(attrs={"class": "form-control"})
        if short
        else forms.Textarea(attrs={"class": "form-control", "rows": 2})
    )
    return forms.CharField(
        max_length=limit if isinstance(limit, int) else 100_000,
        strip=False,
        widget=widget,
        **options,
    )


def _items(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    items = schema.get("items")
    return items if isinstance(items, dict) else {}


def _places(choices: list[tuple[Any, str]], values: list[Any]) -> Iterator[str]:
    """The keys of the choices that are among the values."""
    for at, (one, _label) in enumerate(choices):
        if any(_same(one, value) for value in values):
            yield str(at)


def _as_typed(text: str) -> str:
    """A moment as the field for moments shows it: the time of day in the reader's zone."""
    moment = wording.moment_of(text)
    if moment is None:
        return ""
    return timezone.make_naive(moment).isoformat(timespec="minutes")


class TokenForm(forms.Form):
    """A new API token."""

    name = forms.CharField(
        max_length=100, widget=forms.TextInput({"class": "form-control"})
    )
    scopes = forms.TypedMultipleChoiceField(
        choices=TokenScope.choices,
        coerce=TokenScope,
        initial=TokenScope.values,
        widget=forms.CheckboxSelectMultiple,
    )
    days = forms.TypedChoiceField(
        choices=[
            ("30", gettext_lazy("30 days")),
            ("90", gettext_lazy("90 days")),
            ("365", gettext_lazy("One year")),
            ("", gettext_lazy("Until it is revoked")),
        ],
        coerce=int,
        empty_value=None,
        required=False,
        initial="90",
        widget=forms.Select({"class": "form-select"}),
    )


class AnswerForm(forms.Form):
    """The fields of a response schema. ``value()`` is the answer as JSON."""

    #: Template of the fields, and the words above them.
    drawn_by = "approvals/cards/form.html"
    heading: Any = gettext_lazy("Your answer")

    @classmethod
    def suits(cls, schema_text: str) -> bool:
        """Whether this form can give what the schema wants."""
        return True

    def __init__(
        self, schema_text: str, data: Any = None, *, prefix: str = "answer"
    ) -> None:
        super().__init__(data, prefix=prefix, use_required_attribute=False)
        self._schema_text = schema_text
        try:
            schema = canonical.loads(schema_text) if schema_text else {}
        except InvalidArguments:
            schema = {}
        self.schema = schema = schema if isinstance(schema, dict) else {}
        properties = schema.get("properties")
        self.is_object = schema.get("type") == "object" and isinstance(properties, dict)
        if self.is_object:
            required = listed(schema, "required")
            for name, part in (properties or {}).items():
                if name not in OURS:
                    self.fields[name] = _field(name, part, required=name in required)
        elif schema:
            self.fields["answer"] = _field("answer", schema, required=True)
        else:
            self.fields["answer"] = _field(
                "answer", {"type": "string", "title": _("Your answer")}, required=True
            )

    def clean(self) -> dict[str, Any]:
        """Say at each field what its part of the schema does not allow."""
        data: dict[str, Any] = super().clean() or {}
        if not self.errors and self._schema_text:
            text = canonical.dumps(AnswerForm.value(self))
            for name, why in services.faults_of_answer(self._schema_text, text):
                place = name if self.is_object else "answer"
                if place in self.fields:
                    self.add_error(place, why)
        _focus_on_fault(self)
        return data

    def value(self) -> Any:
        """Only what was filled in: an untouched field sends nothing."""
        given = {k: v for k, v in self.cleaned_data.items() if v not in (None, "")}
        return given if self.is_object else self.cleaned_data.get("answer")


class ArgumentsForm(forms.Form):
    """The arguments of a call, to edit. What is hidden of them has no field and goes along as
    it is.

    What nobody touched keeps its exact value, also where a browser would change it.
    """

    def __init__(
        self,
        arguments: str,
        schema_text: str,
        data: Any = None,
        *,
        hiding: Hiding = BY_LOOKS,
        form_id: str = "decide",
    ) -> None:
        super().__init__(data, prefix="argument", use_required_attribute=False)
        self._arguments, self._hiding = arguments, hiding
        self._schema_text = schema_text
        self.original: dict[str, Any] = canonical.loads(arguments)
        schema = canonical.loads(schema_text) if schema_text else {}
        properties = schema.get("properties")
        parts: dict[str, Any] = properties if isinstance(properties, dict) else {}
        required = schema.get("required") or []
        for name in dict.fromkeys([*self.original, *parts]):
            if (
                hiding.stays(self.original, name)
                if name in self.original
                else hiding.hides_name(name)
            ):
                continue
            part = parts.get(name, {})
            field = _argument_field(name, part, self.original.get(name, MISSING))
            field.required = name in required and not isinstance(field, Words)
            field.widget.attrs["form"] = form_id
            field.label = name
            if data is None and not self.fields:
                field.widget.attrs["autofocus"] = True
            self.fields[name] = field

    @property
    def rows(self) -> Iterator[BoundField | display.Argument]:
        """The arguments in the order of the call: a field, or what is shown of one that has
        none."""
        shown = display.arguments_of(self._arguments, hiding=self._hiding)
        for name, each in zip(self.original, shown, strict=True):
            yield self[name] if name in self.fields else each
        for name in self.fields:
            if name not in self.original:
                yield self[name]

    def clean(self) -> dict[str, Any]:
        """Say at each field what its part of the schema does not allow."""
        data: dict[str, Any] = super().clean() or {}
        edited = None if self.errors else self.value()
        if edited is not None and self._schema_text:
            text = canonical.dumps(edited)
            for name, why in services.faults_of_arguments(self._schema_text, text):
                if name in self.fields:
                    self.add_error(name, why)
        _focus_on_fault(self)
        return data

    def value(self) -> dict[str, Any] | None:
        """All arguments as edited; None where nothing was changed."""
        edited = dict(self.original)
        for name, given in self.cleaned_data.items():
            before = self.original.get(name, MISSING)
            if given in (None, "") and before in (MISSING, given):
                continue
            if given is None and isinstance(self.fields[name], Choice | Number):
                edited.pop(name, None)
            elif not _same(before, given):
                edited[name] = given
        same = canonical.dumps(edited) == canonical.dumps(self.original)
        return None if same else edited


def _focus_on_fault(form: forms.Form) -> None:
    """Lead whoever gets the form again to the first field that is wrong."""
    wrong = next((name for name in form.fields if name in form.errors), None)
    if wrong is not None:
        form.fields[wrong].widget.attrs["autofocus"] = True


MISSING: Any = object()


def _same(before: Any, given: Any) -> bool:
    """Whether a browser would give ``before`` back as ``given``: it rewrites line ends."""
    if isinstance(before, str) and isinstance(given, str):
        return before.replace("\r\n", "\n").replace("\r", "\n") == given
    return type(before) is type(given) and bool(before == given)


class Words(forms.CharField):
    """Text as it is typed, line ends as the rest of the world writes them."""

    def __init__(self, *, lines: int, **options: Any) -> None:
        attributes = {"class": "form-control", "rows": lines, "dir": "auto"}
        super().__init__(
            strip=False, widget=forms.Textarea(attrs=attributes), **options
        )

    def clean(self, value: Any) -> str:
        return str(super().clean(value)).replace("\r\n", "\n").replace("\r", "\n")


def _argument_field(name: str, schema: Any, value: Any) -> forms.Field:
    """A field that can hold ``value`` exactly; what fits nothing else is edited as JSON."""
    schema = schema if isinstance(schema, dict) else {}
    options: dict[str, Any] = {"required": False}
    kind = kind_of(schema)
    choices = choices_of(schema)
    if not choices and kind == "boolean":
        choices = [(True, "true"), (False, "false")]
    if choices and (value is MISSING or any(_same(value, one) for one, _l in choices)):
        at = next((i for i, (one, _l) in enumerate(choices) if _same(value, one)), "")
        return Choice(choices, initial=str(at), **options)
    if isinstance(value, str) or (value is MISSING and kind == "string"):
        text = "" if value is MISSING else value
        lines = min(12, 1 + text.count("\n") + len(text) // 70)
        return Words(lines=lines, initial=text, **options)
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if kind in {"integer", "number"} and (number or value is MISSING):
        text = canonical.dumps(value) if number else ""
        return Number(whole=kind == "integer", initial=text, **options)
    text = "" if value is MISSING else canonical.dumps(value)
    return AnyJSON(initial=text, **options)


def asks_more(schema_text: str) -> bool:
    """Whether an approval may carry more than yes: keys beside ``approved``."""
    if not schema_text:
        return False
    try:
        schema = canonical.loads(schema_text)
    except InvalidArguments:
        return False
    properties = schema.get("properties") if isinstance(schema, dict) else None
    return isinstance(properties, dict) and bool(properties.keys() - OURS)
