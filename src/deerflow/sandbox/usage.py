"""Resource limits of commands: those that the kernel enforces, and the total usage of a thread's commands.

The kernel's limits apply per process or per command. Everything else is measured in the host's `/proc` and
in the thread's folders twice a second, and commands above the limits are stopped.
"""

import asyncio
import ctypes
import logging
import os
import platform
import re
import stat
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from deerflow.config.sandbox import LimitSettings
from deerflow.sandbox.cgroups import ControlGroups, SharedGroup
from deerflow.sandbox.paths import TEMPORARY, USER_DATA, PathTable
from deerflow.sandbox.trees import MAX_DEPTH, MAX_LOCKED, measure
from deerflow.sandbox.users import can_inspect_processes

logger = logging.getLogger(__name__)

MEGABYTE = 1_048_576
MAX_OPEN_FILES = 1024
WATCH_SECONDS = 0.5
HIDDEN_ATTEMPTS = 8
HIDDEN_SECONDS = 0.02
"""`/proc` of a starting or exiting process is unreadable for a moment, of a hiding one permanently."""

FileKey = tuple[int, int]
"""Device and inode number of a file."""
ProcessTree = Mapping[int, list[tuple[int, int]]]
"""Per pid: its children, each with its number of threads."""

_BLOCK = 512
_MEMORY_FILE = "/memfd:"
_OWN_MEMORY = re.compile(rb"^Rss(?:Anon|Shmem):\s*(\d+) kB$", re.MULTILINE)
_ALL_MEMORY = re.compile(rb"^VmRSS:\s*(\d+) kB$", re.MULTILINE)
_IN_FLIGHT = re.compile(rb"^scm_fds:\s*(\d+)", re.MULTILINE)
_MAPPED = re.compile(
    rb"^([0-9a-f]+)-([0-9a-f]+) \S+ \S+ ([0-9a-f]+):([0-9a-f]+) (\d+) +(/.*) \(deleted\)$", re.MULTILINE
)
_NO_FILES = (b"/dev/zero", b"/SYSV")
"""Names of shared memory without a file; it counts in the resident size of each process that touches it."""
_SET_USER = {"x86_64": (117, 119), "aarch64": (147, 149)}
"""Numbers of the calls setresuid and setresgid."""


def rlimits(limits: LimitSettings) -> dict[str, int]:
    """Return the resource limits that apply to each process."""
    return {
        "RLIMIT_CORE": 0,
        "RLIMIT_CPU": limits.cpu_seconds,
        "RLIMIT_FSIZE": limits.max_file_mb * MEGABYTE,
        "RLIMIT_NOFILE": MAX_OPEN_FILES,
        "RLIMIT_DATA": limits.memory_mb * MEGABYTE,
    }


def ulimits(limits: LimitSettings) -> str:
    """Return the same limits as shell commands, for a shell that cannot raise them afterwards.

    The kernel counts processes per user namespace, so the process limit applies to the sandbox alone.
    """
    return (
        f"ulimit -c 0 -t {limits.cpu_seconds} -f {limits.max_file_mb * 1024} -n {MAX_OPEN_FILES} "
        f"-d {limits.memory_mb * 1024} -u {limits.max_processes} || exit 125\n"
    )


@dataclass(slots=True)
class ProcessUse:
    """Total usage of a command's processes."""

    resident_bytes: int = 0
    threads: int = 0
    memory_files: dict[FileKey, int] = field(default_factory=dict)
    """Bytes of memory files (memfd)."""
    deleted: dict[FileKey, int] = field(default_factory=dict)
    """Bytes of deleted files on disk that are still open."""
    in_flight: int = 0
    """Descriptors sent over sockets and not yet received: their files are unknown."""
    is_hidden: bool = False
    """Whether the `/proc` entries of a process are unreadable."""

    @property
    def memory_bytes(self) -> int:
        return self.resident_bytes + sum(self.memory_files.values())


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
        self._read_as = None if uid is None or can_inspect_processes() else uid
        self._has_shared_memory = has_shared_memory
        self._stops_hidden = stops_hidden
        self._running: dict[int, asyncio.Future[str]] = {}
        self._measuring: asyncio.Task[None] | None = None

    def group(self) -> AbstractContextManager[Path | None]:
        """Yield the thread's control group, which a command joins before it starts."""
        return self._group.joined()

    async def watch(self, pid: int) -> str:
        """Wait until the command below process `pid` has to be stopped, and return the reason."""
        stop: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._running[pid] = stop
        if self._measuring is None or self._measuring.done():
            self._measuring = asyncio.create_task(self._measure())
        try:
            return await stop
        finally:
            del self._running[pid]
            if not self._running:
                self._measuring.cancel()
                await asyncio.wait([self._measuring])

    async def _measure(self) -> None:
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
        for _ in range(HIDDEN_ATTEMPTS):
            if not any(use.is_hidden for use in uses.values()):
                break
            time.sleep(HIDDEN_SECONDS)
            uses = self._uses(pids)
        hidden = [pid for pid, use in uses.items() if use.is_hidden]
        if hidden and self._stops_hidden:
            return dict.fromkeys(
                hidden, "one of its processes hides its open files, so its use cannot be counted"
            )
        reason = self._disk_overuse(uses.values())
        if reason:
            return dict.fromkeys(pids, reason)
        return self._memory_or_process_overuse(uses)

    def _uses(self, pids: tuple[int, ...]) -> dict[int, ProcessUse]:
        tree = process_tree()
        with act_as(self._read_as):
            return {pid: use_of(pid, tree, has_shared_memory=self._has_shared_memory) for pid in pids}

    def _memory_or_process_overuse(self, uses: Mapping[int, ProcessUse]) -> dict[int, str]:
        memory_mb, processes = self._limits.memory_mb, self._limits.max_processes
        who = "it" if len(uses) == 1 else "the thread's running commands together"
        excess = largest({pid: use.memory_bytes for pid, use in uses.items()}, memory_mb * MEGABYTE)
        if excess or len(uses) == 1:  # the kernel enforces the process limit of a single command
            return dict.fromkeys(excess, f"{who} used more than {memory_mb} MB of memory")
        excess = largest({pid: use.threads for pid, use in uses.items()}, processes)
        return dict.fromkeys(excess, f"{who} had more than {processes} processes")

    def _disk_overuse(self, uses: Iterable[ProcessUse]) -> str | None:
        limits = self._limits
        own = measure(self._folders, max_files=limits.max_files)
        temporary = measure(self._temporary, max_files=limits.max_files)
        deleted = {key: size for use in uses for key, size in use.deleted.items()}
        # a descriptor in flight between processes may refer to any file: assume the maximum size
        in_flight = sum(use.in_flight for use in uses) * limits.max_file_mb * MEGABYTE
        deleted_bytes = sum(deleted.values()) + in_flight
        if own.used_bytes + deleted_bytes > limits.disk_mb * MEGABYTE:
            also = ", with the removed files that are still open," if deleted_bytes else ""
            return f"the thread's folders{also} grew above {limits.disk_mb} MB; remove what is not needed"
        if temporary.used_bytes > limits.tmp_mb * MEGABYTE:
            return f"/tmp grew above {limits.tmp_mb} MB; remove what is not needed"
        if own.files + temporary.files > limits.max_files:
            return f"the thread's folders have more than {limits.max_files} files; remove what is not needed"
        if own.is_too_deep or temporary.is_too_deep:
            return f"folders are nested deeper than {MAX_DEPTH} levels; remove them"
        if own.locked + temporary.locked > MAX_LOCKED:
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


def process_tree() -> ProcessTree:
    """Return all processes of this host by parent; an empty tree where there is no `/proc`."""
    tree: dict[int, list[tuple[int, int]]] = {}
    with suppress(FileNotFoundError):
        for entry in os.scandir("/proc"):
            if entry.name.isdigit():
                with suppress(OSError, ValueError, IndexError):
                    about = Path(entry.path, "stat").read_bytes().rpartition(b")")[2].split()
                    if about[0] != b"Z":
                        tree.setdefault(int(about[1]), []).append((int(entry.name), int(about[17])))
    return tree


def use_of(pid: int, tree: ProcessTree, *, has_shared_memory: bool) -> ProcessUse:
    """Return the total usage of the descendants of `pid`.

    Args:
        has_shared_memory: Whether only these processes have their `/dev/shm`: its whole content counts.
    """
    use = ProcessUse()
    own_device = _count_folder(f"/proc/{pid}/root/dev/shm", use) if has_shared_memory else None
    for found, threads in _descendants(pid, tree):
        use.threads += threads
        try:
            _count_process(found, use)
        except PermissionError:
            use.is_hidden |= _is_alive(found)
        except (OSError, ValueError, IndexError):
            continue  # the process has exited
    for files in (use.deleted, use.memory_files):
        for key in [key for key in files if key[0] == own_device]:
            del files[key]  # already counted in the size of the tmpfs
    return use


@contextmanager
def act_as(uid: int | None) -> Iterator[None]:
    """Switch this thread to `uid`, which owns the sandboxes and may inspect them; None changes nothing.

    The kernel keeps credentials per thread. The C library would change all threads, so it is bypassed.
    """
    if uid is None:
        yield
        return
    set_user, set_group = _SET_USER[platform.machine()]
    _change(set_group, uid)
    try:
        _change(set_user, uid)
        try:
            yield
        finally:
            _change(set_user, 0)  # first, because only root may change the group
    finally:
        _change(set_group, 0)


def _change(call: int, number: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    keep = ctypes.c_long(-1)
    if libc.syscall(ctypes.c_long(call), keep, ctypes.c_long(number), keep) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


def _descendants(pid: int, tree: ProcessTree) -> Iterator[tuple[int, int]]:
    waiting = [pid]
    while waiting:
        for child in tree.get(waiting.pop(), ()):
            yield child
            waiting.append(child[0])


def _count_folder(path: str, use: ProcessUse) -> int | None:
    with suppress(OSError):
        size = os.statvfs(path)
        use.resident_bytes += (size.f_blocks - size.f_bfree) * size.f_frsize
        return Path(path).stat().st_dev
    return None


def _count_process(pid: int, use: ProcessUse) -> None:
    use.resident_bytes += _resident_bytes(pid)
    for thread in Path(f"/proc/{pid}/task").iterdir():  # a thread may have its own descriptor table
        with os.scandir(thread / "fd") as descriptors:
            for entry in descriptors:
                with suppress(FileNotFoundError):  # closed meanwhile
                    _count_descriptor(entry, use)
    maps = Path(f"/proc/{pid}/maps").read_bytes()
    if b"(deleted)" in maps:
        for found in _MAPPED.finditer(maps):
            _count_mapping(pid, found, use)


def _resident_bytes(pid: int) -> int:
    """Return the process's private memory, plus the shared memory that it has touched.

    File-backed pages such as programs and libraries are excluded: they are shared and reclaimable.
    """
    status = Path(f"/proc/{pid}/status").read_bytes()
    parts = _OWN_MEMORY.findall(status) or _ALL_MEMORY.findall(status)
    return sum(map(int, parts)) * 1024


def _count_descriptor(entry: "os.DirEntry[str]", use: ProcessUse) -> None:
    about = entry.stat()
    if stat.S_ISSOCK(about.st_mode):
        folder, _, number = entry.path.rpartition("/fd/")
        waiting = _IN_FLIGHT.search(Path(folder, "fdinfo", number).read_bytes())
        use.in_flight += int(waiting[1]) if waiting else 0
    elif stat.S_ISREG(about.st_mode) and about.st_nlink == 0:
        is_memory = str(Path(entry.path).readlink()).startswith(_MEMORY_FILE)
        files = use.memory_files if is_memory else use.deleted
        files[about.st_dev, about.st_ino] = about.st_blocks * _BLOCK


def _count_mapping(pid: int, found: "re.Match[bytes]", use: ProcessUse) -> None:
    """Count a deleted file that is only mapped; without root, count the mapped length."""
    start, end, name = int(found[1], 16), int(found[2], 16), found[6]
    key = (os.makedev(int(found[3], 16), int(found[4], 16)), int(found[5]))
    if name.startswith(_NO_FILES) or key in use.deleted or key in use.memory_files:
        return
    is_memory = name.startswith(_MEMORY_FILE.encode())
    try:
        size = Path(f"/proc/{pid}/map_files/{start:x}-{end:x}").stat().st_blocks * _BLOCK
    except OSError:
        size = 0 if is_memory else end - start  # mapped memory is already in the resident size
    (use.memory_files if is_memory else use.deleted)[key] = size


def _is_alive(pid: int) -> bool:
    """Return whether a process with unreadable `/proc` entries still runs and is still unreadable."""
    try:
        next(Path(f"/proc/{pid}/fd").iterdir(), None)
    except PermissionError:
        return True
    except OSError:
        pass
    return False
