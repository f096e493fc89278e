"""Reads the usage of running processes from the host's `/proc`: memory, and deleted files still open."""

import ctypes
import os
import platform
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

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


@dataclass(slots=True)
class ProcessUse:
    """Total usage of a command's processes."""

    resident_bytes: int = 0
    threads: int = 0
    memory_files: dict[FileKey, int] = field(default_factory=dict)
    """Bytes of memory files (memfd)."""
    nameless: dict[FileKey, int] = field(default_factory=dict)
    """Bytes of deleted files on disk that are still open."""
    in_flight: int = 0
    """Descriptors sent over sockets and not yet received: their files are unknown."""
    hidden: int | None = None
    """Pid of a process whose `/proc` entries are unreadable."""

    @property
    def memory_bytes(self) -> int:
        return self.resident_bytes + sum(self.memory_files.values())


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


def use_of(pid: int, tree: ProcessTree, *, shared_memory: str | None = None) -> ProcessUse:
    """Return the total usage of the descendants of `pid`.

    Args:
        shared_memory: A tmpfs that only these processes have; its whole content counts.
    """
    use = ProcessUse()
    own_device = _count_folder(shared_memory, use) if shared_memory else None
    for found, threads in _below(pid, tree):
        use.threads += threads
        try:
            _look_into(found, use)
        except PermissionError:
            if _is_alive(found):
                use.hidden = found
        except (OSError, ValueError, IndexError):
            continue  # the process has exited
    for files in (use.nameless, use.memory_files):
        for key in [key for key in files if key[0] == own_device]:
            del files[key]  # already counted in the size of the tmpfs
    return use


@contextmanager
def acting_as(uid: int | None) -> Iterator[None]:
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


def _below(pid: int, tree: ProcessTree) -> Iterator[tuple[int, int]]:
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


def _look_into(pid: int, use: ProcessUse) -> None:
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
        files = use.memory_files if is_memory else use.nameless
        files[about.st_dev, about.st_ino] = about.st_blocks * _BLOCK


def _count_mapping(pid: int, found: "re.Match[bytes]", use: ProcessUse) -> None:
    """Count a deleted file that is only mapped; without root, count the mapped length."""
    start, end, name = int(found[1], 16), int(found[2], 16), found[6]
    key = (os.makedev(int(found[3], 16), int(found[4], 16)), int(found[5]))
    if name.startswith(_NO_FILES) or key in use.nameless or key in use.memory_files:
        return
    is_memory = name.startswith(_MEMORY_FILE.encode())
    try:
        size = Path(f"/proc/{pid}/map_files/{start:x}-{end:x}").stat().st_blocks * _BLOCK
    except OSError:
        size = 0 if is_memory else end - start  # mapped memory is already in the resident size
    (use.memory_files if is_memory else use.nameless)[key] = size


def _is_alive(pid: int) -> bool:
    """Return whether a process with unreadable `/proc` entries still runs and is still unreadable."""
    try:
        next(Path(f"/proc/{pid}/fd").iterdir(), None)
    except PermissionError:
        return True
    except OSError:
        pass
    return False
