"""Several processes on one file, and processes that die."""

import asyncio
import os
import signal
import sqlite3
import sys
from asyncio.subprocess import PIPE, Process
from pathlib import Path

from deerflow.config import DatabaseSettings, Paths
from deerflow.domain import RunRequest
from deerflow.storage import LogBatch, LogEntry, open_storage

APPEND = """
import asyncio, sys
from pathlib import Path
from deerflow.config import DatabaseSettings, Paths
from deerflow.domain import RunRequest
from deerflow.storage import LogBatch, LogEntry, open_storage

async def main(home, name, count):
    async with open_storage(DatabaseSettings(), Paths(Path(home))) as storage:
        await storage.runs.create(name, RunRequest(name), owner="me")
        for seq in range(count):
            body = b'"%d"' % seq * 50
            await storage.events.append(LogBatch(name, name, 1, [LogEntry(seq, seq, "messages", body)]))
            print(seq, flush=True)

asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
"""


async def appender(home: Path, name: str, count: int) -> Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-c", APPEND, str(home), name, str(count), stdout=PIPE
    )


async def test_a_killed_process_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    child = await appender(tmp_path, "r1", 1_000_000)
    assert child.stdout is not None
    while int(await child.stdout.readline()) < 300:
        pass

    os.kill(child.pid, signal.SIGKILL)
    acknowledged = [
        int(line) for line in (await child.stdout.read()).splitlines(keepends=True) if line.endswith(b"\n")
    ]
    await child.wait()

    async with open_storage(DatabaseSettings(), Paths(tmp_path)) as storage:
        events = await storage.events.read("r1", limit=1_000_000)
        run = await storage.runs.claim("r1", owner="you", attempt=1)
        await storage.events.append(LogBatch("r1", "r1", 2, [LogEntry(len(events), 0, "end", b"null")]))
    assert [event.seq for event in events] == list(range(len(events)))
    assert len(events) > max([300, *acknowledged])
    assert all(event.body == b'"%d"' % event.seq * 50 for event in events)
    assert run.attempt == 2
    connection = sqlite3.connect(Paths(tmp_path).database)
    assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()


async def test_processes_that_write_at_once_all_succeed(tmp_path: Path) -> None:
    children = [await appender(tmp_path, f"r{number}", 150) for number in range(3)]

    async with open_storage(DatabaseSettings(), Paths(tmp_path)) as storage:
        await storage.runs.create("mine", RunRequest("mine"), owner="me")
        for seq in range(150):
            await storage.events.append(LogBatch("mine", "mine", 1, [LogEntry(seq, seq, "messages", b"x")]))
        codes = await asyncio.gather(*(child.wait() for child in children))
        logs = [await storage.events.read(name) for name in ("mine", "r0", "r1", "r2")]
        active = await storage.runs.active()

    assert codes == [0, 0, 0]
    assert [[event.seq for event in log] for log in logs] == [list(range(150))] * 4
    assert sorted(run.id for run in active) == ["mine", "r0", "r1", "r2"]
