"""The sandbox's promises, each against a baseline of the same minute; exit 1 on a miss."""

import asyncio
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from deerflow.config import SandboxSettings
from deerflow.domain import ThreadFolders
from deerflow.sandbox import Sandbox, create_sandbox_provider

ROUNDS = 40
FILES = 50_000
THREADS = 200


def main() -> int:
    with _folder() as root:
        promises = asyncio.run(_measure(root))
    for promise in promises:
        print(json.dumps(promise))
    return 0 if all(promise["ok"] for promise in promises) else 1


async def _measure(root: Path) -> list[dict[str, object]]:
    provider = create_sandbox_provider(SandboxSettings(use="isolated"))
    async with provider.acquire(_thread(root, "t0")) as sandbox:
        promises = [await _command(sandbox), await _search(sandbox, _thread(root, "t0").workspace)]
    promises.append(await _idle(root))
    await provider.aclose()
    return promises


async def _command(sandbox: Sandbox) -> dict[str, object]:
    """A trivial command against a bare subprocess of the same command, turn by turn."""
    await sandbox.execute_command("true")
    inside, bare = [], []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        await sandbox.execute_command("true")
        inside.append(time.perf_counter() - started)
        started = time.perf_counter()
        process = await asyncio.create_subprocess_exec("/bin/bash", "-c", "true")
        await process.wait()
        bare.append(time.perf_counter() - started)
    return _ratio("isolated_command", statistics.median(inside), statistics.median(bare), at_most=25)


async def _search(sandbox: Sandbox, workspace: Path) -> dict[str, object]:
    """A search through many files against ripgrep or grep, turn by turn, after one warm round each."""
    await asyncio.to_thread(_fill, workspace)
    rg = shutil.which("rg")
    other = [rg, "-uu", "-c", "needle_[0-9]+"] if rg else ["grep", "-r", "-c", "-E", "needle_[0-9]+"]

    async def ours() -> None:
        matches, _ = await sandbox.grep("/mnt/user-data/workspace", "needle_[0-9]+", case_sensitive=True)
        assert len(matches) == FILES // 1000, len(matches)

    async def theirs() -> None:
        process = await asyncio.create_subprocess_exec(
            *other, str(workspace), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        await process.wait()

    times = {ours: [], theirs: []}  # type: dict[Callable[[], object], list[float]]
    for turn in range(6):
        for search in (ours, theirs):
            started = time.perf_counter()
            await search()
            if turn:
                times[search].append(time.perf_counter() - started)
    name = "grep_50000_files_against_" + ("rg" if rg else "grep")
    return _ratio(name, statistics.median(times[ours]), statistics.median(times[theirs]), at_most=3)


async def _idle(root: Path) -> dict[str, object]:
    """Many threads' sandboxes acquired at once, in a provider of their own."""
    provider = create_sandbox_provider(SandboxSettings(use="isolated"))
    before = _children()
    acquired = [provider.acquire(_thread(root, f"idle{number}")) for number in range(THREADS)]
    for loan in acquired:
        await loan.__aenter__()
    processes = _children() - before
    for loan in acquired:
        await loan.__aexit__(None, None, None)
    await provider.aclose()
    return {
        "name": "idle_sandboxes",
        "threads": THREADS,
        "processes": processes,
        "at_most": 0,
        "ok": processes == 0,
    }


def _ratio(name: str, ours: float, baseline: float, *, at_most: float) -> dict[str, object]:
    ratio = ours / baseline
    return {
        "name": name,
        "ours_ms": round(ours * 1000, 2),
        "baseline_ms": round(baseline * 1000, 2),
        "ratio": round(ratio, 2),
        "at_most": at_most,
        "ok": ratio <= at_most,
    }


def _fill(workspace: Path) -> None:
    filler = "".join(f"line {number} of a file that has nothing to find\n" for number in range(20))
    for number in range(FILES):
        folder = workspace / f"d{number // 500}"
        folder.mkdir(exist_ok=True)
        text = f"{filler}needle_{number}\n" if number % 1000 == 0 else filler
        (folder / f"f{number}.txt").write_text(text)


def _children() -> int:
    """Return how many processes have this one as their parent."""
    count = 0
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            count += int(entry.read_text().rpartition(")")[2].split()[1]) == os.getpid()
        except (OSError, ValueError):
            continue
    return count


def _thread(root: Path, name: str) -> ThreadFolders:
    return ThreadFolders(name, root / "users" / "u" / "threads" / name)


@contextmanager
def _folder() -> Iterator[Path]:
    root = Path(tempfile.mkdtemp(prefix="deerflow-bench-"))
    root.chmod(0o711)
    try:
        yield root
    finally:
        shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
