"""Builds approval requests for tool calls in LangChain's human-in-the-loop format, and parses the answers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, TypedDict, cast

from langchain.agents.middleware.human_in_the_loop import ActionRequest, ReviewConfig
from langchain_core.messages import AnyMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.base.id import UUID

from deerflow.agents.allowed_calls import SCOPES, Scope
from deerflow.errors import InvalidInputError
from deerflow.tools.policy import ReasonCode, Verdict

MARK = "approval"
"""Key in a tool result's `additional_kwargs` that records the decision about its call."""
_HELP = (
    'resume with {"decisions": [{"type": "approve"}]}, {"type": "edit", "edited_action": {"name": …, "args": '
    '{…}}} or {"type": "reject", "message": …} in it'
)
_GREGORIAN = datetime(1582, 10, 15, tzinfo=UTC)


class ApprovalRequest(TypedDict):
    """The interrupt's value: LangChain's `HITLRequest` for one call, and the call's identity."""

    action_requests: list[ActionRequest]
    review_configs: list[ReviewConfig]
    tool_call_id: str
    hash: str
    """Identifies exactly this call; an answer with a different hash is rejected."""
    reason: str
    """Why approval is needed, as text."""
    reason_code: ReasonCode
    """The same as a code, for clients with their own texts."""
    rule: int
    """The 1-based number of the rule that requires approval; 0 if none does."""
    remember: list[Scope]
    """The scopes in which an approval can be stored; empty if it is valid only once."""
    expires_at: str
    problem: str
    """Why the last answer was invalid; empty if there was none."""


@dataclass(frozen=True, slots=True)
class Decision:
    """A person's decision about a call."""

    kind: Literal["approve", "edit", "reject"]
    args: Mapping[str, Any] | None = None
    """The edited arguments; None if they were not edited."""
    message: str = ""
    remember: Scope | None = None
    """The scope in which the same call may run without approval; None: it needs approval again."""


def approval_request(
    name: str,
    args: Mapping[str, Any],
    *,
    call_id: str,
    call_hash: str,
    why: Verdict,
    expires_at: datetime,
    can_be_remembered: bool = False,
) -> ApprovalRequest:
    """Return the approval request for one call, with its complete arguments."""
    words = f"May `{name}` run? You are asked because {why.reason}."
    return ApprovalRequest(
        action_requests=[ActionRequest(name=name, args=dict(args), description=words)],
        review_configs=[
            ReviewConfig(action_name=name, allowed_decisions=["approve", "edit", "reject"]),
        ],
        tool_call_id=call_id,
        hash=call_hash,
        reason=why.reason,
        reason_code=why.code,
        rule=why.rule,
        remember=list(SCOPES) if can_be_remembered else [],
        expires_at=expires_at.isoformat(),
        problem="",
    )


def with_problem(request: ApprovalRequest, problem: str) -> ApprovalRequest:
    """Return the same request with the reason why the last answer was invalid."""
    action = request["action_requests"][0]
    words = f"The last answer could not be used: {problem}\n{action.get('description', '')}"
    return {
        **request,
        "problem": problem,
        "action_requests": [{"name": action["name"], "args": action["args"], "description": words}],
    }


def read_answer(answer: Any, request: ApprovalRequest) -> Decision:
    """Parse the decision in an answer; raise if there is none or if its hash is for another call."""
    for holder in (answer, _only_decision(answer)):
        given = holder.get("hash") if isinstance(holder, Mapping) else None
        if given is not None and given != request["hash"]:
            raise InvalidInputError(
                f"it is about another call: its hash is not {request['hash'][:12]}…; look at the call again"
            )
    return read_decision(answer, request["action_requests"][0]["name"])


def read_decision(answer: Any, name: str) -> Decision:
    """Parse a decision about a tool call, or about something else that has a name."""
    decision = _only_decision(answer)
    match decision.get("type"):
        case "approve":
            return Decision("approve", remember=_scope(decision.get("remember")))
        case "reject":
            return Decision("reject", message=str(decision.get("message") or "").strip())
        case "edit":
            return Decision("edit", _edited(decision.get("edited_action"), name))
    raise InvalidInputError(f"its type must be approve, edit or reject; {_HELP}")


def last_rejection(messages: Sequence[AnyMessage], call_hash: str) -> str | None:
    """Return why a person rejected this call since the last user message; None if it was not rejected."""
    for message in reversed(messages):
        if isinstance(message, HumanMessage) and is_users(message):
            return None
        mark = message.additional_kwargs.get(MARK) if isinstance(message, ToolMessage) else None
        if isinstance(mark, Mapping) and mark.get("decision") == "reject" and mark.get("hash") == call_hash:
            return str(mark.get("reason") or "no reason given")
    return None


def deadline(checkpoint_id: str, seconds: float) -> datetime:
    """Return the time until which an answer is accepted.

    It is derived from the creation time of the checkpoint before the call. That checkpoint is the same in
    every process and attempt that resumes the call.
    """
    asked_at = _GREGORIAN + timedelta(microseconds=UUID(checkpoint_id).time / 10)
    return asked_at + timedelta(seconds=seconds)


def _only_decision(answer: Any) -> Mapping[str, Any]:
    decisions = answer.get("decisions", answer) if isinstance(answer, Mapping) else answer
    if isinstance(decisions, list) and len(decisions) == 1:
        decisions = decisions[0]
    if isinstance(decisions, list) and decisions:
        raise InvalidInputError("it has several decisions for one call; send one")
    if not isinstance(decisions, Mapping):
        raise InvalidInputError(f"it is no decision; {_HELP}")
    return decisions


def _scope(given: Any) -> Scope | None:
    if given is None or given in SCOPES:
        return cast("Scope | None", given)
    raise InvalidInputError(f"remember is one of {', '.join(SCOPES)}, or absent; not {given!r:.80}")


def _edited(action: Any, name: str) -> Mapping[str, Any]:
    args = action.get("args") if isinstance(action, Mapping) else None
    if not isinstance(args, Mapping):
        raise InvalidInputError(f"it has no edited_action with args; {_HELP}")
    if action.get("name", name) != name:
        raise InvalidInputError(f"an edit may change the arguments of {name}, not the tool; reject it")
    return args


def is_users(message: HumanMessage) -> bool:
    """Return whether the user wrote a message, not DeerFlow; form answers are hidden but the user's."""
    kwargs = message.additional_kwargs
    return not kwargs.get("hide_from_ui") or "human_input_response" in kwargs
