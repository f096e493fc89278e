"""Builds agents; the only module that calls `create_agent`."""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeVar, cast

from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.tools import BaseTool
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.store.base import BaseStore

from deerflow.agents.combine_middlewares import combine
from deerflow.agents.state import ThreadState
from deerflow.agents.types import Agent, Middleware
from deerflow.context import RunContext
from deerflow.models import quiet_tracing

T = TypeVar("T")


def build_agent(
    model: BaseChatModel,
    *,
    name: str,
    system_prompt: str,
    tools: Sequence[BaseTool],
    middlewares: Sequence[Middleware],
    checkpointer: BaseCheckpointSaver[Any] | None = None,
    store: BaseStore | None = None,
) -> Agent:
    """Return a compiled agent that concurrent runs may share."""
    quiet_tracing()
    agent: Agent = create_agent(
        model,
        list(tools),
        system_prompt=system_prompt or None,
        middleware=combine(middlewares),
        state_schema=ThreadState,
        context_schema=RunContext,
        checkpointer=checkpointer,
        store=store,
    )
    # Not passed to create_agent, which would also write the name into every message sent to the provider.
    agent.name = name
    return agent


class AgentCache:
    """Caches the most recently used agents, since building one costs as much as several steps."""

    def __init__(self, *, max_agents: int = 64) -> None:
        self._max_agents = max_agents
        self._agents: OrderedDict[Hashable, tuple[tuple[object, ...], object]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._agents)

    def get(self, key: Hashable, *, of: Sequence[object], build: Callable[[], T]) -> T:
        """Return the agent for `key` from the cache, or build it.

        Args:
            of: Objects compared by identity, such as the settings; the cache holds references to them, so
                that a new object at the same address is never mistaken for one of them.
        """
        whole = (key, *map(id, of))
        found = self._agents.get(whole)
        if found is None:
            found = self._agents[whole] = (tuple(of), build())
        self._agents.move_to_end(whole)
        while len(self._agents) > self._max_agents:
            self._agents.popitem(last=False)
        return cast("T", found[1])
