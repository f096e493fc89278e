"""Routes for the tokens of a thread: usage and costs, the fill level of its context, and `/compact`."""

from collections.abc import Mapping
from typing import Any, cast

from fastapi import APIRouter
from langchain_core.messages import AIMessage, AnyMessage
from langgraph.types import StateSnapshot
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from deerflow.agents import ThreadState
from deerflow.agents.middlewares.summarization import (
    Compaction,
    SummarizationMiddleware,
    token_limit,
    window_of,
)
from deerflow.agents.middlewares.tokens import TokenCounter
from deerflow.app import DeerFlow
from deerflow.config import ContextSize
from deerflow.context import Spend
from deerflow.domain import RunRecord
from deerflow.errors import ConfigError, ConflictError, NotFoundError
from deerflow.gateway.deps import (
    CurrentApp,
    CurrentUser,
    ThreadPath,
    idle_thread,
    json_response,
    owned_thread,
)
from deerflow.gateway.openapi import answers
from deerflow.runtime.usage import prices_of, thread_usage

router = APIRouter(tags=["usage"])

_PAGE = 200
_MOST_RUNS = 20_000


@router.get("/threads/{thread_id}/token-usage", **answers("ThreadUsage", 404))
async def get_token_usage(
    thread_id: ThreadPath, user: CurrentUser, deerflow: CurrentApp, include_active: bool = False
) -> Response:
    """Return the tokens and costs of a thread, and how full its context is.

    Tokens are counted in all, by model and by who used them. Runs in flight count with `include_active`.
    """
    await owned_thread(deerflow, thread_id, user)
    runs = await _runs(deerflow, thread_id)
    counted = [run for run in runs if include_active or run.status.is_terminal]
    return json_response(
        {
            "thread_id": thread_id,
            **thread_usage(counted, await deerflow.side_usage.of_thread(thread_id)),
            "context_usage": await _context_usage(deerflow, thread_id, runs),
        }
    )


async def _runs(deerflow: DeerFlow, thread_id: str) -> list[RunRecord]:
    found: list[RunRecord] = []
    while len(found) < _MOST_RUNS:
        page = await deerflow.runs.of_thread(thread_id, limit=_PAGE, offset=len(found))
        found += page
        if len(page) < _PAGE:
            break
    return found


async def _context_usage(deerflow: DeerFlow, thread_id: str, runs: list[RunRecord]) -> dict[str, Any] | None:
    snapshot = await deerflow.state.latest(thread_id)
    messages = list(snapshot.values.get("messages") or ()) if snapshot is not None else []
    if not messages:
        return None
    spoken = (message for message in reversed(messages) if isinstance(message, AIMessage))
    last = next((message for message in spoken if message.usage_metadata), None)
    # The provider's last count includes the prompt and the tools, which a count of the messages does not.
    count = last.usage_metadata["total_tokens"] if last is not None and last.usage_metadata else None
    tokens = count if count is not None else await TokenCounter().count(messages)
    window = await _window(deerflow, runs[0].request.options.model_name if runs else None)
    share = round(100 * tokens / window, 2) if window else None
    return {"token_count": tokens, "max_context_tokens": window, "percentage": share}


async def _window(deerflow: DeerFlow, model_name: str | None) -> int | None:
    await deerflow.models.load()
    try:
        return window_of(deerflow.models.create(model_name))
    except (ConfigError, NotFoundError):  # a model that is no longer configured
        return None


compact_router = APIRouter(tags=["state"])


class CompactRequest(BaseModel):
    """What a caller may say about it."""

    model_config = ConfigDict(extra="forbid")

    force: bool = True
    keep: ContextSize | None = None
    agent_name: str | None = Field(None, max_length=128)
    model_name: str | None = Field(None, max_length=128)


@compact_router.post("/threads/{thread_id}/compact", **answers("Compacted", 404, 409))
async def compact_thread(
    thread_id: ThreadPath, user: CurrentUser, deerflow: CurrentApp, body: CompactRequest | None = None
) -> Response:
    """Replace the older messages of a thread by a summary.

    The model that is named, or the default one, writes the summary. With `force: false` this happens only
    where the conversation is above its limit. What was replaced stays in the history. A run in flight, an
    open question or `summarization.enabled: false` answers 409.
    """
    body = body or CompactRequest()
    await idle_thread(deerflow, thread_id, user)
    if not deerflow.settings.summarization.enabled:
        raise ConflictError("summarization.enabled is false in the settings; turn it on to compact threads")
    if await deerflow.state.questions(thread_id):
        raise ConflictError(f"thread {thread_id} waits for an answer: give it first, then compact")
    snapshot = await deerflow.state.latest(thread_id)
    state = cast("ThreadState", snapshot.values if snapshot is not None else {})
    messages: list[AnyMessage] = list(state.get("messages") or ())
    spent: list[tuple[str | None, Mapping[str, Any]]] = []
    compacted, reason = await _compacted(deerflow, state, messages, body, lambda *call: spent.append(call))
    for name, usage in spent:
        model_name = name or body.model_name or deerflow.models.default_name
        await deerflow.side_usage.add(thread_id, model_name, usage, prices_of(deerflow.settings.models))
    if compacted.removed:
        await _check_unchanged(deerflow, thread_id, snapshot)
        await deerflow.threads.update_state(thread_id, _update(compacted))
    return json_response(await _report(deerflow, thread_id, compacted, reason, kept=len(messages)))


async def _compacted(
    deerflow: DeerFlow, state: ThreadState, messages: list[AnyMessage], body: CompactRequest, spend: Spend
) -> tuple[Compaction, str | None]:
    await deerflow.models.load()
    model = deerflow.models.create(body.model_name)
    settings = deerflow.settings.summarization
    limit = token_limit(settings, model, overhead=0)
    if not messages:
        return Compaction([]), "the thread has no messages"
    if not body.force and await TokenCounter().count(messages) <= limit:
        return Compaction(messages), "the conversation is below its limit"
    writer = SummarizationMiddleware(
        settings=settings,
        model=deerflow.models.create,
        skills_path=deerflow.settings.skills.container_path,
    )
    compacted = await writer.compact(
        state, messages, model=model, limit=limit, keep=body.keep, is_forced=True, spend=spend
    )
    return compacted, None if compacted.removed else "there is nothing older than what is kept"


async def _check_unchanged(deerflow: DeerFlow, thread_id: str, before: StateSnapshot | None) -> None:
    """Raise `ConflictError` if the thread has changed while the model wrote the summary."""
    now = await deerflow.state.latest(thread_id)
    is_same = before is not None and now is not None and now.config == before.config
    if not is_same or await deerflow.threads.is_busy(thread_id):
        raise ConflictError(f"thread {thread_id} has gone on meanwhile and is as it was: compact it again")


def _update(compacted: Compaction) -> dict[str, Any]:
    gone = [{"type": "remove", "id": message.id} for message in compacted.removed if message.id]
    return {"messages": [{**one, "content": ""} for one in gone], **compacted.update}


async def _report(
    deerflow: DeerFlow, thread_id: str, compacted: Compaction, reason: str | None, *, kept: int
) -> dict[str, Any]:
    snapshot = await deerflow.state.latest(thread_id)
    configurable = snapshot.config.get("configurable", {}) if snapshot is not None else {}
    removed = len(compacted.removed)
    return {
        "thread_id": thread_id,
        "compacted": bool(removed),
        "reason": reason,
        "removed_message_count": removed,
        "preserved_message_count": kept - removed,
        "summary_updated": bool(removed),
        "checkpoint_id": configurable.get("checkpoint_id"),
        "total_tokens": await TokenCounter().count(compacted.messages),
    }
