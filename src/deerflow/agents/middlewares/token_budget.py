"""Keeps a run within its token budget.

At the first threshold the agent is told to finish. The response that reaches the second is the last: its tool
calls are not made, and the turn ends with a summary of the work done. Sub-agents' tokens count too.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Self, cast

from langchain.agents.middleware import ModelResponse
from langchain_core.messages import AIMessage, AnyMessage, ToolMessage
from typing_extensions import override

from deerflow.agents.middlewares.base import AgentKind, ChainMiddleware, with_update
from deerflow.agents.middlewares.loop_guard import steps_of_turn
from deerflow.agents.middlewares.reminder import reminder
from deerflow.agents.middlewares.unusable_answers import stopped_answer
from deerflow.agents.state import Spent, ThreadState
from deerflow.agents.types import ModelAnswer, ModelCall, ModelHandler
from deerflow.config import Settings, TokenBudgetSettings

WARNING = (
    "{share:.0%} of this run's token budget is used. Start nothing new: finish what is at hand and answer."
)
REASON = "I stopped because this run's token budget is used up ({used} of {limit} tokens)."


class TokenBudgetMiddleware(ChainMiddleware):
    """Counts the tokens of a run, warns the agent, and stops the run."""

    applies_to = AgentKind.LEAD

    def __init__(self, *, settings: TokenBudgetSettings) -> None:
        super().__init__()
        self._settings = settings

    @classmethod
    def from_settings(cls, settings: Settings) -> Self | None:
        return cls(settings=settings.token_budget) if settings.token_budget.enabled else None

    @override
    async def awrap_model_call(self, request: ModelCall, handler: ModelHandler) -> ModelAnswer:
        state = cast("ThreadState", request.state)
        spent = spent_so_far(state, request.runtime.context.run_id, request.messages)
        share, _, _ = self._share(spent)
        if share >= self._settings.warn_threshold:
            warning = reminder(WARNING.format(share=min(share, 1)))
            request = request.override(messages=[*request.messages, warning])
        response = await handler(request)
        spent = with_answer(spent, response)
        share, used, limit = self._share(spent)
        if share >= self._settings.hard_stop_threshold:
            response = self._ended(response, state["messages"], used, limit)
        return with_update(response, {"tokens_spent": spent})

    def _share(self, spent: Spent) -> tuple[float, int, int]:
        """Return the largest used share of any limit, with the tokens used and the limit."""
        limits = (
            (spent["input_tokens"] + spent["output_tokens"], self._settings.max_tokens),
            (spent["input_tokens"], self._settings.max_input_tokens),
            (spent["output_tokens"], self._settings.max_output_tokens),
        )
        return max((used / limit, used, limit) for used, limit in limits if limit)

    def _ended(
        self, response: ModelResponse[Any], messages: Sequence[AnyMessage], used: int, limit: int
    ) -> ModelResponse[Any]:
        if not any(isinstance(message, AIMessage) and message.tool_calls for message in response.result):
            return response
        reason = REASON.format(used=used, limit=limit)
        done = [(call.name, call.result) for step in steps_of_turn(messages) for call in step]
        result = [
            stopped_answer(message, code="token_budget", reason=reason, done=done)
            for message in response.result
        ]
        return replace(response, result=result)


def spent_so_far(state: ThreadState, run_id: str, asked: Iterable[AnyMessage] = ()) -> Spent:
    """Return the run's usage, including its sub-agents' since its last response.

    Args:
        asked: The request's messages. They may include messages that are not in the state: news of
            background tasks, and responses that did not end this step.
    """
    known = state.get("tokens_spent")
    spent = known if known and known["run_id"] == run_id else nothing_spent(run_id)
    for message in reversed(state["messages"]):
        if not isinstance(message, ToolMessage):
            break
        spent = _plus(spent, message.additional_kwargs.get("subagent_token_usage"))
    stored = {message.id for message in state["messages"]}
    for message in asked:
        if message.id and message.id not in stored:
            spent = _plus(spent, message.additional_kwargs.get("subagent_token_usage"))
            spent = _plus(spent, message.usage_metadata if isinstance(message, AIMessage) else None)
    return spent


def nothing_spent(run_id: str) -> Spent:
    """Return the initial count of a run."""
    return Spent(run_id=run_id, input_tokens=0, output_tokens=0)


def with_answer(spent: Spent, response: ModelResponse[Any]) -> Spent:
    """Return `spent` plus the tokens of a response."""
    for message in response.result:
        if isinstance(message, AIMessage):
            spent = _plus(spent, message.usage_metadata)
    return spent


def _plus(spent: Spent, usage: Any) -> Spent:
    if not isinstance(usage, dict):
        return spent
    return Spent(
        run_id=spent["run_id"],
        input_tokens=spent["input_tokens"] + int(usage.get("input_tokens") or 0),
        output_tokens=spent["output_tokens"] + int(usage.get("output_tokens") or 0),
    )
