"""Middlewares around model and tool calls, one family per file."""

from deerflow.agents.middlewares.base import AgentKind, ChainMiddleware, check_order

__all__ = ["AgentKind", "ChainMiddleware", "check_order"]
