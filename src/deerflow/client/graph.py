"""The lead agent as a graph of its own, for LangGraph's server: `langgraph.json` names it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import fields
from typing import Any

from langchain_core.messages import BaseMessage, HumanMessage, convert_to_messages
from langchain_core.runnables import RunnableConfig
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.graph.state import CompiledStateGraph

from deerflow.app import DeerFlow
from deerflow.client.embedded import AsyncDeerFlowClient
from deerflow.config import SettingsSource
from deerflow.domain import RunOptions, new_id

_OPTIONS = frozenset(field.name for field in fields(RunOptions))


@asynccontextmanager
async def open_lead_graph(
    config: RunnableConfig | None = None,
) -> AsyncIterator[CompiledStateGraph[MessagesState]]:
    """Open DeerFlow with the settings of the current folder, and yield a graph whose node is a run."""
    async with DeerFlow.open(SettingsSource()) as deerflow:
        client = AsyncDeerFlowClient(deerflow)

        async def lead_agent(state: MessagesState, config: RunnableConfig) -> dict[str, Any]:
            configurable = config.get("configurable", {})
            options = {name: value for name, value in configurable.items() if name in _OPTIONS}
            thread_id = str(configurable.get("thread_id") or new_id())
            await client.chat(state["messages"][-1].text, thread_id=thread_id, **options)
            return {"messages": _new_messages(await client.state(thread_id))}

        graph = StateGraph(MessagesState)
        graph.add_node("lead_agent", lead_agent)
        graph.add_edge(START, "lead_agent")
        graph.add_edge("lead_agent", END)
        yield graph.compile()


def _new_messages(state: dict[str, Any]) -> list[BaseMessage]:
    """Return the messages after the last one of the user."""
    messages = convert_to_messages(state["values"]["messages"])
    last = max(index for index, message in enumerate(messages) if isinstance(message, HumanMessage))
    return messages[last + 1 :]
