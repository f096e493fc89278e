"""Stands in for the all-in-one image: the same HTTP API for shells, on real processes.

Run as a program with the number of the open socket that listens. With `STANDIN_OLD_IMAGE` set it has no
`/v1/bash`, like older images.
"""

import asyncio
import base64
import os
import secrets
import signal
import socket
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from small_http import Request, Response, SmallServer, answer

LIFETIME_SECONDS = 300
"""A container that a broken test left behind ends by itself."""


@dataclass
class Command:
    id: str
    text: str
    process: asyncio.subprocess.Process
    stdout: bytearray = field(default_factory=bytearray)
    stderr: bytearray = field(default_factory=bytearray)
    status: str = "running"
    news: asyncio.Event = field(default_factory=asyncio.Event)
    done: asyncio.Task[None] | None = None

    def info(self) -> dict[str, Any]:
        code = self.process.returncode if self.status == "completed" else None
        return {"command_id": self.id, "command": self.text, "status": self.status, "exit_code": code}

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)


@dataclass
class Session:
    id: str
    working_dir: str
    commands: dict[str, Command] = field(default_factory=dict)

    @property
    def running(self) -> Command | None:
        return next((found for found in self.commands.values() if found.status == "running"), None)


class Image:
    def __init__(self) -> None:
        self.sessions: dict[str, Session] = {}
        self.most_at_once = 0

    async def about(self, request: Request) -> Response:
        return done({"home_dir": "/home/gem", "version": "1.0.0"})

    async def bash_create(self, request: Request) -> Response:
        body = request.json()
        session = self._new_session(body.get("session_id"), body.get("exec_dir"))
        return done({"session_id": session.id, "status": "ready", "working_dir": session.working_dir})

    async def bash_exec(self, request: Request) -> Response:
        body = request.json()
        session_id = body.get("session_id")
        session = (
            self.sessions.get(session_id) if session_id else self._new_session(None, body.get("exec_dir"))
        )
        if session is None:
            return answer({"success": False, "message": f"Session {session_id} not found"}, status=404)
        if session.running is not None:
            return answer({"success": False, "message": "Session is busy", "data": None})
        command = await self._start(session, body["command"], body.get("hard_timeout"))
        if not body.get("async_mode"):
            await asyncio.wait([command.done], timeout=body.get("timeout"))
        about = {**command.info(), "session_id": session.id}
        about |= {"stdout": command.stdout.decode(errors="replace"), "offset": len(command.stdout)}
        return done(
            {
                **about,
                "stderr": command.stderr.decode(errors="replace"),
                "stderr_offset": len(command.stderr),
            }
        )

    async def bash_output(self, request: Request) -> Response:
        body = request.json()
        session = self.sessions.get(body["session_id"])
        command = session.commands.get(body["command_id"]) if session else None
        if session is None or command is None:
            return answer({"success": False, "message": "Session not found", "data": None}, status=404)
        out_from, error_from = body.get("offset") or 0, body.get("stderr_offset") or 0
        if body.get("wait"):
            with suppress(TimeoutError):
                async with asyncio.timeout(body.get("wait_timeout") or 30):
                    while command.status == "running" and len(command.stdout) <= out_from:
                        command.news.clear()
                        await command.news.wait()
        out, errors = whole_characters(command.stdout[out_from:]), bytes(command.stderr[error_from:])
        about = {"session_id": session.id, "command": command.info()}
        about |= {"stdout": out.decode(errors="replace"), "offset": out_from + len(out)}
        about |= {"stderr": errors.decode(errors="replace"), "stderr_offset": error_from + len(errors)}
        return done(about)

    async def bash_kill(self, request: Request) -> Response:
        body = request.json()
        session = self.sessions.get(body["session_id"])
        if session is not None and session.running is not None:
            session.running.status = "killed"
            for command in session.commands.values():
                command.kill()
        return done({})

    async def bash_close(self, request: Request) -> Response:
        session = self.sessions.pop(request.match["id"], None)
        if session is not None and session.running is not None:
            session.running.kill()
        return done({})

    async def bash_sessions(self, request: Request) -> Response:
        return done([{"session_id": session.id} for session in self.sessions.values()])

    async def shell_exec(self, request: Request) -> Response:
        body = request.json()
        session = self._new_session(body.get("id"), body.get("exec_dir"))
        command = await self._start(session, body["command"], body.get("hard_timeout"))
        await asyncio.wait([command.done], timeout=body.get("timeout"))
        output = (
            (bytes(command.stdout) + bytes(command.stderr)).decode(errors="replace").replace("\n", "\r\n")
        )
        info = command.info()
        about = {"session_id": session.id, "command": command.text, "status": info["status"]}
        return done({**about, "output": output, "exit_code": info["exit_code"], "console": []})

    async def shell_close(self, request: Request) -> Response:
        return await self.bash_close(request)

    async def file_write(self, request: Request) -> Response:
        body = request.json()
        content = body["content"]
        data = base64.b64decode(content) if body.get("encoding") == "base64" else content.encode()
        await asyncio.to_thread(put, Path(body["file"]), data, append=bool(body.get("append")))
        return done({"file": body["file"], "bytes_written": len(data)})

    async def file_download(self, request: Request) -> Response:
        file = Path(request.query["path"])
        if not await asyncio.to_thread(file.is_file):
            return answer({"success": False, "message": f"File not found: {file}"}, status=404)
        return Response(await asyncio.to_thread(file.read_bytes), kind="application/octet-stream")

    def _new_session(self, session_id: str | None, working_dir: str | None) -> Session:
        session = Session(session_id or secrets.token_hex(4), working_dir or "/")
        return self.sessions.setdefault(session.id, session)

    async def _start(self, session: Session, text: str, hard_timeout: float | None) -> Command:
        process = await asyncio.create_subprocess_exec(
            *("bash", "-c", text),
            cwd=session.working_dir,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        command = Command(secrets.token_hex(4), text, process)
        session.commands[command.id] = command
        command.done = asyncio.create_task(self._follow(command, hard_timeout))
        return command

    async def _follow(self, command: Command, hard_timeout: float | None) -> None:
        assert command.process.stdout is not None
        assert command.process.stderr is not None
        reading = asyncio.gather(
            self._read(command.process.stdout, command.stdout, command),
            self._read(command.process.stderr, command.stderr, command),
        )
        try:
            async with asyncio.timeout(hard_timeout):
                await command.process.wait()
            await asyncio.wait([reading], timeout=0.5)  # a background child may keep the pipe
            if command.status == "running":
                command.status = "completed"
        except TimeoutError:
            command.status = "timed_out"
            command.kill()
        command.news.set()

    async def _read(self, stream: asyncio.StreamReader, into: bytearray, command: Command) -> None:
        while data := await stream.read(65_536):
            into += data
            command.news.set()


def put(file: Path, data: bytes, *, append: bool) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("ab" if append else "wb") as out:
        out.write(data)


def whole_characters(data: bytearray) -> bytes:
    """Return `data` without the beginning of a character at its end."""
    for length in range(1, min(4, len(data)) + 1):
        if data[-length] >= 0xC0:
            return (
                bytes(data[:-length])
                if length < (2 + (data[-length] >= 0xE0) + (data[-length] >= 0xF0))
                else bytes(data)
            )
        if data[-length] < 0x80:
            break
    return bytes(data)


def done(data: Any) -> Response:
    return answer({"success": True, "message": "ok", "data": data})


def server() -> SmallServer:
    image, server = Image(), SmallServer()
    server.route("GET", "/v1/sandbox", image.about)
    server.route("POST", "/v1/shell/exec", image.shell_exec)
    server.route("DELETE", "/v1/shell/sessions/{id}", image.shell_close)
    server.route("GET", "/v1/shell/sessions", image.bash_sessions)
    server.route("POST", "/v1/file/write", image.file_write)
    server.route("GET", "/v1/file/download", image.file_download)
    if not os.environ.get("STANDIN_OLD_IMAGE"):
        server.route("POST", "/v1/bash/exec", image.bash_exec)
        server.route("POST", "/v1/bash/output", image.bash_output)
        server.route("POST", "/v1/bash/kill", image.bash_kill)
        server.route("POST", "/v1/bash/sessions/create", image.bash_create)
        server.route("POST", "/v1/bash/sessions/{id}/close", image.bash_close)
        server.route("GET", "/v1/bash/sessions", image.bash_sessions)
    return server


if __name__ == "__main__":
    signal.alarm(LIFETIME_SECONDS)
    asyncio.run(server().serve(socket.socket(fileno=int(sys.argv[1]))))
