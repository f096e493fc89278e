"""DeerFlow inside your own program, without a server: async, and sync around it."""

import asyncio
import queue
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import orjson

from deerflow.app import DeerFlow
from deerflow.config import SettingsSource
from deerflow.domain import DEFAULT_USER, RunOptions, RunRequest, StreamEvent, new_id
from deerflow.errors import ConflictError, DeerFlowError
from deerflow.runtime import is_wanted, to_json
from deerflow.runtime.artifacts import open_artifact
from deerflow.runtime.shapes import model_out, run_out, state_out, thread_out
from deerflow.runtime.uploads import delete_upload, list_uploads, save_upload
from deerflow.storage.base import ThreadQuery

T = TypeVar("T")

DEFAULT_MODES = ("values", "messages-tuple", "updates", "custom")
_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True)
class ClientEvent:
    """One event of a run: the same name and data as over HTTP."""

    id: str
    event: str
    data: Any


class RunFailedError(DeerFlowError):
    """The run ended in an error; the message is the run's own."""

    code = "run_failed"


class AsyncDeerFlowClient:
    """An open DeerFlow for programs that run on asyncio."""

    def __init__(self, deerflow: DeerFlow, *, user_id: str = DEFAULT_USER) -> None:
        self.deerflow = deerflow
        self._user_id = user_id

    @classmethod
    @asynccontextmanager
    async def open(cls, config: Path | str | None = None) -> AsyncIterator["AsyncDeerFlowClient"]:
        """Open DeerFlow with the settings of `config`, or those it finds by itself."""
        async with DeerFlow.open(SettingsSource(Path(config) if config else None)) as deerflow:
            yield cls(deerflow)

    async def chat(self, message: str, *, thread_id: str | None = None, **options: Any) -> str:
        """Run `message` to its end and return the answer's text; options are those of `stream`."""
        thread_id = thread_id or new_id()
        async for event in self.stream(message, thread_id=thread_id, **options):
            if event.event == "error":
                raise RunFailedError(str(event.data["message"]))
        return answer_of((await self.state(thread_id))["values"])

    async def stream(
        self,
        message: str,
        *,
        thread_id: str | None = None,
        files: Sequence[Path | str] = (),
        modes: Sequence[str] = DEFAULT_MODES,
        recursion_limit: int = 1000,
        **options: Any,
    ) -> AsyncIterator[ClientEvent]:
        """Yield a run's events as they happen; leaving the loop early stops the run.

        Args:
            files: files of this host to upload first.
            options: fields of `RunOptions`, such as `model_name` or `subagent_enabled`.
        """
        thread_id = thread_id or new_id()
        if files:
            await self.upload(thread_id, files)
        request = RunRequest(
            thread_id=thread_id,
            user_id=self._user_id,
            input={"messages": [{"type": "human", "content": message}]},
            options=RunOptions(**options),
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

    async def models(self) -> list[dict[str, Any]]:
        """List the chat models."""
        return [model_out(model) for model in map(self.deerflow.models.get, self.deerflow.models.names)]

    async def threads(self, *, limit: int = 100, offset: int = 0) -> list[dict[str, Any]]:
        """List threads, last used first."""
        query = ThreadQuery(user_id=self._user_id, limit=limit, offset=offset)
        return [thread_out(thread) for thread in await self.deerflow.storage.threads.search(query)]

    async def state(self, thread_id: str) -> dict[str, Any]:
        """Return a thread's state."""
        await self.deerflow.storage.threads.get(thread_id, self._user_id)
        snapshot = await self.deerflow.state.latest(thread_id)
        return _plain(state_out(snapshot)) if snapshot else {"values": {}, "next": [], "tasks": []}

    async def runs(self, thread_id: str) -> list[dict[str, Any]]:
        """List a thread's runs, newest first."""
        await self.deerflow.storage.threads.get(thread_id, self._user_id)
        return [_plain(run_out(run)) for run in await self.deerflow.runs.of_thread(thread_id)]

    async def upload(self, thread_id: str, files: Sequence[Path | str]) -> list[dict[str, Any]]:
        """Copy files of this host into a thread's uploads."""
        await self.deerflow.storage.threads.create(thread_id, self._user_id, {})
        folders = self.deerflow.folders(self._user_id, thread_id)
        limits = self.deerflow.settings.uploads
        saved = [await save_upload(folders, Path(file).name, _blocks(Path(file)), limits) for file in files]
        return [upload.to_dict() for upload in saved]

    async def uploads(self, thread_id: str) -> list[dict[str, Any]]:
        """List a thread's uploads."""
        folders = self.deerflow.folders(self._user_id, thread_id)
        return [upload.to_dict() for upload in await asyncio.to_thread(list_uploads, folders)]

    async def delete_upload(self, thread_id: str, filename: str) -> None:
        """Delete one upload."""
        await asyncio.to_thread(delete_upload, self.deerflow.folders(self._user_id, thread_id), filename)

    async def artifact(self, thread_id: str, path: str) -> bytes:
        """Return the bytes of a file that the agent made."""
        folders = self.deerflow.folders(self._user_id, thread_id)
        with closing(open_artifact(folders, path)) as found:
            return b"".join(found.read(0, found.size))


class DeerFlowClient:
    """The same for programs without asyncio: `with DeerFlowClient() as client: client.chat("…")`."""

    def __init__(self, config: Path | str | None = None) -> None:
        self._config = config
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="deerflow", daemon=True)
        self._opening: AbstractAsyncContextManager[AsyncDeerFlowClient] | None = None
        self._client: AsyncDeerFlowClient | None = None

    def __enter__(self) -> "DeerFlowClient":
        self._thread.start()
        self._opening = AsyncDeerFlowClient.open(self._config)
        try:
            self._client = self._run(self._opening.__aenter__())
        except BaseException:
            self._stop_loop()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        if self._opening is not None:
            self._run(self._opening.__aexit__(None, None, None))
        self._client = None
        self._stop_loop()

    def chat(self, message: str, *, thread_id: str | None = None, **options: Any) -> str:
        """Run `message` to its end and return the answer's text."""
        return self._run(self._open().chat(message, thread_id=thread_id, **options))

    def stream(self, message: str, **options: Any) -> Iterator[ClientEvent]:
        """Yield a run's events as they happen; leaving the loop early stops the run."""
        events: queue.Queue[ClientEvent | BaseException | None] = queue.Queue()

        async def follow() -> None:
            try:
                async for event in self._open().stream(message, **options):
                    events.put(event)
                events.put(None)
            except BaseException as error:
                events.put(error)
                raise

        following = asyncio.run_coroutine_threadsafe(follow(), self._loop)
        try:
            while (event := events.get()) is not None:
                if isinstance(event, BaseException):
                    raise event
                yield event
        finally:
            if not following.done():
                following.cancel()
                while not isinstance(events.get(), BaseException | None):
                    pass

    def models(self) -> list[dict[str, Any]]:
        """List the chat models."""
        return self._run(self._open().models())

    def threads(self, *, limit: int = 100, offset: int = 0) -> list[dict[str, Any]]:
        """List threads, last used first."""
        return self._run(self._open().threads(limit=limit, offset=offset))

    def state(self, thread_id: str) -> dict[str, Any]:
        """Return a thread's state."""
        return self._run(self._open().state(thread_id))

    def runs(self, thread_id: str) -> list[dict[str, Any]]:
        """List a thread's runs, newest first."""
        return self._run(self._open().runs(thread_id))

    def upload(self, thread_id: str, files: Sequence[Path | str]) -> list[dict[str, Any]]:
        """Copy files of this host into a thread's uploads."""
        return self._run(self._open().upload(thread_id, files))

    def uploads(self, thread_id: str) -> list[dict[str, Any]]:
        """List a thread's uploads."""
        return self._run(self._open().uploads(thread_id))

    def delete_upload(self, thread_id: str, filename: str) -> None:
        """Delete one upload."""
        self._run(self._open().delete_upload(thread_id, filename))

    def artifact(self, thread_id: str, path: str) -> bytes:
        """Return the bytes of a file that the agent made."""
        return self._run(self._open().artifact(thread_id, path))

    def _open(self) -> AsyncDeerFlowClient:
        if self._client is None:
            raise DeerFlowError("the client is closed; use it as `with DeerFlowClient() as client:`")
        return self._client

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _stop_loop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


def answer_of(values: Mapping[str, Any]) -> str:
    """Return the text of the last answer in a thread's values."""
    for message in reversed(values.get("messages", [])):
        if message["type"] == "ai":
            return _text(message["content"])
    return ""


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "".join(block.get("text", "") for block in content if isinstance(block, dict))


def _client_event(event: StreamEvent) -> ClientEvent:
    return ClientEvent(event.id, event.kind, orjson.loads(event.data))


def _plain(value: Any) -> Any:
    """Return what an HTTP client would have got: messages as dicts, times as text."""
    return orjson.loads(to_json(value))


async def _blocks(path: Path) -> AsyncIterator[bytes]:
    with path.open("rb") as file:
        while block := await asyncio.to_thread(file.read, _BLOCK):
            yield block
