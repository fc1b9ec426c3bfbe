"""What of a call's arguments is shown to nobody: what its tool declares secret, and what looks
like a secret.

Pure functions, for every place that shows, sends or records arguments. What is decided and
what runs are the real values: digests are made of those.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Self

# ── names that say so ────────────────────────────────────────────────────────

_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
#: At the end of a word, since some write several as one.
_SECRET = re.compile(
    r"(?:pass(?:word|wd|phrase|code)|secret|credential|authori[sz]ation|apikey|bearer"
    r"|cookie|jwt|pwd|(?:private|secret|access|signing|encryption|master|ssh)key"
    r"|(?:access|refresh|auth|session|id|api|bearer|csrf)token)s?$"
)
_KINDS_OF_KEY = frozenset(
    {"access", "api", "auth", "client", "encryption", "master", "private", "secret",
     "service", "signing", "ssh", "storage"}
)  # fmt: skip
#: Tokens that lead through pages of a list, or that models count.
_HARMLESS_TOKENS = frozenset(
    {"continuation", "cursor", "end", "eos", "max", "min", "next", "page", "pagination",
     "prev", "previous", "start", "stop", "sync"}
)  # fmt: skip
#: What is said of a secret is none.
_ABOUT = frozenset(
    {"amount", "count", "file", "id", "length", "link", "name", "path", "policy", "type",
     "uri", "url"}
)  # fmt: skip
_WHOLE_NAMES = frozenset({"auth", "cvc", "cvv", "otp"})
#: Longer ones are no names.
_LONGEST_NAME = 200
#: Nobody reads what lies deeper, and to go there could take all of the stack.
DEEPEST = 64
TOO_DEEP = "hidden, too deep to be looked through"


def sounds_secret(name: str) -> bool:
    """Whether a parameter of this name holds a secret, as names go: ``clientSecret``,
    ``api_key``, ``Authorization``; not ``maxTokens`` or ``public_key``."""
    words = [word.lower() for word in _WORDS.findall(name[:_LONGEST_NAME])]
    if not words or words[-1] in _ABOUT:
        return False
    if words[-1] == "token":
        return len(words) == 1 or words[-2] not in _HARMLESS_TOKENS
    pairs = pairwise(words)
    return (
        any(_SECRET.search(word) for word in words)
        or any(a in _KINDS_OF_KEY and b in ("key", "keys") for a, b in pairs)
        or (len(words) == 1 and words[0] in _WHOLE_NAMES)
    )


# ── texts that hold one ──────────────────────────────────────────────────────

# Each begins at something rare or has a bound, so that long texts take no time. Only what is
# made as credentials are is taken out, and up to its end: whoever could hide a command or a
# path by writing ``token=`` before it would have it approved unseen.
_MADE = r"(?!⟦)(?![\w.~+/=%-]*\.\.)[\w.~+/=%-]++(?=[\s&#;,\"']|\Z)"
_IN_TEXT = re.compile(
    r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----(?P<pem>[\w+/=\s:,-]*?)(?:-----END|\Z)"
    r"|(?i:\bauthorization\s{0,9}[:=]\s{0,9}(?:(?:basic|bearer|token|digest)\s{1,9})?+)"
    rf"(?P<header>{_MADE})"
    r"|(?i:\bbearer\s{1,9})(?P<bearer>(?=\S{0,200}\d)[\w.~+/=-]{6,}|[\w.~+/=-]{20,})"
    rf"|\A\s{{0,9}}(?i:bearer|basic)\s{{1,9}}(?P<only>{_MADE})\s{{0,9}}\Z"
    r"|://[^\s/:@]{0,200}:(?P<login>(?!⟦)[^\s/@`$|<>(){}]+)@"
    rf'|"(?P<member>[\w-]{{1,64}})"\s{{0,9}}:\s{{0,9}}"(?P<held>(?!hidden, \d){_MADE})'
    rf"|(?<![\w-])(?P<name>[\w-]{{1,64}})=(?P<value>{_MADE})"
    r"|(?<![\w-])(?P<known>sk-[\w-]{16,}|gh[opsu]_\w{20,}|github_pat_\w{20,}"
    r"|xox[abprs]-[\w-]{10,}|AKIA[0-9A-Z]{16}|AIza[\w-]{30,}|glpat-[\w-]{16,}"
    r"|sayso_[\w-]{16,}|eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]{0,2000})",
    re.DOTALL,
)


_WHOLE = re.compile(_MADE + r"\Z")


def hidden_words(value: object) -> str:
    """What stands where a hidden value was."""
    return f"hidden, {len(str(value))} characters"


def masked_text(text: str) -> str:
    """A text without the credentials in it that can be told by their form."""
    return _Walk().text(text)


@dataclass
class _Walk:
    """One value, and the secrets that were found in it."""

    plain: frozenset[str] = frozenset()
    found: list[Any] = field(default_factory=list)
    level: int = 0

    def named(self, name: str, value: Any) -> Any:
        if name in self.plain:
            return value
        return self.hide(value) if _holds(name, value) else self.inside(value)

    def inside(self, value: Any) -> Any:
        if not isinstance(value, dict | list):
            # Numbers of a page are texts of a kind of their own.
            return self.text(value) if type(value) is str else value
        if self.level >= DEEPEST:
            return TOO_DEEP
        self.level += 1
        try:
            return self._parts(value)
        finally:
            self.level -= 1

    def _parts(self, value: dict[str, Any] | list[Any]) -> Any:
        if isinstance(value, dict):
            paired = _pairs(value, self.plain)
            return {
                name: self.hide(item)
                if paired and name == "value"
                else self.named(name, item)
                for name, item in value.items()
            }
        return [self.inside(item) for item in value]

    def hide(self, value: Any) -> str:
        self.found.append(value)
        return hidden_words(value)

    def text(self, text: str) -> str:
        return _IN_TEXT.sub(self._match, text)

    def _match(self, match: re.Match[str]) -> str:
        group = str(match.lastgroup)
        name, secret = match["name"] or match["member"], match[group]
        if name is not None and not (sounds_secret(name) and name not in self.plain):
            return match[0]
        self.found.append(secret)
        start, end = (
            match.start(group) - match.start(),
            match.end(group) - match.start(),
        )
        return f"{match[0][:start]}⟦{hidden_words(secret)}⟧{match[0][end:]}"


def _holds(name: str, value: Any) -> bool:
    """``password_length: 12`` and ``needs_password: true`` give nothing away."""
    if value is None or isinstance(value, bool) or value in ("", [], {}):
        return False
    is_text = type(value) is str or isinstance(value, dict | list)
    if is_text:
        return sounds_secret(name)
    words = _WORDS.findall(name[:_LONGEST_NAME])
    return bool(words) and sounds_secret(words[-1])


def _naming(value: dict[str, Any]) -> str:
    """Which member of a header or variable, {"name": …, "value": …}, says what it is."""
    return "name" if "name" in value else "key"


def _pairs(value: dict[str, Any], plain: frozenset[str]) -> bool:
    """Whether it is a header or variable, and a secret one."""
    said = value.get(_naming(value))
    if not isinstance(said, str) or said in plain or "value" in plain:
        return False
    return _holds(said, value.get("value"))


# ── the arguments of a call ──────────────────────────────────────────────────


@dataclass(frozen=True, kw_only=True)
class Hiding:
    """What is hidden of the arguments of one tool."""

    #: Top-level parameters that the tool declares secret.
    secrets: frozenset[str] = frozenset()
    #: Parameters, at any depth, that look like secrets and are none.
    plain: frozenset[str] = frozenset()

    @classmethod
    def of(cls, secrets: Iterable[str], plain: Iterable[str] = ()) -> Self:
        return cls(secrets=frozenset(secrets), plain=frozenset(plain))

    def __or__(self, other: Hiding) -> Hiding:
        """What either hides."""
        return Hiding(
            secrets=self.secrets | other.secrets, plain=self.plain & other.plain
        )

    def masked(self, arguments: Any) -> Any:
        """A copy of the arguments to show, with words in the place of what is hidden."""
        return self._walked(arguments)[0]

    def found(self, arguments: Any) -> Sequence[Any]:
        """The values that ``masked`` hides."""
        return self._walked(arguments)[1]

    def hides(self, arguments: dict[str, Any], name: str) -> bool:
        """Whether nothing of this argument is shown."""
        return (
            name in self.secrets
            or (name not in self.plain and _holds(name, arguments[name]))
            or (name == "value" and self._paired(arguments))
        )

    def changes(self, arguments: dict[str, Any], name: str) -> bool:
        """Whether something of this argument is hidden."""
        value = arguments[name]
        return self.hides(arguments, name) or bool(
            _Walk(self.plain).named(name, value) != value
        )

    def stays(self, arguments: dict[str, Any], name: str) -> bool:
        """Whether this argument cannot be edited where it is shown: something of it is
        hidden, or another value of it would uncover what stands beside it."""
        return self.changes(arguments, name) or (
            name == _naming(arguments) and self._paired(arguments)
        )

    def _paired(self, arguments: dict[str, Any]) -> bool:
        """Whether the arguments themselves are a name and the secret of that name.

        Only of the form of credentials: the tool may do something with any other value, and
        a model that chooses the name would choose that nobody reads it.
        """
        value = arguments.get("value")
        return (
            type(value) is str
            and bool(_WHOLE.match(value))
            and _pairs(arguments, self.plain)
        )

    def hides_name(self, name: str) -> bool:
        return name in self.secrets or (name not in self.plain and sounds_secret(name))

    def _walked(self, arguments: Any) -> tuple[Any, list[Any]]:
        walk = _Walk(self.plain)
        if not isinstance(arguments, dict):
            return walk.inside(arguments), walk.found
        masked = {
            name: walk.hide(value)
            if self.hides(arguments, name)
            else walk.named(name, value)
            for name, value in arguments.items()
        }
        return masked, walk.found


#: Where a tool declares nothing.
BY_LOOKS = Hiding()


def restored(given: Any, masked: Any, original: Any) -> Any:
    """What a page sent back, with the originals where it left a hidden value as it was shown.

    ``masked``: how ``original`` was shown to it.
    """
    if given == masked:
        return original
    if isinstance(given, dict) and isinstance(masked, dict):
        if any(given.get(key) != masked.get(key) for key in ("name", "key")):
            return given  # The value of a pair belongs to the name it had.
        return {
            name: restored(value, masked[name], original[name])
            if name in masked
            else value
            for name, value in given.items()
        }
    if isinstance(given, list) and isinstance(masked, list):
        if given[: len(masked)] != masked and len(given) != len(masked):
            return given  # Something was taken out: which is which, nobody knows.
        kept = [
            restored(*three) for three in zip(given, masked, original, strict=False)
        ]
        return [*kept, *given[len(kept) :]]
    return given


_MARK = re.compile(r"⟦hidden, \d+ characters⟧|\Ahidden, \d+ characters\Z")


def holds_marks(value: Any) -> bool:
    """Whether words that stand for a hidden value are in it."""
    return any(
        isinstance(text, str) and _MARK.search(text) for text in texts_of([value])
    )


def texts_of(values: Iterable[Any]) -> Iterator[Any]:
    """Values piece by piece, as they would be written elsewhere."""
    left = list(values)
    while left:
        value = left.pop()
        if isinstance(value, dict):
            left.extend(value.values())
        elif isinstance(value, list):
            left.extend(value)
        else:
            yield value
