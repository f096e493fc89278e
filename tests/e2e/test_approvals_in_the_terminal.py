"""`deerflow run` asks the person at the terminal before a command runs on the host."""

import asyncio
import os
import pty
import re
import sys
from asyncio.subprocess import PIPE, Process
from pathlib import Path

from support.gateway import environment, write_config
from support.model_server import ScriptedModel, call, text

HOST = {"use": "local", "allow_host_bash": True}
SECONDS = 60


class Terminal:
    """A job with a keyboard."""

    def __init__(self, process: Process, keyboard: int) -> None:
        self._process = process
        self._keyboard = keyboard
        self.shown = ""

    async def sees(self, words: str) -> None:
        assert self._process.stderr is not None
        while not re.search(words, self.shown):
            piece = await asyncio.wait_for(self._process.stderr.read(4096), SECONDS)
            assert piece, f"it ended without {words!r}: {self.shown}"
            self.shown += piece.decode()
        self.shown = self.shown[re.search(words, self.shown).end() :]  # type: ignore[union-attr]

    def types(self, line: str) -> None:
        os.write(self._keyboard, f"{line}\n".encode())

    async def ends(self) -> str:
        out, _ = await asyncio.wait_for(self._process.communicate(), SECONDS)
        assert self._process.returncode == 0
        return out.decode()


async def start(home: Path, model: ScriptedModel, keyboard: int | None) -> Process:
    config = write_config(home, model.base_url, sandbox=HOST)
    words = ("run", "work", "--thread", "t1", "--config", str(config))
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "deerflow", *words),
        env=environment(home),
        cwd=home,
        stdin=asyncio.subprocess.DEVNULL if keyboard is None else keyboard,
        stdout=PIPE,
        stderr=PIPE,
    )


async def test_yes_runs_no_refuses_and_e_changes(tmp_path: Path, model: ScriptedModel) -> None:
    def bash(command: str) -> object:
        return call("bash", description="Step", command=command)

    one, two, three, safe = (tmp_path / name for name in ("one", "two", "three", "safe"))
    model.will_say(
        bash(f"touch {one} # \x1b[2K"), bash(f"touch {two}"), bash(f"touch {three}"), text("Finished.")
    )
    master, slave = pty.openpty()
    job = Terminal(await start(tmp_path, model, slave), master)

    await job.sees(r"touch \S+one # \\x1b\[2K")
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
    await job.sees("command: ")
    job.types(f"touch {safe}")
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
    process = await start(tmp_path, model, None)

    out, err = await asyncio.wait_for(process.communicate(), SECONDS)

    assert process.returncode == 0, err.decode()
    assert out == b"I could not.\n"
    assert not proof.exists()
    assert "nobody can answer in this run" in str(model.requests[-1])
