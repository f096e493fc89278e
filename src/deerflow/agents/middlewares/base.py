"""What every middleware of the house has in common: it says for whom it is."""

from enum import Flag, auto
from typing import Any, ClassVar

from langchain.agents.middleware import AgentMiddleware

from deerflow.agents.state import ThreadState
from deerflow.context import RunContext


class Audience(Flag):
    """The kinds of agents."""

    LEAD = auto()
    SUBAGENT = auto()
    BOTH = LEAD | SUBAGENT


class HouseMiddleware(AgentMiddleware[ThreadState, RunContext, Any]):
    """One effect on an agent; the instance holds settings only, since it serves many runs at once."""

    audience: ClassVar[Audience] = Audience.BOTH
    """Which agents get it."""
