"""Synchronizes a thread's folders with their copy in a container that does not mount them.

Changes on this host are copied to the container before a command, changes in the container back after it.
So the file tools always work on this host, and uploads, artifacts and search do not depend on where commands
run.
"""

import asyncio
import base64
import io
import logging
import os
import stat
import tarfile
from dataclasses import dataclass
from pathlib import Path

from deerflow.domain import ThreadFolders
from deerflow.errors import SandboxError
from deerflow.sandbox.aio.api import AioApi
from deerflow.sandbox.files import ThreadFiles
from deerflow.sandbox.paths import USER_DATA

logger = logging.getLogger(__name__)

MAX_TRANSFER_BYTES = 128 * 1024 * 1024
MAX_FILES = 20_000
TRANSFER_SECONDS = 120.0
LATEST = 4e9
"""Upper bound of modification times, in seconds; the container's values are untrusted."""
FOLDERS = ("workspace", "uploads", "outputs")
NAMES_FILE, OUTGOING, INCOMING = "/tmp/.deerflow-names", "/tmp/.deerflow-out", "/tmp/.deerflow-in"

PREPARE = f"""
mkdir -p {USER_DATA}/workspace {USER_DATA}/uploads {USER_DATA}/outputs 2>/dev/null ||
  sudo -n sh -c 'cd {USER_DATA} 2>/dev/null || mkdir -p {USER_DATA} && cd {USER_DATA} &&
    mkdir -p workspace uploads outputs && chmod 777 workspace uploads outputs'
"""
LIST = rf"cd {USER_DATA} && find {' '.join(FOLDERS)} -type f -printf '%s %T@ %p\0' 2>/dev/null | base64 -w0"
UNPACK = f"tar -xf {INCOMING} -C {USER_DATA} --no-same-owner; rm -f {INCOMING}"
REMOVE = f"cd {USER_DATA} && xargs -0 -r rm -f -- <{NAMES_FILE}; rm -f {NAMES_FILE}"
PACK = f"""
cd {USER_DATA} && tar --format=posix --null --no-recursion -cf {OUTGOING} -T {NAMES_FILE}
rm -f {NAMES_FILE}
"""


@dataclass(frozen=True, slots=True)
class FileStamp:
    """Size and modification time, by which a changed file is detected."""

    size: int
    changed_at: float

    def is_same(self, other: "FileStamp | None") -> bool:
        """Return whether the other side's file is unchanged, within the time resolution of an archive."""
        return (
            other is not None and self.size == other.size and abs(self.changed_at - other.changed_at) < 1e-4
        )


class Mirror:
    """Synchronizes the folders of one thread with one container."""

    def __init__(self, folders: ThreadFolders, files: ThreadFiles, api: AioApi) -> None:
        self._root = folders.user_data
        self._files = files
        self._api = api
        self._local: dict[str, FileStamp] | None = None
        """This host's files after the last synchronization; None before the first."""
        self._remote: dict[str, FileStamp] = {}

    async def push(self) -> None:
        local = await asyncio.to_thread(_stamps, self._root)
        if self._local is None:
            await self._run(PREPARE)
            self._remote = await self._listed()
            self._local = {
                name: stamp for name, stamp in local.items() if stamp.is_same(self._remote.get(name))
            }
        changed = [name for name, stamp in local.items() if self._local.get(name) != stamp]
        gone = [name for name in self._local if name not in local]
        size = sum(local[name].size for name in changed)
        if size > MAX_TRANSFER_BYTES or len(local) > MAX_FILES:
            raise SandboxError(
                f"{len(local)} files ({size} bytes changed) are too much to copy into the container; remove "
                "what is not needed, or have the operator share the folders (sandbox.thread_data_mounts)"
            )
        if changed:
            await self._put(INCOMING, await asyncio.to_thread(_packed, self._root, changed))
            await self._run(UNPACK)
        if gone:
            await self._put(NAMES_FILE, _name_list(gone))
            await self._run(REMOVE)
        if changed or gone:
            self._remote = await self._listed()
        self._local = local

    async def pull(self) -> str:
        """Copy changes in the container to this host; return a note on files that were not copied."""
        remote = await self._listed()
        changed = [name for name, stamp in remote.items() if self._remote.get(name) != stamp]
        copied = _fit_transfer(changed, remote)
        left = sorted(set(changed) - set(copied))
        if copied:
            await self._put(NAMES_FILE, _name_list(copied))
            await self._run(PACK)
            most = MAX_TRANSFER_BYTES + 10_240 * (len(copied) + 2)  # plus the archive's headers
            left += await self._unpacked(await self._api.download(OUTGOING, max_bytes=most))
        gone = [name for name in self._remote if name not in remote]
        known = self._local or {}
        await asyncio.to_thread(_remove, self._root, {name: known[name] for name in gone if name in known})
        self._remote = remote
        return f"\n[not copied to the thread's folders: {', '.join(left[:10])}]" if left else ""

    async def _unpacked(self, archive: bytes) -> list[str]:
        """Write the archive's files; return the names of those that were refused."""
        refused: list[str] = []
        for name, data, changed_at in await asyncio.to_thread(_members, archive):
            try:
                path = self._files.table.resolve_for_writing(f"{USER_DATA}/{name}")
                await asyncio.to_thread(self._files.replace, path, data)
            except SandboxError as error:
                logger.info("file of a container is left out: %s", error)
                refused.append(name)
                continue
            file = path.mapping.host.joinpath(*path.parts)
            if self._local is not None:
                self._local[name] = await asyncio.to_thread(_set_time, file, changed_at)
        return refused

    async def _listed(self) -> dict[str, FileStamp]:
        """Return the container's files; its response is untrusted."""
        stamps: dict[str, FileStamp] = {}
        try:
            listing = os.fsdecode(base64.b64decode(await self._run(LIST)))
            for line in filter(None, listing.split("\0")):
                size, changed_at, name = line.split(" ", 2)
                if _is_in_folders(name):
                    stamps[name] = FileStamp(max(0, int(size)), float(changed_at))
        except ValueError as error:
            raise SandboxError(
                "the container's list of files cannot be read; run the command again"
            ) from error
        if len(stamps) > MAX_FILES:
            raise SandboxError(f"the container has more than {MAX_FILES} files; remove what is not needed")
        return stamps

    async def _put(self, path: str, content: bytes) -> None:
        body = {"file": path, "content": base64.b64encode(content).decode(), "encoding": "base64"}
        await self._api.call("/v1/file/write", body, seconds=TRANSFER_SECONDS)

    async def _run(self, command: str) -> str:
        response = await self._api.run_internal(command, seconds=TRANSFER_SECONDS)
        if response.get("status") != "completed" or response.get("exit_code"):
            raise SandboxError("the thread's files could not be copied to or from the container; try again")
        return str(response.get("stdout") or response.get("output") or "")


def _stamps(root: Path) -> dict[str, FileStamp]:
    """Return the regular files below the thread's folders; links are neither followed nor copied."""
    found: dict[str, FileStamp] = {}
    for folder in FOLDERS:
        for folder_path, _, names in os.walk(root / folder):
            for name in names:
                path = Path(folder_path) / name
                try:
                    about = path.lstat()
                except FileNotFoundError:  # removed meanwhile
                    continue
                if stat.S_ISREG(about.st_mode) and about.st_nlink == 1:
                    found[str(path.relative_to(root))] = FileStamp(about.st_size, about.st_mtime)
    return found


def _packed(root: Path, names: list[str]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name in names:
            archive.add(root / name, arcname=name, recursive=False)
    return out.getvalue()


def _members(archive: bytes) -> list[tuple[str, bytes, float]]:
    """Return the regular files of an untrusted archive."""
    found: list[tuple[str, bytes, float]] = []
    left = MAX_TRANSFER_BYTES
    try:
        with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
            for member in opened:
                if not member.isreg() or member.issparse() or not _is_in_folders(member.name):
                    continue
                left -= member.size
                file = opened.extractfile(member)
                if left < 0 or file is None:
                    break
                found.append((member.name, file.read(), min(max(0.0, float(member.mtime)), LATEST)))
    except (tarfile.TarError, EOFError, ValueError) as error:
        raise SandboxError("the container's files cannot be read; try again") from error
    return found


def _is_in_folders(name: str) -> bool:
    parts = name.split("/")
    return len(parts) > 1 and parts[0] in FOLDERS and ".." not in parts and "" not in parts


def _set_time(file: Path, changed_at: float) -> FileStamp:
    """Set a file's time to that in the container, so that a later run recognizes it as unchanged."""
    os.utime(file, (changed_at, changed_at), follow_symlinks=False)
    about = file.lstat()
    return FileStamp(about.st_size, about.st_mtime)


def _name_list(names: list[str]) -> bytes:
    return b"".join(os.fsencode(name) + b"\0" for name in names)


def _fit_transfer(names: list[str], stamps: dict[str, FileStamp]) -> list[str]:
    """Return the files that fit into one transfer, smallest first."""
    left = MAX_TRANSFER_BYTES
    fits: list[str] = []
    for name in sorted(names, key=lambda name: stamps[name].size):
        left -= stamps[name].size
        if left < 0:
            break
        fits.append(name)
    return fits


def _remove(root: Path, gone: dict[str, FileStamp]) -> None:
    """Remove files that were deleted in the container, unless they changed on this host meanwhile."""
    for name, stamp in gone.items():
        path = root / name
        try:
            about = path.lstat()
            if stat.S_ISREG(about.st_mode) and FileStamp(about.st_size, about.st_mtime) == stamp:
                path.unlink()
        except OSError:
            continue
