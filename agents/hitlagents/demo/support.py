"""The demo agent support: answers customers by mail and pays invoices back.

Two ways of LangGraph side by side. Replies go through a graph of their own, whose review
node asks with a raw ``interrupt()``; everything else is an agent with ordinary tools, of
which refunding is held. ``support_graph`` holds the graph and imports the framework.
"""

from __future__ import annotations

from approvals.schemas import ToolSpec
from approvals.states import Risk
from hitlagents.adapters import model_choice
from hitlagents.adapters.base import AgentSpec, Gating
from hitlagents.adapters.chat_model import ChatModel
from hitlagents.adapters.langgraph import (
    DISTRIBUTION,
    FRAMEWORK,
    METADATA_KEY,
    LangGraphAdapter,
)
from hitlagents.adapters.langgraph_models import from_environment
from hitlagents.demo import outbox, scripted_support

CARDS = (
    ToolSpec(
        name="lookup_ticket",
        title="Look up {query}",
        risk=Risk.LOW,
        read_only=True,
    ),
    ToolSpec(
        name="refund_invoice",
        title="Refund invoice {invoice}",
        risk=Risk.HIGH,
        approve_label="Approve and refund",
        consequence="The customer gets the money back and a mail that says so.",
    ),
)

SEND_EMAIL = ToolSpec(
    name="send_email",
    description="Send a mail to a customer.",
    title="Send “{subject}” to {to}",
    risk=Risk.MEDIUM,
    approve_label="Approve and send",
    consequence="The mail is sent at once, as it is written here.",
    parameters={
        "type": "object",
        "properties": {
            "to": {
                "type": "string",
                "title": "To",
                "description": "One e-mail address.",
                "pattern": outbox.ADDRESS,
            },
            "subject": {
                "type": "string",
                "title": "Subject",
                "minLength": 1,
                "maxLength": outbox.MAX_LINE,
            },
            "body": {
                "type": "string",
                "title": "Text",
                "format": "textarea",
                "minLength": 1,
                "maxLength": outbox.MAX_BODY,
            },
        },
        "required": ["to", "subject", "body"],
        "additionalProperties": False,
    },
)


def build(gating: Gating, *, model: ChatModel | None = None) -> LangGraphAdapter:
    """The agent as the policies want it now. Imports the framework.

    Raises AgentRunError when the environment names a model that cannot be had.
    """
    from hitlagents.demo import support_graph

    return LangGraphAdapter(
        name="support",
        build=support_graph.build,
        model=model or from_environment(scripted_support.reply),
        gating=gating,
        tools=support_graph.tools(),
        steps=[SEND_EMAIL],
        cards=CARDS,
    )


SPEC = AgentSpec(
    slug="support",
    name="Customer support",
    framework=FRAMEWORK,
    metadata_key=METADATA_KEY,
    description="Drafts replies to customers for review, and refunds invoices.",
    distribution=DISTRIBUTION,
    install=f"pip install {DISTRIBUTION} langchain langchain-openai",
    build=build,
    cancel=LangGraphAdapter.cancel,
    model_label=lambda: from_environment(scripted_support.reply).label,
    models=model_choice.CHOICES,
    page=outbox.PAGE,
    suggestions=(
        "Reply to Dana about invoice 1042",
        "Please answer tickets 8813 and 8820",
        "Look up ticket 8812 and refund invoice 1042",
    ),
)
