"""What a page may expect of every agent here, in the shape that AG-UI has for it."""

from __future__ import annotations

from typing import Any

from ag_ui.core import (
    AgentCapabilities,
    HumanInTheLoopCapabilities,
    IdentityCapabilities,
    MultimodalCapabilities,
    MultimodalInputCapabilities,
    StateCapabilities,
    ToolsCapabilities,
    TransportCapabilities,
)

from hitlagents.adapters.base import AgentSpec


def declared(spec: AgentSpec) -> dict[str, Any]:
    """Only what this endpoint itself decides; the rest is the agent's and its policies'."""
    found = AgentCapabilities(
        identity=IdentityCapabilities(
            name=spec.name, type=spec.framework, description=spec.description
        ),
        transport=TransportCapabilities(
            streaming=True,
            websocket=False,
            http_binary=False,
            push_notifications=False,
            resumable=False,
        ),
        tools=ToolsCapabilities(client_provided=not spec.is_remote),
        state=StateCapabilities(snapshots=False, deltas=False),
        multimodal=MultimodalCapabilities(
            input=MultimodalInputCapabilities(
                image=False, audio=False, video=False, pdf=False, file=False
            )
        ),
        # Whether a call may be edited says its `responseSchema`.
        human_in_the_loop=HumanInTheLoopCapabilities(
            supported=True, approvals=True, interrupts=True, approve_with_edits=True
        ),
    )
    return found.model_dump(by_alias=True, exclude_none=True)
