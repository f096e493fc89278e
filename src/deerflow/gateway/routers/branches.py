"""Routes to branch from a message: fork a thread, regenerate an answer, or edit a question."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from fastapi import APIRouter
from langchain_core.messages import BaseMessage
from pydantic import BaseModel, Field
from starlette.responses import Response

from deerflow.app import DeerFlow
from deerflow.domain import RunRecord, Thread, new_id
from deerflow.errors import ConflictError
from deerflow.files.copying import fork_files
from deerflow.files.file_history import MAX_RUNS, REGENERATED_RUN, PastFiles, files_at, files_before
from deerflow.files.snapshots import SnapshotStore
from deerflow.gateway.deps import CurrentApp, CurrentUser, ThreadPath, idle_thread, json_response
from deerflow.gateway.openapi import answers
from deerflow.runtime.conversation import (
    ConversationTurn,
    ThreadMessage,
    as_input,
    base_checkpoint,
    find_message,
    find_turn,
)
from deerflow.runtime.usage import is_question
from deerflow.sandbox import remove_tree

router = APIRouter(tags=["branches"])

_NOT_COPIED = frozenset({"deerflow_pinned", "deerflow_sidecar", "parent_thread_id"})
_FILES_AS_OF_MESSAGE = "as_of_message"
_FILES_CURRENT = "current_thread_best_effort"
_ID = Field(min_length=1, max_length=256)


class Branch(BaseModel):
    """Where a thread forks."""

    message_id: str = _ID
    message_ids: list[str] = Field([], max_length=1000)
    """Further messages of the same answer; the fork ends at the last of all."""
    title: str | None = Field(None, max_length=256)


class Regenerate(BaseModel):
    """The answer that is to be given again."""

    message_id: str = _ID


class EditRegenerate(BaseModel):
    """The question that is to be asked in other words."""

    human_message_id: str = _ID
    replacement_text: str = Field(min_length=1, max_length=1_000_000)


@router.post("/threads/{thread_id}/branches", **answers("Branched", 404, 409))
async def branch_thread(
    thread_id: ThreadPath, body: Branch, user: CurrentUser, deerflow: CurrentApp
) -> Response:
    """Fork a thread at a message into a new thread, with the files as they were then.

    The new thread has the history up to and including the last of the named messages. `workspace_clone_mode`
    tells when the files of that time are no longer kept, so that the new thread has today's. A run in flight
    answers 409.
    """
    thread = await idle_thread(deerflow, thread_id, user)
    ids = [body.message_id, *body.message_ids]
    item, point = await find_message(deerflow.storage.checkpoints, thread_id, ids)
    past = await _past(deerflow, thread, lambda store, runs, kept: files_at(store, runs, point, kept=kept))
    forked = await _fork(deerflow, thread, item, past, title=body.title)
    return json_response(
        {
            "thread_id": forked,
            "parent_thread_id": thread_id,
            "parent_checkpoint_id": item.checkpoint_id,
            "branched_from_message_id": item.message.id,
            "workspace_clone_mode": _FILES_AS_OF_MESSAGE if past.is_exact else _FILES_CURRENT,
            "history_seed_mode": "seeded",
        }
    )


@router.post("/threads/{thread_id}/runs/regenerate/prepare", **answers("PreparedRun", 404, 409))
async def prepare_regenerate(
    thread_id: ThreadPath, body: Regenerate, user: CurrentUser, deerflow: CurrentApp
) -> Response:
    """Return the body of a run that answers a question again.

    Send it to `POST /threads/{thread_id}/runs/stream`. The run begins with the files as they were before the
    turn; `workspace_restore_mode` tells when those are no longer kept, so that it begins with today's. A
    question without an answer may be named too. A run in flight answers 409.
    """
    thread = await idle_thread(deerflow, thread_id, user)
    turn = await find_turn(deerflow.storage.checkpoints, thread_id, body.message_id)
    has_answer = any(item.message.type == "ai" for item in turn.since)
    if turn.target.message.type != "ai" and has_answer:
        raise ConflictError(f"message {body.message_id} is no answer; name a message of the agent")
    messages = [as_input(item.message) for item in turn.question]
    return json_response(await _prepared(deerflow, thread, turn, messages))


@router.post("/threads/{thread_id}/runs/edit-regenerate/prepare", **answers("PreparedEdit", 404, 409))
async def prepare_edit(
    thread_id: ThreadPath, body: EditRegenerate, user: CurrentUser, deerflow: CurrentApp
) -> Response:
    """Return the body of a run that answers an edited question.

    Send it to `POST /threads/{thread_id}/runs/stream`. Pictures and files of the question stay. Files of the
    thread are restored as for an answer that is given again. A run in flight answers 409.
    """
    thread = await idle_thread(deerflow, thread_id, user)
    turn = await find_turn(deerflow.storage.checkpoints, thread_id, body.human_message_id)
    if turn.target.message.type != "human":
        raise ConflictError(f"message {body.human_message_id} is no question; name a message of the user")
    replacement = new_id()
    messages = [
        _reworded(item.message, body.replacement_text, replacement)
        if item.message.id == body.human_message_id
        else as_input(item.message)
        for item in turn.question
    ]
    prepared = await _prepared(deerflow, thread, turn, messages, replay_kind="edit")
    return json_response(
        {
            **prepared,
            "replacement_human_message_id": replacement,
            "source_message_ids": [item.message.id for item in turn.since],
        }
    )


async def _past(
    deerflow: DeerFlow, thread: Thread, find: Callable[[SnapshotStore, Sequence[RunRecord], int], PastFiles]
) -> PastFiles:
    runs = await deerflow.runs.of_thread(thread.id, limit=MAX_RUNS)
    store = SnapshotStore(deerflow.folders(thread.user_id, thread.id))
    return await asyncio.to_thread(find, store, runs, deerflow.settings.runs.snapshots_kept)


async def _fork(
    deerflow: DeerFlow, thread: Thread, item: ThreadMessage, past: PastFiles, *, title: str | None
) -> str:
    """Create the new thread; it is listed only once it is complete."""
    new = new_id()
    source, target = (deerflow.folders(thread.user_id, name) for name in (thread.id, new))
    metadata = {key: value for key, value in thread.metadata.items() if key not in _NOT_COPIED}
    origin = {
        "branch_parent_thread_id": thread.id,
        "branch_parent_checkpoint_id": item.checkpoint_id,
        "branched_from_message_id": item.message.id,
    }
    try:
        await fork_files(source, target, past)
        await deerflow.storage.checkpoints.afork_thread(thread.id, new, item.checkpoint_id)
    except BaseException:
        await asyncio.shield(asyncio.to_thread(remove_tree, target.root))
        await asyncio.shield(deerflow.storage.checkpoints.adelete_thread(new))
        raise
    await deerflow.storage.threads.create(new, thread.user_id, {**metadata, **origin})
    await deerflow.storage.threads.update(new, title=thread.title, asks=is_question(item.message))
    state = await deerflow.state.latest(new)
    title = title or thread.title
    if title and state is not None and state.values.get("title") != title:  # titled after the checkpoint
        await deerflow.threads.update_state(new, {"title": title})
    return new


async def _prepared(
    deerflow: DeerFlow, thread: Thread, turn: ConversationTurn, messages: list[dict[str, Any]], **more: Any
) -> dict[str, Any]:
    checkpoint_id = await base_checkpoint(deerflow.storage.checkpoints, thread.id, turn)
    first = turn.step.run_id or ""
    past = await _past(
        deerflow, thread, lambda store, runs, kept: files_before(store, runs, first, kept=kept)
    )
    return {
        "input": {"messages": messages},
        "checkpoint": {"checkpoint_ns": "", "checkpoint_id": checkpoint_id, "checkpoint_map": {}},
        "metadata": {
            "regenerate_checkpoint_id": checkpoint_id,
            "regenerate_from_message_id": turn.target.message.id,
            "regenerate_from_run_id": turn.target.run_id,
            REGENERATED_RUN: first,
            **more,
        },
        "target_run_id": turn.target.run_id,
        "workspace_restore_mode": _FILES_AS_OF_MESSAGE if past.is_exact else _FILES_CURRENT,
    }


def _reworded(message: BaseMessage, text: str, message_id: str) -> dict[str, Any]:
    """Replace the text of a question; its images and files stay."""
    blocks = message.content if isinstance(message.content, list) else []
    others = [block for block in blocks if isinstance(block, dict) and block.get("type") != "text"]
    return {**as_input(message), "id": message_id, "content": [{"type": "text", "text": text}, *others]}
