"""Server-sent events, as far as AG-UI uses them: the data of each event, in order.

A parser of our own because of its limits: how long an event may become is checked while
it comes in, and an event that was cut off is never given.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator


class StreamError(Exception):
    """What came in is no stream of events, or more of it than is allowed."""


class EventParser:
    """Fed with bytes as they come; gives the data of every event that is complete.

    Lines may end in LF, CRLF or CR. Comments, ``event``, ``id`` and ``retry`` are skipped.
    """

    def __init__(self, *, max_event: int) -> None:
        self._max_event = max_event
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")()
        #: The line that is not over yet, in the pieces it came in, and its length.
        self._pieces: list[str] = []
        self._begun = 0
        self._data: list[str] = []
        self._size = 0
        #: The last character was a CR: an LF that follows belongs to it.
        self._after_cr = False

    def feed(self, chunk: bytes) -> Iterator[str]:
        """Raises StreamError for an event that is too long or is not UTF-8."""
        try:
            text = self._decoder.decode(chunk)
        except UnicodeDecodeError as error:
            raise StreamError("The stream is not UTF-8 text.") from error
        if self._after_cr and text:
            self._after_cr = False
            text = text.removeprefix("\n")
        self._after_cr = text.endswith("\r")
        *lines, rest = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
        for line in lines:
            data = self._end_of_line("".join((*self._pieces, line)))
            self._pieces, self._begun = [], 0
            if data is not None:
                yield data
        if rest:
            self._pieces.append(rest)
            self._begun += len(rest)
            self._check(self._begun)

    def _end_of_line(self, line: str) -> str | None:
        if not line:
            data, self._data, self._size = self._data, [], 0
            return "\n".join(data) if data else None
        name, _colon, value = line.partition(":")
        if name == "data":
            self._check(len(value))
            self._size += len(value)
            self._data.append(value.removeprefix(" "))
        return None

    def _check(self, more: int) -> None:
        if self._size + more > self._max_event:
            raise StreamError(
                f"An event is longer than the {self._max_event:,} characters allowed."
            )
