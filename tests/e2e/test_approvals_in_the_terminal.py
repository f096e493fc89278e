"""`deerflow run` asks the person at the terminal before a command runs on the host."""

import asyncio
import os
import pty
import termios
from pathlib import Path

from support.model_server import ScriptedModel, call, text
from support.terminal import SECONDS, Terminal, start_job

HOST = {"use": "local", "allow_host_bash": True}


async def test_yes_runs_no_refuses_and_e_changes(tmp_path: Path, model: ScriptedModel) -> None:
    def bash(command: str) -> object:
        return call("bash", description="Step", command=command)

    one, two, three, safe = (tmp_path / name for name in ("one", "two", "three", "three.safe"))
    model.will_say(
        bash(f"touch {one} # \x1b[2K p\u0430y"),
        bash(f"touch {two}"),
        bash(f"touch {three}"),
        bash("echo for good"),
        bash("echo for good"),
        text("Finished."),
    )
    master, slave = pty.openpty()
    termios.tcsetwinsize(slave, (24, 400))
    job = Terminal(await start_job(tmp_path, model, slave, sandbox=HOST), master)

    await job.sees(r"touch \S+one # \\x1b\[2K p\\u0430y")
    await job.sees("change it: ")
    job.types("y")
    await job.sees("touch .*two")
    await job.sees("change it: ")
    job.types("n")
    await job.sees("Why")
    job.types("not that one")
    await job.sees("touch .*three")
    await job.sees("change it: ")
    job.types("e")
    await job.offers(r"command: touch \S+three")
    job.types(".safe")
    await job.sees("echo for good")
    await job.sees("change it: ")
    job.types("t")
    answer = await job.ends()

    os.close(master)
    os.close(slave)
    assert [path.exists() for path in (one, two, three, safe)] == [True, False, False, True]
    assert answer == "Finished.\n"


async def test_without_a_terminal_nothing_is_asked_and_the_model_is_told(
    tmp_path: Path, model: ScriptedModel
) -> None:
    proof = tmp_path / "proof"
    model.will_say(call("bash", description="Step", command=f"touch {proof}"), text("I could not."))
    process = await start_job(tmp_path, model, None, sandbox=HOST)

    out, err = await asyncio.wait_for(process.communicate(), SECONDS)

    assert process.returncode == 0, err.decode()
    assert out == b"I could not.\n"
    assert not proof.exists()
    assert "nobody can answer in this run" in str(model.requests[-1])
