"""A small real sandbox on a temporary folder, and the context of a run that uses it."""

import asyncio
import fnmatch
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from typing_extensions import override

from deerflow.config import Settings
from deerflow.context import RunContext
from deerflow.domain import ThreadFolders
from deerflow.errors import PathRefusedError, SandboxError, SandboxTimeoutError
from deerflow.sandbox import CommandResult, Match, OutputListener, Sandbox
from deerflow.web.service import WebSession

USER_DATA = "/mnt/user-data"


class FolderSandbox(Sandbox):
    """Keeps a thread's files below `root` and runs commands there; `commands` has what was asked."""

    def __init__(self, root: Path, *, refusal: str | None = None) -> None:
        self.root = root
        self.commands: list[str] = []
        self._refusal = refusal

    @property
    @override
    def refusal(self) -> str | None:
        return self._refusal

    @override
    async def execute_command(
        self,
        command: str,
        *,
        timeout: float | None = None,
        on_output: OutputListener | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> CommandResult:
        self.commands.append(command)
        shell = await asyncio.create_subprocess_exec(
            *("bash", "-c", command),
            cwd=self.root,
            env={**os.environ, **(environment or {})},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        assert shell.stdout is not None
        pieces: list[str] = []
        try:
            async with asyncio.timeout(timeout):
                while piece := (await shell.stdout.read(65536)).decode(errors="replace"):
                    pieces.append(piece)
                    if on_output is not None:
                        on_output(piece)
                await shell.wait()
        except TimeoutError as error:
            raise SandboxTimeoutError(command, timeout or 0, "".join(pieces)) from error
        finally:
            if shell.returncode is None:
                shell.kill()
                await shell.wait()
        return CommandResult(exit_code=shell.returncode or 0, output="".join(pieces))

    @override
    async def read_file(self, path: str) -> str:
        return (await self.download_file(path)).decode(errors="replace")

    @override
    async def write_file(self, path: str, content: str, *, append: bool = False) -> None:
        file = self._host(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        await asyncio.sleep(0)  # a real sandbox lets others run here
        before = file.read_bytes() if append and file.exists() else b""
        file.write_bytes(before + content.encode())

    @override
    async def list_dir(self, path: str, *, max_depth: int = 2) -> list[str]:
        top = self._host(path)
        if not top.is_dir():
            raise SandboxError(f"{path} is not a folder.")
        return sorted(
            f"{self._virtual(item)}{'/' if item.is_dir() else ''}"
            for item in top.rglob("*")
            if len(item.relative_to(top).parts) <= max_depth
        )

    @override
    async def glob(
        self, path: str, pattern: str, *, include_dirs: bool = False, max_results: int = 200
    ) -> tuple[list[str], bool]:
        found = sorted(
            self._virtual(item) for item in self._host(path).glob(pattern) if include_dirs or item.is_file()
        )
        return found[:max_results], len(found) > max_results

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
        wanted = re.compile(
            re.escape(pattern) if literal else pattern, 0 if case_sensitive else re.IGNORECASE
        )
        found = [
            Match(self._virtual(file), number, line)
            for file in sorted(self._host(path).rglob("*"))
            if file.is_file() and (glob is None or fnmatch.fnmatch(file.name, glob.removeprefix("**/")))
            for number, line in enumerate(file.read_text().splitlines(), start=1)
            if wanted.search(line)
        ]
        return found[:max_results], len(found) > max_results

    @override
    async def update_file(self, path: str, content: bytes) -> None:
        await asyncio.sleep(0)
        self._host(path).write_bytes(content)

    @override
    async def download_file(self, path: str, *, max_bytes: int | None = None) -> bytes:
        file = self._host(path)
        if not file.is_file():
            raise SandboxError(f"There is no file {path}.")
        if max_bytes is not None and file.stat().st_size > max_bytes:
            raise SandboxError(f"{path} has more than {max_bytes} bytes.")
        content = file.read_bytes()
        await asyncio.sleep(0)
        return content

    def _host(self, path: str) -> Path:
        if not path.startswith(f"{USER_DATA}/") or ".." in path.split("/"):
            raise PathRefusedError(f"{path} is outside {USER_DATA}; use a path below it.")
        return self.root / path.removeprefix(f"{USER_DATA}/")

    def _virtual(self, file: Path) -> str:
        return f"{USER_DATA}/{file.relative_to(self.root)}"


def run_context(
    root: Path,
    *,
    sandbox: Sandbox | None = None,
    settings: Settings | None = None,
    published: list[Mapping[str, Any]] | None = None,
    web: WebSession | None = None,
) -> RunContext:
    """Return the context of a run whose thread lives below `root`."""
    folders = ThreadFolders("t1", root)
    folders.create()
    return RunContext(
        run_id="r1",
        thread_id="t1",
        user_id="default",
        settings=settings or Settings(),
        folders=folders,
        sandbox=sandbox or FolderSandbox(folders.user_data),
        publish=(published if published is not None else []).append,
        web=web,
    )
