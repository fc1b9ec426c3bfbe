"""Arguments of calls as models write them: JSON text that may be cut short or odd."""

from __future__ import annotations

import contextlib
import json


def is_whole(text: str) -> bool:
    """Whether nothing but white space may follow: an object that was closed."""
    if not text.rstrip().endswith("}"):
        return False
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def encodable(arguments: str) -> str:
    """The text as it is, unless it holds half a surrogate pair, also as an escape: that
    cannot be stored. It becomes U+FFFD, as in every decoder."""
    text = arguments
    with contextlib.suppress(ValueError):  # the host will say so
        text = json.dumps(json.loads(arguments), ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return arguments
