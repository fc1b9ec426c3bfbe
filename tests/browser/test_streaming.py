"""A reply in a browser while its model still writes it, word by word as the test says."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Semaphore

import pytest
from playwright.sync_api import expect

from hitlagents.demo.scripted import Reply
from tests.browser.conftest import FIRST_RUN
from tests.hitlagents.fakes import plays
from tests.hitlagents.openai_stub import OpenAIStub
from tests.served import Served

pytestmark = pytest.mark.once

#: The stub sends five characters at a time.
WORDS = ("Four ", "eggs ", "make ", "good ", "cake.")


@pytest.fixture(scope="module")
def pace() -> Semaphore:
    """The model sends one event for each of it."""
    return Semaphore(0)


@pytest.fixture(scope="module")
def model(pace: Semaphore) -> Iterator[OpenAIStub]:
    with OpenAIStub(plays(Reply("".join(WORDS)))) as stub:
        stub.pace = pace
        yield stub
        pace.release(100)


@pytest.fixture(scope="module")
def served(
    tmp_path_factory: pytest.TempPathFactory, model: OpenAIStub
) -> Iterator[Served]:
    """Sayso whose agents speak with this model."""
    server = Served(tmp_path_factory.mktemp("streaming"))
    server.start(**model.environ)
    yield server
    server.stop()


def test_words_appear_as_they_are_written(sign_in, model, pace):
    member = sign_in("member")
    member.goto("/agents/file-ops/")
    member.fill("#message", "What do eggs make?")
    member.keyboard.press("Control+Enter")
    expect(member.locator("[data-conn]:visible")).to_contain_text("Live")
    # What the socket brings stands in the tail until it comes with the page.
    member.evaluate(
        """() => {
          window.tails = [];
          new MutationObserver(() => {
            const tail = document.querySelector('.tail');
            if (tail?.textContent) tails.push(tail.textContent);
          }).observe(document.querySelector('#transcript'),
                     {subtree: true, childList: true, characterData: true});
        }"""
    )
    # An event that begins the message, and its first word.
    pace.release(2)
    reply = member.locator(".txt").last
    expect(reply).to_have_text(WORDS[0].strip(), timeout=FIRST_RUN)
    for many in range(2, len(WORDS) + 1):
        pace.release()
        expect(reply).to_have_text("".join(WORDS[:many]).strip())
        expect(member.locator("#run-state")).to_contain_text("Running")
    pace.release()
    expect(member.locator("#run-state")).to_contain_text("Finished")
    expect(reply).to_have_text("".join(WORDS))
    expect(member.locator(".tail")).to_have_count(0)
    tails = member.evaluate("tails")
    assert all(any(tail.endswith(word) for tail in tails) for word in WORDS), tails
    assert len(model.requests) == 1
