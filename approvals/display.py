"""How things that agents and people wrote are put on a page.

Pure functions from text to safe HTML. Whatever comes from an agent is shown exactly,
with nothing hidden: numbers keep every digit, characters that cannot be seen become
visible marks, and words that are not what they look like are named in a warning.
"""

from __future__ import annotations

import difflib
import json
import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal
from urllib.parse import urlsplit

import nh3
from django.utils.html import escape, format_html
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext as _
from django.utils.translation import ngettext
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token

from approvals import wording
from approvals.hiding import BY_LOOKS, Hiding, masked_text

LONG = 600
"""Characters of one value shown before "Show all"."""

# ── text: nothing hidden ─────────────────────────────────────────────────────

# Candidates only; `_is_hidden` decides. Plain text of any script has none of them.
_SUSPECT = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\xa0\xad\u034f\u061c\u115f\u1160\u1680\u17b4\u17b5\u180b-\u180f"
    "\u2000-\u200f\u2028-\u202f\u205f-\u206f\u2800\u3000\u3164\ud800-\uf8ff\ufe00-\ufe0f"
    "\ufeff\uffa0\ufff0-\ufffb\ufffe\uffff\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U0010ffff]"
)
# A letter drawn with nothing: no category of Unicode says so.
_BLANK_LETTERS = frozenset("\u115f\u1160\u3164\uffa0\u2800")
_EMOJI_JOINERS = frozenset("\u200d\ufe0e\ufe0f")


def _is_hidden(text: str, at: int) -> bool:
    char = text[at]
    if char in _EMOJI_JOINERS and at:
        # Between or behind pictures these are part of the picture.
        before = text[at - 1]
        return not (unicodedata.category(before) in {"So", "Sk"} or before == "\ufe0f")
    if char in _BLANK_LETTERS:
        return True
    # A space that is not U+0020 looks like one and is not.
    return unicodedata.category(char) in {
        "Cc",
        "Cf",
        "Cn",
        "Co",
        "Cs",
        "Mn",
        "Zl",
        "Zp",
        "Zs",
    }


def hidden_characters(text: str) -> list[int]:
    """Positions of the characters of `text` that a reader could not see."""
    return [m.start() for m in _SUSPECT.finditer(text) if _is_hidden(text, m.start())]


def _mark(char: str) -> str:
    return _marked(char, f"⟦U+{ord(char):04X}⟧")


def _escaped_mark(char: str) -> str:
    return _marked(char, json.dumps(char)[1:-1])


def _marked(char: str, words: str) -> str:
    name = unicodedata.name(char, "control character").lower()
    return f'<mark class="hid" title="{escape(name)}">{words}</mark>'


_WORD = re.compile(r"[^\W\d_]+")
_FOREIGN_LOOKALIKES = (
    "CYRILLIC",
    "ARMENIAN",
    "CHEROKEE",
    "COPTIC",
    "FULLWIDTH",
    "MATHEMATICAL",
)
_GREEK_LOOKALIKES = frozenset("ΑΒΕΖΗΙΚΜΝΟΡΤΥΧϒαγικνορυωϲϳ")
# Something.something, as hosts are written, with any letters in it.
_HOST = re.compile(r"(?:[^\W_]|-)+(?:[.\u2024\u3002\uff0e\uff61](?:[^\W_]|-)+)+")
_FALSE_PUNCTUATION = re.compile(
    "[\u2024\u2044\u2215\u29f8\u3002\uff0e\uff0f\uff20\uff1a\uff61\ufe52]"
)


def _script(char: str) -> str:
    return unicodedata.name(char, "").partition(" ")[0]


def _is_mixed(word: str) -> bool:
    scripts = {_script(char) for char in word}
    if scripts.intersection(_FOREIGN_LOOKALIKES) and len(scripts) > 1:
        return True
    return "LATIN" in scripts and any(char in _GREEK_LOOKALIKES for char in word)


def lookalikes(text: str) -> list[tuple[int, int]]:
    """Spans of `text` that may be read as something else.

    A word that mixes letters of scripts that resemble each other, and an address that
    is not plain ASCII, such as a bank's name spelled with one or all letters Cyrillic.
    """
    if text.isascii():
        return []
    spans = [
        m.span()
        for m in _HOST.finditer(text)
        if not m[0].isascii()
        and (
            _FALSE_PUNCTUATION.search(m[0])
            or any(
                _script(char) not in {"LATIN", "DIGIT", "HYPHEN-MINUS", "FULL"}
                for char in m[0]
            )
        )
        and re.search("[a-z]", m[0], re.ASCII | re.IGNORECASE)
    ]
    spans += [
        m.span() for m in _WORD.finditer(text) if not m[0].isascii() and _is_mixed(m[0])
    ]
    spans += [
        m.span()
        for m in _FALSE_PUNCTUATION.finditer(text)
        if re.search(r"\w\.\w", text)
    ]
    spans.sort()
    merged: list[tuple[int, int]] = []
    for start, end in spans:
        if merged and start < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


@dataclass(frozen=True, kw_only=True)
class Shown:
    """A piece of text as a page shows it."""

    html: SafeString
    size: int
    hidden: int = 0
    odd_words: tuple[str, ...] = ()
    rest: SafeString | None = None
    """The whole text, where `html` holds only its beginning."""

    @property
    def size_words(self) -> str:
        return ngettext("%(n)s character", "%(n)s characters", self.size) % {
            "n": f"{self.size:,}"
        }

    @property
    def warnings(self) -> list[str]:
        found = []
        if self.hidden:
            found.append(
                ngettext(
                    "%(n)s character that cannot be seen is marked.",
                    "%(n)s characters that cannot be seen are marked.",
                    self.hidden,
                )
                % {"n": f"{self.hidden:,}"}
            )
        if self.odd_words:
            words = ", ".join(f"“{word}”" for word in self.odd_words[:3])
            found.append(_("%(words)s mixes look-alike letters.") % {"words": words})
        return found


def _html_of(
    text: str,
    hidden: Sequence[int],
    odd: Sequence[tuple[int, int]],
    *,
    mark: Callable[[str], str] = _mark,
) -> SafeString:
    if not hidden and not odd:
        return escape(text)
    edges: list[tuple[int, int, str]] = [(at, 1, mark(text[at])) for at in hidden]
    edges += [(start, 0, '<mark class="odd">') for start, _end in odd]
    edges += [(end, -1, "</mark>") for _start, end in odd]
    parts: list[str] = []
    done = 0
    for at, kind, html in sorted(edges):
        parts += (escape(text[done:at]), html)
        done = at + (kind == 1)
    parts.append(escape(text[done:]))
    return mark_safe("".join(parts))  # noqa: S308  every piece is escaped or ours


def show(text: str, *, limit: int | None = LONG) -> Shown:
    """`text` with nothing hidden; its beginning and the whole, where it is long."""
    hidden = hidden_characters(text)
    odd = lookalikes(text)
    whole = _html_of(text, hidden, odd)
    words = tuple(dict.fromkeys(re.sub(_SUSPECT, "", text[a:b])[:60] for a, b in odd))
    if limit is None or len(text) <= limit * 1.2:
        return Shown(html=whole, size=len(text), hidden=len(hidden), odd_words=words)
    start = _html_of(
        text[:limit],
        [at for at in hidden if at < limit],
        [(a, min(b, limit)) for a, b in odd if a < limit],
    )
    return Shown(
        html=format_html("{}…", start),
        size=len(text),
        hidden=len(hidden),
        odd_words=words,
        rest=whole,
    )


def json_text(text: str) -> str:
    """JSON text with what cannot be seen as escapes: the same value, all of it in sight."""

    def escaped(match: re.Match[str]) -> str:
        return (
            json.dumps(match[0])[1:-1] if _is_hidden(text, match.start()) else match[0]
        )

    return _SUSPECT.sub(escaped, text)


def show_json(value: Any, *, limit: int | None = None) -> Shown:
    """A JSON value over several lines, with nothing hidden and still JSON when copied.

    What cannot be seen stands as the escape JSON has for it, marked. Beyond ``limit``
    characters it is cut off, without a rest.
    """
    text = json.dumps(value, indent=2, ensure_ascii=False)
    shown = text if limit is None else text[:limit]
    hidden, odd = hidden_characters(shown), lookalikes(shown)
    return Shown(
        html=_html_of(shown, hidden, odd, mark=_escaped_mark),
        size=len(text),
        hidden=len(hidden),
        odd_words=tuple(dict.fromkeys(shown[a:b][:60] for a, b in odd)),
    )


def visible(text: object) -> SafeString:
    """One line of text for a heading or a cell: nothing hidden, isolated in direction."""
    return format_html('<bdi dir="auto">{}</bdi>', show(str(text), limit=None).html)


def plain(text: object) -> str:
    """One line of text where no markup can stand, such as a page's title: what cannot be
    seen, or turns the text around it, is written as its code point."""
    line = str(text)
    return _SUSPECT.sub(
        lambda found: (
            f"⟦U+{ord(found[0]):04X}⟧" if _is_hidden(line, found.start()) else found[0]
        ),
        line,
    )


# ── arguments: exact and typed ───────────────────────────────────────────────


class _Number(str):
    """A JSON number as it was written."""

    __slots__ = ()


class Unreadable(ValueError):
    """The text is not JSON."""


def parse_json(text: str) -> Any:
    """Parse JSON and keep numbers as they are written, with every digit."""
    try:
        return json.loads(
            text, parse_int=_Number, parse_float=_Number, parse_constant=_Number
        )
    except (ValueError, RecursionError) as error:
        raise Unreadable(str(error)) from error


@dataclass(frozen=True, kw_only=True)
class Argument:
    """One argument of a tool call, as the reviewer reads it."""

    name: Shown
    type_word: str
    value: Shown
    kind: Literal["text", "number", "literal", "nested", "secret", "raw"]
    hidden: bool = False
    """Some or all of its value is not shown."""

    @property
    def warnings(self) -> list[str]:
        return [*self.name.warnings, *self.value.warnings]


_READS_LIKE_JSON = re.compile(r"-?\d[\d.,eE+-]*|true|false|null")


def _kind_of(value: Any) -> tuple[Literal["text", "number", "literal", "nested"], str]:
    if isinstance(value, _Number):
        return "number", _("number")
    if isinstance(value, str):
        return "text", _("text")
    if value is None:
        return "literal", _("no value")
    if isinstance(value, bool):
        return "literal", _("yes or no")
    if isinstance(value, list):
        n = len(value)
        return "nested", ngettext("list of %(n)s", "list of %(n)s", n) % {"n": n}
    n = len(value)
    return "nested", ngettext("%(n)s field", "%(n)s fields", n) % {"n": n}


def _pretty(value: Any, depth: int = 0) -> Iterable[str]:
    """JSON over several lines, numbers as written, hidden characters left for `show`."""
    pad, inner = "  " * depth, "  " * (depth + 1)
    if isinstance(value, _Number):
        yield str(value)
    elif isinstance(value, str):
        # Only what would break the quotes is escaped: the rest is for the reader.
        yield '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    elif value is None or isinstance(value, bool):
        yield json.dumps(value)
    elif not value:
        yield "[]" if isinstance(value, list) else "{}"
    elif isinstance(value, list):
        yield "[\n"
        for at, item in enumerate(value):
            yield inner
            yield from _pretty(item, depth + 1)
            yield ",\n" if at < len(value) - 1 else "\n"
        yield f"{pad}]"
    else:
        yield "{\n"
        for at, (key, item) in enumerate(value.items()):
            yield f"{inner}{key}: "
            yield from _pretty(item, depth + 1)
            yield ",\n" if at < len(value) - 1 else "\n"
        yield f"{pad}}}"


def _hidden_argument(name: str, value: Any) -> Argument:
    _kind, word = _kind_of(value)
    size = len(value) if isinstance(value, str) else len("".join(_pretty(value)))
    html = ngettext("hidden, %(n)s character", "hidden, %(n)s characters", size) % {
        "n": size
    }
    return Argument(
        name=show(name),
        type_word=word,
        kind="secret",
        value=Shown(html=escape(html), size=0),
        hidden=True,
    )


def _argument(name: str, value: Any, *, hidden: bool = False) -> Argument:
    """``hidden``: whether something of it was taken out."""
    kind, word = _kind_of(value)
    if kind == "text":
        # "12345" is not 12345: what would read as another type keeps its quotes.
        quoted = (
            _READS_LIKE_JSON.fullmatch(value) or not value or value != value.strip()
        )
        text = f'"{value}"' if quoted else value
    else:
        text = "".join(_pretty(value))
    return Argument(
        name=show(name), type_word=word, kind=kind, value=show(text), hidden=hidden
    )


def arguments_of(text: str, *, hiding: Hiding | None = None) -> list[Argument]:
    """The arguments in canonical JSON `text`, typed and exact, but for what is hidden of
    them; without ``hiding`` nothing is.

    Text that is not a JSON object becomes one raw entry: unreadable is shown, not hidden.
    """
    try:
        value = parse_json(text)
        shown = value if hiding is None else hiding.masked(value)
        if not isinstance(value, dict):
            return [_argument(_("value"), shown, hidden=shown != value)]
        return [
            _hidden_argument(name, value[name])
            if hiding is not None and hiding.hides(value, name)
            else _argument(name, shown[name], hidden=shown[name] != value[name])
            for name in value
        ]
    except (Unreadable, RecursionError):
        return [
            Argument(
                name=show(_("raw")),
                type_word=_("unreadable"),
                kind="raw",
                value=show(text if hiding is None else masked_text(text)),
            )
        ]


@dataclass(frozen=True, kw_only=True)
class Change:
    """One argument that a reviewer changed, as a difference."""

    name: Shown
    html: SafeString


#: Longer texts are shown one after the other, because comparing them takes too long.
MAX_DIFF = 20_000


def changes(before: str, after: str, *, hiding: Hiding = BY_LOOKS) -> list[Change]:
    """What differs between two canonical texts of arguments, by argument."""
    old, new = parse_json(before), parse_json(after)
    if not isinstance(old, dict) or not isinstance(new, dict):
        old, new = {"value": old}, {"value": new}
    found = []
    for name in dict.fromkeys([*old, *new]):
        a, b = _text_of(old, name), _text_of(new, name)
        if a == b and _kind_of(old.get(name)) == _kind_of(new.get(name)):
            continue
        hidden = any(name in each and hiding.changes(each, name) for each in (old, new))
        html = escape(_("changed, hidden")) if hidden else difference(a, b)
        found.append(Change(name=show(name), html=html))
    return found


def _text_of(values: dict[str, Any], name: str) -> str:
    value = values.get(name, "")
    if isinstance(value, str) and not isinstance(value, _Number):
        return value
    return "".join(_pretty(value))


def difference(before: str, after: str) -> SafeString:
    """Words taken out and put in, each marked as such."""
    if len(before) + len(after) > MAX_DIFF:
        pairs = [("delete", before, ""), ("insert", "", after)]
    else:
        a, b = (re.findall(r"\s+|\w+|[^\w\s]", text) for text in (before, after))
        matcher = difflib.SequenceMatcher(a=a, b=b, autojunk=False)
        pairs = [
            (tag, "".join(a[i1:i2]), "".join(b[j1:j2]))
            for tag, i1, i2, j1, j2 in matcher.get_opcodes()
        ]
    parts: list[SafeString] = []
    for tag, out, put in pairs:
        if tag == "equal":
            parts.append(show(out, limit=None).html)
            continue
        if out:
            parts.append(format_html("<del>{}</del>", show(out, limit=None).html))
        if put:
            parts.append(format_html("<ins>{}</ins>", show(put, limit=None).html))
    return mark_safe("".join(parts))  # noqa: S308  every piece is escaped or ours


# ── a call in words ──────────────────────────────────────────────────────────


def effect(
    tool: str, arguments: str = "", *, hiding: Hiding = BY_LOOKS, size: int = 60
) -> str:
    """What a call does, in words: "Delete file q3-forecast-draft.xlsx"."""
    try:
        value = parse_json(arguments) if arguments else {}
    except Unreadable:
        value = {}
    items = value.items() if isinstance(value, dict) else ()
    said: list[str] = []
    for key, item in items:
        if not isinstance(item, str) or not item.strip() or hiding.changes(value, key):
            continue
        words = re.sub(r"\s+", " ", item.rstrip("/").rpartition("/")[2] or item)
        said.append(words if len(words) <= size else words[: size - 1] + "…")
        # An amount alone says little: the text behind it goes along.
        if len(said) == 2 or not isinstance(item, _Number):
            break
    return f"{wording.humanise(tool)} {', '.join(said)}".strip()


# ── Markdown of agents: harmless ─────────────────────────────────────────────

_TAGS = {
    "a", "blockquote", "br", "code", "del", "em", "hr", "li", "mark", "ol", "p", "pre", "s",
    "span", "strong", "table", "tbody", "td", "th", "thead", "tr", "ul",
}  # fmt: skip


class _Renderer(RendererHTML):
    """Pictures become words, headings become bold lines, links say where they lead."""

    def text(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        return show(tokens[idx].content, limit=None).html

    def code_inline(
        self, tokens: Sequence[Token], idx: int, options: Any, env: Any
    ) -> str:
        return f"<code>{show(tokens[idx].content, limit=None).html}</code>"

    def code_block(
        self, tokens: Sequence[Token], idx: int, options: Any, env: Any
    ) -> str:
        return f"<pre><code>{show(tokens[idx].content, limit=None).html}</code></pre>\n"

    fence = code_block

    def image(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        words = tokens[idx].content or _("no description")
        return "[" + _("picture: %s") % show(words, limit=None).html + "]"

    def heading_open(
        self, tokens: Sequence[Token], idx: int, options: Any, env: Any
    ) -> str:
        return '<p class="md-h">'

    def heading_close(
        self, tokens: Sequence[Token], idx: int, options: Any, env: Any
    ) -> str:
        return "</p>\n"

    def link_close(
        self, tokens: Sequence[Token], idx: int, options: Any, env: Any
    ) -> str:
        opening = next(t for t in reversed(tokens[:idx]) if t.type == "link_open")
        href = str(opening.attrs.get("href", ""))
        try:
            host = urlsplit(href).hostname or ""
        except ValueError:
            host = ""
        if not host or any(host in t.content for t in tokens[:idx]):
            return "</a>"
        return f'</a> <span class="host">({show(host, limit=None).html})</span>'


@lru_cache(maxsize=1)
def _parser() -> MarkdownIt:
    md = MarkdownIt("commonmark", {"html": False}, renderer_cls=_Renderer)
    return md.enable(["table", "strikethrough"])


def markdown(text: str, *, limit: int = 20_000) -> SafeString:
    """What an agent said, as harmless HTML. Very long text stays plain."""
    if len(text) > limit:
        return format_html(
            '<div class="md" dir="auto">{}</div>', show(text, limit=limit).html
        )
    html = nh3.clean(
        _parser().render(text),
        tags=_TAGS,
        attributes={"a": {"href"}, "mark": {"title"}},
        allowed_classes={"p": {"md-h"}, "span": {"host"}, "mark": {"hid", "odd"}},
        link_rel="nofollow noopener noreferrer",
        url_schemes={"http", "https", "mailto"},
    )
    return mark_safe(f'<div class="md" dir="auto">{html}</div>')  # noqa: S308  cleaned
