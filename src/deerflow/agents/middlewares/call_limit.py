"""Keeps agents from calling models more often at once than the provider allows.

The gate is one for all agents of a process. It stands innermost, so that whoever waits before another attempt
holds no place, and neither does an agent whose tools run.
"""

import asyncio
from weakref import WeakKeyDictionary

from typing_extensions import override

from deerflow.agents.middlewares.base import ChainMiddleware
from deerflow.agents.types import ModelAnswer, ModelCall, ModelHandler


class CallGate:
    """So many places for model calls, on each event loop."""

    def __init__(self, places: int) -> None:
        self._count = places
        self._places: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()

    @property
    def places(self) -> asyncio.Semaphore:
        """Return the places of the running loop: those who wait belong to one loop."""
        loop = asyncio.get_running_loop()
        if loop not in self._places:
            self._places[loop] = asyncio.Semaphore(self._count)
        return self._places[loop]


class CallLimitMiddleware(ChainMiddleware):
    """Lets a model call wait until there is a place for it."""

    after = ("ModelErrorMiddleware",)

    def __init__(self, gate: CallGate) -> None:
        super().__init__()
        self._gate = gate

    @override
    async def awrap_model_call(self, request: ModelCall, handler: ModelHandler) -> ModelAnswer:
        async with self._gate.places:
            return await handler(request)
