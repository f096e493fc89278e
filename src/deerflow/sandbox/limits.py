"""Resource limits that the kernel enforces."""

import os
from contextlib import suppress
from pathlib import Path

from deerflow.config.sandbox import LimitSettings

MEGABYTE = 1_048_576
MAX_OPEN_FILES = 1024


def rlimits(limits: LimitSettings) -> dict[str, int]:
    """Return the resource limits that apply to each process."""
    return {
        "RLIMIT_CORE": 0,
        "RLIMIT_CPU": limits.cpu_seconds,
        "RLIMIT_FSIZE": limits.max_file_mb * MEGABYTE,
        "RLIMIT_NOFILE": MAX_OPEN_FILES,
        "RLIMIT_DATA": limits.memory_mb * MEGABYTE,
    }


def process_limit(limits: LimitSettings, uid: int | None) -> dict[str, int]:
    """Return RLIMIT_NPROC, raised by the user's present threads: the kernel counts all threads of a user."""
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
    """Return the same limits as shell commands, for a shell that cannot raise them afterwards.

    The kernel counts processes per user namespace, so the process limit applies to the sandbox alone.
    """
    return (
        f"ulimit -c 0 -t {limits.cpu_seconds} -f {limits.max_file_mb * 1024} -n {MAX_OPEN_FILES} "
        f"-d {limits.memory_mb * 1024} -u {limits.max_processes} || exit 125\n"
    )
