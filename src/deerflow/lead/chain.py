"""The middleware chain: one list, outermost first, for the lead agent and its sub-agents alike."""

from collections.abc import Sequence

from deerflow.agents.agent_skills import AgentSkills
from deerflow.agents.middlewares.active_skills import ActiveSkillsMiddleware
from deerflow.agents.middlewares.approval import GuardrailMiddleware
from deerflow.agents.middlewares.base import AgentKind, ChainMiddleware, ModelByName, check_order
from deerflow.agents.middlewares.concurrency_limits import (
    CallLimitMiddleware,
    ModelCallSlots,
    ParallelCallsMiddleware,
)
from deerflow.agents.middlewares.goal import GoalMiddleware
from deerflow.agents.middlewares.loop_guard import LoopDetectionMiddleware, ToolProgressMiddleware
from deerflow.agents.middlewares.memory import AgentMemory, MemoryMiddleware
from deerflow.agents.middlewares.model_errors import CircuitBreakers, ModelErrorMiddleware
from deerflow.agents.middlewares.read_before_write import ReadBeforeWriteMiddleware
from deerflow.agents.middlewares.reminder import ReminderMiddleware
from deerflow.agents.middlewares.summarization import SummarizationMiddleware
from deerflow.agents.middlewares.telemetry import ModelTelemetryMiddleware, ToolTelemetryMiddleware
from deerflow.agents.middlewares.title import TitleMiddleware
from deerflow.agents.middlewares.todo import TodoMiddleware
from deerflow.agents.middlewares.token_budget import TokenBudgetMiddleware
from deerflow.agents.middlewares.tool_call_removal import ClarificationMiddleware, SubagentLimitMiddleware
from deerflow.agents.middlewares.tool_failures import (
    DanglingToolCallMiddleware,
    EffectsMiddleware,
    ToolErrorMiddleware,
)
from deerflow.agents.middlewares.tool_offer import (
    DeferredToolsMiddleware,
    McpRoutingMiddleware,
    ReadyToolsMiddleware,
    ToolOfferMiddleware,
)
from deerflow.agents.middlewares.tool_output import ToolOutputBudgetMiddleware
from deerflow.agents.middlewares.turn_start import FailureNoteMiddleware, TurnStartMiddleware
from deerflow.agents.middlewares.untrusted_text import InputSanitizingMiddleware, ToolResultLabelMiddleware
from deerflow.agents.middlewares.unusable_answers import (
    CutOffMiddleware,
    EmptyAnswerMiddleware,
    MalformedCallMiddleware,
    SafetyStopMiddleware,
)
from deerflow.agents.middlewares.uploads import UploadsMiddleware, ViewImageMiddleware
from deerflow.agents.types import Middleware
from deerflow.config import Settings
from deerflow.subagents.teams import TeamRequestMiddleware


def build_chain(
    settings: Settings,
    *,
    kind: AgentKind,
    model: ModelByName,
    subagent_limit: int = 0,  # how many tasks one answer may start; 0 when sub-agents are off
    notes: ChainMiddleware | None = None,  # delivers news of background tasks, or the parent's messages
    calls: ModelCallSlots | None = None,
    breakers: CircuitBreakers | None = None,
    memory: AgentMemory | None = None,
    skills: AgentSkills | None = None,
    plugins: Sequence[Middleware] = (),
) -> list[Middleware]:
    """Return the middlewares of one kind of agent."""
    chain: list[Middleware | None] = [
        TurnStartMiddleware.from_settings(settings, memory),  # lead: folders, uploads, title, memories first
        TodoMiddleware(),  # lead: its tool is hidden before any other middleware reads the tools
        FailureNoteMiddleware(),  # lead: adds removals to the final answer, which no other middleware reads
        TitleMiddleware.from_settings(settings, model),  # lead: it only observes the first model call
        MemoryMiddleware(memory) if memory and memory.learns else None,  # lead: sees the stored messages
        GoalMiddleware(),  # lead: checks the final answer, when no task is running
        notes,  # both: may call the model again, through everything below
        InputSanitizingMiddleware(),  # both: before our text is added to the user's message
        SummarizationMiddleware.from_settings(settings, model),  # both: the stored messages, no additions
        UploadsMiddleware(),  # lead: lists the files before the history is repaired
        ReminderMiddleware(),  # both: inserts the date before the message it was recorded for
        DanglingToolCallMiddleware(),  # both: after all changes of the history, before the model call
        ToolResultLabelMiddleware(),  # both: labels every tool result, whichever middleware added it
        ViewImageMiddleware(),  # both: after the repaired history, as the newest message
        ToolTelemetryMiddleware(),  # both: outside every tool wrapper, so it sees the result the model gets
        ToolErrorMiddleware(),  # both: outermost tool wrapper: no tool error ends the run
        ActiveSkillsMiddleware(skills) if skills else None,  # both: before anyone is asked about a call
        GuardrailMiddleware(settings=settings.guardrails),  # both: all below see the approved call
        ParallelCallsMiddleware(limit=settings.runs.max_parallel_tool_calls),  # both: approved calls only
        ReadBeforeWriteMiddleware.from_settings(settings),  # both: a rejected write has no output to limit
        ToolOutputBudgetMiddleware.from_settings(settings),  # both: output is limited before it is stored
        McpRoutingMiddleware.from_settings(settings),  # both: loads tools before others are hidden
        DeferredToolsMiddleware.from_settings(settings),  # both: rejected calls have no output
        ToolOfferMiddleware.from_settings(settings),  # both: the list of tools is final just before the call
        ToolProgressMiddleware.from_settings(settings),  # both: its hint precedes the loop guard's
        LoopDetectionMiddleware.from_settings(settings),  # both: removes the tools that were just offered
        TokenBudgetMiddleware.from_settings(settings),  # lead: the answer at the limit loses its tool calls
        SubagentLimitMiddleware.from_settings(settings, subagent_limit),  # both: before any tool runs
        *plugins,  # both: of other packages; approved calls, and answers before ours judge them
        ClarificationMiddleware(),  # lead: a question drops the other calls before they are counted
        EmptyAnswerMiddleware(),  # both: repeats the call only when the answer has no text and no calls
        SafetyStopMiddleware.from_settings(settings),  # both: the reason is added before it counts as empty
        CutOffMiddleware(),  # both: marks the last call of a truncated answer as malformed
        MalformedCallMiddleware(),  # both: all above see only well-formed calls
        TeamRequestMiddleware() if subagent_limit and settings.teams.enabled else None,  # lead: no model call
        ModelErrorMiddleware.from_settings(settings, breakers),  # both: retries the call, nothing around it
        CallLimitMiddleware(calls) if calls else None,  # both: each attempt; a retry delay holds no slot
        ModelTelemetryMiddleware(),  # both: inside the retries, so that each attempt counts
        EffectsMiddleware(),  # both: innermost tool wrapper, records only calls that really run
        ReadyToolsMiddleware(),  # both, innermost: no middleware reads the tools after this
    ]
    return _chosen(chain, settings, kind)


def _chosen(chain: Sequence[Middleware | None], settings: Settings, kind: AgentKind) -> list[Middleware]:
    ours = [each for each in chain if isinstance(each, ChainMiddleware)]
    off = settings.middlewares.off
    left_out = [each for each in ours if kind not in each.applies_to or each.switch in off]
    check_order([each for each in ours if each not in left_out])
    return [each for each in chain if each is not None and each not in left_out]
