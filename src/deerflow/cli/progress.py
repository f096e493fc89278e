"""Terminal output of `deerflow run`: progress while the job runs, and a report at its end."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from rich.cells import cell_len, set_cell_size
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from deerflow.client import ClientEvent, text_of
from deerflow.domain.task_events import TaskEvents
from deerflow.domain.visible_text import printable

_MARKS = {"completed": "✓", "failed": "✗", "timed_out": "✗", "cancelled": "■"}
_WIDTH = 160
_NOTICE_WIDTH = 600
"""Wider than other lines: the reason of a failed model call is at the end of the line."""
_SPINNER = 2
"""Columns of a spinner and the space after it."""
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""Control characters, which a terminal would interpret."""
_ABOUT = ("description", "command", "path", "pattern", "query", "url")
"""Arguments that describe a tool call; the model's own description first."""


@dataclass(slots=True)
class _Task:
    """The progress of a sub-agent's task."""

    description: str
    step: str = "starting"
    results: int = 0
    failures: int = 0
    """Number of tool results (`results`), and how many of them are errors (`failures`)."""

    def take(self, message: Any) -> None:
        """Process the sub-agent's next message."""
        self.step = _step(message)
        if isinstance(message, Mapping) and message.get("type") == "tool":
            self.results += 1
            self.failures += message.get("status") == "error"

    @property
    def note(self) -> str:
        """Summary of its steps for the final line; empty when none failed."""
        steps = "1 step" if self.results == 1 else f"{self.results} steps"
        return f" ({steps}, {self.failures} failed)" if self.failures else ""


@dataclass(slots=True)
class View:
    """The state to show, built from the events so far."""

    answer: str = ""
    message_id: str = ""
    error: str | None = None
    task_events: TaskEvents = field(default_factory=TaskEvents)
    tasks: dict[str, _Task] = field(default_factory=dict)
    calls: dict[str, str] = field(default_factory=dict)
    """Descriptions of tool calls by call id."""
    plan: str = ""
    is_question: bool = False
    """The turn ended with a question to the user."""
    doing: str = "thinking"


class Progress:
    """Shows a run's events: finished steps as lines, current activity in a live area at the bottom."""

    def __init__(self, console: Console, thread_id: str) -> None:
        self._console = console
        self._thread_id = thread_id
        self._view = View()
        self.run_ids: set[str] = set()
        """The runs of the job: one, and one more for each answer of the user."""
        self._is_on = False
        self._live: Live | None = None

    @property
    def error(self) -> str | None:
        return self._view.error

    def start(self) -> None:
        """Start showing progress; without a terminal, as plain lines."""
        self._is_on = True
        if self._console.is_terminal:
            self._live = Live(self._bottom(), console=self._console, refresh_per_second=8, transient=True)
            self._live.start()

    def stop(self) -> None:
        """Stop the live display."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def take(self, event: ClientEvent) -> None:
        """Process one event."""
        match event.event:
            case "metadata":
                self.run_ids.add(str(event.data["run_id"]))
            case "messages":
                self._take_message(event.data[0])
            case "updates" if isinstance(event.data, Mapping):
                self._view.calls.update(_calls_in(event.data))
            case "values":
                self._take_plan(event.data.get("todos") or ())
            case "custom" if isinstance(event.data, Mapping):
                self._take_custom(event.data)
            case "error":
                self._view.error = str(event.data["message"])
        if self._live is not None:
            self._live.update(self._bottom())

    def say_stopped(self) -> None:
        """Show the partial answer, and print how to continue the stopped job."""
        if self._console.is_terminal and self._view.answer.strip():
            self._show_answer(self._console)
        self._console.print(
            f'\nStopped. What was done is kept; go on with: deerflow run --thread {self._thread_id} "…"',
            highlight=False,
            soft_wrap=True,
        )

    def report(self, runs: Sequence[Mapping[str, Any]], artifacts: Sequence[Path], out: Console) -> None:
        """Print the answer on `out`, and artifacts, usage and thread id on the progress console."""
        if self._view.error:
            failure = Text.assemble(("The run failed: ", "red"), printable(self._view.error))
            self._console.print(failure, highlight=False, soft_wrap=True)
        elif out.is_terminal:
            self._show_answer(out)
        else:
            out.file.write(self._view.answer.rstrip("\n") + "\n")
            out.file.flush()
        notes = [f"artifact  {path}" for path in artifacts]
        if self._view.is_question:
            notes.append(f'question  answer it with: deerflow run --thread {self._thread_id} "your answer"')
        for note in (*notes, f"usage     {_spent(runs)}", f"thread    {self._thread_id}"):
            self._console.print(printable(note), highlight=False, markup=False, soft_wrap=True)

    def _show_answer(self, out: Console) -> None:
        # Imported here: it loads a parser, and the first token need not wait for that.
        markdown = import_module("deerflow.cli.markdown")
        out.print(markdown.TerminalMarkdown(_CONTROL.sub("", self._view.answer)), crop=False)

    def _take_message(self, message: Mapping[str, Any]) -> None:
        view = self._view
        if message["type"] == "AIMessageChunk":
            view.is_question = False
            if message["id"] != view.message_id:
                view.message_id, view.answer = message["id"], ""
            view.answer += text_of(message["content"])
            for call in message.get("tool_call_chunks") or ():
                if call.get("name"):
                    view.doing = f"calling {call['name']}"
        elif message["type"] == "ai":  # whole: written by DeerFlow and not by a model
            view.message_id, view.answer, view.is_question = message["id"], text_of(message["content"]), False
        elif message["type"] == "tool":
            view.doing = "thinking"
            if (message.get("artifact") or {}).get("human_input"):
                view.answer, view.is_question = text_of(message["content"]), True
            elif message["name"] not in ("task", "write_todos"):
                mark = "✗" if message.get("status") == "error" else "✓"
                about = view.calls.pop(str(message.get("tool_call_id")), "")
                said = " → ".join(filter(None, (about, _exit(message), _first_line(message["content"]))))
                self._line(f"{mark} {message['name']}  {said}")

    def _take_plan(self, todos: Sequence[Mapping[str, Any]]) -> None:
        done = sum(todo.get("status") == "completed" for todo in todos)
        current = next(
            (str(todo.get("content")) for todo in todos if todo.get("status") == "in_progress"), ""
        )
        plan = f"{done} of {len(todos)}  {current}".rstrip() if todos else ""
        if plan and plan != self._view.plan:
            self._view.plan = plan
            self._line(f"☐ plan  {plan}")

    def _take_custom(self, data: Mapping[str, Any]) -> None:
        if data.get("type") == "llm_retry":
            self._line(f"! {data.get('message')}", width=_NOTICE_WIDTH)
        change = self._view.task_events.apply(data)
        if change is None:
            return
        task, tasks = change.task, self._view.tasks
        match change.kind:
            case "started" | "resumed":
                tasks[task.task_id] = _Task(task.description)
                self._line(f"▸ task  {task.description}")
            case "message" if task.task_id in tasks:
                tasks[task.task_id].take(change.message)
            case "asking" | "ended" if task.task_id in tasks:  # one that asks may be cancelled later
                outcome = "asking" if change.kind == "asking" else task.status
                done = tasks.pop(task.task_id)
                reason = f": {task.error}" if task.error else ""
                self._line(
                    f"{_MARKS.get(outcome, '•')} task  {task.description} {outcome}{reason}{done.note}"
                )

    def _line(self, text: str, *, width: int = _WIDTH) -> None:
        if not self._is_on:
            return
        # The terminal wraps it, so that copied text has no additional line breaks.
        line = Text(fitted(printable(text), width), style="dim")
        self._console.print(line, highlight=False, soft_wrap=True)

    def _bottom(self) -> RenderableType:
        view = self._view
        rows: list[RenderableType] = [
            Spinner("dots", self._row(f"{task.description}  {task.step}", style="cyan"))
            for task in view.tasks.values()
        ]
        doing = f"{len(view.tasks)} task(s) at work" if view.tasks else view.doing
        tail = view.answer.strip().splitlines()[-1:] or [doing]
        rows.append(Spinner("dots", self._row(tail[0])))
        return Group(*rows)

    def _row(self, text: str, *, style: str = "") -> Text:
        return Text(fitted(printable(text), self._console.width - _SPINNER), style=style, no_wrap=True)


def _spent(runs: Sequence[Mapping[str, Any]]) -> str:
    """Return the tokens and costs of all runs of the job."""
    keys = ("total_tokens", "total_input_tokens", "total_output_tokens", "subagent_tokens")
    total, given, made, delegated = (sum(run[key] for run in runs) for key in keys)
    said = f"{total:,} tokens ({given:,} in, {made:,} out, {delegated:,} by sub-agents)"
    costs: Counter[str] = Counter()
    for run in runs:
        costs.update(run.get("costs") or {})
    return ", ".join([said, *(f"{currency} {amount:.4f}" for currency, amount in costs.items())])


def _calls_in(update: Mapping[str, Any]) -> dict[str, str]:
    """Return the descriptions of the tool calls in an update, by call id."""
    parts = (part for part in update.values() if isinstance(part, Mapping))
    messages = (message for part in parts for message in part.get("messages") or ())
    calls = (call for message in messages for call in message.get("tool_calls") or ())
    return {str(call["id"]): _about(call["args"]) for call in calls}


def _about(args: Mapping[str, Any]) -> str:
    said = next((args[key] for key in _ABOUT if isinstance(args.get(key), str) and args[key]), "")
    return _first_line(said)


def _exit(message: Mapping[str, Any]) -> str:
    """Return the exit code of a failed command as text."""
    code = (message.get("additional_kwargs") or {}).get("exit_code")
    return "" if code is None else f"exit code {code}"


def _step(message: Any) -> str:
    if not isinstance(message, Mapping):
        return ""
    calls = message.get("tool_calls") or ()
    if calls:
        return ", ".join(f"{call['name']}: {_about(call['args'])}".removesuffix(": ") for call in calls)
    return _first_line(message.get("content", ""))


def _first_line(content: Any) -> str:
    return next((line for line in text_of(content).splitlines() if line.strip()), "")


def fitted(text: str, width: int) -> str:
    """Return `text` cut to `width` columns, between words where possible."""
    if cell_len(text) <= width:
        return text
    head = set_cell_size(text, max(width - 1, 0)).rstrip()
    words, _, rest = head.rpartition(" ")
    if len(rest) < len(head) / 2 and not text[len(head) : len(head) + 1].isspace():
        head = words.rstrip()
    return f"{head}…"
