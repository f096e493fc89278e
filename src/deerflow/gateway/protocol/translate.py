"""Translates the log of a run into events of the thread protocol.

The same entries always produce the same events with the same sequence numbers: for a reader that reconnects,
the run is translated again from its first entry, and known events are skipped.
"""

from collections.abc import Mapping
from typing import Any

import orjson

from deerflow.domain import RunRecord, RunStatus, StreamEvent
from deerflow.gateway.protocol.events import MOST_PER_ENTRY, Draft, Namespace, ProtocolEvent, event_seq
from deerflow.gateway.protocol.messages import Json, MessageStream, short_values
from deerflow.gateway.protocol.subagents import Subagents
from deerflow.gateway.protocol.tools import NODE, ToolCalls
from deerflow.gateway.thread_follower import ThreadRun

_HEAD_BYTES = 200
"""Prefix that holds a task's name; the input after it is the whole state and is not parsed."""


class RunTranslator:
    """Translates one run's log, entry by entry from the first."""

    def __init__(self, followed: ThreadRun, *, channels: frozenset[str] | None = None) -> None:
        """Args: `channels` are those that are read; costly entries of other channels are not parsed."""
        self._run, self._index = followed.run, followed.index
        self._channels = channels
        modes = followed.run.request.stream_modes
        self._has_checkpoints = "checkpoints" in modes
        self._has_tasks = "tasks" in modes
        self._messages = MessageStream()
        self._calls = ToolCalls()
        self._subagents = Subagents(self._calls, self._messages)
        self._graphs: dict[Namespace, str] = {}
        self._held: Draft | None = None
        self._has_begun = self._is_interrupted = False
        self._error: str | None = None

    def translate(self, entry: StreamEvent) -> list[ProtocolEvent]:
        """Return the events of one entry; `end` handles the last one."""
        mode, *namespace = entry.kind.split("|")
        drafts = self._drafts(mode, tuple(namespace), entry.data)
        return self._numbered(entry, drafts)

    def end(self, entry: StreamEvent, run: RunRecord) -> list[ProtocolEvent]:
        """Return the events of the log's last entry, for the run's final record."""
        end = self._end_of(run)
        data: Json = {"event": end, "graph_name": run.request.assistant_id}
        if end == "failed":
            data["error"] = self._error or run.error or "the run failed"
        drafts = [
            *([] if self._has_begun else self._begin()),  # a run that was cancelled before it started
            *self._released(),
            *self._messages.close(),
            *self._subagents.close(end),
            *(self._graph_end(namespace, end) for namespace in sorted(self._graphs, key=len, reverse=True)),
            Draft("lifecycle", data),
        ]
        return self._numbered(entry, drafts)

    def _drafts(self, mode: str, namespace: Namespace, data: bytes) -> list[Draft]:
        if mode == "checkpoints":
            return self._checkpoint(namespace, data)
        drafts = [*self._released(), *self._graph_starts(namespace)]
        match mode:
            case "metadata":
                drafts += self._begin()
            case "values":
                drafts += self._values(namespace, data)
            case "messages":
                drafts += self._message(namespace, orjson.loads(data)[0])
            case "updates":
                drafts += self._update(namespace, orjson.loads(data))
            case "tasks":
                drafts += self._task(namespace, data)
            case "custom":
                value = orjson.loads(data)
                drafts += [*self._subagents.events_for(value), Draft("custom", value, namespace)]
            case "error":
                self._error = str(orjson.loads(data).get("message"))
        return drafts

    def _begin(self) -> list[Draft]:
        if self._has_begun:
            return []  # a later attempt of the same run
        self._has_begun = True
        return [Draft("lifecycle", {"event": "running", "graph_name": self._run.request.assistant_id})]

    def _values(self, namespace: Namespace, data: bytes) -> list[Draft]:
        state = short_values(orjson.loads(data)) if self._is_read("values") else None
        draft = Draft("values", state, namespace)
        if self._has_checkpoints:
            self._held = draft  # its checkpoint follows it in the log, but must be sent first
            return []
        return [draft]

    def _released(self) -> list[Draft]:
        held, self._held = self._held, None
        return [held] if held is not None else []

    def _checkpoint(self, namespace: Namespace, data: bytes) -> list[Draft]:
        metadata = _checkpoint_out(orjson.loads(data)) if self._is_read("checkpoints") else None
        if self._held is not None and self._held.namespace != namespace:
            return [*self._released(), Draft("checkpoints", metadata, namespace)]
        return [Draft("checkpoints", metadata, namespace), *self._released()]

    def _message(self, namespace: Namespace, message: Mapping[str, Any]) -> list[Draft]:
        ended = self._calls.end(namespace, message) if message.get("type") == "tool" else []
        return [*ended, *self._messages.events_for(namespace, message)]

    def _update(self, namespace: Namespace, update: Mapping[str, Any]) -> list[Draft]:
        if "__interrupt__" in update:
            self._is_interrupted = True
            return [
                _request(self._subagents.namespace_of(asked.get("value")) or namespace, asked)
                for asked in update["__interrupt__"] or []
            ]
        drafts: list[Draft] = []
        for message in _messages_in(update):
            if message.get("type") == "tool":
                drafts += self._calls.end(namespace, message)
            elif not self._has_tasks:
                for call in message.get("tool_calls") or []:
                    drafts += self._calls.start(namespace, call)
        shown = {node: short_values(delta) for node, delta in update.items()}
        return [*drafts, Draft("updates", shown, namespace)]

    def _task(self, namespace: Namespace, data: bytes) -> list[Draft]:
        if not self._graphs and b'"name":"%b"' % NODE.encode() not in data[:_HEAD_BYTES]:
            return []
        task = orjson.loads(data)
        if "input" in task:
            return self._calls.start_task(namespace, task) if task.get("name") == NODE else []
        drafts = self._calls.pause(namespace, task)
        graph = next(
            (key for key in self._graphs if key == (*namespace, f"{task['name']}:{task['id']}")), None
        )
        if graph is not None:
            end = "interrupted" if task.get("interrupts") else "failed" if task.get("error") else "completed"
            drafts.append(self._graph_end(graph, end))
        return drafts

    def _graph_starts(self, namespace: Namespace) -> list[Draft]:
        """Return the start events of subgraphs that have not been seen before."""
        drafts: list[Draft] = []
        for depth in range(1, len(namespace) + 1):
            graph = namespace[:depth]
            if graph in self._graphs:
                continue
            name, _, node_task_id = graph[-1].partition(":")
            self._graphs[graph] = name
            data: Json = {
                "event": "started",
                "namespace": graph,
                "graph_name": name,
                "trigger_call_id": node_task_id,
            }
            call = self._calls.call_in.get(node_task_id)
            if call is not None:
                data["cause"] = {"type": "toolCall", "tool_call_id": call}
            drafts.append(Draft("lifecycle", data, graph))
        return drafts

    def _graph_end(self, graph: Namespace, end: str) -> Draft:
        return Draft("lifecycle", {"event": end, "graph_name": self._graphs.pop(graph)}, graph)

    def _end_of(self, run: RunRecord) -> str:
        match run.status:
            case RunStatus.SUCCESS:
                return "interrupted" if self._is_interrupted else "completed"
            case RunStatus.INTERRUPTED:
                return "interrupted"
            case _:
                return "failed"

    def _is_read(self, channel: str) -> bool:
        return self._channels is None or channel in self._channels

    def _numbered(self, entry: StreamEvent, drafts: list[Draft]) -> list[ProtocolEvent]:
        if len(drafts) > MOST_PER_ENTRY:  # a message of hundreds of blocks: its values have them all
            drafts = [*drafts[: MOST_PER_ENTRY - 1], drafts[-1]]
        return [
            ProtocolEvent(
                seq=event_seq(self._index, entry.seq, part),
                id=f"{self._run.id}:{entry.seq}.{part}",
                method=draft.method,
                namespace=draft.namespace,
                unix_ms=entry.unix_ms,
                data=draft.data,
            )
            for part, draft in enumerate(drafts)
        ]


def _request(namespace: Namespace, asked: Mapping[str, Any]) -> Draft:
    # The JavaScript client reads `payload`, the Python client reads `value`.
    value = asked.get("value")
    return Draft(
        "input.requested", {"interrupt_id": asked.get("id"), "payload": value, "value": value}, namespace
    )


def _checkpoint_out(checkpoint: Mapping[str, Any]) -> Json:
    metadata = checkpoint.get("metadata") or {}
    shown: Json = {
        "id": _id_in(checkpoint.get("config")),
        "step": metadata.get("step"),
        "source": metadata.get("source"),
    }
    parent = _id_in(checkpoint.get("parent_config"))
    return {**shown, "parent_id": parent} if parent else shown


def _id_in(config: Any) -> Any:
    return config["configurable"].get("checkpoint_id") if config else None


def _messages_in(update: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    found: list[Mapping[str, Any]] = []
    for delta in update.values():
        messages = delta.get("messages") if isinstance(delta, Mapping) else None
        found += [message for message in messages or [] if isinstance(message, Mapping)]
    return found
