"""What a node asks with a raw ``interrupt()``: a call shown for review, or any question."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError
from referencing import Registry
from referencing.exceptions import Unresolvable

from approvals.states import Verdict

MAX_WORDING = 2000

#: An answer of any kind. Not empty, since an empty schema counts as none.
ANYTHING = {"title": "Answer"}


@dataclass(frozen=True, kw_only=True)
class Review:
    """The shape of LangChain's agent inbox: ``action_request`` with an action and its
    arguments, ``config`` with what is allowed, and a ``description``."""

    tool: str
    arguments: dict[str, Any]
    message: str
    config: Mapping[str, Any]
    #: Asked as a list of one, which wants a list of one answer.
    listed: bool

    @classmethod
    def of(cls, value: Any) -> Review | None:
        listed = isinstance(value, list) and len(value) == 1
        request = value[0] if listed else value
        if not isinstance(request, dict):
            return None
        action = request.get("action_request")
        config = request.get("config", {})
        if not isinstance(action, dict) or not isinstance(config, dict):
            return None
        tool, arguments = action.get("action"), action.get("args", {})
        if not isinstance(tool, str) or not tool or not isinstance(arguments, dict):
            return None
        description = request.get("description")
        return cls(
            tool=tool,
            arguments=arguments,
            message=description if isinstance(description, str) else "",
            config=config,
            listed=listed,
        )

    def allows(self, what: str) -> bool:
        return self.config.get(f"allow_{what}") is True

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        found = []
        if self.allows("accept") or self.allows("edit"):
            found.append(Verdict.APPROVE)
        if self.allows("respond"):
            found.append(Verdict.RESPOND)
        if self.allows("ignore"):
            found += [Verdict.DENY, Verdict.CANCEL_CALL]
        return (*found, Verdict.CANCEL_RUN)

    @property
    def answer_schema(self) -> dict[str, Any]:
        """For an action nobody registered, which a person can only answer about."""
        types = {
            "accept": "accept",
            "edit": "edit",
            "respond": "response",
            "ignore": "ignore",
        }
        allowed = [word for what, word in types.items() if self.allows(what)]
        return {
            "title": "Answer",
            "type": "object",
            "properties": {
                "type": {"enum": allowed, "title": "Answer"},
                "args": {"title": "Arguments or text"},
            },
            "required": ["type"],
        }


def question_schema(given: Any, review: Review | None) -> dict[str, Any]:
    """What an answer must look like: as the node says, or anything."""
    if isinstance(given, dict) and given:
        return given
    return review.answer_schema if review else ANYTHING


def takes_no_answer(given: Any, review: Review | None) -> bool:
    """Whether a node can be told that nobody answers: where it allows to ignore it, and
    where the null that it gets then is an answer it takes."""
    if review is not None:
        return review.allows("ignore")
    if not isinstance(given, dict) or not given:
        return True
    try:
        Draft202012Validator.check_schema(given)
        # A registry of nothing, so that nothing is fetched from an address.
        empty: Registry[Any] = Registry()
        return bool(Draft202012Validator(given, registry=empty).is_valid(None))
    except (SchemaError, Unresolvable, RecursionError):
        return False


def question_verdicts(*, refusable: bool) -> tuple[Verdict, ...]:
    no = (Verdict.DENY, Verdict.CANCEL_CALL) if refusable else ()
    return (Verdict.ANSWER, *no, Verdict.CANCEL_RUN)


def wording(value: Any) -> str:
    """A question in words, from its payload."""
    text = value
    if isinstance(value, dict):
        words = ("question", "message", "prompt", "description", "title")
        text = next((value[word] for word in words if value.get(word)), None)
    if not isinstance(text, str) or not text.strip():
        return "The agent asks for an answer."
    return text if len(text) <= MAX_WORDING else f"{text[: MAX_WORDING - 1]}…"
