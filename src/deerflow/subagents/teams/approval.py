"""A person's decision in a team's work, in the form of LangChain's human in the loop."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from langchain.agents.middleware.human_in_the_loop import ActionRequest, HITLRequest, ReviewConfig
from langgraph.types import interrupt

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
) -> Decision:
    """Ask whether `args` are right; who answers in the wrong form is asked again with what was wrong.

    Args:
        check: refuses edited arguments that cannot be used.
    """
    problem = ""
    for _ in range(MAX_QUESTIONS):
        action = ActionRequest(name=name, args=dict(args), description=f"{problem}{description}")
        review = ReviewConfig(action_name=name, allowed_decisions=["approve", "edit", "reject"])
        try:
            decision = read_decision(
                ask(HITLRequest(action_requests=[action], review_configs=[review])), args
            )
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


def read_decision(answer: Any, args: Mapping[str, Any]) -> Decision:
    """Return the decision in an answer: `{"decisions": [{"type": "approve"}]}`, or the decision alone."""
    decisions = answer.get("decisions") if isinstance(answer, Mapping) else answer
    decision = decisions[0] if isinstance(decisions, list) and len(decisions) == 1 else decisions or answer
    kind = decision.get("type") if isinstance(decision, Mapping) else None
    match kind:
        case "approve":
            return Decision(True, args)
        case "edit":
            edited = decision.get("edited_action")
            changed = edited.get("args") if isinstance(edited, Mapping) else None
            if isinstance(changed, Mapping):
                return Decision(True, {**args, **changed}, is_edited=True)
        case "reject":
            return Decision(False, args, str(decision.get("message") or "no reason given"))
    raise InvalidInputError(
        'the answer is no decision; resume with {"decisions": [{"type": "approve"}]}, '
        '{"type": "edit", "edited_action": {"name": …, "args": {…}}} or {"type": "reject", "message": …}'
    )
