from __future__ import annotations

import os

# LangGraph reads these once, when it is first imported, by whomever. Without the first,
# loading a stored state may import and call what its bytes name; the second keeps what
# agents do from being sent to its vendor, unless an operator wants that.
os.environ["LANGGRAPH_STRICT_MSGPACK"] = "true"
os.environ.setdefault("LANGSMITH_TRACING", "false")
