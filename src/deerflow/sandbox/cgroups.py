"""Creates control groups where permitted: the kernel then limits the memory of all processes together."""

import asyncio
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from deerflow.config.sandbox import LimitSettings

MOUNT = Path("/sys/fs/cgroup")
PREFIX = "deerflow"
MEGABYTE = 1_048_576
HELPER_PROCESSES = 6
"""Maximum number of helper processes (bwrap, shells) per command."""
_OPTIONAL = "memory.swap.max"


class ControlGroups:
    """Creates groups with the limits of the settings; a group is a folder."""

    def __init__(self, limits: LimitSettings) -> None:
        self._limits = limits
        self._exiting: list[Path] = []
        """Groups to remove once the last process in them has exited."""
        self._parent = self._find_parent()

    @property
    def are_available(self) -> bool:
        return self._parent is not None

    def create(self) -> Path | None:
        """Create a group; return None where the system does not permit it."""
        self._remove_exited()
        if self._parent is None:
            return None
        try:
            return self._create(self._parent)
        except OSError:
            return None

    def discard(self, group: Path) -> None:
        """Remove a group now, or later when a process in it is still exiting."""
        self._exiting.append(group)
        self._remove_exited()

    async def aclose(self) -> None:
        """Remove the remaining groups once their last processes have exited; give up after a second."""
        for _ in range(50):
            self._remove_exited()
            if not self._exiting:
                return
            await asyncio.sleep(0.02)

    def _remove_exited(self) -> None:
        self._exiting = [group for group in self._exiting if not _remove(group)]

    def _find_parent(self) -> Path | None:
        """Return the folder in which groups can be created, of version 2 or else of version 1."""
        if os.geteuid() != 0:
            return None  # a group delegated to an unprivileged user cannot be discovered
        for parent in (MOUNT, MOUNT / "memory"):
            try:
                _remove(self._create(parent))
            except OSError:
                continue
            for folder in parent.glob(f"{PREFIX}-*-*"):  # left by servers that died
                if not Path("/proc", folder.name.split("-")[1]).exists():
                    _remove(folder)
            return parent
        return None

    def _create(self, parent: Path) -> Path:
        values = self._version_2() if parent == MOUNT else self._version_1()
        folder = parent / f"{PREFIX}-{os.getpid()}-{secrets.token_hex(6)}"
        folder.mkdir()
        try:
            for name, value in values.items():
                with suppress(*((OSError,) if name == _OPTIONAL else ())):
                    (folder / name).write_text(str(value))
        except OSError:
            _remove(folder)
            raise
        return folder

    def _version_2(self) -> Mapping[str, int]:
        if "memory" not in (MOUNT / "cgroup.controllers").read_text().split():
            raise OSError("no memory controller here")
        return {
            "memory.max": self._limits.memory_mb * MEGABYTE,
            _OPTIONAL: 0,
            "pids.max": self._limits.max_processes + HELPER_PROCESSES * self._limits.max_commands,
        }

    def _version_1(self) -> Mapping[str, int]:
        # Joining a v1 group synchronizes the whole kernel, some milliseconds each time. So only the memory
        # hierarchy is used; RLIMIT_NPROC limits the processes of a sandbox.
        (MOUNT / "memory" / "cgroup.procs").stat()
        return {"memory.limit_in_bytes": self._limits.memory_mb * MEGABYTE}


def _remove(group: Path) -> bool:
    """Remove a group; return False while an exiting process is still in it."""
    try:
        group.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


class SharedGroup:
    """One group for all commands of a thread; it exists while one of them runs."""

    def __init__(self, groups: ControlGroups | None) -> None:
        self._groups = groups
        self._group: Path | None = None
        self._users = 0

    @contextmanager
    def joined(self) -> Iterator[Path | None]:
        """Yield the group; create it for its first user, remove it after the last."""
        if self._groups is None:
            yield None
            return
        if not self._users:
            self._group = self._groups.create()
        self._users += 1
        try:
            yield self._group
        finally:
            self._users -= 1
            if not self._users and self._group is not None:
                self._groups.discard(self._group)
