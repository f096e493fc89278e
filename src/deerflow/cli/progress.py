"""What a job in the terminal shows while it runs, and when it has ended."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markdown import Markdown
from rich.spinner import Spinner
from rich.text import Text

from deerflow.client import ClientEvent, text_of

_MARKS = {"completed": "✓", "failed": "✗", "timed_out": "✗", "cancelled": "■"}
_WIDTH = 100


@dataclass(slots=True)
class _Task:
    """A sub-agent's work as far as it is known."""

    description: str
    step: str = "starting"


@dataclass(slots=True)
class View:
    """What the events so far amount to."""

    answer: str = ""
    message_id: str = ""
    error: str | None = None
    tasks: dict[str, _Task] = field(default_factory=dict)
    doing: str = "thinking"


class Progress:
    """Follows a run's events: finished steps scroll by, what goes on now stays at the bottom."""

    def __init__(self, console: Console, thread_id: str) -> None:
        self._console = console
        self._thread_id = thread_id
        self._view = View()
        self._is_on = False
        self._live: Live | None = None

    @property
    def error(self) -> str | None:
        return self._view.error

    def start(self) -> None:
        """Begin to show progress; without a terminal, as plain lines."""
        self._is_on = True
        if self._console.is_terminal:
            self._live = Live(self._bottom(), console=self._console, refresh_per_second=8, transient=True)
            self._live.start()

    def stop(self) -> None:
        """Show no more progress."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def take(self, event: ClientEvent) -> None:
        """Take in one event."""
        match event.event:
            case "messages":
                self._take_message(event.data[0])
            case "custom" if isinstance(event.data, Mapping):
                self._take_custom(event.data)
            case "error":
                self._view.error = str(event.data["message"])
        if self._live is not None:
            self._live.update(self._bottom())

    def say_stopped(self) -> None:
        """Tell what a stopped job leaves."""
        self._console.print(
            f'\nStopped. What was done is kept; go on with: deerflow run --thread {self._thread_id} "…"',
            highlight=False,
        )

    def report(self, run: Mapping[str, Any], artifacts: Sequence[Path], out: Console) -> None:
        """Print the answer on `out` and what there is to know about it beside it."""
        if self._view.error:
            failure = Text.assemble(("The run failed: ", "red"), self._view.error)
            self._console.print(failure, highlight=False, soft_wrap=True)
        elif out.is_terminal:
            out.print(Markdown(self._view.answer))
        else:
            out.file.write(self._view.answer.rstrip("\n") + "\n")
        for path in artifacts:
            self._console.print(f"artifact  {path}", highlight=False, markup=False, soft_wrap=True)
        tokens = (
            f"{run['total_tokens']:,} tokens ({run['total_input_tokens']:,} in, "
            f"{run['total_output_tokens']:,} out, {run['subagent_tokens']:,} by sub-agents)"
        )
        for currency, amount in (run.get("costs") or {}).items():
            tokens += f", {currency} {amount:.4f}"
        self._console.print(f"usage     {tokens}\nthread    {self._thread_id}", highlight=False)

    def _take_message(self, message: Mapping[str, Any]) -> None:
        view = self._view
        if message["type"] == "AIMessageChunk":
            if message["id"] != view.message_id:
                view.message_id, view.answer = message["id"], ""
            view.answer += text_of(message["content"])
            for call in message.get("tool_call_chunks") or ():
                if call.get("name"):
                    view.doing = f"calling {call['name']}"
        elif message["type"] == "tool":
            view.doing = "thinking"
            if message["name"] != "task":
                mark = "✗" if message.get("status") == "error" else "✓"
                self._line(f"{mark} {message['name']}  {_first_line(message['content'])}")

    def _take_custom(self, data: Mapping[str, Any]) -> None:
        kind, tasks = str(data.get("type", "")), self._view.tasks
        task_id = str(data.get("task_id", ""))
        if kind == "task_started":
            tasks[task_id] = _Task(str(data.get("description", "")))
            self._line(f"▸ task  {tasks[task_id].description}")
        elif kind == "task_running" and task_id in tasks:
            tasks[task_id].step = _step(data.get("message"))
        elif kind.startswith("task_") and task_id in tasks:
            outcome = kind.removeprefix("task_")
            done = tasks.pop(task_id)
            reason = f": {data['error']}" if data.get("error") else ""
            self._line(f"{_MARKS.get(outcome, '•')} task  {done.description} {outcome}{reason}")

    def _line(self, text: str) -> None:
        if self._is_on:
            self._console.print(Text(text[:_WIDTH], style="dim"), highlight=False)

    def _bottom(self) -> RenderableType:
        view = self._view
        rows: list[RenderableType] = [
            Spinner("dots", Text(f"{task.description}  {task.step}"[:_WIDTH], style="cyan"))
            for task in view.tasks.values()
        ]
        tail = view.answer.strip().splitlines()[-1:] or [view.doing]
        rows.append(Spinner("dots", Text(tail[0][:_WIDTH])))
        return Group(*rows)


def _step(message: Any) -> str:
    if not isinstance(message, Mapping):
        return ""
    calls = message.get("tool_calls") or ()
    if calls:
        return ", ".join(call["name"] for call in calls)
    return _first_line(message.get("content", ""))


def _first_line(content: Any) -> str:
    return next((line for line in text_of(content).splitlines() if line.strip()), "")
