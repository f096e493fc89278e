"""How a call is changed at the terminal before it runs."""

import asyncio
import io
import os
import pty
import re
import termios
from collections.abc import Iterator
from typing import Any

import pytest
from rich.console import Console

from deerflow.cli.approve import Person

SECONDS = 60
CLEAR, LEFT, END = "\x15", "\x1b[D", "\x04"


class Keyboard:
    """A terminal whose keys a test presses."""

    def __init__(self) -> None:
        self.master, self.slave = pty.openpty()
        termios.tcsetwinsize(self.slave, (24, 300))
        self.echo = ""

    async def shows(self, words: str) -> None:
        """Wait for words on the screen of the line editor."""
        async with asyncio.timeout(SECONDS):
            while not re.search(words, self.echo):
                ready = asyncio.Event()
                loop = asyncio.get_running_loop()
                loop.add_reader(self.master, ready.set)
                await ready.wait()
                loop.remove_reader(self.master)
                self.echo += os.read(self.master, 4096).decode()

    def press(self, keys: str) -> None:
        os.write(self.master, keys.encode())


@pytest.fixture
def keyboard(monkeypatch: pytest.MonkeyPatch) -> Iterator[Keyboard]:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    made = Keyboard()
    yield made
    os.close(made.master)
    os.close(made.slave)


EDITS: list[tuple[dict[str, Any], str, str, dict[str, Any] | None]] = [
    ({"description": "d", "command": "ls /a"}, "command: ls /a$", "b", {"command": "ls /ab"}),
    ({"command": "ls 日本"}, "command: ls 日本$", LEFT + "_", {"command": "ls 日_本"}),
    ({"command": "a\nb"}, r'command, as JSON: "a\\nb"$', LEFT + "c", {"command": "a\nbc"}),
    ({"command": "p\u0430y"}, r'command, as JSON: "p\\u0430y"$', LEFT + "!", {"command": "p\u0430y!"}),
    ({"path": "/x", "n": 1}, r'all arguments, as JSON: \{"path": "/x", "n": 1\}$', LEFT + "0", {"n": 10}),
    ({"command": "ls"}, "command: ls$", "", None),
    ({"command": "ls"}, "command: ls$", CLEAR, None),
    ({"command": "ls"}, "command: ls$", CLEAR + END, None),
    ({"path": "/x", "n": 1}, "n", CLEAR + "{", None),
    ({"path": "/x", "n": 1}, "n", CLEAR + "[1]", None),
]


@pytest.mark.parametrize(("args", "prefilled", "keys", "changed"), EDITS)
async def test_the_present_arguments_are_there_to_be_edited(
    args: dict[str, Any], prefilled: str, keys: str, changed: dict[str, Any] | None, keyboard: Keyboard
) -> None:
    output = io.StringIO()
    person = Person(Console(file=output), keyboard=keyboard.slave)
    before = termios.tcgetattr(keyboard.slave)

    editing = asyncio.create_task(person._edit({"name": "bash", "args": args}))
    await keyboard.shows(prefilled)
    keyboard.press(f"{keys}\r")
    edited = await asyncio.wait_for(editing, SECONDS)

    assert edited == (None if changed is None else {"name": "bash", "args": {**args, **changed}})
    assert ("Nothing was changed" in output.getvalue()) is (changed is None)
    assert termios.tcgetattr(keyboard.slave) == before


async def test_stopping_the_run_ends_the_editing_and_restores_the_terminal(keyboard: Keyboard) -> None:
    person = Person(Console(file=io.StringIO()), keyboard=keyboard.slave)
    before = termios.tcgetattr(keyboard.slave)

    editing = asyncio.create_task(person._edit({"name": "bash", "args": {"command": "ls"}}))
    await keyboard.shows("command: ls$")
    assert termios.tcgetattr(keyboard.slave) != before
    editing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await editing

    assert termios.tcgetattr(keyboard.slave) == before
