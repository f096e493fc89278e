"""Queues finished turns for the memory, and adds remembered facts to the reminders for the model.

A queued turn has the user's own messages and the answer that ended the turn. It has no tool results, since
anyone may have written those, and no answer if tool results were in the context, since it may repeat them.
The memory is updated later in the background, so no run waits for it.
"""

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, cast

from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage
from typing_extensions import override

from deerflow.agents.messages import is_result, may_have_results
from deerflow.agents.middlewares.approval import is_users
from deerflow.agents.middlewares.base import AgentKind, ChainMiddleware
from deerflow.agents.middlewares.reminder import visible_notes
from deerflow.agents.middlewares.tokens import measure_text
from deerflow.agents.middlewares.tool_call_removal import ASK_CLARIFICATION
from deerflow.agents.side_calls import side_call
from deerflow.agents.state import ThreadState
from deerflow.agents.types import ModelAnswer, ModelCall, ModelHandler
from deerflow.config import MemorySettings
from deerflow.context import RunContext
from deerflow.memory import Memory, MemoryService, MemoryTurn, PendingConversation, Scope, own_words
from deerflow.memory.base import shortened, utc_now
from deerflow.memory.rendering import OPEN, shown_lines, without_forgotten
from deerflow.models import ModelFactory
from deerflow.retrieval import query_terms

logger = logging.getLogger(__name__)

TIMEOUT_SECONDS = 120.0
MAX_QUERY_CHARS = 2000
FEW_TERMS = 3
"""A question with fewer terms is understood with the one before."""

Count = Callable[[str, str, Mapping[str, Any]], Awaitable[None]]
"""Records the usage of a model call outside a thread's runs: thread id, model name, usage."""


async def _uncounted(thread_id: str, model_name: str, usage: Mapping[str, Any]) -> None:
    """Record nothing: for agents that run outside the app."""


@dataclass(frozen=True, eq=False)
class AgentMemory:
    """The memory service and models that agents use, for one version of the settings."""

    memories: MemoryService
    settings: MemorySettings
    models: ModelFactory
    own_models: ModelFactory | None = None
    """Has the model that only the memory uses, if the settings define one."""
    count: Count = _uncounted

    @property
    def learns(self) -> bool:
        """Whether every conversation updates the memory."""
        return self.settings.mode == "middleware"

    async def add_notes(
        self,
        notes: Mapping[str, str],
        known: Mapping[str, str],
        context: RunContext,
        messages: Sequence[AnyMessage],
    ) -> dict[str, str]:
        """Return a turn's new notes with what matters for its question, and corrected versions of old notes.

        What an earlier note of the thread has is not repeated, so that the request's prefix stays the same.
        """
        question = next((each for each in reversed(messages) if isinstance(each, HumanMessage)), None)
        is_needed = question is not None and question.id is not None and not context.options.is_bootstrap
        if not self.settings.injection_enabled or not is_needed or question is None:
            return dict(notes)
        visible = shown_lines(visible_notes(messages, {**known, **notes}))
        memory, block = await self.memories.recall_block(
            scope_of(context),
            recall_query(messages),
            self.settings.backend_config,
            measure_text,
            shown=visible,
        )
        return with_memory(notes, known, memory, block, question.id or "")

    def conversation(self, turn: MemoryTurn, context: RunContext) -> PendingConversation:
        """Return a run's turn as a pending conversation, with the model call that extracts memories."""
        models, name = self._model_of(context)
        ask = partial(self._ask, models, name) if models.can_reason(name) else None
        backend = self.settings.backend_config
        return PendingConversation(scope_of(context), context.thread_id, (turn,), backend, ask)

    async def _ask(self, models: ModelFactory, name: str, prompt: str, thread_id: str) -> str | None:
        model = models.create(name, thinking_enabled=False)
        answer = await side_call(prompt, model, what="a memory", timeout_seconds=TIMEOUT_SECONDS)
        await self.count(thread_id, name, answer.usage)
        return answer.text or None

    def _model_of(self, context: RunContext) -> tuple[ModelFactory, str]:
        """Return the model of the settings, or the run's model if they name none that exists."""
        if self.own_models is not None:
            return self.own_models, self.own_models.default_name
        wanted = self.settings.backend_config.model_name
        if wanted is not None and wanted in self.models.names:
            return self.models, wanted
        own = context.options.model_name or self.models.default_name
        if wanted is not None:
            logger.warning("memory.backend_config.model_name: there is no model %s; using %s", wanted, own)
        return self.models, own


class MemoryMiddleware(ChainMiddleware):
    """Queues each finished turn for the memory."""

    applies_to = AgentKind.LEAD
    before = ("BackgroundMiddleware", "SummarizationMiddleware", "UploadsMiddleware")

    def __init__(self, memory: AgentMemory) -> None:
        super().__init__()
        self._memory = memory

    @override
    async def awrap_model_call(self, request: ModelCall, handler: ModelHandler) -> ModelAnswer:
        response = await handler(request)
        context = request.runtime.context
        if is_worth_learning(context):
            has_summary = bool(cast("ThreadState", request.state).get("summary_text"))
            turn = finished_turn(request.messages, response.result, has_summary=has_summary)
            if turn is not None:
                self._memory.memories.learner.enqueue(self._memory.conversation(turn, context))
        return response


def with_memory(
    notes: Mapping[str, str], known: Mapping[str, str], memory: Memory, block: str, question_id: str
) -> dict[str, str]:
    """Add `block` to the question's note; remove what was forgotten from known notes."""
    fixed = {
        name: corrected
        for name, text in known.items()
        if OPEN in text and (corrected := without_forgotten(text, memory)) != text
    }
    found = {**fixed, **notes}
    if block:
        before = found.get(question_id, known.get(question_id, ""))
        found[question_id] = f"{before}\n\n{block}" if before else block
    return found


def recall_query(messages: Sequence[AnyMessage]) -> str:
    """Return what to recall for: the question, and the one before if the question alone says little."""
    own = (each for each in reversed(messages) if isinstance(each, HumanMessage) and is_users(each))
    # Cut: a pasted document says what it is about at its start, and analysing all of it would hold the loop.
    words, *before = [own_words(each.text)[:MAX_QUERY_CHARS] for each in islice(own, 2)] or [""]
    found = len(query_terms(words))
    return "\n".join([*before, words]) if 0 < found < FEW_TERMS else words


def scope_of(context: RunContext) -> Scope:
    """Return the scope of a run's memory: its user, or the user's custom agent that the run uses."""
    return Scope(context.user_id, context.options.agent_name)


def is_worth_learning(context: RunContext | None) -> bool:
    """Return whether a person takes part in this run and it does not bootstrap an agent."""
    return context is not None and context.is_interactive and not context.options.is_bootstrap


def finished_turn(
    messages: Sequence[AnyMessage], answer: Iterable[BaseMessage], *, has_summary: bool = False
) -> MemoryTurn | None:
    """Return the user's messages of this turn and the answer; None if the turn continues or has no text.

    Args:
        has_summary: Part of the conversation was summarized, possibly including tool results.
    """
    final = [message for message in answer if isinstance(message, AIMessage)]
    text = "\n".join(message.text for message in final).strip()
    if not text or any(message.tool_calls for message in final):
        return None
    said = [shortened(words) for message in _own_of_turn(messages) if (words := own_words(message.text))]
    own_answer = "" if has_summary or _saw_outside(messages) else shortened(text)
    return MemoryTurn(tuple(reversed(said)), own_answer, utc_now()) if said else None


def _saw_outside(messages: Sequence[AnyMessage]) -> bool:
    """Return whether the context has a tool result other than one of `ask_clarification`."""
    return may_have_results(messages) and any(
        is_result(each) and each.name != ASK_CLARIFICATION for each in messages
    )


def _own_of_turn(messages: Sequence[AnyMessage]) -> Iterable[HumanMessage]:
    """Yield the user's messages since the last answer that ended a turn, newest first."""
    for message in reversed(messages):
        if isinstance(message, AIMessage) and not message.tool_calls:
            return
        if isinstance(message, HumanMessage) and message.name is None and is_users(message):
            yield message
