"""Converts a run's event log into rows: messages, and the steps of sub-agents."""

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import orjson

from deerflow.domain import END, RunRecord
from deerflow.domain.task_events import TASK_ENDS
from deerflow.gateway.subagent_task_views import TASK_EVENT
from deerflow.runtime.json_views import stamp
from deerflow.storage import LogEntry, Storage

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
            yield from _task(body)
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


def _task(event: Mapping[str, Any]) -> Iterator[Row]:
    task_id = event["task_id"]
    match event.get("type"):
        case "task_started":
            said = _given(event, "description", "subagent_type", "model_name")
            yield "subagent.start", "subagent", {"task_id": task_id, **said}
        case "task_running":
            yield "subagent.step", "subagent", _step(task_id, event)
        case str(kind) if kind in TASK_ENDS:
            said = _given(event, "model_name", "usage", "result", "error")
            yield "subagent.end", "subagent", {"task_id": task_id, "status": TASK_ENDS[kind], **said}


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
