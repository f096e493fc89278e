"""Approvals by a person in a team's work, in the format of LangChain's human-in-the-loop middleware."""

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
"""How often a question is asked while the answers are invalid."""


@dataclass(frozen=True, slots=True)
class Decision:
    """A person's decision."""

    is_approved: bool
    args: Mapping[str, Any]
    """The arguments in question, with the person's edits."""
    message: str = ""
    is_edited: bool = False

    @classmethod
    def of(cls, answer: Any, name: str, args: Mapping[str, Any]) -> Self:
        """Return the decision in an answer about `args`."""
        given = read_decision(answer, name)
        if given.kind == "reject":
            return cls(False, args, given.message or "no reason given")
        return cls(True, {**args, **(given.args or {})}, is_edited=given.kind == "edit")


def ask_person(request: Any) -> Any:
    """Interrupt the run until a person answers."""
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
    """Ask a person to approve `args`; an invalid answer is asked for again, with the reason.

    Args:
        check: Raises `InvalidInputError` for edited arguments that cannot be used.
        expires_at: When the question expires; None: never.
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
    """Return the question of a member's tool, with the id of the member's task."""
    value = result.question.value if result.question is not None else None
    return {**value, "task_id": result.task_id} if isinstance(value, Mapping) else value
