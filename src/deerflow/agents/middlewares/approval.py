"""The question whether a tool call may run, in the form of LangChain's human in the loop, and its answer."""

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
"""Where a tool's result says what a person decided about its call."""
_HELP = (
    'resume with {"decisions": [{"type": "approve"}]}, {"type": "edit", "edited_action": {"name": …, "args": '
    '{…}}} or {"type": "reject", "message": …} in it'
)
_GREGORIAN = datetime(1582, 10, 15, tzinfo=UTC)


class ApprovalRequest(TypedDict):
    """What people are asked: LangChain's `HITLRequest` for one call, and what the call is bound to."""

    action_requests: list[ActionRequest]
    review_configs: list[ReviewConfig]
    tool_call_id: str
    hash: str
    """Stands for exactly this call; an answer that carries another one is refused."""
    reason: str
    """Why it is asked, in words."""
    reason_code: ReasonCode
    """The same for clients that have words of their own."""
    rule: int
    """The number of the rule that wants it, from 1; 0 when none does."""
    remember: list[Scope]
    """How long an approval can be made to last; empty where it counts once only."""
    expires_at: str
    problem: str
    """Why the last answer did not count; empty when there was none."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What a person decided about a call."""

    kind: Literal["approve", "edit", "reject"]
    args: Mapping[str, Any] | None = None
    """The arguments as the person changed them."""
    message: str = ""
    remember: Scope | None = None
    """For how long the same call may run unasked; None: it is asked about again."""


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
    """Return the question about one call, with all that will run."""
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
    """Return the same question, saying why the last answer to it did not count."""
    action = request["action_requests"][0]
    words = f"The last answer could not be used: {problem}\n{action.get('description', '')}"
    return {
        **request,
        "problem": problem,
        "action_requests": [{"name": action["name"], "args": action["args"], "description": words}],
    }


def read_answer(answer: Any, request: ApprovalRequest) -> Decision:
    """Return the decision in an answer; raises when there is none, or when it is about another call."""
    for holder in (answer, _only_decision(answer)):
        given = holder.get("hash") if isinstance(holder, Mapping) else None
        if given is not None and given != request["hash"]:
            raise InvalidInputError(
                f"it is about another call: its hash is not {request['hash'][:12]}…; look at the call again"
            )
    return read_decision(answer, request["action_requests"][0]["name"])


def read_decision(answer: Any, name: str) -> Decision:
    """Return what was decided about the call of a tool, or about another thing that has a name."""
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
    """Return why a person rejected this very call since the user last spoke; None when nobody did."""
    for message in reversed(messages):
        if isinstance(message, HumanMessage) and is_users(message):
            return None
        mark = message.additional_kwargs.get(MARK) if isinstance(message, ToolMessage) else None
        if isinstance(mark, Mapping) and mark.get("decision") == "reject" and mark.get("hash") == call_hash:
            return str(mark.get("reason") or "no reason given")
    return None


def deadline(checkpoint_id: str, seconds: float) -> datetime:
    """Return until when an answer counts.

    The checkpoint in front of the call knows when it was made, and it is the same one whenever the call is
    taken up again, in whichever process.
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
    """Tell the user's words from notes of DeerFlow; answers to a form are hidden, but the user's."""
    kwargs = message.additional_kwargs
    return not kwargs.get("hide_from_ui") or "human_input_response" in kwargs
