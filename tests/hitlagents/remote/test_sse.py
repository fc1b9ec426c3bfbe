"""M21: the stream of events, whatever pieces it comes in."""

from __future__ import annotations

import time

import pytest

from hitlagents.remote.sse import EventParser, StreamError

pytestmark = pytest.mark.once


def parsed(*chunks: bytes, max_event: int = 1000) -> list[str]:
    parser = EventParser(max_event=max_event)
    return [data for chunk in chunks for data in parser.feed(chunk)]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_m21_lines_may_end_in_any_way(end):
    text = end.join(["data: one", "", "data: two", "data: more", "", ""])
    assert parsed(text.encode()) == ["one", "two\nmore"]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_m21_pieces_may_be_cut_anywhere(end):
    text = f"data: ä€😀{end}{end}: beat{end}data: two{end}{end}".encode()
    assert parsed(*(text[n : n + 1] for n in range(len(text)))) == ["ä€😀", "two"]


def test_m21_what_is_not_data_is_skipped():
    lines = b": beat\n\nevent: x\nid: 7\nretry: 1\ndata:{}\n\nother\n\n"
    assert parsed(b"\xef\xbb\xbf", lines) == ["{}"]


def test_m21_half_an_event_is_none():
    assert parsed(b"data: whole\n\ndata: half\n", b"data: more") == ["whole"]


@pytest.mark.parametrize(
    "chunks",
    [
        [b"data: " + b"x" * 1001 + b"\n\n"],
        [b"data: " + b"x" * 600 + b"\ndata: " + b"x" * 600 + b"\n\n"],
        [b"data: " + b"x" * 400] * 3,
        [b": " + b"x" * 400] * 3,
    ],
)
def test_m21_an_event_has_a_limit(chunks):
    with pytest.raises(StreamError, match="longer than the 1,000"):
        parsed(*chunks)


def test_m21_other_bytes_than_text_are_refused():
    with pytest.raises(StreamError, match="UTF-8"):
        parsed(b"data: \xff\xfe\n\n")


def test_m21_a_long_event_in_single_bytes_holds_up_nobody():
    """The loop is that of every agent."""
    begun = time.process_time()
    parser = EventParser(max_event=1_000_000)
    for _ in range(900_000):
        assert not list(parser.feed(b"x"))
    assert time.process_time() - begun < 15
