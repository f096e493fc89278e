"""A real MCP server written with the SDK: over standard streams as a program, or over HTTP beside a test."""

import asyncio
import base64
import contextlib
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvicorn
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import (
    BlobResourceContents,
    CallToolResult,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
    ToolAnnotations,
)

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def make_server(log: Path | None = None) -> MCPServer[Any]:
    """Return a server with a tool of every kind; it notes in `log` what happens to it."""
    server = MCPServer("everything", log_level="ERROR")

    def note(line: str) -> None:
        if log is not None:
            with log.open("a") as file:
                file.write(f"{line}\n")

    note(f"started {os.getpid()}")

    @server.tool(annotations=ToolAnnotations(read_only_hint=True))
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        note("add")
        return a + b

    @server.tool(annotations=ToolAnnotations(destructive_hint=True))
    def erase(path: str) -> str:
        """Erase a thing for good."""
        note(f"erase {path}")
        return f"{path} is gone"

    @server.tool(structured_output=False)
    def speak(runtime: str, config: str = "plain", description: str = "") -> str:
        """Say something whose arguments have names that libraries like for themselves."""
        return f"{runtime}, {config}, {description}"

    @server.tool(structured_output=False)
    async def wait(seconds: float, ctx: Context) -> str:
        """Wait, saying so."""
        note("wait")
        await ctx.report_progress(1, 3, "one of three")
        try:
            await asyncio.sleep(seconds)
        except asyncio.CancelledError:
            note("cancelled")
            raise
        return "waited"

    _add_answers(server)
    _add_lives(server)
    return server


def _add_answers(server: MCPServer[Any]) -> None:
    @server.tool(structured_output=False)
    def fail() -> str:
        """Fail."""
        raise ToolError("the deer ran away")

    @server.tool(structured_output=False)
    def mixed() -> CallToolResult:
        """Return content of every kind."""
        blob = base64.b64encode(b"\x00\x01").decode()
        return CallToolResult(
            content=[
                TextContent(text="look"),
                ImageContent(data=PIXEL, mime_type="image/png"),
                EmbeddedResource(resource=TextResourceContents(uri="note://1", text="a note")),
                EmbeddedResource(resource=BlobResourceContents(uri="file:///x/data.bin", blob=blob)),
                ResourceLink(name="more", uri="https://example.com/more"),
                ImageContent(data="not base64!", mime_type="image/png"),
            ]
        )

    @server.tool(structured_output=False)
    def long(chars: int) -> str:
        """Return a long text."""
        return "x" * chars


def _add_lives(server: MCPServer[Any]) -> None:
    @server.tool(structured_output=False)
    def environment() -> str:
        """Return the variables of this program and where it runs."""
        return "\n".join(
            [f"cwd={Path.cwd()}", *(f"{key}={value}" for key, value in sorted(os.environ.items()))]
        )

    @server.tool(structured_output=False)
    def die() -> str:
        """End this program in the middle of the call."""
        print("out of luck", file=sys.stderr, flush=True)
        os._exit(3)

    @server.tool(structured_output=False)
    def spawn() -> str:
        """Start a helper in a session of its own and return its number."""
        helper = subprocess.Popen(["sleep", "600"], start_new_session=True, stdout=subprocess.DEVNULL)
        return str(helper.pid)

    @server.tool(structured_output=False)
    async def learn(name: str, ctx: Context) -> str:
        """Offer another tool from now on."""
        server.add_tool(lambda: "learned", name=name, description="new", structured_output=False)
        await ctx.notify_tools_changed()
        with contextlib.suppress(Exception):
            await ctx.session.send_tool_list_changed()
        return "ok"


@contextmanager
def serving_mcp(server: MCPServer[Any] | None = None, *, kind: str = "http") -> Iterator[str]:
    """Serve over HTTP for the length of a block; gives the address."""
    made = server or make_server()
    app = made.sse_app() if kind == "sse" else made.streamable_http_app()
    with serving_app(app) as url:
        yield f"{url}/{'sse' if kind == 'sse' else 'mcp'}"


@contextmanager
def serving_app(app: Any) -> Iterator[str]:
    """Serve an application for the length of a block; gives the address."""
    config = uvicorn.Config(app, log_level="error", ws="none", timeout_graceful_shutdown=1)
    running = uvicorn.Server(config)
    listener = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=lambda: asyncio.run(running.serve(sockets=[listener])), name="mcp")
    thread.start()
    try:
        deadline = time.monotonic() + 60
        while not running.started:
            assert thread.is_alive(), "the MCP server did not start"
            assert time.monotonic() < deadline, "the MCP server is not up in time"
            time.sleep(0.01)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        running.should_exit = True
        thread.join(30)
        listener.close()


if __name__ == "__main__":
    make_server(Path(sys.argv[1]) if len(sys.argv) > 1 else None).run("stdio")
