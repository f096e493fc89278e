"""Agents: their state, their middlewares and the factory that builds them."""

from typing import Any

from langchain_core.runnables import RunnableConfig

from deerflow.agents.factory import AgentCache, build_agent
from deerflow.agents.reader import StateReader
from deerflow.agents.state import ThreadState
from deerflow.agents.types import Agent, Middleware
from deerflow.config import resolve_use


def make_lead_agent(config: RunnableConfig | None = None) -> object:
    """Return a context manager that opens the lead agent's graph; `langgraph.json` names this function."""
    # By name: the application is in a higher layer than this package.
    open_lead_graph: Any = resolve_use("deerflow.client.graph:open_lead_graph")
    return open_lead_graph(config)


__all__ = [
    "Agent",
    "AgentCache",
    "Middleware",
    "StateReader",
    "ThreadState",
    "build_agent",
    "make_lead_agent",
]
