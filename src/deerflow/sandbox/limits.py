"""How much a command may use, and who notices when it uses more."""

import asyncio
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from deerflow.config.sandbox import LimitSettings
from deerflow.sandbox.paths import TEMPORARY, USER_DATA, PathTable
from deerflow.sandbox.process import Watch
from deerflow.sandbox.supervisor import descendants
from deerflow.sandbox.trees import MAX_DEPTH, MAX_LOCKED, measure

MEGABYTE = 1_048_576
MAX_OPEN_FILES = 1024
WATCH_SECONDS = 0.5


def rlimits(limits: LimitSettings) -> dict[str, int]:
    """Return the limits that the kernel keeps for each process."""
    return {
        "RLIMIT_CORE": 0,
        "RLIMIT_CPU": limits.cpu_seconds,
        "RLIMIT_FSIZE": limits.max_file_mb * MEGABYTE,
        "RLIMIT_NOFILE": MAX_OPEN_FILES,
        "RLIMIT_DATA": limits.memory_mb * MEGABYTE,
    }


def process_limit(limits: LimitSettings, uid: int | None) -> dict[str, int]:
    """Return the kernel's limit on processes, which counts all of a user's, ours and others' included."""
    if not Path("/proc/self/task").is_dir():
        return {}
    user = os.geteuid() if uid is None else uid
    return {"RLIMIT_NPROC": limits.max_processes + _threads_of(user)}


def _threads_of(uid: int) -> int:
    count = 0
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdigit() and entry.stat().st_uid == uid:
                count += sum(1 for _ in (entry / "task").iterdir())
    return count


def ulimits(limits: LimitSettings) -> str:
    """Return the same limits as shell commands, for a shell that may no longer raise them.

    Processes are counted per user namespace, so inside a sandbox the count is the sandbox's own.
    """
    return (
        f"ulimit -c 0 -t {limits.cpu_seconds} -f {limits.max_file_mb * 1024} -n {MAX_OPEN_FILES} "
        f"-d {limits.memory_mb * 1024} -u {limits.max_processes} || exit 125\n"
    )


def watcher(limits: LimitSettings, table: PathTable) -> Watch:
    """Return a watch over what no kernel limit covers: memory of all processes, disk of all folders."""
    folders = [found.host for found in table.mappings if found.virtual.startswith(f"{USER_DATA}/")]
    temporary = [found.host for found in table.mappings if found.virtual == TEMPORARY]

    async def watch(pid: int) -> str:
        pause = WATCH_SECONDS
        while True:
            await asyncio.sleep(pause)
            started = time.monotonic()
            reason = await asyncio.to_thread(_overuse, pid, limits, folders, temporary)
            if reason:
                return reason
            # a large tree takes long to measure: look less often rather than be busy with looking
            pause = max(WATCH_SECONDS, 10 * (time.monotonic() - started))

    return watch


def _overuse(pid: int, limits: LimitSettings, folders: list[Path], temporary: list[Path]) -> str | None:
    if _resident_bytes(pid) > limits.memory_mb * MEGABYTE:
        return f"it used more than {limits.memory_mb} MB of memory"
    kept = measure(folders, max_files=limits.max_files)
    passing = measure(temporary, max_files=limits.max_files)
    if kept.used_bytes > limits.disk_mb * MEGABYTE:
        return f"the thread's folders grew above {limits.disk_mb} MB; remove what is not needed"
    if passing.used_bytes > limits.tmp_mb * MEGABYTE:
        return f"/tmp grew above {limits.tmp_mb} MB; remove what is not needed"
    if kept.files + passing.files > limits.max_files:
        return f"the thread's folders have more than {limits.max_files} files; remove what is not needed"
    if kept.is_too_deep or passing.is_too_deep:
        return f"folders are nested deeper than {MAX_DEPTH} levels; remove them"
    if kept.locked + passing.locked > MAX_LOCKED:
        return (
            f"more than {MAX_LOCKED} folders cannot be read; make them readable (chmod u+rx) or remove them"
        )
    return None


def _resident_bytes(pid: int) -> int:
    page = os.sysconf("SC_PAGE_SIZE")
    total = 0
    for found in _tree(pid):
        with suppress(OSError, ValueError, IndexError):
            total += int(Path(f"/proc/{found}/statm").read_text().split()[1]) * page
    return total


def _tree(pid: int) -> Iterator[int]:
    with suppress(FileNotFoundError):  # no /proc: no such watch
        yield from descendants(pid)
