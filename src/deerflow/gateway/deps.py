"""What routers share: DeerFlow, the user, threads and runs of the user, JSON responses, default values."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from fastapi import Depends, Path, Request
from pydantic import StringConstraints
from starlette.responses import Response

from deerflow.app import DeerFlow
from deerflow.config import Settings
from deerflow.domain import DEFAULT_USER, DisconnectMode, MultitaskStrategy, RunRecord, RunStatus, Thread
from deerflow.errors import ConflictError, NotFoundError
from deerflow.runtime import to_json


def json_response(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Serialize any value, messages included, to a JSON response."""
    return Response(to_json(value), status, headers, media_type="application/json")


# Async although they await nothing: FastAPI runs sync dependencies in a thread, on every request.
async def _deerflow(request: Request) -> DeerFlow:
    deerflow: DeerFlow = request.app.state.deerflow
    await deerflow.refresh()  # every response uses the current settings; costs a stat of a few files
    return deerflow


async def _user() -> str:
    return DEFAULT_USER


CurrentApp = Annotated[DeerFlow, Depends(_deerflow)]
CurrentUser = Annotated[str, Depends(_user)]
ThreadPath = Annotated[str, Path(max_length=128)]
ThreadId = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,64}$")]


@dataclass(frozen=True, slots=True)
class Contract:
    """The defaults of one of the two; docs/reference/compatibility.md lists them in a table."""

    multitask_strategy: MultitaskStrategy
    """For a run on a thread that has one in flight."""
    on_disconnect: DisconnectMode
    """For a run whose client disconnects."""
    if_not_exists: Literal["create", "reject"]
    """For a run on a thread that does not exist."""
    on_completion: Literal["delete", "keep"]
    """For the thread created for a stateless run."""
    missing_is_empty: bool
    """The history of a missing thread is empty; otherwise it is a 404."""
    cancels_to_delete: bool
    """Deleting a thread cancels its runs; otherwise a run in flight is a 409."""
    lists_titles: bool
    """In the thread list that DeerFlow's frontend polls every few seconds, `values` holds only the title."""


CONTRACTS = {
    "deerflow": Contract(
        multitask_strategy=MultitaskStrategy.REJECT,
        on_disconnect=DisconnectMode.CANCEL,
        if_not_exists="create",
        on_completion="keep",
        missing_is_empty=True,
        cancels_to_delete=False,
        lists_titles=True,
    ),
    "langgraph": Contract(
        multitask_strategy=MultitaskStrategy.ENQUEUE,
        on_disconnect=DisconnectMode.CONTINUE,
        if_not_exists="reject",
        on_completion="delete",
        missing_is_empty=False,
        cancels_to_delete=True,
        lists_titles=False,
    ),
}


def contract_of(deerflow: DeerFlow) -> Contract:
    """Return the defaults that the settings choose."""
    return CONTRACTS[deerflow.settings.compatibility]


async def owned_thread(deerflow: DeerFlow, thread_id: str, user: str) -> Thread:
    """Return a thread of this user; `NotFoundError` for other users' threads."""
    return await deerflow.storage.threads.get(thread_id, user)


async def idle_thread(deerflow: DeerFlow, thread_id: str, user: str) -> Thread:
    """Return a thread of this user without a run in flight; `ConflictError` if there is one."""
    thread = await owned_thread(deerflow, thread_id, user)
    if await deerflow.threads.is_busy(thread_id):
        raise ConflictError(f"thread {thread_id} has a run in flight; wait for it or cancel it first")
    return thread


async def free_thread(deerflow: DeerFlow, thread_id: str, user: str) -> Thread:
    """Return a thread of this user that may be deleted; its runs are cancelled first if the contract says so.

    Raise `ConflictError` if a run is in flight, or takes too long to end.
    """
    if contract_of(deerflow).cancels_to_delete:
        thread = await owned_thread(deerflow, thread_id, user)
        for status in (RunStatus.PENDING, RunStatus.RUNNING):  # pending first: they must not start meanwhile
            await deerflow.runs.cancel_many(
                await deerflow.runs.of_thread(thread.id, status=status, limit=1000)
            )
    return await idle_thread(deerflow, thread_id, user)


async def owned_run(deerflow: DeerFlow, thread_id: str, run_id: str, user: str) -> RunRecord:
    """Return a run on a thread of this user."""
    await owned_thread(deerflow, thread_id, user)
    return await deerflow.runs.get(run_id, thread_id)


async def known_run(deerflow: DeerFlow, thread_id: str, run_id: str, user: str) -> RunRecord | None:
    """Return a run whose messages a thread has: its own, or a run of the thread that it was copied from.

    Return None if such a run has been deleted since; raise `NotFoundError` for every other run.
    """
    await owned_thread(deerflow, thread_id, user)
    try:
        return await deerflow.runs.get(run_id, thread_id)
    except NotFoundError:
        if not await deerflow.storage.checkpoints.ahas_run(thread_id, run_id):
            raise
    try:
        run = await deerflow.runs.get(run_id)
    except NotFoundError:
        return None
    return run if run.user_id == user else None


def may_set_commands(settings: Settings) -> bool:
    """Return whether a caller may choose the programs that run on this host; checked by every such route."""
    return settings.mcp.allow_http_commands
