"""What people saw of an answer stays, wherever a kill cut the writing of the run's steps."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableConfig
from support.lead import Lead, NewLead
from support.model_server import ScriptedModel, call, calls, text
from typing_extensions import override

from deerflow.agents import StateReader
from deerflow.config import DatabaseSettings, Paths, Settings
from deerflow.domain import RunRecord, RunRequest
from deerflow.runtime.conversation import thread_messages
from deerflow.runtime.inputs import graph_input
from deerflow.runtime.states import ThreadStates
from deerflow.storage import CheckpointSaver, Storage, open_storage
from deerflow.storage.sqlite.engine import SqliteEngine

QUESTION = {"type": "human", "content": "What is it?", "id": "q"}
ANSWER = AIMessage("Half an", id="a")
NOTE = AIMessage("It failed.", id="n")
Written = tuple[str, tuple[Any, ...]]


class Recording(CheckpointSaver):
    """A saver that remembers what was written, in order."""

    def __init__(self, engine: SqliteEngine) -> None:
        super().__init__(engine)
        self.written: list[Written] = []

    @override
    async def aput(self, *args: Any) -> RunnableConfig:
        self.written.append(("aput", args))
        return await super().aput(*args)

    @override
    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        self.written.append(("aput_writes", (config, writes, task_id, task_path)))
        await super().aput_writes(config, writes, task_id, task_path)


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
    rules = {"guardrails": {"rules": [{"tool": "ls", "action": "ask"}]}}
    return new_lead(checkpointer=recording, settings=Settings.model_validate(rules))


@asynccontextmanager
async def killed_after(
    root: Path, written: Sequence[Written], request: RunRequest
) -> AsyncIterator[tuple[Storage, RunRecord]]:
    """Open a storage that holds a run, and of its steps no more than what is given."""
    async with open_storage(DatabaseSettings(backend="memory"), Paths(root)) as storage:
        for method, args in written:
            await getattr(storage.checkpoints, method)(*args)
        await storage.runs.create("r1", request, owner="me")
        yield storage, await storage.runs.get("r1")


async def run_until_the_model_is_asked(
    lead: Lead, model: ScriptedModel, gate: threading.Event, request: RunRequest, run_id: str = "r1"
) -> None:
    """Run a turn up to its model call, and break it off there."""
    asked = len(model.requests)
    model.will_say(text("Half an answer").held(gate))
    config = lead.config
    config["metadata"] = {"run_id": run_id}
    if request.checkpoint_id is not None:
        config["configurable"] |= {"checkpoint_id": request.checkpoint_id, "checkpoint_ns": ""}
    # Every step is stored before the next one begins, so that nothing is left to be written.
    asking = lead.agent.ainvoke(graph_input(request), config, context=lead.context, durability="sync")
    turn = asyncio.create_task(asking)
    await model.until(lambda scripted: len(scripted.requests) > asked)
    turn.cancel()
    with suppress(asyncio.CancelledError):
        await turn


async def head(lead: Lead) -> str:
    """Return the id of the thread's newest checkpoint."""
    state = await lead.agent.aget_state(lead.config)
    return str(state.config["configurable"]["checkpoint_id"])


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
        checkpoint_id = await head(lead)
        await lead.ask("What is this?")
    model.reset()
    before = len(recording.written)
    request = RunRequest("t1", input={"messages": [QUESTION]}, checkpoint_id=checkpoint_id)
    await run_until_the_model_is_asked(lead, model, gate, request)
    written = recording.written
    assert len(written) >= before + 4, "the steps of the input and the first node, each with its writes"

    for cut in range(before, len(written) + 1):
        stored = written[:cut]
        where = f"{cut - before} of {len(written) - before} writes were stored"
        values = await given_up(tmp_path / str(cut), stored, request, where)
        found = [message.text for message in values["messages"]]
        assert found == [*earlier, "What is it?", "Half an", "It failed."], where
        writes = [args[1] for method, args in stored if method == "aput_writes"]
        is_named = any(channel == "title" for several in writes for channel, _ in several)
        assert ("title" in values) == is_named, where


async def given_up(
    root: Path, stored: Sequence[Written], request: RunRequest, where: str
) -> Mapping[str, Any]:
    """Add what was shown of the answer; return the values, which all readers must see alike."""
    async with killed_after(root, stored, request) as (storage, run):
        states = ThreadStates(StateReader(storage.checkpoints))
        values = await states.add_unfinished(run, ANSWER, lambda _: NOTE)
        state = await states.latest("t1")
        listed = [item.message.text async for item in thread_messages(storage.checkpoints, "t1")]
        again = await states.add_unfinished(run, ANSWER, lambda _: NOTE)
    assert state is not None, where
    assert values is not None, where
    assert values == state.values, where
    assert listed[::-1] == [message.text for message in values["messages"]], where
    assert (state.next, state.interrupts) == (("model",), ()), where
    assert again is None, f"{where}: settled twice, it is added once"
    return values


async def stop_in_model(lead: Lead, model: ScriptedModel, gate: threading.Event) -> None:
    request = RunRequest("t1", input={"messages": [QUESTION]})
    await run_until_the_model_is_asked(lead, model, gate, request, run_id="r0")


async def wait_for_approval(lead: Lead, model: ScriptedModel, several: int = 1) -> list[str]:
    """Have the agent ask for tool calls; return the ids of the interrupts."""
    model.will_say(calls(*(call("ls", path=f"/mnt/user-data/{number}") for number in range(several))))
    await lead.ask("What is it?")
    state = await lead.agent.aget_state(lead.config)
    return [each.id for each in state.interrupts]


CALLING = ["What is it?", ""]
RESUMED = {
    "null": ["What is it?"],
    "null, stopped at its input": ["What is it?"],
    "null, stopped after its input": ["What is it?"],
    "null at the newest checkpoint": ["What is it?"],
    "null at an earlier checkpoint": ["What is it?"],
    "null at an earlier input": ["What is it?"],
    "approved": CALLING,
    "two approved": CALLING,
    "message as an update": ["Hi.", "Hello.", "What is it?"],
    "message as an update of a stopped call": ["What is it?", "And this?"],
    "message as an update at an earlier checkpoint": ["Hi.", "What is it?"],
}
"""How a run goes on without an input, and what its thread says before the answer, apart from results."""


async def resuming(
    lead: Lead, recording: Recording, model: ScriptedModel, gate: threading.Event, how: str
) -> RunRequest:
    """Bring the thread to where a run resumes it; return the run's request."""
    approve = {"decisions": [{"type": "approve"}]}
    match how:
        case "null":
            await stop_in_model(lead, model, gate)
            return RunRequest("t1")
        case "null, stopped at its input" | "null, stopped after its input":
            await stop_in_model(lead, model, gate)
            stored = recording.written[: 1 if how.endswith("at its input") else 3]
            await recording.adelete_thread("t1")
            recording.written.clear()
            for method, args in stored:
                await getattr(recording, method)(*args)
            return RunRequest("t1")
        case "null at the newest checkpoint":
            await stop_in_model(lead, model, gate)
            return RunRequest("t1", checkpoint_id=await head(lead))
        case "null at an earlier checkpoint" | "null at an earlier input":
            model.will_say(text("Old."))
            await lead.ask("What is it?", run_id="r0")
            history = [state async for state in lead.agent.aget_state_history(lead.config)]
            node = "__start__" if how.endswith("input") else "model"
            chosen = next(state for state in history if state.next == (node,))
            return RunRequest("t1", checkpoint_id=chosen.config["configurable"]["checkpoint_id"])
        case "approved":
            await wait_for_approval(lead, model)
            return RunRequest("t1", command={"resume": approve})
        case "two approved":
            waiting = await wait_for_approval(lead, model, several=2)
            return RunRequest("t1", command={"resume": dict.fromkeys(waiting, approve)})
        case "message as an update":
            model.will_say(text("Hello."))
            await lead.ask("Hi.")
            return RunRequest("t1", command={"goto": "model", "update": {"messages": [QUESTION]}})
        case "message as an update of a stopped call":
            await stop_in_model(lead, model, gate)
            more = {**QUESTION, "content": "And this?", "id": "q2"}
            return RunRequest("t1", command={"update": {"messages": [more]}})
        case _:
            model.will_say(text("Hello."))
            await lead.ask("Hi.")
            history = [state async for state in lead.agent.aget_state_history(lead.config)]
            chosen = next(state for state in history if state.next == ("model",))
            checkpoint_id = chosen.config["configurable"]["checkpoint_id"]
            update = {"update": {"messages": [QUESTION]}}
            return RunRequest("t1", command=update, checkpoint_id=checkpoint_id)


@pytest.mark.parametrize("how", RESUMED)
async def test_an_answer_of_a_resumed_run_stays_wherever_a_kill_cut_its_first_step(
    lead: Lead, recording: Recording, model: ScriptedModel, gate: threading.Event, tmp_path: Path, how: str
) -> None:
    request = await resuming(lead, recording, model, gate, how)
    model.reset()
    before = len(recording.written)
    await run_until_the_model_is_asked(lead, model, gate, request)
    written = recording.written

    for cut in range(before, len(written) + 1):
        where = f"{cut - before} of {len(written) - before} writes were stored"
        values = await given_up(tmp_path / str(cut), written[:cut], request, where)
        found = [message.text for message in values["messages"] if message.type != "tool"]
        assert found == [*RESUMED[how], "Half an", "It failed."], where
        results = [each for each in values["messages"] if each.type == "tool"]
        finished = {
            args[2]
            for method, args in written[before:cut]
            if method == "aput_writes" and any(channel == "messages" for channel, _ in args[1])
        }
        assert len(results) == (len(finished) if how.endswith("approved") else 0), where
