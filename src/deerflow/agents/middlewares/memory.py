"""Hands what was said to the memory, and notes what is remembered for the model.

What is handed over are the user's own words and the answer that ended the turn: no results of tools, since
anybody may have written those, and no answers where such results are in view, since they may repeat them.
It is learnt from later and elsewhere, so no run waits for it.
"""

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, cast

from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage
from typing_extensions import override

from deerflow.agents.message_types import is_result, may_have_results
from deerflow.agents.middlewares.approval import is_users
from deerflow.agents.middlewares.base import Audience, ChainMiddleware
from deerflow.agents.middlewares.clarification import ASK_CLARIFICATION
from deerflow.agents.middlewares.tokens import measure_text
from deerflow.agents.side_calls import ask_beside
from deerflow.agents.state import ThreadState
from deerflow.agents.types import ModelAnswer, ModelCall, ModelHandler
from deerflow.config import MemorySettings
from deerflow.context import RunContext
from deerflow.memory import Exchange, Memory, MemoryService, PendingConversation, Scope, own_words
from deerflow.memory.base import utc_now
from deerflow.memory.pending_conversation import shortened
from deerflow.memory.rendering import OPEN, is_true_still
from deerflow.models import ModelFactory

logger = logging.getLogger(__name__)

BUILT_IN = "deermem"
OFFLINE = "deerflow.models.offline:"
TIMEOUT_SECONDS = 120.0

Count = Callable[[str, str, Mapping[str, Any]], Awaitable[None]]
"""Counts what a call beside a thread's runs spent: the thread, the model's name and its usage."""


async def _uncounted(thread_id: str, model_name: str, usage: Mapping[str, Any]) -> None:
    """Count nothing: for agents outside a deerflow."""


@dataclass(frozen=True, eq=False)
class MemoryDesk:
    """What agents need to remember, for one value of the settings."""

    memories: MemoryService
    settings: MemorySettings
    models: ModelFactory
    own_models: ModelFactory | None = None
    """Has the one model that only the memory uses, where the settings give it one."""
    count: Count = _uncounted

    def __post_init__(self) -> None:
        """Say so where the settings want a memory that is not here."""
        if self.settings.manager_class != BUILT_IN:
            logger.warning(
                "memory.manager_class: there is no %s; the built-in memory is used",
                self.settings.manager_class,
            )

    @property
    def learns(self) -> bool:
        """Whether every conversation is learnt from."""
        return self.settings.mode == "middleware"

    @property
    def notes(self) -> "MemoryNotes | None":
        """How the model is told what is remembered; None where it is not."""
        return MemoryNotes(self.memories, self.settings) if self.settings.injection_enabled else None

    def talk(self, exchange: Exchange, context: RunContext) -> PendingConversation:
        """Return what was said in a run's turn, with the model that can be asked what it teaches."""
        models, name = self._model_of(context)
        ask = None if models.get(name).use.startswith(OFFLINE) else partial(self._ask, models, name)
        backend = self.settings.backend_config
        return PendingConversation(scope_of(context), context.thread_id, (exchange,), backend, ask)

    async def _ask(self, models: ModelFactory, name: str, prompt: str, thread_id: str) -> str | None:
        model = models.create(name, thinking_enabled=False)
        answer = await ask_beside(prompt, model, what="a memory", timeout_seconds=TIMEOUT_SECONDS)
        await self.count(thread_id, name, answer.usage)
        return answer.text or None

    def _model_of(self, context: RunContext) -> tuple[ModelFactory, str]:
        """Return the model of the settings, or the run's own where they name none that there is."""
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
    """Hands each finished turn to the memory."""

    audience: ClassVar[Audience] = Audience.LEAD
    before = ("BackgroundMiddleware", "SummarizationMiddleware", "UploadsMiddleware")

    def __init__(self, desk: MemoryDesk) -> None:
        super().__init__()
        self._desk = desk

    @override
    async def awrap_model_call(self, request: ModelCall, handler: ModelHandler) -> ModelAnswer:
        response = await handler(request)
        context = request.runtime.context
        if is_worth_learning(context):
            has_summary = bool(cast("ThreadState", request.state).get("summary_text"))
            exchange = exchange_of(request.messages, response.result, has_summary=has_summary)
            if exchange is not None:
                self._desk.memories.learner.hear(self._desk.talk(exchange, context))
        return response


class MemoryNotes:
    """Adds what is remembered to what a turn notes for the model."""

    def __init__(self, memories: MemoryService, settings: MemorySettings) -> None:
        self._memories = memories
        self._settings = settings

    async def added(
        self, notes: Mapping[str, str], known: Mapping[str, str], context: RunContext
    ) -> dict[str, str]:
        """Return a turn's new notes with what is remembered, and older ones anew where they are outdated."""
        is_noted = any(OPEN in text for text in known.values())
        if (not notes and not is_noted) or context.options.is_bootstrap:
            return dict(notes)
        memory, block = await self._memories.recall(
            scope_of(context), self._settings.backend_config, measure_text
        )
        return with_memory(notes, known, memory, block)


def with_memory(
    notes: Mapping[str, str], known: Mapping[str, str], memory: Memory, block: str
) -> dict[str, str]:
    """Return new notes with a block, unless an older one has it; and older ones without what is forgotten."""
    outdated = [name for name, text in known.items() if OPEN in text and not is_true_still(text, memory)]
    fixed = {name: _date_of(known[name]) for name in outdated}
    found = {**fixed, **notes}
    is_noted = any(block in text for name, text in known.items() if name not in fixed)
    if found and block and not is_noted:
        last = next(reversed(found))
        found[last] = f"{found[last]}\n\n{block}"
    return found


def scope_of(context: RunContext) -> Scope:
    """Return whose memory a run uses: its user's, or that of the user's own agent which it is."""
    return Scope(context.user_id, context.options.agent_name)


def is_worth_learning(context: RunContext | None) -> bool:
    """Tell whether a person talks in this run, about something else than an agent that is being made."""
    return context is not None and context.is_interactive and not context.options.is_bootstrap


def exchange_of(
    messages: Sequence[AnyMessage], answer: Iterable[BaseMessage], *, has_summary: bool = False
) -> Exchange | None:
    """Return what the user said in this turn and the answer; None when the turn goes on, or has no words.

    Args:
        has_summary: Something of the conversation was summed up, perhaps results of tools.
    """
    final = [message for message in answer if isinstance(message, AIMessage)]
    text = "\n".join(message.text for message in final).strip()
    if not text or any(message.tool_calls for message in final):
        return None
    said = [shortened(words) for message in _own_of_turn(messages) if (words := own_words(message.text))]
    own_answer = "" if has_summary or _saw_outside(messages) else shortened(text)
    return Exchange(tuple(reversed(said)), own_answer, utc_now()) if said else None


def _saw_outside(messages: Sequence[AnyMessage]) -> bool:
    """Tell whether the model saw what a tool returned, except a question that it asked itself."""
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


def _date_of(note: str) -> str:
    return note.partition(OPEN)[0].rstrip()
