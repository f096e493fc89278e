"""Reads and updates a thread's state without the agent that wrote it."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, RemoveMessage
from langchain_core.runnables import RunnableConfig
from langgraph.constants import START
from langgraph.errors import InvalidUpdateError
from langgraph.types import Command, Interrupt, Overwrite, StateSnapshot
from pydantic import TypeAdapter

from deerflow.agents import StateReader
from deerflow.agents.langgraph_beta import MODEL_NODE, TOOLS_NODE
from deerflow.agents.messages import is_question, outdated_failures
from deerflow.agents.reader import START_NODE
from deerflow.domain import RunOptions, RunRecord
from deerflow.errors import InvalidInputError, NotFoundError
from deerflow.runtime.conversation import config_of
from deerflow.runtime.inputs import graph_input, validated
from deerflow.storage import fence

_ACTING = (MODEL_NODE, TOOLS_NODE)


class ThreadStates:
    """The states of all threads."""

    def __init__(self, reader: StateReader) -> None:
        self._reader = reader

    def graph(self, *, xray: bool | int = False) -> dict[str, Any]:
        """Return the nodes and edges of the agent graph."""
        return self._reader.graph(xray=xray)

    def schemas(self) -> dict[str, Any]:
        """Return the JSON schemas of the graph's input, output, state, config and context."""
        shapes = self._reader.schemas()
        options = TypeAdapter(RunOptions).json_schema()
        state = {"state_schema": shapes["output_schema"]}
        return {**shapes, **state, "config_schema": options, "context_schema": options}

    async def latest(self, thread_id: str, *, checkpoint_id: str | None = None) -> StateSnapshot | None:
        """Return the latest state, or that of a checkpoint; None when there is none."""
        snapshot = await self._reader.state(config_of(thread_id, checkpoint_id))
        return snapshot if _checkpoint_of(snapshot) and snapshot.created_at else None

    async def questions(self, thread_id: str) -> dict[str, tuple[Interrupt, ...]]:
        """Return the waiting interrupts, by graph task."""
        snapshot = await self.latest(thread_id)
        return _waiting(snapshot) if snapshot is not None else {}

    async def add_unfinished(
        self, run: RunRecord, answer: AIMessage | None, note: Callable[[str], AIMessage | None]
    ) -> Mapping[str, Any] | None:
        """Store the partial results of an aborted step and a note with the reason; return the new values.

        Partial results are those of finished tools, or the beginning of an answer. None when there is nothing
        to add, the run's input was never stored, or it resumed calls that still wait for an answer.

        Args:
            note: Returns the note for the turn's user message; None for no note.
        """
        config = config_of(run.thread_id)
        config["configurable"].update(fence(run.id, run.attempt))
        config["metadata"] = {"run_id": run.id}
        begun = await self._begun(config, run, answer)
        if begun is None:
            return None
        here, before, added_input = begun
        state = await self._with_results(here, before)
        known = state.values.get("messages", ())
        question = next((each.text for each in reversed([*known, *added_input]) if is_question(each)), "")
        ids = {message.id for message in known}
        added = [each for each in (answer, note(question)) if each is not None and each.id not in ids]
        if not added:
            return None if state is before else state.values
        outdated = [RemoveMessage(id=each) for each in outdated_failures([*known, *added_input])]
        written = [*added_input, *outdated, *added]
        await self._reader.add_before_model(here if state is before else config, written)
        after = await self.latest(run.thread_id)
        return None if after is None else after.values

    async def _begun(
        self, config: RunnableConfig, run: RunRecord, answer: AIMessage | None
    ) -> tuple[RunnableConfig, StateSnapshot, Sequence[AnyMessage]] | None:
        """Return a run's last state, the config to continue it, and the messages that it does not hold yet.

        A run has no checkpoint of its own if its process died before one was stored, or if it resumed a step
        of an earlier run. None when nothing may be added there.
        """
        latest = await self.latest(run.thread_id)
        if latest is not None and _is_of(latest, run):
            return config, latest, ()
        added_input, base = _input_messages(run), run.request.checkpoint_id
        if isinstance(graph_input(run.request), dict):
            if answer is None or not added_input:
                return None
            await self._reader.add_input(_from(config, base), added_input)
            latest = await self.latest(run.thread_id)
            return None if latest is None else (config, latest, ())
        if base is not None and (latest is None or base != _checkpoint_of(latest)):
            config, latest = _from(config, base), await self.latest(run.thread_id, checkpoint_id=base)
        if latest is None or (answer is None and not _may_note(latest, added_input)):
            return None
        return config, latest, added_input

    async def _with_results(self, config: RunnableConfig, state: StateSnapshot) -> StateSnapshot:
        """Store the input and the results of the nodes and tools that had finished in an aborted step."""
        started = [task.result for task in state.tasks if task.name == START_NODE and task.result is not None]
        finished = [task.result for task in state.tasks if task.name in _ACTING and task.result]
        if any(task.name == START for task in state.tasks):
            await self._reader.apply_input(config)
        elif "checkpoint_id" in config["configurable"]:
            return state  # results stored there are those of an earlier run, which this one did not use
        elif started:
            await self._reader.add_start(config, started[0])
        elif finished:
            calls = [task for task in state.tasks if task.name == TOOLS_NODE]
            await self._reader.add_finished(config, finished, is_whole=len(calls) == len(finished))
        else:
            return state
        return await self._reader.state(config_of(config["configurable"]["thread_id"]))

    async def history(
        self,
        thread_id: str,
        *,
        limit: int,
        before: str | None = None,
        checkpoint_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> list[StateSnapshot]:
        """Return the states, newest first; with `checkpoint_id`, only that one."""
        states = self._reader.history(
            config_of(thread_id, checkpoint_id),
            filter=metadata,
            before=config_of(thread_id, before) if before else None,
            limit=limit,
        )
        return [snapshot async for snapshot in states]

    async def update(
        self,
        thread_id: str,
        values: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None,
        *,
        checkpoint_id: str | None = None,
        as_node: str | None = None,
    ) -> None:
        """Set values: messages are added (or replaced by id), everything else is replaced.

        Waiting interrupts stay, unless the messages or the order of steps change.
        """
        merged: dict[str, Any] = {}
        for part in values if isinstance(values, Sequence) else [values or {}]:
            merged.update(part)
        config = config_of(thread_id, checkpoint_id)
        snapshot = await self.latest(thread_id, checkpoint_id=checkpoint_id)
        if checkpoint_id and snapshot is None:
            raise NotFoundError("checkpoint", checkpoint_id)
        checked = validated(merged, where="values")
        is_without_step = "messages" not in checked and not checkpoint_id and not as_node
        if is_without_step and snapshot is not None and _waiting(snapshot):
            await self._reader.set_in_place(config, checked)
            return
        writes = _writes(checked, present=snapshot.values if snapshot else {})
        try:
            # Without values, `__end__` clears the pending tasks.
            await self._reader.update(config, None if values is None else writes, as_node=as_node)
        except InvalidUpdateError as error:
            raise InvalidInputError(f"the state cannot be updated like this: {error}") from error


def _input_messages(run: RunRecord) -> list[AnyMessage]:
    """Return the messages that a run's input or command adds."""
    values = graph_input(run.request)
    added = values.update if isinstance(values, Command) else values
    return list(dict(added or {}).get("messages", ()))


def _may_note(state: StateSnapshot, added_input: Sequence[AnyMessage]) -> bool:
    """Return whether a note may follow a state: pending tool calls would be dropped by it."""
    names = {task.name for task in state.tasks}
    return TOOLS_NODE not in names and bool(names or added_input)


def _is_of(state: StateSnapshot, run: RunRecord) -> bool:
    metadata: Mapping[str, Any] = state.metadata or {}
    return metadata.get("run_id") == run.id


def _writes(values: Mapping[str, Any], *, present: Mapping[str, Any]) -> dict[str, Any]:
    return {
        # A channel without a value would store the wrapper itself as its first value.
        key: Overwrite(value) if key in present and key != "messages" else value
        for key, value in values.items()
    }


def _from(config: RunnableConfig, checkpoint_id: str | None) -> RunnableConfig:
    """Return a config that continues from a checkpoint, if one is given."""
    if checkpoint_id is None:
        return config
    return {**config, "configurable": {**config["configurable"], "checkpoint_id": checkpoint_id}}


def _waiting(snapshot: StateSnapshot) -> dict[str, tuple[Interrupt, ...]]:
    return {task.id: task.interrupts for task in snapshot.tasks if task.interrupts}


def _checkpoint_of(snapshot: StateSnapshot) -> str | None:
    configurable: Mapping[str, Any] = snapshot.config.get("configurable", {})
    return configurable.get("checkpoint_id")
