"""Lets a tool call run, denies it, or interrupts the run until a person has decided.

The approval request is a LangGraph interrupt, raised where the call would run: the run ends there, and any
process can resume the call from its checkpoint with the answer. What runs is what was shown. A rejected call
marks its result, so that the same call is not asked about again in that turn.
"""

import asyncio
import logging
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, cast

from langchain_core.messages import ToolMessage
from langgraph.types import interrupt
from typing_extensions import override

from deerflow.agents.allowed_calls import AllowedCall, AllowedCalls, Scope
from deerflow.agents.middlewares.approval import (
    MARK,
    Decision,
    approval_request,
    deadline,
    last_rejection,
    read_answer,
    with_problem,
)
from deerflow.agents.middlewares.base import ChainMiddleware
from deerflow.agents.types import ToolCall, ToolHandler, ToolResult
from deerflow.config.guardrails import GuardrailsSettings
from deerflow.context import RunContext
from deerflow.errors import InvalidInputError
from deerflow.tools.define import clip_middle
from deerflow.tools.policy import Call, Policy, Verdict
from deerflow.tools.policy_provider import GuardrailRequest, ask_provider, make_provider, words

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
class _Asked:
    """One call that needs approval."""

    request: ToolCall
    call: Call
    verdict: Verdict

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

    after = ("ToolErrorMiddleware",)
    before = ("ReadBeforeWriteMiddleware", "ToolOutputBudgetMiddleware", "EffectsMiddleware")

    def __init__(self, *, settings: GuardrailsSettings) -> None:
        super().__init__()
        self._settings = settings
        self._policy = Policy(settings.rules)
        self._provider = make_provider(settings)

    @override
    async def awrap_tool_call(self, request: ToolCall, handler: ToolHandler) -> ToolResult:
        call = _call_of(request, request.tool_call["args"])
        verdict = await self._verdict(request, call)
        if verdict.action == "deny":
            _log(request, call, "deny", verdict.reason)
            return _answer(request, DENIED.format(name=call.name, reason=verdict.reason), call, "deny")
        if verdict.action == "ask":
            return await self._ask(_Asked(request, call, verdict), handler)
        return await handler(request)

    async def _verdict(self, request: ToolCall, call: Call) -> Verdict:
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
                return Verdict("deny", "the guardrail provider failed, and without it nothing may run")
            return await self._decide(call)
        return await self._decide(call) if decision.allow else Verdict("deny", words(decision))

    async def _decide(self, call: Call) -> Verdict:
        """Check a call against the rules; in a thread if they have patterns, because matching may be slow."""
        if not self._policy.has_patterns:
            return self._policy.decide(call)
        return await asyncio.to_thread(self._policy.decide, call)

    async def _ask(self, asked: _Asked, handler: ToolHandler) -> ToolResult:
        permission = await self._permission(asked)
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
        return _told(await handler(edited), _call_of(edited, decision.args))

    async def _permission(self, asked: _Asked) -> AllowedCall | None:
        if asked.allowed is None:
            return None
        return await asked.allowed.find(asked.call.hash, asked.context.thread_id)

    async def _remember(self, asked: _Asked, decision: Decision) -> None:
        if decision.remember is not None and asked.allowed is not None:
            call, thread_id = asked.call, asked.context.thread_id
            await asked.allowed.allow(
                call.name, call.args, call_hash=call.hash, scope=decision.remember, thread_id=thread_id
            )

    async def _decided(self, asked: _Asked) -> Decision | None:
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

    async def _usable(self, asked: _Asked, decision: Decision) -> Decision:
        """Return the decision; raise if an edited call is denied."""
        if decision.args is not None:
            verdict = await self._verdict(asked.request, _call_of(asked.request, decision.args))
            if verdict.action == "deny":
                raise InvalidInputError(f"the edited call is denied: {verdict.reason}")
        return decision


def _call_of(request: ToolCall, args: Any) -> Call:
    context = cast("RunContext", request.runtime.context)
    return Call.of(request.tool_call["name"], args, request.tool, context.sandbox)


def _rejected(asked: _Asked, reason: str, text: str, *, by: str) -> ToolMessage:
    _log(asked.request, asked.call, "reject", f"{by}: {reason}")
    told = text.format(name=asked.call.name, reason=reason, why=asked.why)
    return _answer(asked.request, told, asked.call, "reject", reason)


def _answer(request: ToolCall, text: str, call: Call, decision: str, reason: str = "") -> ToolMessage:
    return ToolMessage(
        text,
        tool_call_id=request.tool_call["id"] or "",
        name=call.name,
        status="error",
        additional_kwargs={MARK: {"decision": decision, "hash": call.hash, "reason": reason}},
    )


def _marked(result: ToolResult, call: Call, decision: str, *, scope: Scope | None = None) -> ToolResult:
    if not isinstance(result, ToolMessage):
        return result
    mark = {"decision": decision, "hash": call.hash, **({} if scope is None else {"remember": scope})}
    kwargs = {**result.additional_kwargs, MARK: mark}
    return result.model_copy(update={"additional_kwargs": kwargs})


def _told(result: ToolResult, call: Call) -> ToolResult:
    """Return the result of an edited call, preceded by the arguments it ran with, for the model."""
    marked = _marked(result, call, "edit")
    if not isinstance(marked, ToolMessage) or not isinstance(marked.content, str):
        return marked
    shown = EDITED.format(args=clip_middle(str(dict(call.args)), MAX_SHOWN_CHARS))
    return marked.model_copy(update={"content": f"{shown}{marked.content}"})


def _log(request: ToolCall, call: Call, decision: str, reason: str) -> None:
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
