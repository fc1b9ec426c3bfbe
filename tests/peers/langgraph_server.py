"""Graphs that stop at ``interrupt()``, behind LangGraph's own AG-UI endpoint.

``/calls`` asks about tool calls and ends with AG-UI's outcome, ``/legacy`` is the same as
the package serves it by default. ``/question`` asks for words.
"""

from __future__ import annotations

from typing import Any, TypedDict
from uuid import uuid4

from ag_ui_langgraph import LangGraphAgent, add_langgraph_fastapi_endpoint
from fastapi import FastAPI
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import Send, interrupt

from tests.peers.serving import asked, note, reply, run, serve

ANSWER = {
    "type": "object",
    "properties": {
        "approved": {"type": "boolean"},
        "note": {"type": "string"},
        "editedArgs": {
            "type": "object",
            "properties": {"filename": {"type": "string"}},
            "required": ["filename"],
            "additionalProperties": False,
        },
    },
    "required": ["approved"],
}


class Call(TypedDict):
    id: str
    name: str
    args: dict[str, Any]


def model(state: MessagesState) -> dict[str, list[AnyMessage]]:
    messages = state["messages"]
    note("told", [[each.type, str(each.content)] for each in messages])
    place = max(n for n, each in enumerate(messages) if isinstance(each, HumanMessage))
    results = [
        str(each.content) for each in messages[place:] if isinstance(each, ToolMessage)
    ]
    calls = asked(str(messages[place].content)) if not results else []
    if not calls:
        return {"messages": [AIMessage(reply(results))]}
    tool_calls = [
        {"id": f"call-{uuid4().hex[:8]}", "name": name, "args": given}
        for name, given in calls
    ]
    return {"messages": [AIMessage("", tool_calls=tool_calls)]}


def after(state: MessagesState) -> Any:
    last = state["messages"][-1]
    calls = last.tool_calls if isinstance(last, AIMessage) else []
    return [Send("gate", call) for call in calls] or END


def gate(state: Call) -> dict[str, list[AnyMessage]]:
    """Ask about a call, and run it with what was answered."""
    given = state["args"]
    if state["name"] == "delete_file":
        answer = interrupt(
            {
                "reason": "tool_call",
                "message": f"Approve running {state['name']}?",
                "toolCallId": state["id"],
                "responseSchema": ANSWER,
                **given,
            }
        )
        note("answers", answer)
        if answer.get("approved") is not True:
            said = f"Denied: {answer.get('note') or 'no reason'}"
            return {"messages": [ToolMessage(said, tool_call_id=state["id"])]}
        given = answer.get("editedArgs") or given
    result = run(state["name"], **given)
    return {"messages": [ToolMessage(result, tool_call_id=state["id"])]}


def calling() -> CompiledStateGraph[Any, Any, Any, Any]:
    graph = StateGraph(MessagesState)
    graph.add_node("model", model)
    graph.add_node("gate", gate, input_schema=Call)
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", after, ["gate", END])
    graph.add_edge("gate", "model")
    return graph.compile(checkpointer=InMemorySaver())


def question(state: MessagesState) -> dict[str, list[AnyMessage]]:
    answer = interrupt("Which file do you mean?")
    note("answers", answer)
    result = run("delete_file", filename=str(answer))
    return {"messages": [AIMessage(result)]}


def asking() -> CompiledStateGraph[Any, Any, Any, Any]:
    graph = StateGraph(MessagesState)
    graph.add_node("question", question)
    graph.add_edge(START, "question")
    graph.add_edge("question", END)
    return graph.compile(checkpointer=InMemorySaver())


app = FastAPI()
for path, graph, outcome in (
    ("/calls", calling(), True),
    ("/legacy", calling(), False),
    ("/question", asking(), True),
):
    served = LangGraphAgent(name=path[1:], graph=graph, emit_interrupt_outcome=outcome)
    add_langgraph_fastapi_endpoint(app, served, path)

if __name__ == "__main__":
    serve(app)
