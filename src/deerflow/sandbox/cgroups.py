"""Control groups, where this process may make them: the kernel's own limit on memory of all processes."""

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
"""How many processes of our own a command has around it, at most."""


@dataclass(frozen=True, slots=True)
class ControlGroup:
    """The groups of a thread's running commands, one per hierarchy; removed when the last one is over."""

    folders: tuple[Path, ...] = ()

    def remove(self) -> bool:
        """Remove the groups; False while a dying process still holds one."""
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
    """Makes groups, or none where the system does not let us."""

    def __init__(self, limits: LimitSettings, *, mount: Path = MOUNT) -> None:
        self._limits = limits
        self._mount = mount
        self._dying: list[ControlGroup] = []
        self._make = self._find_way()

    @property
    def are_there(self) -> bool:
        """Tell whether groups can be made here."""
        return self._make is not None

    def create(self) -> ControlGroup:
        """Return a fresh group; an empty one when groups cannot be made."""
        self._sweep()
        if self._make is None:
            return ControlGroup()
        try:
            return self._make(f"{PREFIX}-{os.getpid()}-{secrets.token_hex(6)}")
        except OSError:
            return ControlGroup()

    def discard(self, group: ControlGroup) -> None:
        """Remove a group now, or at the next chance when its last process is still dying."""
        if not group.remove():
            self._dying.append(group)

    async def aclose(self) -> None:
        """Remove all that is left, as soon as the last processes in it are gone."""
        for _ in range(50):
            self._sweep()
            if not self._dying:
                return
            await asyncio.sleep(0.02)

    def _sweep(self) -> None:
        self._dying = [group for group in self._dying if not group.remove()]

    def _find_way(self) -> Callable[[str], ControlGroup] | None:
        if os.geteuid() != 0:
            return None  # a group that was delegated to a user is nothing we could find out about
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
        # Joining a group of this version waits for the whole kernel, some milliseconds each time. So there
        # is one for memory only; processes have the kernel's limit per sandbox.
        (self._mount / "memory" / "cgroup.procs").stat()
        memory = {"memory.limit_in_bytes": self._limits.memory_mb * MEGABYTE}
        return _made([(self._mount / "memory" / name, memory)])

    def _remove_orphans(self) -> None:
        """Remove groups of servers that died before they could."""
        for parent in (self._mount, self._mount / "memory"):
            for folder in parent.glob(f"{PREFIX}-*-*"):
                if not Path("/proc", folder.name.split("-")[1]).exists():
                    with suppress(OSError):
                        folder.rmdir()


class SharedGroup:
    """One group for all commands of a thread, which is there while one of them runs."""

    def __init__(self, groups: ControlGroups | None) -> None:
        self._groups = groups
        self._group = ControlGroup()
        self._users = 0

    @contextmanager
    def lent(self) -> Iterator[tuple[Path, ...]]:
        """Lend the folders of the group for the length of a block."""
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
    """Return the shell commands that join groups, to run before anything else."""
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
