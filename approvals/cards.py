"""How pages ask for an answer: a plain form, or the card that a tool names.

A card is a form made from the response schema and the template that draws its fields. To
add one, write both and put the form into ``CARDS``; a tool names it in its ToolSpec. What
a card cannot make sense of, and a card nobody knows, gets the plain form.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

from django import forms
from django.utils import timezone
from django.utils.dateparse import parse_datetime
from django.utils.functional import cached_property
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from approvals import canonical, wording
from approvals.forms import AnswerForm, asks_more, choices_of, listed
from approvals.models import Interrupt
from approvals.states import InterruptKind

#: What a time picker can give, beside what the desk gives itself.
PARTS = frozenset({"chosen_time", "chosen_label", "cancelled"})
OTHER, NONE = "other", "none"


def asks_answer(interrupt: Interrupt) -> bool:
    """Whether there is more to say than yes or no."""
    question = interrupt.kind == InterruptKind.QUESTION
    return question or asks_more(interrupt.response_schema)


def answer_form(interrupt: Interrupt, data: Any = None) -> AnswerForm:
    """The form that asks for the answer; ``data`` is what was sent."""
    card = CARDS.get(interrupt.card)
    if card is None or not card.suits(interrupt.response_schema):
        card = AnswerForm
    form = card(interrupt.response_schema, data)
    # A conversation may show several at once.
    form.auto_id = f"%s-{interrupt.pk}"
    return form


def in_words(answer: str) -> str:
    """A given answer in a line: a chosen time as it was told, else every part of it."""
    value = canonical.loads(answer)
    if not isinstance(value, dict):
        return _in_a_word(value)
    if value.get("cancelled") is True:
        return _("None of these work")
    if "chosen_time" in value:
        return str(value.get("chosen_label") or value["chosen_time"])
    return ", ".join(f"{name}: {_in_a_word(part)}" for name, part in value.items())


def _in_a_word(value: object) -> str:
    text = value if isinstance(value, str) else canonical.dumps(value)
    return text if len(text) <= 200 else f"{text[:199]}…"


@dataclass(frozen=True, kw_only=True)
class Slot:
    """A time to choose: the moment as the schema has it, and what the agent calls it."""

    value: str
    moment: datetime
    quote: str = ""
    chosen: bool = False

    @property
    def is_past(self) -> bool:
        return self.moment <= timezone.now()


class TimePicker(AnswerForm):
    """Proposed times, any other time, and that none of them suits.

    For a schema with ``chosen_time``; ``chosen_label`` is filled with the time in words and
    ``cancelled`` says that none suits, where the schema has them. The words are made from
    the moment: what the agent calls it is only ever a quote.
    """

    drawn_by = "approvals/cards/time-picker.html"
    #: So many slots have a key: of nine, two are left for the other choices.
    slot_keys = 7
    heading = gettext_lazy("Pick a time")

    def __init__(self, schema_text: str, data: Any = None) -> None:
        super().__init__(schema_text, data)
        self.fields = {
            "time": forms.CharField(error_messages={"required": _("Pick a time.")}),
            "other": forms.CharField(required=False),
            "zone": forms.CharField(required=False),
        }

    @classmethod
    def suits(cls, schema_text: str) -> bool:
        form = AnswerForm(schema_text)
        return "chosen_time" in form.fields and not form.fields.keys() - PARTS

    @property
    def _properties(self) -> dict[str, Any]:
        found: dict[str, Any] = self.schema["properties"]
        return found

    @property
    def _time(self) -> dict[str, Any]:
        part = self._properties["chosen_time"]
        return part if isinstance(part, dict) else {}

    @cached_property
    def slots(self) -> list[Slot]:
        chosen = self["time"].value()
        return [
            Slot(value=value, moment=moment, quote=quote, chosen=value == chosen)
            for value, moment, quote in _proposed(self._time)
        ]

    @property
    def takes_other(self) -> bool:
        """Whether the schema leaves the time open."""
        return not choices_of(self._time)

    @property
    def takes_none(self) -> bool:
        return "cancelled" in self._properties

    @property
    def other_key(self) -> int:
        """The key for another time, behind those for the slots."""
        return min(len(self.slots), self.slot_keys) + 1

    @property
    def none_key(self) -> int:
        return self.other_key + self.takes_other

    @property
    def zone_name(self) -> str:
        """The zone that times are shown and read in where a browser names no other."""
        return timezone.get_current_timezone_name()

    def clean(self) -> dict[str, Any]:
        data: dict[str, Any] = super().clean() or {}
        chosen = data.get("time")
        if chosen == OTHER and self.takes_other:
            data["moment"] = self._other(data.get("other", ""))
        elif chosen and not (chosen == NONE and self.takes_none):
            slot = next((slot for slot in self.slots if slot.value == chosen), None)
            if slot is None:
                self.add_error("time", _("This time is not one of those proposed."))
            else:
                data["moment"] = slot.moment
        moment = data.get("moment")
        if moment is not None and moment <= timezone.now():
            self.add_error("time", _("This time has passed. Pick another one."))
        return data

    def _other(self, text: str) -> datetime | None:
        try:
            moment = parse_datetime(text)
            if moment is not None and timezone.is_naive(moment):
                moment = timezone.make_aware(moment, self._zone)
        except (ValueError, OverflowError):
            moment = None
        if moment is not None:
            # The same limits as for a proposed time.
            moment = wording.moment_of(moment.isoformat())
        if moment is None:
            self.add_error("other", _("Enter a date and a time."))
        return moment

    @property
    def _zone(self) -> tzinfo:
        """The reader's zone, as their browser names it."""
        try:
            return ZoneInfo(self.cleaned_data.get("zone") or self.zone_name)
        except (ValueError, OSError, KeyError):
            return timezone.get_current_timezone()

    def value(self) -> dict[str, Any]:
        moment = self.cleaned_data.get("moment")
        if moment is None:
            return {"cancelled": True}
        chosen = self.cleaned_data["time"]
        given = {"chosen_time": moment.isoformat() if chosen == OTHER else chosen}
        if "chosen_label" in self._properties:
            given["chosen_label"] = wording.moment(moment, self._zone)
        return given


def _proposed(part: Mapping[str, Any]) -> Iterator[tuple[str, datetime, str]]:
    """The moments a schema of a time names: fixed values with their titles, examples."""
    options = listed(part, "oneOf") or listed(part, "anyOf")
    named = [
        (option["const"], str(option.get("title") or ""))
        for option in options
        if isinstance(option, dict) and "const" in option
    ]
    named += [(value, "") for value in listed(part, "enum") + listed(part, "examples")]
    for value, quote in named:
        moment = wording.moment_of(value)
        if moment is not None:
            yield value, moment, quote


CARDS: dict[str, type[AnswerForm]] = {"time-picker": TimePicker}
