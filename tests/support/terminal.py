"""A job of `deerflow run` with a keyboard, for tests."""

import asyncio
import codecs
import os
import re
import sys
from asyncio.subprocess import PIPE, Process
from pathlib import Path
from typing import Any

from support.gateway import environment, write_config
from support.model_server import ScriptedModel

SECONDS = 180


class Terminal:
    """A job with a keyboard."""

    def __init__(self, process: Process, keyboard: int) -> None:
        self._process = process
        self._keyboard = keyboard
        self.shown = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")()

    async def sees(self, words: str) -> None:
        assert self._process.stderr is not None
        while not re.search(words, self.shown):
            piece = await asyncio.wait_for(self._process.stderr.read(4096), SECONDS)
            assert piece, f"it ended without {words!r}: {self.shown}"
            self.shown += self._decoder.decode(piece)  # a piece may end within a letter
        self.shown = self.shown[re.search(words, self.shown).end() :]  # type: ignore[union-attr]

    async def offers(self, words: str) -> None:
        """Wait for a line that the line editor shows, on the terminal itself."""
        echo = ""
        while not re.search(words, echo):
            piece = await asyncio.wait_for(asyncio.to_thread(os.read, self._keyboard, 4096), SECONDS)
            echo += piece.decode(errors="replace")

    def types(self, line: str) -> None:
        os.write(self._keyboard, f"{line}\n".encode())

    async def ends(self) -> str:
        out, _ = await asyncio.wait_for(self._process.communicate(), SECONDS)
        assert self._process.returncode == 0
        return out.decode()


async def start_job(
    home: Path, model: ScriptedModel, keyboard: int | None, *words: str, **sections: Any
) -> Process:
    """Start `deerflow run` in thread t1, with or without somebody at the keyboard."""
    config = write_config(home, model.base_url, **sections)
    return await asyncio.create_subprocess_exec(
        *(
            sys.executable,
            "-m",
            "deerflow",
            "run",
            "work",
            "--thread",
            "t1",
            "--new",
            "--config",
            str(config),
            *words,
        ),
        env=environment(home),
        cwd=home,
        stdin=asyncio.subprocess.DEVNULL if keyboard is None else keyboard,
        stdout=PIPE,
        stderr=PIPE,
    )
