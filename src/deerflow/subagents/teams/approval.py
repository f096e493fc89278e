"""A person's decision in a team's work, in the form of LangChain's human in the loop."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self

from langchain.agents.middleware.human_in_the_loop import ActionRequest, HITLRequest, ReviewConfig
from langgraph.types import interrupt

from deerflow.agents.middlewares.approval import read_decision
from deerflow.errors import InvalidInputError
from deerflow.subagents.config import SubagentResult

Ask = Callable[[Any], Any]
"""Puts a request to a person and returns the answer; inside a run that is LangGraph's `interrupt`."""

NOBODY = "nobody can answer in this run"
MAX_QUESTIONS = 5
"""How often the same is asked while the answers make no sense."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What a person decided."""

    is_approved: bool
    args: Mapping[str, Any]
    """What the decision is about, as the person left it."""
    message: str = ""
    is_edited: bool = False

    @classmethod
    def of(cls, answer: Any, name: str, args: Mapping[str, Any]) -> Self:
        """Return the decision in an answer, about `args` as they were shown."""
        given = read_decision(answer, name)
        if given.kind == "reject":
            return cls(False, args, given.message or "no reason given")
        return cls(True, {**args, **(given.args or {})}, is_edited=given.kind == "edit")


def ask_person(request: Any) -> Any:
    """Stop the run until somebody answers."""
    return interrupt(request)


def decide(
    ask: Ask,
    name: str,
    args: Mapping[str, Any],
    description: str,
    *,
    check: Callable[[Mapping[str, Any]], object] = lambda args: None,
    expires_at: datetime | None = None,
) -> Decision:
    """Ask whether `args` are right; who answers in the wrong form is asked again with what was wrong.

    Args:
        check: refuses edited arguments that cannot be used.
        expires_at: until when the question waits; None for ever.
    """
    problem = ""
    waits = {} if expires_at is None else {"expires_at": expires_at.isoformat()}
    for _ in range(MAX_QUESTIONS):
        action = ActionRequest(name=name, args=dict(args), description=f"{problem}{description}")
        review = ReviewConfig(action_name=name, allowed_decisions=["approve", "edit", "reject"])
        try:
            answer = ask({**HITLRequest(action_requests=[action], review_configs=[review]), **waits})
            decision = Decision.of(answer, name, args)
            if decision.is_edited:
                check(decision.args)
            return decision
        except InvalidInputError as error:
            problem = f"The last answer could not be used: {error}\n"
    return Decision(False, args, f"{MAX_QUESTIONS} answers in a row could not be used")


def question_of(result: SubagentResult) -> Any:
    """Return what a member's tool asks, in its own words, marked with the member's task."""
    value = result.question.value if result.question is not None else None
    return {**value, "task_id": result.task_id} if isinstance(value, Mapping) else value
