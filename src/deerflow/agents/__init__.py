"""An agent: its state, its middlewares, and how one is built."""

from deerflow.agents.factory import AgentCache, build_agent
from deerflow.agents.reader import StateReader
from deerflow.agents.state import ThreadState
from deerflow.agents.types import Agent, Middleware

__all__ = ["Agent", "AgentCache", "Middleware", "StateReader", "ThreadState", "build_agent"]
