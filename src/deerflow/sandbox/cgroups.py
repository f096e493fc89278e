"""Creates control groups where permitted: the kernel then limits the memory of all processes together."""

import asyncio
import os
import secrets
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from deerflow.config.sandbox import LimitSettings

MOUNT = Path("/sys/fs/cgroup")
PREFIX = "deerflow"
MEGABYTE = 1_048_576
OUR_PROCESSES = 6
"""Maximum number of helper processes (bwrap, shells) per command."""


@dataclass(frozen=True, slots=True)
class ControlGroup:
    """The groups of a thread's running commands, one per hierarchy; removed when the last command ends."""

    folders: tuple[Path, ...] = ()

    def remove(self) -> bool:
        """Remove the groups; return False while an exiting process is still in one."""
        left = False
        for folder in self.folders:
            try:
                folder.rmdir()
            except FileNotFoundError:
                pass
            except OSError:
                left = True
        return not left


class ControlGroups:
    """Creates groups; empty ones where the system does not permit it."""

    def __init__(self, limits: LimitSettings, *, mount: Path = MOUNT) -> None:
        self._limits = limits
        self._mount = mount
        self._dying: list[ControlGroup] = []
        self._make = self._find_way()

    @property
    def are_there(self) -> bool:
        """Return whether groups can be created on this system."""
        return self._make is not None

    def create(self) -> ControlGroup:
        """Create a group; return an empty one when that fails."""
        self._sweep()
        if self._make is None:
            return ControlGroup()
        try:
            return self._make(f"{PREFIX}-{os.getpid()}-{secrets.token_hex(6)}")
        except OSError:
            return ControlGroup()

    def discard(self, group: ControlGroup) -> None:
        """Remove a group now, or later when a process in it is still exiting."""
        if not group.remove():
            self._dying.append(group)

    async def aclose(self) -> None:
        """Remove the remaining groups once their last processes have exited; give up after a second."""
        for _ in range(50):
            self._sweep()
            if not self._dying:
                return
            await asyncio.sleep(0.02)

    def _sweep(self) -> None:
        self._dying = [group for group in self._dying if not group.remove()]

    def _find_way(self) -> Callable[[str], ControlGroup] | None:
        if os.geteuid() != 0:
            return None  # a group delegated to an unprivileged user cannot be discovered
        for way in (self._make_v2, self._make_v1):
            try:
                way(f"{PREFIX}-{os.getpid()}-{secrets.token_hex(6)}").remove()
            except OSError:
                continue
            self._remove_orphans()
            return way
        return None

    def _make_v2(self, name: str) -> ControlGroup:
        if "memory" not in (self._mount / "cgroup.controllers").read_text().split():
            raise OSError("no memory controller here")
        folder = self._mount / name
        values = {
            "memory.max": self._limits.memory_mb * MEGABYTE,
            "memory.swap.max": 0,
            "pids.max": self._limits.max_processes + OUR_PROCESSES * self._limits.max_commands,
        }
        return _made([(folder, values)], optional=("memory.swap.max",))

    def _make_v1(self, name: str) -> ControlGroup:
        # Joining a v1 group synchronizes the whole kernel, some milliseconds each time. So only the memory
        # hierarchy is used; RLIMIT_NPROC limits the processes of a sandbox.
        (self._mount / "memory" / "cgroup.procs").stat()
        memory = {"memory.limit_in_bytes": self._limits.memory_mb * MEGABYTE}
        return _made([(self._mount / "memory" / name, memory)])

    def _remove_orphans(self) -> None:
        """Remove groups of servers that died without removing them."""
        for parent in (self._mount, self._mount / "memory"):
            for folder in parent.glob(f"{PREFIX}-*-*"):
                if not Path("/proc", folder.name.split("-")[1]).exists():
                    with suppress(OSError):
                        folder.rmdir()


class SharedGroup:
    """One group for all commands of a thread; it exists while one of them runs."""

    def __init__(self, groups: ControlGroups | None) -> None:
        self._groups = groups
        self._group = ControlGroup()
        self._users = 0

    @contextmanager
    def lent(self) -> Iterator[tuple[Path, ...]]:
        """Yield the group's folders; create the group for its first user, remove it after the last."""
        if self._groups is None:
            yield ()
            return
        if not self._users:
            self._group = self._groups.create()
        self._users += 1
        try:
            yield self._group.folders
        finally:
            self._users -= 1
            if not self._users:
                self._groups.discard(self._group)


def joining(folders: Iterable[Path]) -> str:
    """Return the shell commands that join the groups, to be run before everything else."""
    return "".join(f"echo 0 > {folder}/cgroup.procs || exit 125; " for folder in folders)


def _made(wanted: list[tuple[Path, dict[str, int]]], optional: tuple[str, ...] = ()) -> ControlGroup:
    made: list[Path] = []
    try:
        for folder, values in wanted:
            folder.mkdir()
            made.append(folder)
            for name, value in values.items():
                try:
                    (folder / name).write_text(str(value))
                except OSError:
                    if name not in optional:
                        raise
    except OSError:
        ControlGroup(tuple(made)).remove()
        raise
    return ControlGroup(tuple(made))
