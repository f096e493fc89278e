"""Limits concurrent model calls of a process, and concurrent tool calls of one response.

The limit of model calls is what the provider allows; all agents of a process share it. A model may request a
hundred tool calls at once, and each may need memory, a process or a connection. Calls beyond the limit wait;
the results keep their order. Calls that start sub-agents are not counted: they mostly wait for other agents,
and have their own limits.
"""

import asyncio
from weakref import WeakKeyDictionary, WeakValueDictionary

from typing_extensions import override

from deerflow.agents.middlewares.base import ChainMiddleware
from deerflow.agents.types import ModelAnswer, ModelCall, ModelHandler, ToolHandler, ToolRequest, ToolResult


class ModelCallSlots:
    """A limited number of slots for model calls, per event loop."""

    def __init__(self, slots: int) -> None:
        self._count = slots
        self._slots: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()

    @property
    def slots(self) -> asyncio.Semaphore:
        """Return the semaphore of the running loop: a semaphore's waiters belong to one loop."""
        loop = asyncio.get_running_loop()
        if loop not in self._slots:
            self._slots[loop] = asyncio.Semaphore(self._count)
        return self._slots[loop]


class CallLimitMiddleware(ChainMiddleware):
    """Makes a model call wait for a free slot."""

    def __init__(self, slots: ModelCallSlots) -> None:
        super().__init__()
        self._slots = slots

    @override
    async def awrap_model_call(self, request: ModelCall, handler: ModelHandler) -> ModelAnswer:
        async with self._slots.slots:
            return await handler(request)


WAIT_FOR_AGENTS = frozenset({"task", "task_result", "run_team"})


class ParallelCallsMiddleware(ChainMiddleware):
    """Runs at most `limit` tool calls of an agent concurrently."""

    before = ("ReadBeforeWriteMiddleware",)  # it reads whole files before their tools do

    def __init__(self, *, limit: int) -> None:
        super().__init__()
        self._limit = limit
        self._slots: WeakValueDictionary[tuple[str, str | None], asyncio.Semaphore] = WeakValueDictionary()
        """By run and task; each semaphore lives as long as a call holds it or waits for it."""

    @override
    async def awrap_tool_call(self, request: ToolRequest, handler: ToolHandler) -> ToolResult:
        context = request.runtime.context
        if context is None or request.tool_call["name"] in WAIT_FOR_AGENTS:
            return await handler(request)
        key = (context.run_id, context.task_id)
        slots = self._slots.get(key)
        if slots is None:
            slots = self._slots[key] = asyncio.Semaphore(self._limit)
        async with slots:
            return await handler(request)
