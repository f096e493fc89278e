"""Limits how many tool calls of one response run concurrently.

A model may request a hundred calls at once, and each may need memory, a process or a connection. Calls beyond
the limit wait; the results keep their order. Calls that start sub-agents are not counted: they mostly wait
for other agents, and have their own limits.
"""

import asyncio
from weakref import WeakValueDictionary

from typing_extensions import override

from deerflow.agents.middlewares.base import ChainMiddleware
from deerflow.agents.types import ToolCall, ToolHandler, ToolResult

WAIT_FOR_AGENTS = frozenset({"task", "task_result", "run_team"})


class ParallelCallsMiddleware(ChainMiddleware):
    """Runs at most `limit` tool calls of an agent concurrently."""

    after = ("GuardrailMiddleware",)  # a call that waits for approval takes no slot
    before = ("ReadBeforeWriteMiddleware",)  # it reads whole files before their tools do

    def __init__(self, *, limit: int) -> None:
        super().__init__()
        self._limit = limit
        self._slots: WeakValueDictionary[tuple[str, str | None], asyncio.Semaphore] = WeakValueDictionary()
        """By run and task; each semaphore lives as long as a call holds it or waits for it."""

    @override
    async def awrap_tool_call(self, request: ToolCall, handler: ToolHandler) -> ToolResult:
        context = request.runtime.context
        if context is None or request.tool_call["name"] in WAIT_FOR_AGENTS:
            return await handler(request)
        key = (context.run_id, context.task_id)
        slots = self._slots.get(key)
        if slots is None:
            slots = self._slots[key] = asyncio.Semaphore(self._limit)
        async with slots:
            return await handler(request)
