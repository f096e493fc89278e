"""`tool_search`: finds tools of which the model has only the names, and makes them callable.

A few MCP servers have more schemas than a prompt should contain. So the model gets only their names, searches
for what it needs, and gets those schemas from then on. A loaded tool is stored with its fingerprint: if a
server changes the description, the model must load the tool again before it calls it.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_function
from langgraph.types import Command
from pydantic import BaseModel, Field

from deerflow.memory.searching import words_of
from deerflow.tools.define import PlainText, Runtime, refuse, tool_of
from deerflow.tools.mcp import FINGERPRINT

TOOL_SEARCH = "tool_search"
DEFERRED = "is_deferred"
"""Metadata key of a tool that is offered by name only until it is searched for."""
MAX_RESULTS = 5
NAME_SCORE = 3
_SELECT = "select:"


class DeferredToolRegistry:
    """The deferred tools of an agent, by name."""

    def __init__(self, tools: Iterable[BaseTool]) -> None:
        self._tools = {tool.name: tool for tool in tools if is_deferred(tool)}

    @property
    def names(self) -> list[str]:
        """The names of all deferred tools."""
        return list(self._tools)

    def search(self, query: str) -> list[BaseTool]:
        """Return the tools that match a query, best first: `select:a,b`, `+must have`, or words."""
        query = query.strip()
        if query.lower().startswith(_SELECT):
            wanted = [name.strip() for name in query[len(_SELECT) :].split(",")]
            return [self._tools[name] for name in dict.fromkeys(wanted) if name in self._tools][:MAX_RESULTS]
        needed = [word for part in query.split() if part.startswith("+") for word in words_of(part)]
        others = [word for part in query.split() if not part.startswith("+") for word in words_of(part)]
        scored = [(_score(tool, needed, others), tool) for tool in self._tools.values()]
        ranked = sorted((each for each in scored if each[0] > 0), key=lambda each: -each[0])
        return [tool for _, tool in ranked[:MAX_RESULTS]]


def is_deferred(tool: BaseTool | Mapping[str, Any] | None) -> bool:
    """Return whether a tool is offered by name only."""
    return isinstance(tool, BaseTool) and (tool.metadata or {}).get(DEFERRED) is True


def is_promoted(tool: BaseTool, promoted: Mapping[str, str] | None) -> bool:
    """Return whether the current version of a deferred tool was loaded."""
    return (promoted or {}).get(tool.name) == fingerprint(tool)


def fingerprint(tool: BaseTool) -> str:
    """Return a tool's fingerprint, which identifies its current description."""
    return str((tool.metadata or {}).get(FINGERPRINT, tool.name))


def defer(tools: Sequence[BaseTool]) -> list[BaseTool]:
    """Return copies of the tools that are marked as deferred."""
    return [tool.model_copy(update={"metadata": {**(tool.metadata or {}), DEFERRED: True}}) for tool in tools]


class ToolSearchArguments(BaseModel):
    """What `tool_search` takes."""

    query: PlainText = Field(
        min_length=1,
        max_length=500,
        description="`select:name,name` for tools by name, or words on what you need; a word with + in front "
        "must be in the tool's name.",
    )


@tool_of(TOOL_SEARCH, ToolSearchArguments, is_safe_to_repeat=True)
async def tool_search_tool(*, query: str, runtime: Runtime) -> Command[Any]:
    """Load tools that are listed by name in <deferred_tools>, so that you can call them.

    Returns what they take, at most five at a time. From your next step on they are among your tools.
    """
    registry = DeferredToolRegistry(runtime.tools)
    found = registry.search(query)
    if not found:
        raise refuse(_nothing(registry.names))
    functions = [convert_to_openai_function(tool) for tool in found]
    text = json.dumps(functions, ensure_ascii=False, indent=1)
    message = ToolMessage(
        f"You can call these from now on:\n{text}", tool_call_id=runtime.tool_call_id or "", name=TOOL_SEARCH
    )
    promoted = {tool.name: fingerprint(tool) for tool in found}
    return Command(update={"promoted": promoted, "messages": [message]})


def _nothing(names: Sequence[str]) -> str:
    shown = ", ".join(names[:50]) or "none"
    more = f" and {len(names) - 50} more" if len(names) > 50 else ""
    return f"No tool fits. Try other words, or select: one of these: {shown}{more}."


def _score(tool: BaseTool, needed: Sequence[str], others: Sequence[str]) -> int:
    """Return how well a tool matches; 0 if it does not."""
    # Words are matched literally: a regular expression from outside could run for hours.
    name, text = tool.name.lower(), tool.description.lower()
    if not all(word in name for word in needed):
        return 0
    hits = sum(NAME_SCORE * (word in name) + (word in text) for word in others)
    return hits + NAME_SCORE * len(needed)
