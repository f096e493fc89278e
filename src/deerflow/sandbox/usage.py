"""Adds up what all running commands of a thread use, and stops those that use too much together.

The kernel's own limits count for a process or for a command. What they leave out is looked at twice a second.
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
"""A process that begins or ends cannot be looked into for a moment: one that hides stays hidden."""


class ThreadUsage:
    """What a thread's running commands use together, and the limits on it.

    Args:
        groups: Makes control groups, where commands join them.
        uid: The user that commands become; None where they stay who we are.
        has_shared_memory: Whether each command has a `/dev/shm` of its own.
        stops_hidden: Whether a command ends that has a process into which we cannot look.
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
        """Lend the folders of the thread's control groups, which a command joins before it starts."""
        return self._group.lent()

    async def watch(self, pid: int) -> str:
        """Return why the command below process `pid` has to stop, once it has to."""
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
            except Exception:  # whatever it was, what cannot be watched does not go on
                logger.exception("the use of a thread's commands could not be measured")
                reasons = dict.fromkeys(self._running, "its use could not be measured")
            for pid, reason in reasons.items():
                if (stop := self._running.get(pid)) is not None and not stop.done():
                    stop.set_result(reason)
            # a large tree takes long to measure: look less often rather than be busy with looking
            pause = max(WATCH_SECONDS, 10 * (time.monotonic() - started))

    def _overuse(self, pids: tuple[int, ...]) -> dict[int, str]:
        """Return the commands that have to stop, each with the reason."""
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
            return {}  # the kernel counts those of one command
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
        # a descriptor on its way from one process to another may be of any file
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
    """Return those, the largest first, without which the sum of all others is within the limit."""
    total, found = sum(amounts.values()), []
    for pid, amount in sorted(amounts.items(), key=lambda item: item[1], reverse=True):
        if total <= limit:
            break
        total -= amount
        found.append(pid)
    return found
