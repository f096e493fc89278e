"""Agents: their state, their middlewares and the factory that builds them."""

from deerflow.agents.factory import AgentCache, build_agent
from deerflow.agents.reader import StateReader
from deerflow.agents.state import ThreadState
from deerflow.agents.types import Agent, Middleware

__all__ = ["Agent", "AgentCache", "Middleware", "StateReader", "ThreadState", "build_agent"]
