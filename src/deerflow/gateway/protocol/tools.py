"""The tools channel: start and end of the tool calls of a run."""

from collections.abc import Collection, Mapping
from typing import Any

from deerflow.gateway.protocol.events import Draft, Namespace
from deerflow.gateway.protocol.messages import Json, text_of

METHOD = "tools"
NODE = "tools"
"""The node of an agent's graph that runs its tools."""


_WAITS = "the call waits for an answer"


class ToolCalls:
    """Produces one start and one end event for each tool call."""

    def __init__(self) -> None:
        self._started: set[str] = set()
        self._ended: set[str] = set()
        self.task_of: dict[str, str] = {}
        """Graph task id by tool call id."""
        self.call_in: dict[str, str] = {}
        """Tool call id by graph task id."""

    def start_task(self, namespace: Namespace, task: Mapping[str, Any]) -> list[Draft]:
        """Return the start events of the calls that a graph task makes."""
        drafts: list[Draft] = []
        for call in _calls_of(task.get("input")):
            self.task_of[str(call.get("id"))] = str(task.get("id"))
            self.call_in[str(task.get("id"))] = str(call.get("id"))
            drafts += self.start(namespace, call)
        return drafts

    def start(self, namespace: Namespace, call: Mapping[str, Any]) -> list[Draft]:
        """Return the start event of a call."""
        call_id = str(call.get("id"))
        if call_id in self._started:
            return []
        self._started.add(call_id)
        return [_event(namespace, "started", call_id, tool_name=call.get("name"), input=call.get("args"))]

    def end(self, namespace: Namespace, message: Mapping[str, Any]) -> list[Draft]:
        """Return the end event of a call whose result is `message`."""
        call_id = str(message.get("tool_call_id"))
        if call_id in self._ended:
            return []
        self._ended.add(call_id)
        # A call of an earlier run that was interrupted: its end must be preceded by a start.
        begun = self.start(namespace, {"id": call_id, "name": message.get("name"), "args": {}})
        if message.get("status") == "error":
            return [*begun, _event(namespace, "error", call_id, message=text_of(message))]
        return [*begun, _event(namespace, "finished", call_id, output=dict(message))]

    def mark_finished(self, call_id: str) -> None:
        """Mark a call as finished: it started and ended in an earlier run."""
        self._started.add(call_id)
        self._ended.add(call_id)

    def wait(self, namespace: Namespace, call_ids: Collection[str]) -> list[Draft]:
        """Return the end events of the unfinished ones of these calls, which wait for an answer."""
        waiting = [call_id for call_id in call_ids if call_id in self._started - self._ended]
        self._ended.update(waiting)
        return [_event(namespace, "error", call_id, message=_WAITS) for call_id in waiting]

    def pause(self, namespace: Namespace, task: Mapping[str, Any]) -> list[Draft]:
        """Return the end event of a call that was interrupted; the resuming run makes it again."""
        call_id = self.call_in.get(str(task.get("id")))
        if call_id is None or call_id in self._ended or not task.get("interrupts"):
            return []
        self._ended.add(call_id)
        return [_event(namespace, "error", call_id, message=_WAITS)]


def _calls_of(given: Any) -> list[Mapping[str, Any]]:
    """Return the calls in the input of a tools node: a list, or one call with its state."""
    if isinstance(given, Mapping):
        given = [given.get("tool_call", given)]
    return [call for call in given if isinstance(call, Mapping)] if isinstance(given, list) else []


def _event(namespace: Namespace, phase: str, call_id: str, **more: Any) -> Draft:
    data: Json = {"event": f"tool-{phase}", "tool_call_id": call_id, **more}
    return Draft(METHOD, data, namespace)
