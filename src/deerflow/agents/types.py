"""Type aliases for middlewares and agent builders."""

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse
from langchain.agents.middleware.types import ExtendedModelResponse
from langchain.tools.tool_node import ToolCallRequest
from langchain_core.messages import AIMessage, ToolMessage
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import Command

from deerflow.agents.state import ThreadState
from deerflow.context import RunContext

Agent: TypeAlias = CompiledStateGraph[Any, RunContext, Any, Any]
"""A compiled agent; its state is a `ThreadState`."""

Middleware: TypeAlias = AgentMiddleware[ThreadState, RunContext, Any]

ModelCall: TypeAlias = ModelRequest[RunContext]
ModelHandler: TypeAlias = Callable[[ModelRequest[RunContext]], Awaitable[ModelResponse[Any]]]
ModelAnswer: TypeAlias = ModelResponse[Any] | AIMessage | ExtendedModelResponse[Any]

ToolRequest: TypeAlias = ToolCallRequest
ToolResult: TypeAlias = ToolMessage | Command[Any]
ToolHandler: TypeAlias = Callable[[ToolCallRequest], Awaitable[ToolMessage | Command[Any]]]
