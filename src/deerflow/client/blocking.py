"""Synchronous embedded client."""

import asyncio
import queue
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import ExitStack, aclosing, contextmanager
from pathlib import Path
from typing import Any, TypeVar

from deerflow.client.embedded import AsyncDeerFlowClient
from deerflow.client.events import ClientEvent
from deerflow.errors import DeerFlowError
from deerflow.subagents.teams import TeamRequest

T = TypeVar("T")


class DeerFlowClient:
    """Synchronous client: `with DeerFlowClient() as client: client.chat("…")`."""

    def __init__(self, config: Path | str | None = None) -> None:
        self._config = config
        self._stack = ExitStack()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._client: AsyncDeerFlowClient | None = None

    def __enter__(self) -> "DeerFlowClient":
        if self._loop is not None:
            raise DeerFlowError("the client is open already; make another one, or leave its `with` block")
        with ExitStack() as stack:
            self._loop = stack.enter_context(_running_loop())
            stack.callback(self._forget)
            opening = AsyncDeerFlowClient.open(self._config)
            self._client = self._run(opening.__aenter__())
            stack.callback(lambda: self._run(opening.__aexit__(None, None, None)))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stack.close()

    def chat(self, message: str, *, thread_id: str | None = None, **options: Any) -> str:
        """Run `message` to its end and return the answer's text."""
        return self._do(lambda client: client.chat(message, thread_id=thread_id, **options))

    def stream(self, message: str, **options: Any) -> Iterator[ClientEvent]:
        """Yield a run's events as they are published; leaving the loop early cancels the run."""
        client, loop = self._open()
        events: queue.Queue[ClientEvent | BaseException | None] = queue.Queue()

        async def follow() -> None:
            try:
                async with aclosing(client.stream(message, **options)) as stream:
                    async for event in stream:
                        events.put(event)
                events.put(None)
            except BaseException as error:
                events.put(error)
                if not isinstance(error, Exception):
                    raise

        following = asyncio.run_coroutine_threadsafe(follow(), loop)
        is_over = False
        try:
            while not is_over:
                event = events.get()
                is_over = not isinstance(event, ClientEvent)
                if isinstance(event, BaseException):
                    raise event
                if event is not None:
                    yield event
        finally:
            following.cancel()
            while not is_over:  # drain until the run has stopped
                is_over = not isinstance(events.get(), ClientEvent)

    def run_team(self, team: TeamRequest | str, *, thread_id: str | None = None, **options: Any) -> str:
        """Run a team on its goal and return the answer's text."""
        return self._do(lambda client: client.run_team(team, thread_id=thread_id, **options))

    def models(self) -> list[dict[str, Any]]:
        """List the chat models."""
        return self._do(lambda client: client.models())

    def threads(self, *, limit: int = 100, offset: int = 0) -> list[dict[str, Any]]:
        """List threads, last used first."""
        return self._do(lambda client: client.threads(limit=limit, offset=offset))

    def state(self, thread_id: str) -> dict[str, Any]:
        """Return a thread's state."""
        return self._do(lambda client: client.state(thread_id))

    def runs(self, thread_id: str) -> list[dict[str, Any]]:
        """List a thread's runs, newest first."""
        return self._do(lambda client: client.runs(thread_id))

    def upload(self, thread_id: str, files: Sequence[Path | str]) -> list[dict[str, Any]]:
        """Copy local files into a thread's uploads."""
        return self._do(lambda client: client.upload(thread_id, files))

    def uploads(self, thread_id: str) -> list[dict[str, Any]]:
        """List a thread's uploads."""
        return self._do(lambda client: client.uploads(thread_id))

    def delete_upload(self, thread_id: str, filename: str) -> None:
        """Delete one upload."""
        self._do(lambda client: client.delete_upload(thread_id, filename))

    def artifact(self, thread_id: str, path: str) -> bytes:
        """Return the bytes of a file that the agent created."""
        return self._do(lambda client: client.artifact(thread_id, path))

    def delete_thread(self, thread_id: str) -> None:
        """Delete a thread and all its data."""
        self._do(lambda client: client.delete_thread(thread_id))

    def memory(self, *, agent_name: str | None = None) -> dict[str, Any]:
        """Return the memory of the user, or of one of the user's agents."""
        return self._do(lambda client: client.memory(agent_name=agent_name))

    def recall(self, query: str, *, agent_name: str | None = None) -> list[dict[str, Any]]:
        """Return what of the memory matters for a question, best first, with scores and sources."""
        return self._do(lambda client: client.recall(query, agent_name=agent_name))

    def remember(self, content: str, **options: Any) -> dict[str, Any]:
        """Add a fact to memory and return it; options are `category`, `confidence` and `agent_name`."""
        return self._do(lambda client: client.remember(content, **options))

    def forget(self, fact_id: str, *, agent_name: str | None = None) -> dict[str, Any]:
        """Delete one fact and return the remaining memory."""
        return self._do(lambda client: client.forget(fact_id, agent_name=agent_name))

    def clear_memory(self, *, agent_name: str | None = None) -> dict[str, Any]:
        """Clear the memory and return it."""
        return self._do(lambda client: client.clear_memory(agent_name=agent_name))

    def skills(self) -> list[dict[str, Any]]:
        """List the skills by name, with whether agents may use them."""
        return self._do(lambda client: client.skills())

    def skill(self, name: str) -> dict[str, Any]:
        """Return a skill with its text, its files and all that its front matter says."""
        return self._do(lambda client: client.skill(name))

    def enable_skill(self, name: str) -> dict[str, Any]:
        """Let agents use a skill, in runs that start afterwards."""
        return self._do(lambda client: client.enable_skill(name))

    def disable_skill(self, name: str) -> dict[str, Any]:
        """Keep agents from using a skill, in runs that start afterwards."""
        return self._do(lambda client: client.disable_skill(name))

    def install_skill(self, source: Path | str, **options: Any) -> dict[str, Any]:
        """Install a folder, an archive or a skill of a catalogue, or update it.

        Options are `update`, `on_conflict` ("mine" or "theirs"), `catalogue` and `digest`.
        """
        return self._do(lambda client: client.install_skill(source, **options))

    def export_skill(self, name: str) -> bytes:
        """Return a skill as a `.skill` archive."""
        return self._do(lambda client: client.export_skill(name))

    def delete_skill(self, name: str) -> None:
        """Delete one of the user's own skills; `rollback_skill` restores it."""
        self._do(lambda client: client.delete_skill(name))

    def search_skills(self, query: str = "", *, limit: int = 20) -> dict[str, Any]:
        """Search the catalogues of `skills.catalogues`; without a query, list all."""
        return self._do(lambda client: client.search_skills(query, limit=limit))

    def skill_history(self, name: str) -> list[dict[str, Any]]:
        """List the versions of one of the user's own skills, the oldest first."""
        return self._do(lambda client: client.skill_history(name))

    def rollback_skill(self, name: str, version: int | None = None) -> dict[str, Any]:
        """Restore an earlier version; without a number the one before the last change."""
        return self._do(lambda client: client.rollback_skill(name, version))

    def skill_diff(self, name: str, old: int | None = None, new: int | None = None) -> str:
        """Return the differences between two versions; by default the last two."""
        return self._do(lambda client: client.skill_diff(name, old, new))

    def _open(self) -> tuple[AsyncDeerFlowClient, asyncio.AbstractEventLoop]:
        if self._client is None or self._loop is None:
            raise DeerFlowError("the client is closed; use it as `with DeerFlowClient() as client:`")
        return self._client, self._loop

    def _do(self, work: Callable[[AsyncDeerFlowClient], Coroutine[Any, Any, T]]) -> T:
        client, _ = self._open()
        return self._run(work(client))

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _forget(self) -> None:
        self._client = self._loop = None


@contextmanager
def _running_loop() -> Iterator[asyncio.AbstractEventLoop]:
    """Run an event loop in its own thread for the length of a block."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="deerflow", daemon=True)
    thread.start()
    try:
        yield loop
    finally:
        for rest in (loop.shutdown_asyncgens(), loop.shutdown_default_executor()):
            asyncio.run_coroutine_threadsafe(rest, loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
