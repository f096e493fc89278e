"""Let the user edit a text on one line of the terminal, with the keys of the shell.

GNU readline, which does the editing, blocks until Enter, so it runs in a child process, `readline_child.py`.
The text and the result are passed in a file, which has no length limit.
"""

import asyncio
import os
import sys
import tempfile
import termios
from pathlib import Path

_CHILD = Path(__file__).with_name("readline_child.py")


async def edit_line(keyboard: int, prompt: str, text: str) -> str:
    """Show `text` after the prompt for editing and return the result; `text` itself if that is cancelled."""
    before = termios.tcgetattr(keyboard)
    screen = os.open(os.ttyname(keyboard), os.O_RDWR | os.O_NOCTTY)
    try:
        with tempfile.TemporaryFile() as file:
            file.write(text.encode(errors="replace"))
            file.flush()
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", str(_CHILD), str(file.fileno()), prompt),
                stdin=keyboard,
                stdout=screen,
                stderr=asyncio.subprocess.DEVNULL,
                pass_fds=(file.fileno(),),
            )
            try:
                code = await process.wait()
            except asyncio.CancelledError:
                process.kill()
                await process.wait()
                raise
            file.seek(0)
            return file.read().decode(errors="replace") if code == 0 else text
    finally:
        os.close(screen)
        termios.tcsetattr(
            keyboard, termios.TCSADRAIN, before
        )  # a killed child leaves the terminal in raw mode
