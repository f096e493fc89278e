"""What people saw of an answer stays, wherever a kill cut the writing of the run's steps."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableConfig
from support.lead import Lead, NewLead
from support.model_server import ScriptedModel, text
from typing_extensions import override

from deerflow.agents import StateReader
from deerflow.config import DatabaseSettings, Paths
from deerflow.domain import RunRecord, RunRequest
from deerflow.runtime.conversation import said
from deerflow.runtime.states import ThreadStates
from deerflow.storage import Storage, open_storage
from deerflow.storage.sql.saver import SqlSaver
from deerflow.storage.sqlite.engine import SqliteEngine

QUESTION = {"type": "human", "content": "What is it?", "id": "q"}
ANSWER = AIMessage("Half an", id="a")
NOTE = AIMessage("It failed.", id="n")
Written = tuple[str, tuple[Any, ...]]


class Recording(SqlSaver):
    """A saver that remembers what was written, in order."""

    def __init__(self, engine: SqliteEngine) -> None:
        super().__init__(engine)
        self.written: list[Written] = []

    @override
    async def aput(self, *args: Any) -> RunnableConfig:
        self.written.append(("aput", args))
        return await super().aput(*args)

    @override
    async def aput_writes(self, *args: Any) -> None:
        self.written.append(("aput_writes", args))
        await super().aput_writes(*args)


@pytest.fixture
async def recording(tmp_path: Path) -> AsyncIterator[Recording]:
    engine = await SqliteEngine.open(tmp_path / "recorded.db")
    yield Recording(engine)
    await engine.aclose()


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


@pytest.fixture
def lead(new_lead: NewLead, recording: Recording) -> Lead:
    return new_lead(checkpointer=recording)


@asynccontextmanager
async def killed_after(
    root: Path, written: Sequence[Written], checkpoint_id: str | None
) -> AsyncIterator[tuple[Storage, RunRecord]]:
    """Open a storage that holds a run, and of its steps no more than what is given."""
    async with open_storage(DatabaseSettings(backend="memory"), Paths(root)) as storage:
        for method, args in written:
            await getattr(storage.checkpoints, method)(*args)
        request = RunRequest("t1", input={"messages": [QUESTION]}, checkpoint_id=checkpoint_id)
        await storage.runs.create("r1", request, owner="me")
        yield storage, await storage.runs.get("r1")


async def ask_until_the_model_is_asked(
    lead: Lead, model: ScriptedModel, gate: threading.Event, checkpoint_id: str | None
) -> None:
    """Run a turn up to its model call, and break it off there."""
    asked = len(model.requests)
    model.will_say(text("Half an answer").held(gate))
    config = lead.config
    config["metadata"] = {"run_id": "r1"}
    if checkpoint_id is not None:
        config["configurable"] |= {"checkpoint_id": checkpoint_id, "checkpoint_ns": ""}
    values = {"messages": [QUESTION]}
    # Every step is stored before the next one begins, so that nothing is left to be written.
    asking = lead.agent.ainvoke(values, config, context=lead.context, durability="sync")
    turn = asyncio.create_task(asking)
    await model.until(lambda scripted: len(scripted.requests) > asked)
    turn.cancel()
    with suppress(asyncio.CancelledError):
        await turn


@pytest.mark.parametrize("turn", ["first", "next", "taken again"])
async def test_an_answer_that_was_shown_stays_wherever_a_kill_cut_the_writing(
    lead: Lead,
    recording: Recording,
    model: ScriptedModel,
    gate: threading.Event,
    tmp_path: Path,
    turn: str,
) -> None:
    earlier, checkpoint_id = [], None
    if turn != "first":
        earlier = ["Hi.", "Hello."]
        model.will_say(text("Hello."), text("Old."))
        await lead.ask("Hi.")
    if turn == "taken again":
        state = await lead.agent.aget_state(lead.config)
        checkpoint_id = state.config["configurable"]["checkpoint_id"]
        await lead.ask("What is this?")
    model.reset()
    before = len(recording.written)
    await ask_until_the_model_is_asked(lead, model, gate, checkpoint_id)
    written = recording.written
    assert len(written) >= before + 4, "the steps of the input and the first node, each with its writes"

    for cut in range(before, len(written) + 1):
        stored = written[:cut]
        async with killed_after(tmp_path / str(cut), stored, checkpoint_id) as (storage, run):
            states = ThreadStates(StateReader(storage.checkpoints))
            values = await states.add_unfinished(run, ANSWER, lambda _: NOTE)
            state = await states.latest("t1")
            listed = [item.message.text async for item in said(storage.checkpoints, "t1")]

        where = f"{cut - before} of {len(written) - before} writes were stored"
        assert state is not None, where
        assert values == state.values, where
        found = [message.text for message in state.values["messages"]]
        assert found == [*earlier, "What is it?", "Half an", "It failed."], where
        assert listed[::-1] == found, where
        assert state.next == ("model",), where
        writes = [args[1] for method, args in stored if method == "aput_writes"]
        is_named = any(channel == "title" for several in writes for channel, _ in several)
        assert ("title" in state.values) == is_named, where
