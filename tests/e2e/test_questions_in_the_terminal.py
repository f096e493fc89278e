"""What the agent wants to know, and what it does, shows in the terminal of `deerflow run`."""

import asyncio
import os
import pty
from pathlib import Path

from support.model_server import ScriptedModel, call, status, text, usage
from support.terminal import SECONDS, Terminal, start_job

OPTIONS = {
    "question": "Which form?",
    "clarification_type": "approach_choice",
    "options": ["A table", "A list"],
}
FIELDS = [
    {"name": "city", "label": "City", "type": "text", "required": True},
    {"name": "pace", "label": "Pace", "type": "select", "options": ["calm", "busy"]},
    {"name": "also", "label": "Also", "type": "multi_select", "options": ["art", "food", "sea"]},
]


async def test_questions_are_answered_and_the_job_goes_on(tmp_path: Path, model: ScriptedModel) -> None:
    model.will_say(
        call("ask_clarification", context="Both work.", **OPTIONS) + usage(10, 1),
        call("ask_clarification", question="Where?", clarification_type="missing_info", fields=FIELDS)
        + usage(20, 2),
        text("Noted.") + usage(30, 3),
    )
    master, slave = pty.openpty()
    job = Terminal(await start_job(tmp_path, model, slave), master)

    await job.sees(r"Both work\.\s+Which form\?\s+1\. A table\s+2\. A list")
    await job.sees("not now\\): ")
    job.types("2")
    for asked, answer in (("City: ", "Oslo"), (r"2\. busy\s+Pace.*: ", "1"), (r"3\. sea\s+Also.*: ", "1, 3")):
        await job.sees(asked)
        job.types(answer)
    out = await job.ends()

    os.close(master)
    os.close(slave)
    assert out == "Noted.\n"
    assert model.requests[1].asked.endswith("A list")
    assert model.requests[2].asked.endswith("City: Oslo\nPace: calm\nAlso: art, sea")


async def test_nobody_need_answer(tmp_path: Path, model: ScriptedModel) -> None:
    model.will_say(call("ask_clarification", **OPTIONS))
    master, slave = pty.openpty()
    job = Terminal(await start_job(tmp_path, model, slave), master)

    await job.sees("not now\\): ")
    job.types("")
    out = await job.ends()

    os.close(master)
    os.close(slave)
    assert out == "Which form?\n\n1. A table\n2. A list\n"
    assert len(model.requests) == 1


async def test_without_a_terminal_the_question_is_the_answer(tmp_path: Path, model: ScriptedModel) -> None:
    model.will_say(call("ask_clarification", **OPTIONS))
    process = await start_job(tmp_path, model, None)

    out, err = await asyncio.wait_for(process.communicate(), SECONDS)

    assert process.returncode == 0
    assert out.decode() == "Which form?\n\n1. A table\n2. A list\n"
    assert 'answer it with: deerflow run --thread t1 "your answer"' in err.decode()


async def test_steps_plan_and_retries_are_told_in_lines(tmp_path: Path, model: ScriptedModel) -> None:
    todos = [{"content": "Look", "status": "completed"}, {"content": "Write", "status": "in_progress"}]
    model.will_say(
        status(500, message="the disk is full"),
        call("write_todos", todos=todos),
        call("ls", description="Look around\x1b[2J", path="/mnt/user-data/workspace"),
        call("read_file", description="Read the note", path="/mnt/user-data/workspace/none.txt"),
        text("Done."),
    )
    quick = {"retry_base_delay_ms": 1, "retry_cap_delay_ms": 1}
    process = await start_job(tmp_path, model, None, "--plan", llm_call=quick)

    out, err = await asyncio.wait_for(process.communicate(), SECONDS)

    lines = [line for line in err.decode().splitlines() if " WARNING " not in line]  # there is no shell here
    assert (process.returncode, out) == (0, b"Done.\n"), err
    assert lines.pop(0) == "Loading DeerFlow…"
    assert lines[0].startswith(
        "! Attempt 1 of 3 failed; trying again in 1 s: The provider has a problem of its own"
    )
    assert "(500: the disk is full)" in lines[0]
    assert lines[1] == "☐ plan  1 of 2  Write"
    assert lines[2].startswith("✓ ls  Look around\\x1b[2J → ")
    assert lines[3].startswith("✗ read_file  Read the note → /mnt/user-data/workspace/none.txt does not")
    assert lines[4].startswith("usage")
