"""Asynchronous embedded client: DeerFlow in your own process, without a server."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path
from typing import Any

import orjson

from deerflow.app import DeerFlow
from deerflow.client.events import ClientEvent, RunFailedError, answer_of
from deerflow.config import SettingsSource
from deerflow.domain import DEFAULT_USER, RunOptions, RunRequest, StreamEvent, ThreadFolders, new_id
from deerflow.errors import ConflictError, InvalidInputError
from deerflow.files.artifacts import open_artifact
from deerflow.files.uploads import delete_upload, list_uploads, save_upload
from deerflow.memory import Scope
from deerflow.memory.base import DEFAULT_CATEGORY, DEFAULT_CONFIDENCE
from deerflow.runtime import is_wanted, to_json
from deerflow.runtime.json_views import empty_state, model_out, run_out, state_out, thread_out
from deerflow.skills import InstallOptions
from deerflow.skills.install import OnConflict
from deerflow.skills.library import SkillLibrary, installation_view, version_view
from deerflow.storage import ThreadQuery
from deerflow.subagents.teams import TEAM_REQUEST, TeamRequest

DEFAULT_MODES = ("values", "messages-tuple", "updates", "custom")
_BLOCK = 1 << 20


class AsyncDeerFlowClient:
    """Asynchronous client around an open `DeerFlow`."""

    def __init__(self, deerflow: DeerFlow, *, user_id: str = DEFAULT_USER) -> None:
        self.deerflow = deerflow
        self._user_id = user_id

    @classmethod
    @asynccontextmanager
    async def open(cls, config: Path | str | None = None) -> AsyncIterator["AsyncDeerFlowClient"]:
        """Open DeerFlow with the settings file `config`, or with the one found by default."""
        async with DeerFlow.open(SettingsSource(Path(config) if config else None)) as deerflow:
            yield cls(deerflow)

    async def chat(self, message: str, *, thread_id: str | None = None, **options: Any) -> str:
        """Run `message` to its end and return the answer's text; options are those of `stream`."""
        thread_id = thread_id or new_id()
        failure: str | None = None
        async for event in self.stream(message, thread_id=thread_id, **options):
            if event.event == "error":  # the run ends with its stream, not with its error event
                failure = str(event.data["message"])
        if failure is not None:
            raise RunFailedError(failure)
        state = await self.state(thread_id)
        if state["interrupts"]:
            raise RunFailedError(
                f"thread {thread_id} waits for a person's answer; read it with state() and give it with "
                "stream(resume=…), or pass is_interactive=False to have such calls rejected"
            )
        return answer_of(state["values"])

    async def stream(
        self,
        message: str,
        *,
        thread_id: str | None = None,
        files: Sequence[Path | str] = (),
        modes: Sequence[str] = DEFAULT_MODES,
        recursion_limit: int = 1000,
        team: TeamRequest | None = None,
        resume: Any = None,
        is_interactive: bool = True,
        **options: Any,
    ) -> AsyncGenerator[ClientEvent, None]:
        """Yield a run's events as they are published; leaving the loop early cancels the run.

        Args:
            files: local files to upload first.
            team: team request; the run then starts with that team.
            resume: the answer to the thread's interrupt, instead of a message.
            is_interactive: False if no person can answer: calls that need approval are then rejected.
            options: fields of `RunOptions`, such as `model_name` or `subagent_enabled`.
        """
        thread_id = thread_id or new_id()
        if files:
            await self.upload(thread_id, files)
        request = RunRequest(
            thread_id=thread_id,
            user_id=self._user_id,
            input={"messages": [{"type": "human", "content": message}]} if resume is None else None,
            command=None if resume is None else {"resume": resume},
            is_interactive=is_interactive,
            options=_options(options if team is None else {**options, "subagent_enabled": True}),
            context={} if team is None else {TEAM_REQUEST: team.model_dump(exclude_defaults=True)},
            stream_modes=tuple(modes),
            recursion_limit=recursion_limit,
        )
        run = await self.deerflow.start_run(request)
        wanted, is_whole = frozenset(modes), False
        try:
            async for batch in self.deerflow.runs.subscribe(run.id):
                for event in batch:
                    if is_wanted(event.kind, wanted):
                        yield _client_event(event)
            is_whole = True
        finally:
            if not is_whole:
                with suppress(ConflictError):  # it ended by itself at the same moment
                    await self.deerflow.runs.cancel(run.id, wait=True)

    async def run_team(self, team: TeamRequest | str, *, thread_id: str | None = None, **options: Any) -> str:
        """Run a team on its goal and return the answer's text; options are those of `stream`."""
        request = TeamRequest(goal=team) if isinstance(team, str) else team
        return await self.chat(request.goal, thread_id=thread_id, team=request, **options)

    async def models(self) -> list[dict[str, Any]]:
        """List the chat models."""
        await self.deerflow.refresh()
        found = self.deerflow.models
        return [_plain(model_out(model)) for model in map(found.get, found.names)]

    async def threads(self, *, limit: int = 100, offset: int = 0) -> list[dict[str, Any]]:
        """List threads, last used first."""
        query = ThreadQuery(user_id=self._user_id, limit=limit, offset=offset)
        return [_plain(thread_out(thread)) for thread in await self.deerflow.storage.threads.search(query)]

    async def state(self, thread_id: str) -> dict[str, Any]:
        """Return a thread's state."""
        await self._folders(thread_id)
        snapshot = await self.deerflow.state.latest(thread_id)
        found: dict[str, Any] = _plain(state_out(snapshot) if snapshot else empty_state(thread_id))
        return found

    async def runs(self, thread_id: str) -> list[dict[str, Any]]:
        """List a thread's runs, newest first."""
        await self._folders(thread_id)
        return [_plain(run_out(run)) for run in await self.deerflow.runs.of_thread(thread_id)]

    async def upload(self, thread_id: str, files: Sequence[Path | str]) -> list[dict[str, Any]]:
        """Copy local files into a thread's uploads."""
        await self.deerflow.storage.threads.create(thread_id, self._user_id, {})
        folders = self.deerflow.folders(self._user_id, thread_id)
        limits = self.deerflow.settings.uploads
        saved = [await save_upload(folders, Path(file).name, _blocks(Path(file)), limits) for file in files]
        return [upload.to_dict() for upload in await self.deerflow.documents.convert(folders, saved)]

    async def uploads(self, thread_id: str) -> list[dict[str, Any]]:
        """List a thread's uploads."""
        folders = await self._folders(thread_id)
        return [upload.to_dict() for upload in await asyncio.to_thread(list_uploads, folders)]

    async def delete_upload(self, thread_id: str, filename: str) -> None:
        """Delete one upload."""
        await asyncio.to_thread(delete_upload, await self._folders(thread_id), filename)

    async def artifact(self, thread_id: str, path: str) -> bytes:
        """Return the bytes of a file that the agent created."""
        return await asyncio.to_thread(_content, await self._folders(thread_id), path)

    async def delete_thread(self, thread_id: str) -> None:
        """Delete a thread and all its data."""
        await self._folders(thread_id)
        await self.deerflow.threads.delete(thread_id, self._user_id)

    async def memory(self, *, agent_name: str | None = None) -> dict[str, Any]:
        """Return the memory of the user, or of one of the user's agents."""
        return (await self.deerflow.memories.read(self._scope(agent_name))).to_dict()

    async def recall(self, query: str, *, agent_name: str | None = None) -> list[dict[str, Any]]:
        """Return what of the memory matters for a question, best first, with scores and sources."""
        items = await self.deerflow.memories.recall(self._scope(agent_name), query)
        return [item.to_dict() for item in items]

    async def remember(
        self,
        content: str,
        *,
        category: str = DEFAULT_CATEGORY,
        confidence: float = DEFAULT_CONFIDENCE,
        agent_name: str | None = None,
    ) -> dict[str, Any]:
        """Add a fact to memory and return it."""
        if not 0 <= confidence <= 1:
            raise InvalidInputError(f"confidence is {confidence}; allowed: a number from 0 to 1")
        _, fact = await self.deerflow.memories.add_fact(
            self._scope(agent_name),
            content,
            category=category,
            confidence=confidence,
            settings=self.deerflow.settings.memory.backend_config,
        )
        return fact.to_dict()

    async def forget(self, fact_id: str, *, agent_name: str | None = None) -> dict[str, Any]:
        """Delete one fact and return the remaining memory."""
        return (await self.deerflow.memories.remove_fact(self._scope(agent_name), fact_id)).to_dict()

    async def clear_memory(self, *, agent_name: str | None = None) -> dict[str, Any]:
        """Clear the memory and return it."""
        return (await self.deerflow.memories.clear(self._scope(agent_name))).to_dict()

    async def skills(self) -> list[dict[str, Any]]:
        """List the skills by name, with whether agents may use them."""
        library = await self._library()
        return await asyncio.to_thread(lambda: [library.view(skill) for skill in library.all()])

    async def skill(self, name: str) -> dict[str, Any]:
        """Return a skill with its text, its files and all that its front matter says."""
        return await asyncio.to_thread((await self._library()).detail, name)

    async def enable_skill(self, name: str) -> dict[str, Any]:
        """Let agents use a skill, in runs that start afterwards."""
        return await self._switch_skill(name, is_enabled=True)

    async def disable_skill(self, name: str) -> dict[str, Any]:
        """Keep agents from using a skill, in runs that start afterwards."""
        return await self._switch_skill(name, is_enabled=False)

    async def install_skill(
        self,
        source: Path | str,
        *,
        update: bool = False,
        on_conflict: OnConflict = "refuse",
        catalogue: str | None = None,
        digest: str | None = None,
    ) -> dict[str, Any]:
        """Install a skill, or update it, and return what was done.

        Args:
            source: a folder or an archive, or the name of a skill in a catalogue.
            update: update an installed skill; files that the user changed are kept.
            on_conflict: what to take of files that the user and the update changed.
            catalogue: location of the catalogue, where several have a skill of this name.
            digest: digest that a search returned; another one raises `ConflictError`.
        """
        library = await self._library()
        options = InstallOptions(str(source), is_update=update, on_conflict=on_conflict)
        path = Path(source)
        if catalogue is None and await asyncio.to_thread(path.exists):
            return installation_view(await library.install_path(path, options))
        named = library.install_named(str(source), options, catalogue=catalogue, digest=digest)
        return installation_view(await named)

    async def export_skill(self, name: str) -> bytes:
        """Return a skill as a `.skill` archive."""
        return await asyncio.to_thread((await self._library()).export, name)

    async def delete_skill(self, name: str) -> None:
        """Delete one of the user's own skills; `rollback_skill` restores it."""
        await asyncio.to_thread((await self._library()).remove, name, author=self._user_id)

    async def search_skills(self, query: str = "", *, limit: int = 20) -> dict[str, Any]:
        """Search the catalogues of `skills.catalogues`; without a query, list all."""
        return await (await self._library()).search(query, limit=limit)

    async def skill_history(self, name: str) -> list[dict[str, Any]]:
        """List the versions of one of the user's own skills, the oldest first."""
        return await asyncio.to_thread((await self._library()).history, name)

    async def rollback_skill(self, name: str, version: int | None = None) -> dict[str, Any]:
        """Restore an earlier version; without a number the one before the last change."""
        library = await self._library()
        return version_view(await library.rollback(name, version, author=self._user_id))

    async def skill_diff(self, name: str, old: int | None = None, new: int | None = None) -> str:
        """Return the differences between two versions; by default the last two."""
        return await asyncio.to_thread((await self._library()).diff, name, old, new)

    async def _switch_skill(self, name: str, *, is_enabled: bool) -> dict[str, Any]:
        await self.deerflow.refresh()
        skill = await self.deerflow.enable_skill(name, self._user_id, is_enabled=is_enabled)
        return await asyncio.to_thread((await self._library()).view, skill)

    async def _library(self) -> SkillLibrary:
        await self.deerflow.refresh()
        return self.deerflow.skill_library(self._user_id)

    def _scope(self, agent_name: str | None) -> Scope:
        return Scope(self._user_id, agent_name)

    async def _folders(self, thread_id: str) -> ThreadFolders:
        """Return the folders of this user's thread; other users' threads raise `NotFoundError`."""
        await self.deerflow.storage.threads.get(thread_id, self._user_id)
        return self.deerflow.folders(self._user_id, thread_id)


def _client_event(event: StreamEvent) -> ClientEvent:
    return ClientEvent(event.id, event.kind, orjson.loads(event.data))


def _plain(value: Any) -> Any:
    """Return the value as an HTTP client would receive it: messages as dicts, times as text."""
    return orjson.loads(to_json(value))


def _options(options: Mapping[str, Any]) -> RunOptions:
    known = RunOptions.__dataclass_fields__
    unknown = sorted(set(options) - set(known))
    if unknown:
        raise InvalidInputError(f"unknown options {unknown}; there are: {', '.join(known)}")
    return RunOptions(**options)


def _content(folders: ThreadFolders, path: str) -> bytes:
    with closing(open_artifact(folders, path)) as found:
        return b"".join(found.read(0, found.size))


async def _blocks(path: Path) -> AsyncIterator[bytes]:
    try:
        with path.open("rb") as file:
            while block := await asyncio.to_thread(file.read, _BLOCK):
                yield block
    except OSError as error:
        raise InvalidInputError(f"'{path}' cannot be read: {error.strerror}") from error
