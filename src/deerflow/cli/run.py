"""`deerflow run`: runs one job in the terminal."""

import asyncio
import logging
import shutil
import signal
import sys
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import orjson
from rich.console import Console
from rich.text import Text

from deerflow.app import DeerFlow
from deerflow.cli.approve import Person, question_in, reply_to
from deerflow.cli.progress import Progress
from deerflow.cli.startup import StatusLine
from deerflow.client import AsyncDeerFlowClient, ClientEvent
from deerflow.config import SettingsSource
from deerflow.domain import DEFAULT_USER, Thread, is_thread_id, new_id
from deerflow.domain.visible_text import visible
from deerflow.errors import InvalidInputError, NotFoundError
from deerflow.observability import configure_logging, secrets_of
from deerflow.storage import ThreadQuery, ThreadStore

INTERRUPTED = 130
_RECENT_THREADS = 1000
_NAMED_THREADS = 3
_WORKSPACE = "/mnt/user-data/workspace"
_MOST_FILES = 5000
_MOST_BYTES = 500 * 1024 * 1024
_SKIPPED = frozenset({".git", "node_modules", ".venv", "venv", "__pycache__", ".mypy_cache", ".deer-flow"})


def execute(
    *,
    task: str,
    files: Sequence[Path],
    model: str | None,
    thread_id: str | None,
    is_new_thread: bool,
    has_subagents: bool,
    is_plan_mode: bool,
    as_json: bool,
    config: Path | None,
    status: StatusLine,
) -> int:
    """Run the job and return the exit code."""
    if not task.strip():
        raise InvalidInputError("the task is empty; say what is to be done")
    if thread_id is not None and not is_thread_id(thread_id):
        raise InvalidInputError(f"thread id '{thread_id}' may only have letters, digits, '-' and '_' (64)")
    if is_new_thread and thread_id is None:
        raise InvalidInputError("--new needs the id of the new thread; add --thread, or leave --new out")
    missing = [str(file) for file in files if not file.is_file() and not file.is_dir()]
    if missing:
        raise InvalidInputError(f"no such file or folder: {', '.join(missing)}")
    source = SettingsSource(config)
    configure_logging("warning", secrets=secrets_of(source.current()))
    logging.getLogger("deerflow.agents.middlewares.model_errors").setLevel(logging.ERROR)  # progress shows it
    logging.getLogger("deerflow.memory").setLevel(logging.ERROR)  # the job succeeds without it
    logging.getLogger("deerflow.observability.loop_delay").setLevel(logging.ERROR)  # no other clients
    options = {"model_name": model, "subagent_enabled": has_subagents, "is_plan_mode": is_plan_mode}
    job = _Job(task, list(files), thread_id or new_id(), options, as_json)
    status.say("Opening the database and the models")
    try:
        return asyncio.run(job.run(source, status, known=None if thread_id is None else not is_new_thread))
    except KeyboardInterrupt:  # before the job's signal handlers are set, or after the loop ended
        return INTERRUPTED
    finally:
        status.clear()


class _Job:
    def __init__(
        self, task: str, files: list[Path], thread_id: str, options: dict[str, Any], as_json: bool
    ) -> None:
        self._task = task
        self._files = files
        self._thread_id = thread_id
        self._options = options
        self._as_json = as_json
        self._old_artifacts: dict[Path, int] = {}
        """Files presented by earlier jobs of the thread, with their modification times."""

    async def run(self, source: SettingsSource, status: StatusLine, *, known: bool | None) -> int:
        """Run the job; Ctrl-C stops it and keeps what was done.

        Args:
            known: Whether the thread must exist already; None: not checked.
        """
        async with DeerFlow.open(source) as deerflow:
            if known is not None:
                await check_thread(deerflow.storage.threads, self._thread_id, is_known=known)
            client = AsyncDeerFlowClient(deerflow)
            if known:
                self._old_artifacts = await self._artifacts(client)
            task = await self._prepare(client)
            status.clear()
            console = Console(stderr=True)
            if not self._as_json:
                _warn(console, deerflow)
            progress = Progress(console, self._thread_id)
            following = asyncio.create_task(self._follow(client, task, progress))
            _on_signals(following.cancel)
            try:
                await following
            except asyncio.CancelledError:
                progress.stop()
                progress.say_stopped()
                return INTERRUPTED
            finally:
                _on_signals(deerflow.skip_grace)  # remaining work, such as the memory update, may be skipped
                progress.stop()
            await self._report(client, progress)
            if not deerflow.memories.learner.is_idle:
                status.say("Updating the memory (Ctrl-C skips it)")
            return 1 if progress.error else 0

    async def _prepare(self, client: AsyncDeerFlowClient) -> str:
        """Upload the files, copy the folders into the workspace, and return the task with their paths."""
        plain = [file for file in self._files if file.is_file()]
        folders = [file.resolve() for file in self._files if file.is_dir()]
        uploaded = await client.upload(self._thread_id, plain) if plain else []
        workspace = client.deerflow.folders(DEFAULT_USER, self._thread_id).workspace
        copied = [await asyncio.to_thread(_copy_folder, folder, workspace) for folder in folders]
        if not copied:  # a middleware lists uploads for the agent
            return self._task
        places = [upload["path"] for upload in uploaded] + [f"{_WORKSPACE}/{name}/" for name in copied]
        return "\n".join([self._task, "", "The files are:", *(f"- {place}" for place in places)])

    async def _follow(self, client: AsyncDeerFlowClient, task: str, progress: Progress) -> None:
        """Run the task to its end; when it waits for a person and there is a terminal, ask and continue."""
        person = self._person()
        await self._watch(client, task, progress, is_interactive=person is not None)
        while person is not None and progress.error is None:
            state = await client.state(self._thread_id)
            waiting, question = state["interrupts"], question_in(state["values"])
            progress.stop()
            if waiting:
                await self._watch(client, "", progress, resume=await person.decide(waiting))
            elif question is not None and (reply := await reply_to(question, person)):
                await self._watch(client, reply, progress, is_interactive=True)
            else:
                return

    def _person(self) -> Person | None:
        """Return the user at the terminal; None with `--json` or without a terminal."""
        if self._as_json or not sys.stdin.isatty():
            return None
        return Person(Console(stderr=True), keyboard=sys.stdin.fileno())

    async def _watch(self, client: AsyncDeerFlowClient, task: str, progress: Progress, **how: Any) -> None:
        if not self._as_json:
            progress.start()
        async for event in client.stream(task, thread_id=self._thread_id, **how, **self._options):
            if self._as_json:
                _print_json(event)
            progress.take(event)

    async def _report(self, client: AsyncDeerFlowClient, progress: Progress) -> None:
        runs = [run for run in await client.runs(self._thread_id) if run["run_id"] in progress.run_ids]
        if self._as_json:
            return
        artifacts = await self._artifacts(client)
        new = [path for path, written in artifacts.items() if self._old_artifacts.get(path) != written]
        progress.report(runs, new, Console(file=sys.stdout))

    async def _artifacts(self, client: AsyncDeerFlowClient) -> dict[Path, int]:
        """Return the thread's artifacts with their modification times."""
        state = await client.state(self._thread_id)
        folder = client.deerflow.folders(DEFAULT_USER, self._thread_id).user_data
        paths = [
            folder / path.removeprefix("/mnt/user-data/") for path in state["values"].get("artifacts", [])
        ]
        return {path: path.stat().st_mtime_ns if path.exists() else 0 for path in paths}


def _warn(console: Console, deerflow: DeerFlow) -> None:
    """Print one line with the configured features that do not work."""
    keys = [fault.key for fault in deerflow.faults if fault.is_broken]
    if keys:
        text = f"! configured, but not working: {', '.join(keys)}; `deerflow doctor` says why"
        console.print(Text(visible(text), style="dim"), highlight=False, soft_wrap=True)


async def check_thread(threads: ThreadStore, thread_id: str, *, is_known: bool) -> None:
    """Raise `InvalidInputError` when the existence of a thread differs from `is_known`."""
    try:
        await threads.get(thread_id, DEFAULT_USER)
    except NotFoundError as error:
        if is_known:
            recent = await threads.search(ThreadQuery(user_id=DEFAULT_USER, limit=_RECENT_THREADS))
            raise InvalidInputError(_unknown(thread_id, recent)) from error
        return
    if not is_known:
        raise InvalidInputError(f"there is a thread '{thread_id}' already; leave --new out to go on in it")


def _unknown(thread_id: str, recent: Sequence[Thread]) -> str:
    """Return the error for an unknown thread: similar or recent ids, and how to create it."""
    ids = [thread.id for thread in recent]
    meant = [known for known in ids if known.startswith(thread_id)]
    meant = (meant or get_close_matches(thread_id, ids, n=_NAMED_THREADS, cutoff=0.7))[:_NAMED_THREADS]
    titles = {thread.id: f"  {thread.title}" if thread.title else "" for thread in recent}
    intro = "Did you mean:" if meant else "The latest ones are:"
    named = [f"  {known}{titles[known]}" for known in meant or ids[:_NAMED_THREADS]]
    lines = [f"there is no thread '{thread_id}'.", *([intro, *named] if named else [])]
    return "\n".join([*lines, "To start a new thread of this id, add --new."])


def _on_signals(act: Callable[[], object]) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, act)


def _print_json(event: ClientEvent) -> None:
    line = orjson.dumps(
        {"id": event.id, "event": event.event, "data": event.data}, option=orjson.OPT_APPEND_NEWLINE
    )
    sys.stdout.buffer.write(line)
    sys.stdout.buffer.flush()


def _copy_folder(folder: Path, workspace: Path) -> str:
    """Copy a host folder into the workspace and return its name there."""
    count = size = 0
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink() and not _SKIPPED & set(path.relative_to(folder).parts):
            count, size = count + 1, size + path.stat().st_size
        if count > _MOST_FILES or size > _MOST_BYTES:
            raise InvalidInputError(
                f"{folder} has more than {_MOST_FILES} files or {_MOST_BYTES >> 20} MB; give a smaller folder"
            )
    workspace.mkdir(parents=True, exist_ok=True)
    target = workspace / (folder.name or "files")
    shutil.copytree(folder, target, symlinks=True, ignore=_ignored, dirs_exist_ok=True)
    return target.name


def _ignored(folder: str, names: list[str]) -> set[str]:
    """Return the names not to copy: build output, and symlinks, which would be dangling in the workspace."""
    return {name for name in names if name in _SKIPPED or (Path(folder) / name).is_symlink()}
