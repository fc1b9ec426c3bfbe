"""What only the OpenAI Agents SDK does with a real model, on the loopback."""

from __future__ import annotations

import asyncio

import pytest

from hitlagents.adapters.base import Finished, Gating, Interrupted
from hitlagents.adapters.model_choice import RealModel
from hitlagents.adapters.openai_agents import OpenAIAgentsAdapter
from hitlagents.adapters.openai_agents_models import openai_compatible
from hitlagents.demo.scripted import Reply
from tests.hitlagents.fakes import (
    FakeHost,
    Tools,
    approve,
    call,
    heard,
    plays,
    resume,
    start,
)
from tests.hitlagents.openai_stub import KEY, MODEL, OpenAIStub

pytestmark = pytest.mark.once


def test_a_helper_and_a_handoff_speak_the_same_protocol():
    from agents import Agent, function_tool

    tools = Tools()

    def make():
        helper = Agent(name="helper", tools=[function_tool(tools.delete)])
        clerk = Agent(name="clerk", tools=[helper.as_tool("ask_helper", "Ask.")])
        return Agent(name="front", handoffs=[clerk])

    def script(history):
        texts = [item.text for item in history if hasattr(item, "text")]
        if texts[0] == "tidy up":
            return plays(Reply("", [call("delete", filename="a")]), heard)(history)
        return plays(
            Reply("", [call("transfer_to_clerk", "h1")]),
            Reply("", [call("ask_helper", "h2", input="tidy up")]),
            heard,
        )(history)

    host = FakeHost(allowed=["ask_helper"])
    with OpenAIStub(script) as stub:
        real = RealModel(name=MODEL, base_url=stub.base_url, key=KEY)
        adapter = OpenAIAgentsAdapter(
            make=make,
            model=openai_compatible(real, retries=0),
            gating=Gating(allowed=frozenset({"ask_helper"})),
        )
        paused = asyncio.run(adapter.start(start(host), host))
        assert isinstance(paused, Interrupted)
        job = resume(host, paused.state, approve(host, paused))
        assert isinstance(asyncio.run(adapter.resume(job, host)), Finished)
    assert tools.effects == ["delete a"]
    assert host.text == 'I heard: {"assistant": "clerk"} | I heard: Deleted a.'
