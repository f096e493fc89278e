"""Start a team at once in runs that were created for one.

Such a run has the team request in its context. Its first answer is the `run_team` call, created here instead
of by a model: the request needs no interpretation. Otherwise it is a normal run with the same durability, and
the lead agent's model is called when the team is done.
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
"""The key of the team request in a run's context."""


class TeamRequestMiddleware(ChainMiddleware):
    """Answers the user's message with the `run_team` call when the run's context has a team request."""

    audience: ClassVar[Audience] = Audience.LEAD

    @override
    async def awrap_model_call(self, request: ModelCall, handler: ModelHandler) -> ModelAnswer:
        wish = request.runtime.context.extra.get(TEAM_REQUEST)
        messages = request.state["messages"]
        if not isinstance(wish, dict) or not messages or not isinstance(messages[-1], HumanMessage):
            return await handler(request)
        call = ToolCall(name=RUN_TEAM, args=wish, id=call_id("team", request.runtime.context.run_id))
        return AIMessage("", tool_calls=[call], id=new_id())
