"""Catalogues of skills on this machine: a git repository, and a site that serves files and git."""

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from aiohttp import web

_GIT = {
    "PATH": os.environ["PATH"],
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_AUTHOR_NAME": "a",
    "GIT_AUTHOR_EMAIL": "a@example.org",
    "GIT_COMMITTER_NAME": "a",
    "GIT_COMMITTER_EMAIL": "a@example.org",
}


def git(folder: Path, *words: str) -> str:
    """Run a git command in a folder and return what it prints."""
    done = subprocess.run(
        ["git", *words], cwd=folder, env=_GIT, check=True, capture_output=True, text=True, timeout=60
    )
    return done.stdout.strip()


def git_repository(folder: Path, files: Mapping[str, str]) -> Path:
    """Make a repository with one commit of these files."""
    folder.mkdir(parents=True, exist_ok=True)
    git(folder, "init", "-q", "-b", "main")
    commit(folder, files)
    return folder


def commit(folder: Path, files: Mapping[str, str]) -> None:
    """Commit these files."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "files")


@dataclass
class Site:
    """A web server with files, and with a git repository at `/repository.git`."""

    files: dict[str, bytes] = field(default_factory=dict)
    redirects: dict[str, str] = field(default_factory=dict)
    repository: Path | None = None
    url: str = ""
    asked: list[str] = field(default_factory=list)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request.path)
        if request.path in self.redirects:
            return web.Response(status=302, headers={"Location": self.redirects[request.path]})
        if request.path.startswith("/repository.git/"):
            return await self._git(request)
        if request.path not in self.files:
            return web.Response(status=404)
        return web.Response(body=self.files[request.path])

    async def _git(self, request: web.Request) -> web.Response:
        """Answer as git's own server does."""
        env = {
            **_GIT,
            "GIT_PROJECT_ROOT": str(self.repository),
            "GIT_HTTP_EXPORT_ALL": "1",
            "PATH_INFO": "/.git" + request.path.removeprefix("/repository.git"),
            "QUERY_STRING": request.query_string,
            "REQUEST_METHOD": request.method,
            "CONTENT_TYPE": request.headers.get("Content-Type", ""),
            "GIT_PROTOCOL": request.headers.get("Git-Protocol", ""),
            "HTTP_CONTENT_ENCODING": request.headers.get("Content-Encoding", ""),
        }
        process = await asyncio.create_subprocess_exec(
            "git", "http-backend", env=env, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        output, _ = await process.communicate(await request.read())
        head, _, body = output.partition(b"\r\n\r\n")
        headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
        status = int(headers.pop("Status", "200").split()[0])
        return web.Response(status=status, body=body, headers=headers)

    @asynccontextmanager
    async def serving(self) -> AsyncIterator["Site"]:
        """Serve on a free port of this machine."""
        app = web.Application()
        app.router.add_route("*", "/{any:.*}", self.answer)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        try:
            yield self
        finally:
            await runner.cleanup()
