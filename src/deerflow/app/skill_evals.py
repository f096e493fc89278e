"""Runs the cases of a skill through the real run machinery, in a home folder of its own.

Each variant of a skill (with, without, a draft) is a DeerFlow with the same settings, models, tools and other
skills. Nothing of it is left in the user's threads, memory or database.
"""

import asyncio
import logging
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import orjson
from langchain_core.messages import AIMessage

from deerflow.agents.side_calls import side_call
from deerflow.config import LoadedSettings, Paths, SettingsSource
from deerflow.config.extensions import SkillState
from deerflow.domain import DEFAULT_USER, RunOptions, RunRecord, RunRequest, RunStatus, StreamEvent, new_id
from deerflow.errors import ConflictError
from deerflow.files.uploads import save_upload
from deerflow.models import ModelFactory
from deerflow.skills.evals import (
    CaseResult,
    CaseRun,
    EvalCase,
    case_files,
    check_assertion,
    judge_prompt,
    parse_judgement,
)
from deerflow.skills.versions import Package, write_package

if TYPE_CHECKING:
    from deerflow.app.deerflow import DeerFlow

logger = logging.getLogger(__name__)

CASE_SECONDS = 900.0
MAX_READ_BYTES = 200_000
_TRIGGER_STEPS = 12
"""Steps in which an agent reads the skills that it needs."""
_QUIET = ("memory", "title", "suggestions", "skill_evolution", "summarization")
"""Sections that are off in a comparison: they call models beside the case."""
_OWN = ("database", "channels", "channel_connections", "scheduler", "metrics", "telemetry", "tracing")
"""Sections with their defaults in a comparison: they have effects outside of it."""
Ask = Callable[[str], Awaitable[str]]
"""Asks the judging model; empty if the call failed."""


class FixedSettings(SettingsSource):
    """Settings that come from no file and do not change."""

    def __init__(self, loaded: LoadedSettings) -> None:
        self._loaded = self._first = loaded
        self._problem = None

    def current(self) -> LoadedSettings:
        return self._loaded


@dataclass(frozen=True, slots=True)
class SkillVariants:
    """Opens DeerFlow with a variant of one skill.

    Args:
        loaded: The user's settings.
        folders: The folders of all other skills of the user, the nearest first.
    """

    loaded: LoadedSettings
    name: str
    folders: tuple[Path, ...] = ()

    @asynccontextmanager
    async def open(self, package: Package | None) -> AsyncIterator["DeerFlow"]:
        """Open it with these files as the skill; None: without the skill."""
        from deerflow.app.deerflow import DeerFlow  # noqa: PLC0415 - that module opens the gate that uses this

        home = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="deerflow-eval-"))
        try:
            if package is not None:
                await asyncio.to_thread(write_package, home / "skills" / "custom" / self.name, package)
            async with DeerFlow.open(
                FixedSettings(self._settings(home, is_on=package is not None))
            ) as deerflow:
                yield deerflow
        finally:
            await asyncio.to_thread(shutil.rmtree, home, ignore_errors=True)

    def _settings(self, home: Path, *, is_on: bool) -> LoadedSettings:
        settings = self.loaded.settings
        off = {name: getattr(settings, name).model_copy(update={"enabled": False}) for name in _QUIET}
        own = {
            name: type(settings).model_fields[name].get_default(call_default_factory=True) for name in _OWN
        }
        paths = tuple(str(folder) for folder in self.folders)
        skills = settings.skills.model_copy(update={"paths": paths, "trusted_projects": ()})
        states = {**self.loaded.extensions.skills, self.name: SkillState(enabled=is_on)}
        return replace(
            self.loaded,
            settings=settings.model_copy(update={**off, **own, "skills": skills, "checkpointer": None}),
            extensions=self.loaded.extensions.model_copy(update={"skills": states, "mcp_servers": {}}),
            paths=Paths(home / "home"),
            skills_root=home / "skills",
        )


class CaseRunner:
    """Runs tasks in an open DeerFlow and checks their results."""

    def __init__(
        self, deerflow: "DeerFlow", *, model_name: str | None = None, ask: Ask | None = None
    ) -> None:
        self._deerflow = deerflow
        self._options = RunOptions(model_name=model_name)
        self._ask = ask

    async def run_case(self, case: EvalCase, folder: Path) -> CaseResult:
        """Run one case of the skill in `folder`."""
        files = await asyncio.to_thread(case_files, folder, case)
        run = await self.run(case.prompt, files)
        held = {text: check_assertion(text, run) for text in case.assertions}
        open_ones = [text for text, result in held.items() if result is None]
        if open_ones and self._ask is not None and not run.error:
            answer = await self._ask(judge_prompt(case, run, open_ones))
            results = parse_judgement(answer, len(open_ones)) or []
            held |= dict(zip(open_ones, results, strict=False))
        return CaseResult(str(case.id or case.prompt[:40]), held, run.error)

    async def run_trigger(self, query: str, name: str) -> bool:
        """Return whether the agent reads a skill for a request; the run is stopped when it does."""
        run = await self._start(new_id(), query, recursion_limit=_TRIGGER_STEPS)
        is_read = name in await self._skills_read(run.id, until=name)
        with suppress(ConflictError):  # it has ended
            await self._deerflow.runs.cancel(run.id, wait=True)
        return is_read

    async def run(self, prompt: str, files: Sequence[Path] = ()) -> CaseRun:
        """Run one task to its end; a run that fails or waits too long has an error."""
        deerflow, thread_id = self._deerflow, new_id()
        await deerflow.storage.threads.create(thread_id, DEFAULT_USER, {})
        folders = deerflow.folders(DEFAULT_USER, thread_id)
        for file in files:
            await save_upload(folders, file.name, _blocks(file), deerflow.settings.uploads)
        run = await self._start(thread_id, prompt)
        try:
            skills = await self._skills_read(run.id)
        except TimeoutError:
            skills = set()
            await deerflow.runs.cancel(run.id, wait=True)
        ended = await deerflow.runs.get(run.id)
        error = "" if ended.status is RunStatus.SUCCESS else f"the run ended with {ended.status}"
        state = await deerflow.state.latest(thread_id)
        messages = state.values.get("messages", ()) if state is not None else ()
        spoken = [message for message in messages if isinstance(message, AIMessage)]
        return CaseRun(
            answer=spoken[-1].text if spoken else "",
            outputs=await asyncio.to_thread(_texts_below, folders.outputs),
            tools=tuple(call["name"] for message in spoken for call in message.tool_calls),
            skills=tuple(sorted(skills)),
            error=error,
        )

    async def _start(self, thread_id: str, prompt: str, *, recursion_limit: int = 1000) -> RunRecord:
        request = RunRequest(
            thread_id=thread_id,
            user_id=DEFAULT_USER,
            input={"messages": [{"type": "human", "content": prompt}]},
            is_interactive=False,
            options=self._options,
            stream_modes=("custom",),
            recursion_limit=recursion_limit,
        )
        return await self._deerflow.start_run(request)

    async def _skills_read(self, run_id: str, *, until: str | None = None) -> set[str]:
        """Return the skills that the agent reads until the run ends, or until it has read one."""
        skills: set[str] = set()
        async with asyncio.timeout(CASE_SECONDS):
            async for batch in self._deerflow.runs.subscribe(run_id):
                skills.update(name for event in batch for name in _skills_in(event))
                if until in skills:
                    break
        return skills


def judge_of(models: ModelFactory, model_name: str | None) -> Ask | None:
    """Return what asks a model to judge results; None if it cannot reason."""
    if not models.can_reason(model_name):
        return None

    async def ask(prompt: str) -> str:
        await models.load(model_name or models.default_name)
        model = models.create(model_name, thinking_enabled=False)
        return (await side_call(prompt, model, what="the judgement of a case")).text

    return ask


def _skills_in(event: StreamEvent) -> Iterator[str]:
    data = orjson.loads(event.data) if event.kind == "custom" and b'"skills"' in event.data else None
    if isinstance(data, dict) and data.get("type") == "skills":
        yield from (str(skill["name"]) for skill in data.get("skills", ()))


def _texts_below(folder: Path) -> dict[str, str]:
    found: dict[str, str] = {}
    for file in sorted(folder.rglob("*")) if folder.is_dir() else ():
        if file.is_file() and not file.is_symlink():
            with file.open("rb") as opened:
                content = opened.read(MAX_READ_BYTES)
            found[file.relative_to(folder).as_posix()] = (
                "" if b"\0" in content else content.decode(errors="replace")
            )
    return found


async def _blocks(file: Path) -> AsyncIterator[bytes]:
    yield await asyncio.to_thread(file.read_bytes)
