"""The middleware chain: one list, outermost first, for the lead agent and its sub-agents alike."""

from collections.abc import Callable, Collection, Mapping
from typing import cast

from langchain_core.language_models import BaseChatModel

from deerflow.agents.middlewares import (
    Audience,
    ChainMiddleware,
    ClarificationMiddleware,
    CutOffMiddleware,
    DanglingToolCallMiddleware,
    DeferredToolsMiddleware,
    EmptyAnswerMiddleware,
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
from deerflow.agents.middlewares.call_limit import CallGate, CallLimitMiddleware
from deerflow.agents.middlewares.circuit_breaker import CircuitBreakers
from deerflow.agents.middlewares.effects import EffectsMiddleware
from deerflow.agents.middlewares.goal import GoalMiddleware
from deerflow.agents.middlewares.guardrail import GuardrailMiddleware
from deerflow.agents.middlewares.mcp_routing import McpRoutingMiddleware
from deerflow.agents.middlewares.memory import MemoryDesk, MemoryMiddleware
from deerflow.agents.middlewares.parallel_calls import ParallelCallsMiddleware
from deerflow.agents.middlewares.telemetry import ModelWatchMiddleware, ToolWatchMiddleware
from deerflow.agents.middlewares.tool_progress import ToolProgressMiddleware
from deerflow.agents.middlewares.truncated_answers import Detector
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
"""What `middlewares.off` leaves out."""


def build_chain(
    settings: Settings,
    *,
    audience: Audience,
    model: ModelByName,
    subagent_limit: int = 0,
    notes: ChainMiddleware | None = None,
    place: ChainMiddleware | None = None,
    calls: CallGate | None = None,
    breakers: CircuitBreakers | None = None,
    routes_mcp: bool = False,
    memory: MemoryDesk | None = None,
) -> list[ChainMiddleware]:
    """Return the middlewares of one kind of agent.

    Args:
        subagent_limit: How many tasks one answer may start; 0 when sub-agents are off.
        notes: How this agent hears from its tasks, or from those who gave it one.
        place: Where this agent waits for its place among many.
    """
    chain: list[ChainMiddleware] = [
        *_turn_start(settings, memory),  # lead: folders, uploads, title and memories before all else
        TodoMiddleware(),  # lead: has a tool, like the one above a node, so both stand outside the fold
        *_title_by_model(settings, model),  # lead: outside the rest, it only watches the first call
        *_memory(memory),  # lead: hears only the answer that ends a turn, and sees what is stored
        GoalMiddleware(),  # lead: judges the answer that would end the turn, when no task is at work any more
        *([notes] if notes else []),  # both: news may ask the model again, which goes through all below
        InputSanitizingMiddleware(),  # both: before anything of ours stands beside the user's words
        *_summarization(settings, model),  # both: sees what is stored, before anything is added to it
        UploadsMiddleware(),  # lead: files are named before anything repairs
        ReminderMiddleware(),  # both: the date stands in front of what it was noted for
        DanglingToolCallMiddleware(),  # both: after whatever changes the history, before the model sees it
        ToolResultLabelMiddleware(),  # both: every result that goes out is framed, whoever put it there
        ViewImageMiddleware(),  # both: behind the repaired history, as the newest thing the model sees
        ToolWatchMiddleware(),  # both: outside all that acts on tools, so that it sees what the model gets
        ToolErrorMiddleware(),  # both: outermost around tools, so that nothing a tool does ends the run
        GuardrailMiddleware(settings=settings.guardrails),  # both: all below see the call a person approved
        *_bounded_calls(settings),  # both: few at a time; a refused write is no result that could be long
        *_tool_output(settings),  # both: what tools return is measured before anybody stores it
        *_mcp_routing(settings, routes_mcp),  # both: loads deferred tools before the others are hidden
        *_deferred_tools(settings),  # both: a refused call is no result, and hidden tools are not on offer
        _tool_offer(settings),  # both: what is on offer is settled just before the call
        *_tool_progress(settings),  # both: its word stands in front of the loop guard's, which is the last
        *_loop_detection(settings),  # both: takes the tools away that were just offered
        *_token_budget(settings),  # lead: an answer that reaches the limit loses its calls
        *_limit(settings, subagent_limit),  # who delegates: trims an answer before any tool runs
        ClarificationMiddleware(),  # lead: a question stands alone before anybody counts the calls beside it
        EmptyAnswerMiddleware(),  # both: asks again only when nothing is left to say or do
        *_safety_stop(settings),  # both: says why before anybody takes it for an empty answer
        CutOffMiddleware(),  # both: takes the last call of a cut answer for malformed, like those below
        MalformedCallMiddleware(),  # both: all above see only calls they can count
        *_teams(settings, subagent_limit),  # lead: a run for a team needs no model to call it
        *([place] if place else []),  # tasks: in line, all above is done before the place is there
        *_model_errors(settings, breakers),  # both: repeats the call itself and nothing around it
        *_call_limit(calls),  # both: around each attempt, so that waiting for the next one takes no place
        ModelWatchMiddleware(),  # both: inside what repeats a call, so that each attempt counts
        EffectsMiddleware(),  # both: innermost around tools, only a call that really runs is noted
        ReadyToolsMiddleware(),  # both, innermost: nobody looks at a tool after this
    ]
    return _for_audience(_without(settings.middlewares.off, chain), audience)


def _without(off: Collection[Switchable], chain: list[ChainMiddleware]) -> list[ChainMiddleware]:
    left_out = tuple(SWITCHES[name] for name in off)
    return [middleware for middleware in chain if not isinstance(middleware, left_out)]


def _tool_offer(settings: Settings) -> ChainMiddleware:
    return ToolOfferMiddleware(has_questions="clarification" not in settings.middlewares.off)


def _turn_start(settings: Settings, memory: MemoryDesk | None) -> list[ChainMiddleware]:
    return [TurnStartMiddleware(title=settings.title, memory=memory.notes if memory else None)]


def _model_errors(settings: Settings, breakers: CircuitBreakers | None) -> list[ChainMiddleware]:
    breakers = breakers or CircuitBreakers(settings.circuit_breaker)
    return [ModelErrorMiddleware(settings=settings.llm_call, breakers=breakers)]


def _for_audience(chain: list[ChainMiddleware], audience: Audience) -> list[ChainMiddleware]:
    chosen = [middleware for middleware in chain if audience in middleware.audience]
    check_order(chosen)
    return chosen


def _call_limit(calls: CallGate | None) -> list[ChainMiddleware]:
    return [CallLimitMiddleware(calls)] if calls is not None else []


def _memory(desk: MemoryDesk | None) -> list[ChainMiddleware]:
    return [MemoryMiddleware(desk)] if desk is not None and desk.learns else []


def _title_by_model(settings: Settings, model: ModelByName) -> list[ChainMiddleware]:
    name = settings.title.model_name
    if name is None or not settings.title.enabled:
        return []
    return [TitleMiddleware(lambda: model(name), settings=settings.title)]


def _limit(settings: Settings, subagent_limit: int) -> list[ChainMiddleware]:
    if not subagent_limit or settings.subagents.overflow == "queue":
        return []  # where the excess queues, the executor holds it back
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


def _mcp_routing(settings: Settings, routes_mcp: bool) -> list[ChainMiddleware]:
    return [McpRoutingMiddleware(top_k=settings.tool_search.auto_promote_top_k)] if routes_mcp else []


def _deferred_tools(settings: Settings) -> list[ChainMiddleware]:
    return [DeferredToolsMiddleware()] if settings.tool_search.enabled else []


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
    """Return a detector of the settings: a class whose objects have `detect`, or are called themselves."""
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
