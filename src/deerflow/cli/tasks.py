"""`deerflow tasks`: lists and cancels the sub-agent tasks of a running server."""

import asyncio
from collections.abc import Iterator
from typing import Any, Literal
from urllib.parse import quote

import aiohttp
from rich.console import Console
from rich.table import Table

from deerflow.cli.server_api import SECONDS, ServerApi
from deerflow.domain.visible_text import printable
from deerflow.errors import InvalidInputError, NotFoundError

UNFINISHED = ("pending", "running")
_BUSY = {"status": "busy", "limit": 100, "select": ["thread_id"]}


def execute(
    *,
    action: Literal["list", "cancel"],
    url: str,
    thread_id: str | None,
    run_id: str | None,
    task_id: str | None = None,
) -> int:
    """Execute the action on the server at `url`."""
    return asyncio.run(_execute(action, url, thread_id, run_id, task_id))


async def _execute(
    action: str, url: str, thread_id: str | None, run_id: str | None, task_id: str | None
) -> int:
    if run_id is not None and thread_id is None:
        raise InvalidInputError("--run needs the thread it belongs to; add --thread")
    timeout = aiohttp.ClientTimeout(total=SECONDS)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        server = _Server(session, url)
        rows = [row async for row in server.tasks(thread_id, run_id)]
        if action == "list":
            _show(rows)
            return 0
        return await _cancel(server, rows, task_id or "")


async def _cancel(server: "_Server", rows: list[dict[str, Any]], task_id: str) -> int:
    found = next((row for row in rows if row["task_id"] == task_id), None)
    if found is None:
        running = [row["task_id"] for row in rows if row["status"] in UNFINISHED]
        raise NotFoundError("task", task_id, known=running)
    await server.post(f"{found['path']}/tasks/{quote(task_id, safe='')}/cancel")
    _console().print(f"stopped   {task_id}  {printable(found['description'])}")
    return 0


class _Server(ServerApi):
    """The routes of a DeerFlow server that this command uses."""

    async def tasks(self, thread_id: str | None, run_id: str | None) -> Any:
        """Yield the tasks of a run, of a thread's latest run, or of all runs in progress."""
        for path in [path async for path in self._runs(thread_id, run_id)]:
            for row in await self.ask("GET", f"{path}/tasks"):
                yield {**row, "path": path}

    async def post(self, path: str) -> None:
        """Send a POST request without a body."""
        await self.ask("POST", path)

    async def _runs(self, thread_id: str | None, run_id: str | None) -> Any:
        if thread_id is not None and run_id is not None:
            yield _run_path(thread_id, run_id)
            return
        if thread_id is not None:
            for run in await self.ask("GET", f"/threads/{quote(thread_id, safe='')}/runs?limit=1"):
                yield _run_path(thread_id, run["run_id"])
            return
        busy = await self.ask("POST", "/threads/search", _BUSY)
        for thread in busy:
            for run in await self.ask("GET", f"/threads/{thread['thread_id']}/runs?status=running"):
                yield _run_path(thread["thread_id"], run["run_id"])


def _run_path(thread_id: str, run_id: str) -> str:
    return f"/threads/{quote(thread_id, safe='')}/runs/{quote(run_id, safe='')}"


def _show(rows: list[dict[str, Any]]) -> None:
    console = _console()
    if not rows:
        console.print("No tasks.")
        return
    table = Table("task", "status", "sub-agent", "steps", "what it does", "thread", box=None, pad_edge=False)
    for cells in _cells(rows):
        table.add_row(*cells)
    console.print(table)


def _console() -> Console:
    """Return a console that prints model output verbatim, without interpreting brackets as markup."""
    return Console(highlight=False, markup=False)


def _cells(rows: list[dict[str, Any]]) -> Iterator[tuple[str, ...]]:
    for row in rows:
        yield (
            row["task_id"],
            row["status"],
            row["subagent_type"] or "",
            str(row["message_count"]),
            printable(row["description"]),
            row["path"].split("/")[2],
        )
