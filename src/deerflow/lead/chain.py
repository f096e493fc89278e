"""The middleware chain: one list, outermost first, for the lead agent and its sub-agents alike."""

from collections.abc import Callable

from langchain_core.language_models import BaseChatModel

from deerflow.agents.middlewares import (
    Audience,
    ClarificationMiddleware,
    DanglingToolCallMiddleware,
    HouseMiddleware,
    InputSanitizingMiddleware,
    MalformedCallMiddleware,
    ReadyToolsMiddleware,
    SubagentLimitMiddleware,
    TitleMiddleware,
    ToolErrorMiddleware,
    ToolOfferMiddleware,
    ToolResultLabelMiddleware,
    TurnStartMiddleware,
    UploadsMiddleware,
    ViewImageMiddleware,
    check_order,
)
from deerflow.config import Settings

ModelByName = Callable[[str], BaseChatModel]


def build_chain(
    settings: Settings,
    *,
    audience: Audience,
    model: ModelByName,
    subagent_limit: int = 0,
    notes: HouseMiddleware | None = None,
) -> list[HouseMiddleware]:
    """Return the middlewares of one kind of agent.

    Args:
        model: Returns a chat model for the middlewares that need one of their own.
        subagent_limit: How many tasks one answer may start; 0 when sub-agents are off.
        notes: How this agent hears from its tasks, or from those who gave it one.
    """
    chain: list[HouseMiddleware] = [
        TurnStartMiddleware(title=settings.title),  # lead: folders, uploads and title before all else
        *_title_by_model(settings, model),  # lead: outside the rest, it only watches the first call
        *([notes] if notes else []),  # both: news may ask the model again, which goes through all below
        InputSanitizingMiddleware(),  # both: before anything of ours stands beside the user's words
        UploadsMiddleware(),  # lead: files are named before anything counts or repairs
        DanglingToolCallMiddleware(),  # both: after whatever changes the history, before the model sees it
        ToolResultLabelMiddleware(),  # both: every result that goes out is framed, whoever put it there
        ViewImageMiddleware(),  # both: behind the repaired history, as the newest thing the model sees
        ToolErrorMiddleware(),  # both: outermost around tools, so that nothing a tool does ends the run
        ToolOfferMiddleware(),  # both: what is on offer is settled just before the call
        *_limit(settings, subagent_limit),  # who delegates: trims an answer before any tool runs
        ClarificationMiddleware(),  # lead: a question stands alone before anybody counts the calls beside it
        MalformedCallMiddleware(),  # both: all above see only calls they can count
        ReadyToolsMiddleware(),  # both, innermost: nobody looks at a tool after this
    ]
    chain = [middleware for middleware in chain if audience in middleware.audience]
    check_order(chain)
    return chain


def _title_by_model(settings: Settings, model: ModelByName) -> list[HouseMiddleware]:
    name = settings.title.model_name
    if name is None or not settings.title.enabled:
        return []
    return [TitleMiddleware(lambda: model(name), settings=settings.title)]


def _limit(settings: Settings, subagent_limit: int) -> list[HouseMiddleware]:
    if not subagent_limit or settings.subagents.overflow == "queue":
        return []  # where the excess queues, the executor holds it back
    return [SubagentLimitMiddleware(limit=subagent_limit)]
