"""Limits concurrent model calls to what the provider allows.

All agents of a process share the limit. The middleware is the innermost one, so that an agent holds no slot
while it waits before a retry or while its tools run.
"""

import asyncio
from weakref import WeakKeyDictionary

from typing_extensions import override

from deerflow.agents.middlewares.base import ChainMiddleware
from deerflow.agents.types import ModelAnswer, ModelCall, ModelHandler


class CallGate:
    """A limited number of slots for model calls, per event loop."""

    def __init__(self, places: int) -> None:
        self._count = places
        self._places: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()

    @property
    def places(self) -> asyncio.Semaphore:
        """Return the semaphore of the running loop: a semaphore's waiters belong to one loop."""
        loop = asyncio.get_running_loop()
        if loop not in self._places:
            self._places[loop] = asyncio.Semaphore(self._count)
        return self._places[loop]


class CallLimitMiddleware(ChainMiddleware):
    """Makes a model call wait for a free slot."""

    after = ("ModelErrorMiddleware",)

    def __init__(self, gate: CallGate) -> None:
        super().__init__()
        self._gate = gate

    @override
    async def awrap_model_call(self, request: ModelCall, handler: ModelHandler) -> ModelAnswer:
        async with self._gate.places:
            return await handler(request)
