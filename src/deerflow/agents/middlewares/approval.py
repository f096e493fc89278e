"""Decides about each tool call: it runs, it is denied, or the run is interrupted until a person approves it.

The approval request is a LangGraph interrupt in LangChain's human-in-the-loop format, raised where the call
would run: the run ends there, and any process can resume the call from its checkpoint with the answer. What
runs is what was shown. A rejected call marks its result, so that the same call is not asked about again in
that turn.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, TypedDict, cast

from langchain.agents.middleware.human_in_the_loop import ActionRequest, ReviewConfig
from langchain_core.messages import AnyMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.base.id import UUID
from langgraph.types import interrupt
from typing_extensions import override

from deerflow.agents.allowed_calls import SCOPES, AllowedCalls, Scope
from deerflow.agents.middlewares.base import ChainMiddleware, error_result
from deerflow.agents.types import ToolHandler, ToolRequest, ToolResult
from deerflow.config.tools import GuardrailsSettings
from deerflow.context import RunContext
from deerflow.errors import InvalidInputError
from deerflow.tools.define import clip_middle
from deerflow.tools.policy import Policy, PolicyCall, PolicyDecision, ReasonCode
from deerflow.tools.policy_provider import GuardrailRequest, ask_provider, make_provider, words

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
    why: PolicyDecision,
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


logger = logging.getLogger(__name__)

MAX_QUESTIONS = 5
"""How often a request is repeated while its answers are invalid."""
MAX_SHOWN_CHARS = 2000
DENIED = "Error: {name} was not run: {reason}. This will not change: do not try again, find another way."
REJECTED = (
    "Error: {name} was not run: a person rejected this call ({reason}). Do not make the same call again; go "
    "on without it, or ask what to do instead."
)
NOT_ASKED = (
    "Error: {name} was not run: it needs a person's approval ({why}), and {reason}. Do not make the same "
    "call again; go on without it and say in your answer what could not be done."
)
EDITED = "[A person changed this call before it ran. It ran with: {args}]\n\n"


@dataclass(frozen=True, slots=True)
class _ApprovalCase:
    """One call that needs approval."""

    request: ToolRequest
    call: PolicyCall
    verdict: PolicyDecision

    @property
    def context(self) -> RunContext:
        return cast("RunContext", self.request.runtime.context)

    @property
    def why(self) -> str:
        return self.verdict.reason

    @property
    def allowed(self) -> AllowedCalls | None:
        """The user's stored permissions; None without a store."""
        store = self.request.runtime.store
        return None if store is None else AllowedCalls(store, self.context.user_id)


class GuardrailMiddleware(ChainMiddleware):
    """Checks every tool call against the guardrail provider and the rules in the settings."""

    before = (
        "ParallelCallsMiddleware",
        "ReadBeforeWriteMiddleware",
        "ToolOutputBudgetMiddleware",
        "EffectsMiddleware",
    )

    def __init__(self, *, settings: GuardrailsSettings) -> None:
        super().__init__()
        self._settings = settings
        self._policy = Policy(settings.rules)
        self._provider = make_provider(settings)

    @override
    async def awrap_tool_call(self, request: ToolRequest, handler: ToolHandler) -> ToolResult:
        call = _call_of(request, request.tool_call["args"])
        verdict = await self._verdict(request, call)
        if verdict.action == "deny":
            _log(request, call, "deny", verdict.reason)
            return _answer(request, DENIED.format(name=call.name, reason=verdict.reason), call, "deny")
        if verdict.action == "ask":
            return await self._ask(_ApprovalCase(request, call, verdict), handler)
        return await handler(request)

    async def _verdict(self, request: ToolRequest, call: PolicyCall) -> PolicyDecision:
        """Return the verdict on a call; no rule overrides a denial by the provider."""
        if self._provider is None:
            return await self._decide(call)
        context = cast("RunContext", request.runtime.context)
        question = GuardrailRequest(
            tool_name=call.name,
            tool_input=request.tool_call["args"],
            agent_id=self._settings.passport,
            thread_id=context.thread_id,
            is_subagent=context.task_id is not None,
        )
        try:
            decision = await ask_provider(self._provider, question)
        except Exception:  # a third-party provider may raise anything; the settings decide what follows
            logger.exception("the guardrail provider failed on %s", call.name)
            if self._settings.fail_closed:
                return PolicyDecision("deny", "the guardrail provider failed, and without it nothing may run")
            return await self._decide(call)
        return await self._decide(call) if decision.allow else PolicyDecision("deny", words(decision))

    async def _decide(self, call: PolicyCall) -> PolicyDecision:
        """Check a call against the rules; in a thread if they have patterns, because matching may be slow."""
        if not self._policy.has_patterns:
            return self._policy.decide(call)
        return await asyncio.to_thread(self._policy.decide, call)

    async def _ask(self, asked: _ApprovalCase, handler: ToolHandler) -> ToolResult:
        stored, call_hash = asked.allowed, asked.call.hash
        permission = await stored.find(call_hash, asked.context.thread_id) if stored else None
        if permission is not None:
            _log(asked.request, asked.call, "approve", f"allowed before, for: {permission.scope}")
            return _marked(await handler(asked.request), asked.call, "approve", scope=permission.scope)
        earlier = last_rejection(asked.request.state["messages"], asked.call.hash)
        if earlier is not None:
            return _rejected(asked, f"before, with the reason: {earlier}", REJECTED, by="earlier answer")
        if not asked.context.is_interactive:
            return _rejected(asked, "nobody can answer in this run", NOT_ASKED, by="nobody")
        decision = await self._decided(asked)
        if decision is None:
            waited = f"nobody answered within {self._settings.ask_timeout_seconds:g} seconds"
            return _rejected(asked, waited, NOT_ASKED, by="timeout")
        if decision.kind == "reject":
            return _rejected(asked, decision.message or "no reason given", REJECTED, by="person")
        _log(asked.request, asked.call, decision.kind, asked.why)
        if decision.args is None:
            await self._remember(asked, decision)
            return _marked(await handler(asked.request), asked.call, "approve", scope=decision.remember)
        changed = {**asked.request.tool_call, "args": dict(decision.args)}
        edited = asked.request.override(tool_call=cast("Any", changed))
        return _with_edit_note(await handler(edited), _call_of(edited, decision.args))

    async def _remember(self, asked: _ApprovalCase, decision: Decision) -> None:
        if decision.remember is not None and asked.allowed is not None:
            call, thread_id = asked.call, asked.context.thread_id
            await asked.allowed.allow(
                call.name, call.args, call_hash=call.hash, scope=decision.remember, thread_id=thread_id
            )

    async def _decided(self, asked: _ApprovalCase) -> Decision | None:
        """Return a person's decision; None if the answer came too late.

        A resumed call starts again from its beginning: `interrupt` returns each earlier answer again.
        """
        info = asked.request.runtime.execution_info
        limit = deadline(info.checkpoint_id if info else "", self._settings.ask_timeout_seconds)
        question = approval_request(
            asked.call.name,
            asked.request.tool_call["args"],
            call_id=asked.request.tool_call["id"] or "",
            call_hash=asked.call.hash,
            why=asked.verdict,
            expires_at=limit,
            can_be_remembered=asked.allowed is not None,
        )
        for _ in range(MAX_QUESTIONS):
            answer = interrupt(question)
            if datetime.now(UTC) > limit:
                return None
            try:
                return await self._usable(asked, read_answer(answer, question))
            except InvalidInputError as error:
                question = with_problem(question, str(error))
        return Decision("reject", message=f"{MAX_QUESTIONS} answers in a row could not be used")

    async def _usable(self, asked: _ApprovalCase, decision: Decision) -> Decision:
        """Return the decision; raise if an edited call is denied."""
        if decision.args is not None:
            verdict = await self._verdict(asked.request, _call_of(asked.request, decision.args))
            if verdict.action == "deny":
                raise InvalidInputError(f"the edited call is denied: {verdict.reason}")
        return decision


def _call_of(request: ToolRequest, args: Any) -> PolicyCall:
    context = cast("RunContext", request.runtime.context)
    return PolicyCall.of(request.tool_call["name"], args, request.tool, context.sandbox)


def _rejected(asked: _ApprovalCase, reason: str, text: str, *, by: str) -> ToolMessage:
    _log(asked.request, asked.call, "reject", f"{by}: {reason}")
    shown = text.format(name=asked.call.name, reason=reason, why=asked.why)
    return _answer(asked.request, shown, asked.call, "reject", reason)


def _answer(
    request: ToolRequest, text: str, call: PolicyCall, decision: str, reason: str = ""
) -> ToolMessage:
    mark = {"decision": decision, "hash": call.hash, "reason": reason}
    return error_result(request.tool_call, text).model_copy(update={"additional_kwargs": {MARK: mark}})


def _marked(result: ToolResult, call: PolicyCall, decision: str, *, scope: Scope | None = None) -> ToolResult:
    if not isinstance(result, ToolMessage):
        return result
    mark = {"decision": decision, "hash": call.hash, **({} if scope is None else {"remember": scope})}
    kwargs = {**result.additional_kwargs, MARK: mark}
    return result.model_copy(update={"additional_kwargs": kwargs})


def _with_edit_note(result: ToolResult, call: PolicyCall) -> ToolResult:
    """Return the result of an edited call, preceded by the arguments it ran with, for the model."""
    marked = _marked(result, call, "edit")
    if not isinstance(marked, ToolMessage) or not isinstance(marked.content, str):
        return marked
    shown = EDITED.format(args=clip_middle(str(dict(call.args)), MAX_SHOWN_CHARS))
    return marked.model_copy(update={"content": f"{shown}{marked.content}"})


def _log(request: ToolRequest, call: PolicyCall, decision: str, reason: str) -> None:
    """Write a decision to the log and to the run's events; the arguments are left out."""
    context = cast("RunContext", request.runtime.context)
    logger.info(
        "guardrail: %s of %s (call %s, hash %s) in run %s for user %s: %s",
        *(decision, call.name, request.tool_call["id"], call.hash[:12]),
        *(context.run_id, context.user_id, reason),
    )
    context.publish(
        {
            "type": "approval",
            "decision": decision,
            "tool_call_id": request.tool_call["id"],
            "name": call.name,
            "hash": call.hash,
            "user_id": context.user_id,
            "task_id": context.task_id,
            "reason": reason,
        }
    )
