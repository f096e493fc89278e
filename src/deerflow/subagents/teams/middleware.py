"""Hands a run that was asked for a team to it at once.

Such a run carries the request in its context. The first answer is then the call of `run_team`, written here
instead of by a model: the request is a fact, not something to interpret. All else is a run like any other,
with the same durability, and the lead agent's model speaks when the team is done.
"""

from typing import ClassVar

from langchain_core.messages import AIMessage, HumanMessage, ToolCall
from typing_extensions import override

from deerflow.agents.message_markers import call_id
from deerflow.agents.middlewares import Audience, ChainMiddleware
from deerflow.agents.types import ModelAnswer, ModelCall, ModelHandler
from deerflow.domain import new_id
from deerflow.subagents.teams.tool import RUN_TEAM

TEAM_REQUEST = "team_request"
"""The key of a run's context with what the team is asked for."""


class TeamRequestMiddleware(ChainMiddleware):
    """Answers the user's message with the call of the team that the run was started for."""

    audience: ClassVar[Audience] = Audience.LEAD

    @override
    async def awrap_model_call(self, request: ModelCall, handler: ModelHandler) -> ModelAnswer:
        wish = request.runtime.context.extra.get(TEAM_REQUEST)
        messages = request.state["messages"]
        if not isinstance(wish, dict) or not messages or not isinstance(messages[-1], HumanMessage):
            return await handler(request)
        call = ToolCall(name=RUN_TEAM, args=wish, id=call_id("team", request.runtime.context.run_id))
        return AIMessage("", tool_calls=[call], id=new_id())
