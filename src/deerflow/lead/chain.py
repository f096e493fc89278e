"""The middleware chain: one list, outermost first, for the lead agent and its sub-agents alike."""

from collections.abc import Callable, Collection, Mapping
from typing import cast

from langchain_core.language_models import BaseChatModel

from deerflow.agents.middlewares import (
    AgentKind,
    ChainMiddleware,
    ClarificationMiddleware,
    CutOffMiddleware,
    DanglingToolCallMiddleware,
    DeferredToolsMiddleware,
    EmptyAnswerMiddleware,
    FailureNoteMiddleware,
    InputSanitizingMiddleware,
    LoopDetectionMiddleware,
    MalformedCallMiddleware,
    ModelErrorMiddleware,
    ReadBeforeWriteMiddleware,
    ReadyToolsMiddleware,
    ReminderMiddleware,
    SafetyStopMiddleware,
    SubagentLimitMiddleware,
    SummarizationMiddleware,
    TitleMiddleware,
    TodoMiddleware,
    TokenBudgetMiddleware,
    ToolErrorMiddleware,
    ToolOfferMiddleware,
    ToolOutputBudgetMiddleware,
    ToolResultLabelMiddleware,
    TurnStartMiddleware,
    UploadsMiddleware,
    ViewImageMiddleware,
    check_order,
)
from deerflow.agents.middlewares.approval import GuardrailMiddleware
from deerflow.agents.middlewares.concurrency_limits import (
    CallLimitMiddleware,
    ModelCallSlots,
    ParallelCallsMiddleware,
)
from deerflow.agents.middlewares.goal import GoalMiddleware
from deerflow.agents.middlewares.loop_guard import ToolProgressMiddleware
from deerflow.agents.middlewares.memory import AgentMemory, MemoryMiddleware
from deerflow.agents.middlewares.model_errors import CircuitBreakers
from deerflow.agents.middlewares.telemetry import ModelTelemetryMiddleware, ToolTelemetryMiddleware
from deerflow.agents.middlewares.tool_failures import EffectsMiddleware
from deerflow.agents.middlewares.tool_offer import McpRoutingMiddleware
from deerflow.agents.middlewares.unusable_answers import Detector
from deerflow.config import SafetyDetector, Settings, Switchable, resolve_use
from deerflow.errors import ConfigError
from deerflow.subagents.teams import TeamRequestMiddleware

ModelByName = Callable[[str], BaseChatModel]
SWITCHES: Mapping[Switchable, type[ChainMiddleware]] = {
    "clarification": ClarificationMiddleware,
    "cut_off": CutOffMiddleware,
    "dangling_calls": DanglingToolCallMiddleware,
    "empty_answer": EmptyAnswerMiddleware,
    "input_sanitizing": InputSanitizingMiddleware,
    "malformed_calls": MalformedCallMiddleware,
    "model_errors": ModelErrorMiddleware,
    "reminder": ReminderMiddleware,
    "result_labels": ToolResultLabelMiddleware,
    "todo": TodoMiddleware,
    "tool_errors": ToolErrorMiddleware,
    "uploads": UploadsMiddleware,
    "view_image": ViewImageMiddleware,
}
"""The middlewares that `middlewares.off` can remove."""


def build_chain(
    settings: Settings,
    *,
    kind: AgentKind,
    model: ModelByName,
    subagent_limit: int = 0,
    notes: ChainMiddleware | None = None,
    calls: ModelCallSlots | None = None,
    breakers: CircuitBreakers | None = None,
    routes_mcp: bool = False,
    memory: AgentMemory | None = None,
) -> list[ChainMiddleware]:
    """Return the middlewares of one kind of agent.

    Args:
        subagent_limit: How many tasks one answer may start; 0 when sub-agents are off.
        notes: Delivers news of this agent's background tasks, or messages from its parent.
    """
    chain: list[ChainMiddleware] = [
        *_turn_start(settings, memory),  # lead: folders, uploads, title and memories come first
        TodoMiddleware(),  # lead: adds a tool, the one above a node, so neither can be combined
        FailureNoteMiddleware(),  # lead: adds removals to the final answer, which no other middleware reads
        *_title_by_model(settings, model),  # lead: outermost, it only observes the first model call
        *_memory(memory),  # lead: sees the answer that ends a turn, and the stored messages
        GoalMiddleware(),  # lead: checks the final answer, when no task is running
        *([notes] if notes else []),  # both: may call the model again, through everything below
        InputSanitizingMiddleware(),  # both: before our text is added to the user's message
        *_summarization(settings, model),  # both: sees the stored messages, before any additions
        UploadsMiddleware(),  # lead: lists the files before the history is repaired
        ReminderMiddleware(),  # both: inserts the date before the message it was recorded for
        DanglingToolCallMiddleware(),  # both: after all changes of the history, before the model call
        ToolResultLabelMiddleware(),  # both: labels every tool result, whichever middleware added it
        ViewImageMiddleware(),  # both: after the repaired history, as the newest message
        ToolTelemetryMiddleware(),  # both: outside every tool wrapper, so it sees the result the model gets
        ToolErrorMiddleware(),  # both: outermost tool wrapper: no tool error ends the run
        GuardrailMiddleware(settings=settings.guardrails),  # both: all below see the approved call
        *_bounded_calls(settings),  # both: limits concurrency; a rejected write returns no output to limit
        *_tool_output(settings),  # both: tool output is limited before it is stored
        *_deferred_tools(settings, routes_mcp),  # both: before the offer; rejected calls have no output
        _tool_offer(settings),  # both: the list of tools is final just before the call
        *_tool_progress(settings),  # both: its hint precedes the loop guard's, which comes last
        *_loop_detection(settings),  # both: removes the tools that were just offered
        *_token_budget(settings),  # lead: an answer that reaches the limit loses its tool calls
        *_limit(settings, subagent_limit),  # delegating agents: trims an answer before any tool runs
        ClarificationMiddleware(),  # lead: a question drops the other calls before they are counted
        EmptyAnswerMiddleware(),  # both: repeats the call only when the answer has no text and no calls
        *_safety_stop(settings),  # both: adds the reason before the answer counts as empty
        CutOffMiddleware(),  # both: marks the last call of a truncated answer as malformed
        MalformedCallMiddleware(),  # both: all above see only well-formed calls
        *_teams(settings, subagent_limit),  # lead: a team run needs no model call to start the team
        *_model_errors(settings, breakers),  # both: retries the call itself and nothing around it
        *_call_limit(calls),  # both: around each attempt, so a retry delay holds no slot
        ModelTelemetryMiddleware(),  # both: inside the retries, so that each attempt counts
        EffectsMiddleware(),  # both: innermost tool wrapper, records only calls that really run
        ReadyToolsMiddleware(),  # both, innermost: no middleware reads the tools after this
    ]
    return _for_kind(_without(settings.middlewares.off, chain), kind)


def _without(off: Collection[Switchable], chain: list[ChainMiddleware]) -> list[ChainMiddleware]:
    left_out = tuple(SWITCHES[name] for name in off)
    return [middleware for middleware in chain if not isinstance(middleware, left_out)]


def _tool_offer(settings: Settings) -> ChainMiddleware:
    return ToolOfferMiddleware(has_questions="clarification" not in settings.middlewares.off)


def _turn_start(settings: Settings, memory: AgentMemory | None) -> list[ChainMiddleware]:
    return [TurnStartMiddleware(title=settings.title, memory=memory.notes if memory else None)]


def _model_errors(settings: Settings, breakers: CircuitBreakers | None) -> list[ChainMiddleware]:
    breakers = breakers or CircuitBreakers(settings.circuit_breaker)
    return [ModelErrorMiddleware(settings=settings.llm_call, breakers=breakers)]


def _for_kind(chain: list[ChainMiddleware], kind: AgentKind) -> list[ChainMiddleware]:
    chosen = [middleware for middleware in chain if kind in middleware.applies_to]
    check_order(chosen)
    return chosen


def _call_limit(calls: ModelCallSlots | None) -> list[ChainMiddleware]:
    return [CallLimitMiddleware(calls)] if calls is not None else []


def _memory(memory: AgentMemory | None) -> list[ChainMiddleware]:
    return [MemoryMiddleware(memory)] if memory is not None and memory.learns else []


def _title_by_model(settings: Settings, model: ModelByName) -> list[ChainMiddleware]:
    name = settings.title.model_name
    if name is None or not settings.title.enabled:
        return []
    return [TitleMiddleware(lambda: model(name), settings=settings.title)]


def _limit(settings: Settings, subagent_limit: int) -> list[ChainMiddleware]:
    if not subagent_limit or settings.subagents.overflow == "queue":
        return []  # with `queue`, the executor holds the excess back
    return [SubagentLimitMiddleware(limit=subagent_limit)]


def _teams(settings: Settings, subagent_limit: int) -> list[ChainMiddleware]:
    return [TeamRequestMiddleware()] if subagent_limit and settings.teams.enabled else []


def _summarization(settings: Settings, model: ModelByName) -> list[ChainMiddleware]:
    summaries = settings.summarization
    return [SummarizationMiddleware(settings=summaries, model=model)] if summaries.enabled else []


def _bounded_calls(settings: Settings) -> list[ChainMiddleware]:
    in_line = ParallelCallsMiddleware(limit=settings.runs.max_parallel_tool_calls)
    return [in_line, ReadBeforeWriteMiddleware()] if settings.read_before_write.enabled else [in_line]


def _tool_output(settings: Settings) -> list[ChainMiddleware]:
    budget = settings.tool_output
    return [ToolOutputBudgetMiddleware(settings=budget)] if budget.enabled else []


def _loop_detection(settings: Settings) -> list[ChainMiddleware]:
    loops = settings.loop_detection
    return [LoopDetectionMiddleware(settings=loops)] if loops.enabled else []


def _deferred_tools(settings: Settings, routes_mcp: bool) -> list[ChainMiddleware]:
    """Return what loads the deferred tools that a request needs, and then hides the others."""
    search = settings.tool_search
    routing = [McpRoutingMiddleware(top_k=search.auto_promote_top_k)] if routes_mcp else []
    return [*routing, *([DeferredToolsMiddleware()] if search.enabled else [])]


def _tool_progress(settings: Settings) -> list[ChainMiddleware]:
    progress = settings.tool_progress
    return [ToolProgressMiddleware(settings=progress)] if progress.enabled else []


def _token_budget(settings: Settings) -> list[ChainMiddleware]:
    budget = settings.token_budget
    return [TokenBudgetMiddleware(settings=budget)] if budget.enabled else []


def _safety_stop(settings: Settings) -> list[ChainMiddleware]:
    safety = settings.safety_finish_reason
    if not safety.enabled:
        return []
    return [SafetyStopMiddleware(detectors=[_detector(entry) for entry in safety.detectors or ()])]


def _detector(entry: SafetyDetector) -> Detector:
    """Return a configured detector: its class has a method `detect`, or its instances are callable."""
    build = cast("Callable[..., object]", resolve_use(entry.use))
    try:
        made = build(**entry.config)
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"safety_finish_reason.detectors: the config does not fit {entry.use}: {error}"
        ) from error
    detect = getattr(made, "detect", made)
    if not callable(detect):
        raise ConfigError(f"safety_finish_reason.detectors: {entry.use} has no method `detect`")
    return cast("Detector", detect)
