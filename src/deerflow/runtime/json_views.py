"""JSON views of threads, runs, states and models: the same over HTTP and embedded."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.types import StateSnapshot

from deerflow.config import ModelSettings
from deerflow.domain import Assistant, RunRecord, Thread
from deerflow.runtime.approval_cards import waiting_calls, with_cards
from deerflow.runtime.translate import visible_values
from deerflow.runtime.usage import cost_out
from deerflow.storage import Amount, StoredSizes


def thread_out(thread: Thread, values: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return a thread as clients see it."""
    shown = dict(values) if values is not None else {}
    if thread.title and "title" not in shown:
        shown["title"] = thread.title
    return {
        "thread_id": thread.id,
        "status": thread.status,
        "created_at": stamp(thread.created_at),
        "updated_at": stamp(thread.updated_at),
        "state_updated_at": stamp(thread.updated_at),
        "metadata": dict(thread.metadata),
        "values": shown,
        "interrupts": dict(thread.interrupts),
        "waits_for_answer": thread.asks or bool(thread.interrupts),
        "error": thread.error,
    }


def run_out(run: RunRecord) -> dict[str, Any]:
    """Return a run as clients see it."""
    request = run.request
    return {
        "run_id": run.id,
        "thread_id": run.thread_id,
        "assistant_id": request.assistant_id,
        "status": run.status,
        "metadata": dict(request.metadata),
        "kwargs": {"input": request.input, "command": request.command, "stream_mode": request.stream_modes},
        "multitask_strategy": request.multitask_strategy,
        "created_at": stamp(run.created_at),
        "updated_at": stamp(run.updated_at),
        "total_input_tokens": run.usage.input_tokens,
        "total_output_tokens": run.usage.output_tokens,
        "total_tokens": run.usage.total_tokens,
        "llm_call_count": run.usage.llm_calls,
        "lead_agent_tokens": run.usage.lead_tokens,
        "subagent_tokens": run.usage.subagent_tokens,
        "middleware_tokens": run.usage.middleware_tokens,
        **cost_out(run.usage.costs),
        "message_count": run.message_count,
        "stop_reason": run.stop_reason,
        "error": run.error,
        "attempt": run.attempt,
        "skills": [asdict(skill) for skill in run.skills],
    }


def storage_out(thread_id: str, sizes: StoredSizes) -> dict[str, Any]:
    """Return the storage size of a thread's states, as clients see it."""
    values = sum(sizes.channels.values(), Amount())
    by_channel = {
        channel: {"versions": amount.count, "bytes": amount.bytes}
        for channel, amount in sorted(sizes.channels.items())
    }
    return {
        "thread_id": thread_id,
        "total_bytes": sizes.checkpoints.bytes + values.bytes + sizes.writes.bytes,
        "checkpoints": _amount_out(sizes.checkpoints),
        "channel_values": {**_amount_out(values), "by_channel": by_channel},
        "pending_writes": _amount_out(sizes.writes),
    }


def _amount_out(amount: Amount) -> dict[str, int]:
    return {"count": amount.count, "bytes": amount.bytes}


def selected(shown: dict[str, Any], fields: Sequence[str] | None) -> dict[str, Any]:
    """Return only the requested fields; all of them when none are named."""
    return {key: value for key, value in shown.items() if key in fields} if fields else shown


def assistant_out(assistant: Assistant) -> dict[str, Any]:
    """Return an assistant as clients see it."""
    return {
        "assistant_id": assistant.id,
        "graph_id": assistant.graph_id,
        "name": assistant.name,
        "description": assistant.description,
        "config": dict(assistant.config),
        "context": dict(assistant.context),
        "metadata": dict(assistant.metadata),
        "created_at": stamp(assistant.created_at),
        "updated_at": stamp(assistant.updated_at),
        "version": assistant.version,
    }


def state_out(snapshot: StateSnapshot, *, shows_cards: bool = False) -> dict[str, Any]:
    """Return one state of a thread, with the keys of both DeerFlow 2 and LangGraph.

    Args:
        shows_cards: Also show waiting calls as messages, for clients that do not support interrupts.
    """
    values = visible_values(snapshot.values)
    checkpoint = _checkpoint_out(snapshot.config, snapshot.created_at)
    parent = _checkpoint_out(snapshot.parent_config, None) if snapshot.parent_config else None
    return {
        "values": with_cards(values, waiting_calls(snapshot)) if shows_cards else values,
        "next": list(snapshot.next),
        "metadata": dict(snapshot.metadata or {}),
        "checkpoint": checkpoint,
        "checkpoint_id": checkpoint["checkpoint_id"],
        "parent_checkpoint": parent,
        "parent_checkpoint_id": parent["checkpoint_id"] if parent else None,
        "created_at": snapshot.created_at,
        "tasks": [_task_out(task) for task in snapshot.tasks],
        "interrupts": [interrupt for task in snapshot.tasks for interrupt in _interrupts_of(task)],
    }


def changed_state_out(snapshot: StateSnapshot) -> dict[str, Any]:
    """Return the state after an update; LangGraph's clients read its checkpoint from `configurable`."""
    state = state_out(snapshot)
    checkpoint = {name: state["checkpoint"][name] for name in ("thread_id", "checkpoint_ns", "checkpoint_id")}
    return {**state, "configurable": checkpoint}


def empty_state(thread_id: str) -> dict[str, Any]:
    """Return the state of a thread without checkpoints."""
    config: RunnableConfig = {"configurable": {"thread_id": thread_id}}
    return state_out(StateSnapshot({}, (), config, None, None, None, (), ()))


def stamp(moment: datetime) -> str:
    """Return a time as clients read it (ISO 8601)."""
    return moment.isoformat()


def _checkpoint_out(config: Any, created_at: str | None) -> dict[str, Any]:
    configurable = config["configurable"]
    checkpoint_id = configurable.get("checkpoint_id")
    return {
        "id": checkpoint_id,
        "ts": created_at,
        "thread_id": configurable.get("thread_id"),
        "checkpoint_ns": configurable.get("checkpoint_ns", ""),
        "checkpoint_id": checkpoint_id,
        "checkpoint_map": None,
    }


def _interrupts_of(task: Any) -> list[Any]:
    """Return a task's interrupts; those of a sub-agent have its namespace, as in the thread protocol."""
    return [
        {"value": interrupt.value, "id": interrupt.id, "namespace": [f"{task.name}:{task.id}"]}
        if isinstance(interrupt.value, Mapping) and interrupt.value.get("task_id")
        else interrupt
        for interrupt in task.interrupts
    ]


def _task_out(task: Any) -> dict[str, Any]:
    return {
        "id": task.id,
        "name": task.name,
        "path": list(task.path),
        "error": str(task.error) if task.error else None,
        "interrupts": _interrupts_of(task),
        "checkpoint": None,
        "state": None,
        "result": None,
    }


def model_out(model: ModelSettings) -> dict[str, Any]:
    """Return a chat model as clients see it, without its key."""
    return {
        "name": model.name,
        "model": model.model,
        "display_name": model.display_name or model.name,
        "description": model.description,
        "supports_thinking": model.supports_thinking,
        "supports_reasoning_effort": model.supports_reasoning_effort,
        "supports_vision": model.supports_vision,
    }
