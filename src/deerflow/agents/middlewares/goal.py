"""Keeps the agent working on a thread's goal: a response that would end the turn is evaluated first.

A side call to the model says whether the goal is met. If it is not and the agent can continue, a note tells
it to; the note stays in the conversation and is hidden from people. A goal that is met is removed; one that
needs user input or an external event is kept with the reason.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import ClassVar, cast

from langchain.agents.middleware.types import ExtendedModelResponse
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage
from langgraph.types import Command
from typing_extensions import override

from deerflow.agents.goals import GO_ON, GOAL, Verdict, evaluation_in, judge_prompt, verdict
from deerflow.agents.message_markers import NOTE
from deerflow.agents.middlewares.base import Audience, ChainMiddleware
from deerflow.agents.middlewares.tags import extended
from deerflow.agents.side_calls import ask_beside
from deerflow.agents.state import GoalState, ThreadState
from deerflow.agents.types import ModelAnswer, ModelCall, ModelHandler
from deerflow.domain import new_id
from deerflow.domain.tags import neutralise

Clock = Callable[[], datetime]


class GoalMiddleware(ChainMiddleware):
    """Evaluates the end of each turn of a thread that has a goal; without one it does nothing."""

    audience: ClassVar[Audience] = Audience.LEAD

    def __init__(self, *, clock: Clock = lambda: datetime.now(UTC)) -> None:
        super().__init__()
        self._clock = clock

    @override
    async def awrap_model_call(self, request: ModelCall, handler: ModelHandler) -> ModelAnswer:
        goal = cast("ThreadState", request.state).get("goal")
        if not goal:
            return await handler(request)
        words = GOAL.format(objective=neutralise(goal["objective"]))
        request = request.override(system_message=extended(request.system_message, words))
        said: list[AnyMessage] = []
        while True:
            response = await handler(request.override(messages=[*request.messages, *said]))
            said += cast("list[AnyMessage]", response.result)
            if any(isinstance(each, AIMessage) and each.tool_calls for each in response.result):
                follows = Verdict(goal)
                break
            follows = await self._judged(goal, request, said)
            if follows.goal is None or not follows.goes_on:
                break
            goal = follows.goal
            said.append(_note(goal))
        return ExtendedModelResponse(
            model_response=replace(response, result=cast("list[BaseMessage]", said)),
            command=Command(update={"goal": follows.goal}),
        )

    async def _judged(self, goal: GoalState, request: ModelCall, said: list[AnyMessage]) -> Verdict:
        context = request.runtime.context
        messages = [*request.messages, *said]
        answer = await ask_beside(judge_prompt(goal, messages), request.model, what="a goal's evaluation")
        if answer.usage:
            context.spend(None, answer.usage)
        evaluation = evaluation_in(answer.text)
        if evaluation is not None:
            evaluation["run_id"] = context.run_id
        follows = verdict(goal, evaluation, messages, now=self._clock())
        context.publish({"type": "goal_evaluated", "goal": follows.goal, "evaluation": evaluation})
        return follows


def _note(goal: GoalState) -> HumanMessage:
    evaluation = goal.get("last_evaluation")
    text = GO_ON.format(reason=neutralise(evaluation["reason"] if evaluation else ""))
    marks = {"hide_from_ui": True, "goal_continuation": True, NOTE: True}
    return HumanMessage(text, id=new_id(), additional_kwargs=marks)
