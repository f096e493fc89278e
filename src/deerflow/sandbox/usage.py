"""Measures the total resource usage of a thread's running commands and stops them above the limits.

The kernel's limits apply per process or per command. This module polls everything else twice a second.
"""

import asyncio
import logging
import time
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path

from deerflow.config.sandbox import LimitSettings
from deerflow.sandbox.cgroups import ControlGroups, SharedGroup
from deerflow.sandbox.paths import TEMPORARY, USER_DATA, PathTable
from deerflow.sandbox.processes import ProcessUse, acting_as, process_tree, use_of
from deerflow.sandbox.trees import MAX_DEPTH, MAX_LOCKED, measure
from deerflow.sandbox.users import can_look_into_processes

logger = logging.getLogger(__name__)

MEGABYTE = 1_048_576
WATCH_SECONDS = 0.5
HIDDEN_LOOKS = 8
HIDDEN_SECONDS = 0.02
"""`/proc` of a starting or exiting process is unreadable for a moment, of a hiding one permanently."""


class ThreadUsage:
    """Total usage of a thread's running commands, with its limits.

    Args:
        groups: Creates the control groups that commands join, where available.
        uid: The user that commands run as; None for the server's own user.
        has_shared_memory: Whether each command has its own `/dev/shm`.
        stops_hidden: Whether to stop a command with a process whose `/proc` entries are unreadable.
    """

    def __init__(
        self,
        limits: LimitSettings,
        table: PathTable,
        *,
        groups: ControlGroups | None = None,
        uid: int | None = None,
        has_shared_memory: bool = False,
        stops_hidden: bool = True,
    ) -> None:
        self._limits = limits
        self._folders = [found.host for found in table.mappings if found.virtual.startswith(f"{USER_DATA}/")]
        self._temporary = [found.host for found in table.mappings if found.virtual == TEMPORARY]
        self._group = SharedGroup(groups)
        self._reader = None if uid is None or can_look_into_processes() else uid
        self._has_shared_memory = has_shared_memory
        self._stops_hidden = stops_hidden
        self._running: dict[int, asyncio.Future[str]] = {}
        self._looking: asyncio.Task[None] | None = None

    def group(self) -> AbstractContextManager[tuple[Path, ...]]:
        """Yield the folders of the thread's control groups, which a command joins before it starts."""
        return self._group.lent()

    async def watch(self, pid: int) -> str:
        """Wait until the command below process `pid` has to be stopped, and return the reason."""
        stop: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._running[pid] = stop
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look())
        try:
            return await stop
        finally:
            del self._running[pid]
            if not self._running:
                self._looking.cancel()
                await asyncio.wait([self._looking])

    async def _look(self) -> None:
        pause = WATCH_SECONDS
        while True:
            await asyncio.sleep(pause)
            started = time.monotonic()
            try:
                reasons = await asyncio.to_thread(self._overuse, tuple(self._running))
            except Exception:  # fail closed: a command that cannot be measured is stopped
                logger.exception("the use of a thread's commands could not be measured")
                reasons = dict.fromkeys(self._running, "its use could not be measured")
            for pid, reason in reasons.items():
                if (stop := self._running.get(pid)) is not None and not stop.done():
                    stop.set_result(reason)
            # a large tree takes long to measure: poll less often to bound the CPU time spent on polling
            pause = max(WATCH_SECONDS, 10 * (time.monotonic() - started))

    def _overuse(self, pids: tuple[int, ...]) -> dict[int, str]:
        """Return the pids of the commands to stop, each with its reason."""
        uses = self._uses(pids)
        for _ in range(HIDDEN_LOOKS):
            if all(use.hidden is None for use in uses.values()):
                break
            time.sleep(HIDDEN_SECONDS)
            uses = self._uses(pids)
        hidden = [pid for pid, use in uses.items() if use.hidden is not None]
        if hidden and self._stops_hidden:
            return dict.fromkeys(
                hidden, "one of its processes hides its open files, so its use cannot be counted"
            )
        reason = self._disk_overuse(uses.values())
        if reason:
            return dict.fromkeys(pids, reason)
        return self._memory_overuse(uses) or self._process_overuse(uses)

    def _uses(self, pids: tuple[int, ...]) -> dict[int, ProcessUse]:
        tree = process_tree()
        with acting_as(self._reader):
            return {pid: use_of(pid, tree, shared_memory=self._shared_memory(pid)) for pid in pids}

    def _shared_memory(self, pid: int) -> str | None:
        return f"/proc/{pid}/root/dev/shm" if self._has_shared_memory else None

    def _memory_overuse(self, uses: Mapping[int, ProcessUse]) -> dict[int, str]:
        limit = self._limits.memory_mb
        who = "it" if len(uses) == 1 else "the thread's running commands together"
        excess = largest({pid: use.memory_bytes for pid, use in uses.items()}, limit * MEGABYTE)
        return dict.fromkeys(excess, f"{who} used more than {limit} MB of memory")

    def _process_overuse(self, uses: Mapping[int, ProcessUse]) -> dict[int, str]:
        if len(uses) == 1:
            return {}  # the kernel enforces the limit of a single command
        limit = self._limits.max_processes
        excess = largest({pid: use.threads for pid, use in uses.items()}, limit)
        return dict.fromkeys(
            excess, f"the thread's running commands together had more than {limit} processes"
        )

    def _disk_overuse(self, uses: Iterable[ProcessUse]) -> str | None:
        limits = self._limits
        kept = measure(self._folders, max_files=limits.max_files)
        passing = measure(self._temporary, max_files=limits.max_files)
        nameless = {key: size for use in uses for key, size in use.nameless.items()}
        # a descriptor in flight between processes may refer to any file: assume the maximum size
        unknown = sum(use.in_flight for use in uses) * limits.max_file_mb * MEGABYTE
        held = sum(nameless.values()) + unknown
        if kept.used_bytes + held > limits.disk_mb * MEGABYTE:
            also = ", with the removed files that are still open," if held else ""
            return f"the thread's folders{also} grew above {limits.disk_mb} MB; remove what is not needed"
        if passing.used_bytes > limits.tmp_mb * MEGABYTE:
            return f"/tmp grew above {limits.tmp_mb} MB; remove what is not needed"
        if kept.files + passing.files > limits.max_files:
            return f"the thread's folders have more than {limits.max_files} files; remove what is not needed"
        if kept.is_too_deep or passing.is_too_deep:
            return f"folders are nested deeper than {MAX_DEPTH} levels; remove them"
        if kept.locked + passing.locked > MAX_LOCKED:
            return (
                f"more than {MAX_LOCKED} folders cannot be read; "
                "make them readable (chmod u+rx) or remove them"
            )
        return None


def largest(amounts: Mapping[int, int], limit: int) -> list[int]:
    """Return the largest entries whose removal brings the sum within the limit, largest first."""
    total, found = sum(amounts.values()), []
    for pid, amount in sorted(amounts.items(), key=lambda item: item[1], reverse=True):
        if total <= limit:
            break
        total -= amount
        found.append(pid)
    return found
