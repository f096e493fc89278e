"""Runs sandbox providers written for DeerFlow 2: synchronous `acquire`, `get` and `release`.

Their methods block, so each call runs in a thread of the adapter's own pool: a command that hangs cannot
take the threads of the rest of the server. Nothing can stop such a call; when its time is up, its result is
ignored. Their commands return only text, so the exit code is always 0.
"""

import asyncio
import inspect
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager
from contextvars import copy_context
from typing import Any, cast

from typing_extensions import override

from deerflow.config import SandboxSettings
from deerflow.domain import ThreadFolders
from deerflow.errors import DeerFlowError, SandboxError, SandboxTimeoutError, SandboxUnavailableError
from deerflow.sandbox.base import CommandResult, Match, OutputListener, Sandbox, SandboxProvider
from deerflow.sandbox.process import OutputBuffer
from deerflow.sandbox.shell import check_command

logger = logging.getLogger(__name__)

_METHODS = ("acquire", "get", "release")
_MAX_THREADS = 128
_ACQUIRE_SECONDS = 900.0
"""Long because the first start of a container may download its image."""
_CALL_SECONDS = 300.0
_GRACE_SECONDS = 10.0
"""Margin over a timeout that the provider's sandbox enforces itself."""


def is_legacy(provider_class: object) -> bool:
    """Return whether a class implements DeerFlow 2's provider interface and not the current one."""
    is_current = isinstance(provider_class, type) and issubclass(provider_class, SandboxProvider)
    return not is_current and all(callable(getattr(provider_class, name, None)) for name in _METHODS)


class LegacySandboxProvider(SandboxProvider):
    """Provides the sandboxes of a DeerFlow 2 provider.

    Args:
        make: The provider's class; it is created with the sandbox settings if it takes an argument.
    """

    def __init__(self, make: Callable[..., Any], settings: SandboxSettings) -> None:
        self._provider = make(settings) if inspect.signature(make).parameters else make()
        self.settings = settings
        threads = min(_MAX_THREADS, settings.max_commands)
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix="sandbox")
        self._sandboxes: dict[str, LegacySandbox] = {}

    @override
    @asynccontextmanager
    async def acquire(self, folders: ThreadFolders) -> AsyncIterator[Sandbox]:
        """Share one sandbox among the users of a thread; release it after the last one."""
        folders.create()
        key = str(folders.root)
        sandbox = self._sandboxes.get(key)
        if sandbox is None:
            sandbox = self._sandboxes[key] = LegacySandbox(self, folders)
        sandbox.users += 1
        try:
            yield sandbox
        finally:
            sandbox.users -= 1
            if not sandbox.users:
                del self._sandboxes[key]
                if (sandbox_id := sandbox.id) is not None:
                    await self._clean_up(lambda: self._provider.release(sandbox_id), "release a sandbox")

    async def start(self, folders: ThreadFolders) -> tuple[str, Any]:
        """Acquire the sandbox of a thread; return its id and the provider's object."""
        options: dict[str, Any] = {}
        if _accepts(self._provider.acquire, "user_id"):
            options["user_id"] = folders.root.parent.parent.name  # {user}/threads/{thread}
        acquiring = self._submit(lambda: self._provider.acquire(folders.thread_id, **options))
        try:
            sandbox_id = await _result(acquiring, seconds=_ACQUIRE_SECONDS)
        except BaseException:
            acquiring.add_done_callback(self._release_late)
            raise
        sandbox = await self.call(lambda: self._provider.get(sandbox_id))
        if sandbox is None:
            raise SandboxUnavailableError(f"the sandbox provider has no sandbox {sandbox_id!r}; try again")
        return sandbox_id, sandbox

    async def call(
        self, work: Callable[[], Any], *, seconds: float = _CALL_SECONDS, late: SandboxError | None = None
    ) -> Any:
        """Run a blocking call in a thread; errors become `SandboxError`s, expired time raises `late`."""
        return await _result(self._submit(work), seconds=seconds, late=late)

    @override
    async def aclose(self) -> None:
        shutdown = getattr(self._provider, "shutdown", None)
        if callable(shutdown):
            await self._clean_up(shutdown, "shut down")
        self._executor.shutdown(wait=False, cancel_futures=True)

    def _submit(self, work: Callable[[], Any]) -> Future[Any]:
        return self._executor.submit(copy_context().run, work)

    def _release_late(self, acquiring: Future[Any]) -> None:
        """Release a sandbox that was acquired after its run had been cancelled."""
        if not acquiring.cancelled() and acquiring.exception() is None:
            self._provider.release(acquiring.result())

    async def _clean_up(self, work: Callable[[], Any], what: str) -> None:
        try:
            await self.call(work)
        except SandboxError:
            logger.exception("the sandbox provider failed to %s", what)


class LegacySandbox(Sandbox):
    """A sandbox of a DeerFlow 2 provider, acquired with the first operation."""

    def __init__(self, provider: LegacySandboxProvider, folders: ThreadFolders) -> None:
        self._provider = provider
        self._folders = folders
        self._acquiring = asyncio.Lock()
        self._sandbox: Any = None
        self.id: str | None = None
        """The provider's id of the sandbox; None before the first operation."""
        self.users = 0

    @property
    @override
    def refusal(self) -> str | None:
        return None

    @override
    async def execute_command(
        self,
        command: str,
        *,
        timeout: float | None = None,
        on_output: OutputListener | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> CommandResult:
        settings = self._provider.settings
        seconds = check_command(command, settings.bash_command_timeout if timeout is None else timeout)
        execute = await self._method("execute_command")
        options: dict[str, Any] = {"timeout": seconds} if _accepts(execute, "timeout") else {}
        grace = _GRACE_SECONDS if options else 0
        if environment:
            if not _accepts(execute, "env"):
                raise SandboxError("this sandbox cannot pass a skill's secrets to a command; use another one")
            options["env"] = dict(environment)
        text = await self._provider.call(
            lambda: str(execute(command, **options)),
            seconds=seconds + grace,
            late=SandboxTimeoutError(command, seconds),
        )
        output = OutputBuffer(max_chars=settings.bash_output_max_chars, listener=on_output)
        output.feed(text.encode("utf-8", "replace"))
        return CommandResult(0, output.text())

    @override
    async def read_file(self, path: str) -> str:
        return str(await self._call("read_file", path))

    @override
    async def write_file(self, path: str, content: str, *, append: bool = False) -> None:
        async with self.editing(path):
            await self._call("write_file", path, content, append)

    @override
    async def update_file(self, path: str, content: bytes) -> None:
        async with self.editing(path):
            await self._call("update_file", path, content)

    @override
    async def download_file(self, path: str, *, max_bytes: int | None = None) -> bytes:
        content: bytes = await self._call("download_file", path)
        if max_bytes is not None and len(content) > max_bytes:
            raise SandboxError(f"{path} has {len(content)} bytes, more than the {max_bytes} that fit here")
        return content

    @override
    async def list_dir(self, path: str, *, max_depth: int = 2) -> list[str]:
        return sorted(await self._call("list_dir", path, max_depth))

    @override
    async def glob(
        self, path: str, pattern: str, *, include_dirs: bool = False, max_results: int = 200
    ) -> tuple[list[str], bool]:
        options = {"include_dirs": include_dirs, "max_results": max_results}
        found, more = await self._call("glob", path, pattern, **options)
        return list(found), bool(more)

    @override
    async def grep(
        self,
        path: str,
        pattern: str,
        *,
        glob: str | None = None,
        literal: bool = False,
        case_sensitive: bool = False,
        max_results: int = 100,
    ) -> tuple[list[Match], bool]:
        options = {"glob": glob, "literal": literal, "case_sensitive": case_sensitive}
        found, more = await self._call("grep", path, pattern, max_results=max_results, **options)
        return [Match(match.path, match.line_number, match.line) for match in found], bool(more)

    async def _call(self, name: str, *arguments: Any, **options: Any) -> Any:
        method = await self._method(name)
        return await self._provider.call(lambda: method(*arguments, **options))

    async def _method(self, name: str) -> Callable[..., Any]:
        async with self._acquiring:
            if self._sandbox is None:
                self.id, self._sandbox = await self._provider.start(self._folders)
        method = getattr(self._sandbox, name, None)
        if not callable(method):
            raise SandboxError(f"this sandbox has no {name}; use bash instead")
        return cast("Callable[..., Any]", method)


async def _result(running: Future[Any], *, seconds: float, late: SandboxError | None = None) -> Any:
    try:
        async with asyncio.timeout(seconds) as limit:
            return await asyncio.wrap_future(running)
    except DeerFlowError:
        raise
    except Exception as error:  # foreign code may raise anything; the model gets its message
        if limit.expired():
            raise late or SandboxError(
                f"the sandbox did not answer within {seconds:g}s; try again"
            ) from error
        raise SandboxError(str(error) or type(error).__name__) from error


def _accepts(method: Callable[..., Any], name: str) -> bool:
    """Return whether a method has a parameter, which only later versions of the interface have."""
    parameters = inspect.signature(method).parameters
    return name in parameters or any(each.kind is each.VAR_KEYWORD for each in parameters.values())
