"""Routes for the event log of a run, as rows, and its changes to the thread's files."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Query
from starlette.responses import Response

from deerflow.app import DeerFlow
from deerflow.domain import END, RunRecord
from deerflow.domain.task_events import TASK_ENDS
from deerflow.files.changes import Changes, changes_of
from deerflow.files.snapshots import SnapshotStore
from deerflow.gateway.deps import CurrentApp, CurrentUser, ThreadPath, json_response, known_run
from deerflow.gateway.openapi import answers
from deerflow.gateway.routers.subagents import TASK_EVENT
from deerflow.runtime.json_views import stamp
from deerflow.storage import LogEntry, Storage

router = APIRouter(tags=["runs"])

_MOST_RUNS = 1000


@router.get("/threads/{thread_id}/runs/{run_id}/events", **answers("list[RunEvent]", 404))
async def list_run_events(
    thread_id: ThreadPath,
    run_id: str,
    user: CurrentUser,
    deerflow: CurrentApp,
    event_types: Annotated[str | None, Query(max_length=1000)] = None,
    task_id: Annotated[str | None, Query(max_length=256)] = None,
    limit: Annotated[int, Query(ge=1, le=2000)] = 500,
    after_seq: Annotated[int, Query(ge=-1)] = -1,
) -> Response:
    """List rows of a run's log, oldest first.

    `event_types` and `task_id` filter; `after_seq` continues after a row. The runs of a thread that this one
    was forked from can be read too.
    """
    run = await known_run(deerflow, thread_id, run_id, user)
    if run is None:
        return json_response([])
    types = frozenset(part.strip() for part in event_types.split(",")) if event_types else None
    found: list[dict[str, Any]] = []
    async for row in run_rows(
        deerflow.storage, run, after_seq=after_seq, wants=lambda name: types is None or name in types
    ):
        if task_id is None or _task_of(row["content"]) == task_id:
            found.append(row)
        if len(found) == limit:
            break
    return json_response(found)


@router.get("/threads/{thread_id}/runs/{run_id}/workspace-changes", **answers("WorkspaceChanges", 404))
async def get_workspace_changes(
    thread_id: ThreadPath,
    run_id: str,
    user: CurrentUser,
    deerflow: CurrentApp,
    include_files: bool = False,
    include_diff: bool = False,
) -> Response:
    """Return what a run created, changed and deleted among the thread's files.

    The comparison ends with the run's end or, while it is in flight, with now. `available` is false where the
    files before the run are not kept.
    """
    run = await known_run(deerflow, thread_id, run_id, user)
    changes = await _changes(deerflow, run) if run else Changes(is_known=False)
    return json_response(changes.out(with_files=include_files or include_diff, with_diff=include_diff))


async def _changes(deerflow: DeerFlow, run: RunRecord) -> Changes:
    ids = [known.id for known in await deerflow.runs.of_thread(run.thread_id, limit=_MOST_RUNS)]
    later = ids[: ids.index(run.id)][::-1] if run.id in ids else []
    store = SnapshotStore(deerflow.folders(run.user_id, run.thread_id))
    return await asyncio.to_thread(changes_of, store, run.id, later)


def _task_of(content: Any) -> Any:
    return content.get("task_id") if isinstance(content, dict) else None


_PER_EVENT = 1000
"""Row numbers reserved per event: one event may become several rows."""
_MOST_TEXT = 8192
_TASK_TYPES = ("subagent.start", "subagent.step", "subagent.end")
Row = tuple[str, str, Any]
"""Type, category and content."""


async def run_rows(
    storage: Storage, run: RunRecord, *, after_seq: int = -1, wants: Callable[[str], bool]
) -> AsyncIterator[dict[str, Any]]:
    """Yield the rows after a number, oldest first.

    Args:
        wants: Returns whether rows of a type are requested.
    """
    seq = max(after_seq // _PER_EVENT - 1, -1)
    rendered = storage.events.rendered(run, after_seq=seq, wants=lambda entry: _may_produce(entry, wants))
    async for entry, body in rendered:
        rows = [row for row in _rows_of(run, entry.kind, orjson.loads(body)) if wants(row[0])]
        for index, row in enumerate(rows):
            number = entry.seq * _PER_EVENT + index
            if number > after_seq:
                yield _row(run, entry, number, row)


def _may_produce(entry: LogEntry, wants: Callable[[str], bool]) -> bool:
    """Return whether an event's kind can produce a requested row: most events are message chunks."""
    match entry.kind:
        case "metadata":
            return wants("run.start") or wants("llm.human.input")
        case "updates":
            return wants("llm.ai.response") or wants("llm.tool.result")
        case "custom":
            return TASK_EVENT in entry.body and any(map(wants, _TASK_TYPES))
        case "error":
            return wants("run.error")
    return entry.kind == END and wants("run.end")


def _rows_of(run: RunRecord, kind: str, body: Any) -> Iterator[Row]:
    match kind:
        case "metadata":
            yield "run.start", "trace", {"chain": run.request.assistant_id}
            for message in (run.request.input or {}).get("messages") or ():
                yield "llm.human.input", "message", message
        case "updates" if isinstance(body, dict):
            yield from _messages(body)
        case "custom" if isinstance(body, dict) and isinstance(body.get("task_id"), str):
            yield from _task_rows(body)
        case "error":
            yield "run.error", "error", str(body.get("message")) if isinstance(body, dict) else str(body)
        case "end":
            yield "run.end", "outputs", {"status": run.status}


def _messages(update: Mapping[str, Any]) -> Iterator[Row]:
    types = {"ai": "llm.ai.response", "tool": "llm.tool.result"}
    for part in update.values():
        messages = part.get("messages") if isinstance(part, dict) else None
        for message in messages if isinstance(messages, list) else ():
            if isinstance(message, dict) and message.get("type") in types:
                yield types[message["type"]], "message", message


def _task_rows(event: Mapping[str, Any]) -> Iterator[Row]:
    task_id = event["task_id"]
    match event.get("type"):
        case "task_started":
            fields = _given(event, "description", "subagent_type", "model_name")
            yield "subagent.start", "subagent", {"task_id": task_id, **fields}
        case "task_running":
            yield "subagent.step", "subagent", _step(task_id, event)
        case str(kind) if kind in TASK_ENDS:
            fields = _given(event, "model_name", "usage", "result", "error")
            yield "subagent.end", "subagent", {"task_id": task_id, "status": TASK_ENDS[kind], **fields}


def _given(event: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: event[name] for name in names if event.get(name) is not None}


def _step(task_id: str, event: Mapping[str, Any]) -> dict[str, Any]:
    found = event.get("message")
    message: Mapping[str, Any] = found if isinstance(found, dict) else {}
    text = _text(message.get("content"))
    is_tool = message.get("type") == "tool"
    more = {"tool_name": message.get("name")} if is_tool else {"tool_calls": message.get("tool_calls") or []}
    return {
        "task_id": task_id,
        "message_index": event.get("message_index"),
        "kind": "tool" if is_tool else "ai",
        "text": text[:_MOST_TEXT],
        "truncated": len(text) > _MOST_TEXT,
        **more,
    }


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    blocks = content if isinstance(content, list) else []
    texts = (block.get("text", "") if isinstance(block, dict) else str(block) for block in blocks)
    return "".join(texts)


def _row(run: RunRecord, entry: LogEntry, seq: int, row: Row) -> dict[str, Any]:
    event_type, category, content = row
    return {
        "thread_id": run.thread_id,
        "run_id": run.id,
        "seq": seq,
        "event_type": event_type,
        "category": category,
        "content": content,
        "metadata": {"caller": "subagent" if category == "subagent" else "lead_agent"},
        "created_at": stamp(datetime.fromtimestamp(entry.unix_ms / 1000, UTC)),
    }
