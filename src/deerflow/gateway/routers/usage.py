"""Route for the token usage and costs of a thread, and for the fill level of its context."""

from typing import Any

from fastapi import APIRouter
from langchain_core.messages import AIMessage
from starlette.responses import Response

from deerflow.agents.middlewares.summarization import window_of
from deerflow.agents.middlewares.tokens import TokenCounter
from deerflow.app import DeerFlow
from deerflow.domain import RunRecord
from deerflow.errors import ConfigError, NotFoundError
from deerflow.gateway.deps import CurrentApp, CurrentUser, ThreadPath, json_response, owned_thread
from deerflow.gateway.openapi import answers
from deerflow.runtime.usage import thread_usage

router = APIRouter(tags=["usage"])

_PAGE = 200
_MOST_RUNS = 20_000


@router.get("/threads/{thread_id}/token-usage", operation_id="get_token_usage", **answers("ThreadUsage", 404))
async def token_usage(
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
