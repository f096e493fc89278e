"""Ask the user at the terminal whether a tool call may run."""

import asyncio
import json
import os
import termios
from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from rich.console import Console
from rich.text import Text

from deerflow.cli.edit_line import edit_line
from deerflow.domain.visible_text import visible

CLOSED = "the terminal was closed"
_ONCE = "[y] run it   [n] refuse it   [e] change it: "
_FOR_GOOD = (
    "[y] run it   [t] always allow exactly this in this thread   [a] always allow exactly this\n"
    "[n] refuse it   [e] change it: "
)
_SCOPES = {"t": "thread", "a": "always"}


class Person:
    """The user at a terminal, who answers interrupts."""

    def __init__(self, console: Console, *, keyboard: int) -> None:
        """Ask on `console` and read answers from the file descriptor `keyboard`."""
        self._console = console
        self._keyboard = keyboard
        self._is_gone = False

    async def decide(self, waiting: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Return the answers to a thread's interrupts, by their ids."""
        return {str(asked["id"]): await self._answer(asked["value"]) for asked in waiting}

    async def _answer(self, question: Any) -> Any:
        if isinstance(question, list):  # a sub-agent asks about several calls at once
            return [await self._answer(each) for each in question]
        actions = question.get("action_requests") if isinstance(question, Mapping) else None
        if not isinstance(actions, list):
            return await self.line(f"{visible(str(question))}\n> ")
        answer: dict[str, Any] = {"decisions": [await self._decision(each, question) for each in actions]}
        return {**answer, "hash": question["hash"]} if question.get("hash") else answer

    async def _decision(self, action: Mapping[str, Any], question: Mapping[str, Any]) -> dict[str, Any]:
        self.show(f"\n{visible(str(action.get('description') or 'May this run?'))}", style="yellow")
        self.show(shown(str(action["name"]), action["args"]))
        scopes = question.get("remember") or ()
        while not self._is_gone:
            match (await self.line(_FOR_GOOD if scopes else _ONCE)).strip().lower():
                case "y" | "yes":
                    return {"type": "approve"}
                case "t" | "a" as key if _SCOPES[key] in scopes:
                    return {"type": "approve", "remember": _SCOPES[key]}
                case "n" | "no":
                    return {"type": "reject", "message": await self.line("Why (Enter: no reason): ")}
                case "e" | "edit":
                    edited = await self._edit(action)
                    if edited is not None:
                        return {"type": "edit", "edited_action": edited}
        return {"type": "reject", "message": CLOSED}

    async def _edit(self, action: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the action as edited by the user; None when it is unchanged or invalid."""
        args = dict(action["args"])
        key = only_text(args)
        if key is not None and args[key].isprintable() and visible(args[key]) == args[key]:
            edited: Any = await self._edited(f"{key}: ", args[key])
        else:  # one line of JSON shows line breaks and hidden characters
            line = await self._edited(
                f"{key or 'all arguments'}, as JSON: ", _json(args[key] if key else args)
            )
            try:
                edited = json.loads(line) if line.strip() else ""
            except ValueError:
                self.show("Nothing was changed: that is no JSON.")
                return None
        if key is not None and isinstance(edited, str):
            edited = {**args, key: edited} if edited.strip() else args
        if not isinstance(edited, dict) or edited == args:
            self.show("Nothing was changed.")
            return None
        return {"name": action["name"], "args": edited}

    async def _edited(self, prompt: str, text: str) -> str:
        """Return a line that the user edited, starting with `text`."""
        self._discard_input()
        return await edit_line(self._keyboard, prompt, text)

    async def line(self, prompt: str) -> str:
        """Ask and return the typed line; empty when the terminal is closed."""
        self._discard_input()
        self._console.print(prompt, end="", markup=False, highlight=False, soft_wrap=True)
        line = await _read(self._keyboard)
        self._is_gone = not line
        return line.decode(errors="replace").rstrip("\r\n")

    def _discard_input(self) -> None:
        """Discard input typed before the question was shown: it is no answer to it."""
        if os.isatty(self._keyboard):
            termios.tcflush(self._keyboard, termios.TCIFLUSH)

    def show(self, text: str, *, style: str = "") -> None:
        """Print a text without markup and wrapping."""
        self._console.print(Text(text, style=style), highlight=False, soft_wrap=True)


def shown(name: str, args: Mapping[str, Any]) -> str:
    """Return a tool call in full: its name and all arguments, text arguments unquoted."""
    lines = [
        f"  {key}: " + visible(value if isinstance(value, str) else orjson.dumps(value, default=str).decode())
        for key, value in args.items()
    ]
    return "\n".join([f"  tool: {visible(name)}", *lines])


def only_text(args: Mapping[str, Any]) -> str | None:
    """Return the only argument besides `description` if it is text, which can be edited on one line."""
    keys = [key for key in args if key != "description"]
    only = keys[0] if len(keys) == 1 else None
    return only if only is not None and isinstance(args[only], str) else None


def _json(value: Any) -> str:
    """Return a value as JSON on one line; if it has hidden characters, they and all others are escaped."""
    text = json.dumps(value, ensure_ascii=False)
    return text if visible(text) == text else json.dumps(value)


async def _read(keyboard: int) -> bytes:
    """Read the next line on the event loop: a blocking read in a thread would outlive Ctrl-C."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(keyboard, ready.set)
    try:
        await ready.wait()
        return os.read(keyboard, 1 << 16)
    except OSError:  # the terminal was closed
        return b""
    finally:
        loop.remove_reader(keyboard)
