"""Ask the user at the terminal: whether a tool call may run, and the agent's clarification questions."""

import asyncio
import json
import os
import sys
import tempfile
import termios
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson
from rich.console import Console
from rich.text import Text

from deerflow.domain.visible_text import printable, visible

_CHILD = Path(__file__).with_name("readline_child.py")
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


async def edit_line(keyboard: int, prompt: str, text: str) -> str:
    """Show `text` after the prompt for editing and return the result; `text` itself if that is cancelled.

    GNU readline, which does the editing, blocks until Enter, so it runs in a child process. The text and the
    result are passed in a file, which has no length limit.
    """
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


def question_in(values: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the question that ended a thread's last turn; None when it did not end with one."""
    messages = values.get("messages") or [{}]
    artifact = messages[-1].get("artifact")
    request = artifact.get("human_input") if isinstance(artifact, Mapping) else None
    return request if isinstance(request, Mapping) else None


async def reply_to(request: Mapping[str, Any], person: Person) -> str:
    """Ask the user and return the answer; empty when they do not answer."""
    if request.get("context"):
        person.show(f"\n{printable(str(request['context']))}")
    person.show(f"\n{printable(str(request.get('question', '')))}", style="bold")
    if request.get("fields"):
        return await _form(request["fields"], person)
    labels = [str(option["label"]) for option in request.get("options") or ()]
    for number, label in enumerate(labels, start=1):
        person.show(f"  {number}. {printable(label)}")
    hint = "A number, or an answer of your own" if labels else "Your answer"
    return chosen(await person.line(f"{hint} (Enter: not now): "), labels)


async def _form(fields: list[Mapping[str, Any]], person: Person) -> str:
    """Ask for one field after the other; empty when a required one is left out."""
    answers = []
    for field in fields:
        labels = [str(option) for option in field.get("options") or ()]
        choices = "".join(f"  {number}. {printable(label)}\n" for number, label in enumerate(labels, start=1))
        name = printable(str(field.get("label") or field["name"]))
        note = "" if field.get("required") else " (optional)"
        given = await person.line(f"{choices}{name}{note}: ")
        # Several choices may be given, separated by commas.
        is_many = field.get("type") == "multi_select"
        parts = given.split(",") if is_many else [given]
        value = ", ".join(filter(None, (chosen(part, labels) for part in parts)))
        if value:
            answers.append(f"{name}: {value}")
        elif field.get("required"):
            return ""
    return "\n".join(answers)


def chosen(line: str, labels: list[str]) -> str:
    """Return the option with that number, else the line itself."""
    text = line.strip()
    number = int(text) if text.isdecimal() else 0
    return labels[number - 1] if 0 < number <= len(labels) else text
