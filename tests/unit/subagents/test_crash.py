"""A killed process loses no finished task, and unfinished ones go on from their last step."""

import asyncio
import os
import sys
import threading
from pathlib import Path
from typing import Any

from langchain_core.messages import ToolMessage
from support.lead import NewLead
from support.model_server import Request, ScriptedModel, call, calls, text

TESTS = Path(__file__).parents[2]


def task(number: int) -> Any:
    return call(
        "task", description=f"part {number}", prompt=f"part {number}", subagent_type="general-purpose"
    )


def steps_of(model: ScriptedModel, part: str) -> int:
    return [request.asked for request in model.requests].count(part)


async def test_after_a_kill_the_run_continues_and_nothing_runs_twice(
    model: ScriptedModel, tmp_path: Path, new_lead: NewLead, saver: Any
) -> None:
    gate = threading.Event()
    finished = [f"part {number}" for number in range(2)]
    for part in finished:
        model.on(part, text(f"{part} found"))
    model.on("part 2", call("bash", command="echo x >> ran.txt"), text("part 2 found").held(gate))
    model.on(lambda request: _has_all_results(request), text("All three are in."))
    model.will_say(calls(*(task(number) for number in range(3))))
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(TESTS / "support" / "lead_process.py"),
        model.base_url,
        str(tmp_path),
        "Go.",
        env={**os.environ, "PYTHONPATH": str(TESTS)},
    )
    await model.until(lambda server: steps_of(server, "part 2") == 2 and server.in_flight == 1, timeout=60)
    await until_stored(new_lead, saver, results=2)
    process.kill()
    await process.wait()
    gate.set()

    lead = new_lead(checkpointer=saver)
    messages = await lead.ask(None)

    results = [message.text for message in messages if isinstance(message, ToolMessage)]
    assert results == [f"Task Succeeded. Result: part {number} found" for number in range(3)]
    assert messages[-1].text == "All three are in."
    assert [steps_of(model, part) for part in [*finished, "part 2"]] == [1, 1, 3]
    assert (lead.folders.user_data / "ran.txt").read_text() == "x\n"
    assert [event["message_index"] for event in lead.events if event["type"] == "task_running"] == [3]


async def until_stored(new_lead: NewLead, saver: Any, *, results: int) -> None:
    """Wait until the process has stored so many results of tasks; it writes them a moment after the fact."""
    lead = new_lead(checkpointer=saver)
    async with asyncio.timeout(60):
        while True:
            head = await saver.aget_tuple(lead.config)
            stored = [write for write in head.pending_writes if write[1] == "messages"]
            if len(stored) >= results and await has_used_a_tool(saver):
                return
            await asyncio.sleep(0.02)


async def has_used_a_tool(saver: Any) -> bool:
    """Tell whether a task's own checkpoints hold what a tool of it returned."""
    own = [
        each async for each in saver.alist(None) if each.config["configurable"]["thread_id"].startswith("t1/")
    ]
    return any(write[1] == "messages" for each in own for write in each.pending_writes)


def _has_all_results(request: Request) -> bool:
    return sum(message["role"] == "tool" for message in request.messages) == 3
