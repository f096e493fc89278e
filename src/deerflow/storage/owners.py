"""Identify the process that owns a run by a file lock, which the kernel releases when the process dies.

Every run also has a lease. The lock is immediate and always correct, but only for processes on the same
machine that share the lock folder; for all others the lease decides.
"""

import functools
import hashlib
import os
import socket
import uuid
from pathlib import Path
from typing import IO

try:
    import fcntl
except ImportError:  # Windows has no fcntl: only the lease decides there
    fcntl = None  # type: ignore[assignment]

LEASE_SECONDS = 30
"""How long a run keeps its owner without a heartbeat."""


class OwnerLock:
    """This process as an owner; `id` is stored in the runs that it claims."""

    def __init__(self, folder: Path) -> None:
        """Create a new id and lock its file in `folder`, which all owners of one home share."""
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._folder = folder
        self._folder_id = _folder_id(folder)
        self.id = f"{self._folder_id}-{os.getpid()}-{uuid.uuid4().hex[:12]}"
        # Lock before renaming: the file of a living owner is never visible unlocked.
        draft = folder / f"{self.id}.new"
        self._file: IO[bytes] | None = draft.open("wb")
        if fcntl is not None:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        draft.rename(self._path(self.id))

    def is_local(self, owner: str) -> bool:
        """Return whether `owner` has its lock on this machine and in this folder, where it is reliable."""
        return fcntl is not None and owner.startswith(f"{self._folder_id}-")

    def is_alive(self, owner: str | None) -> bool:
        """Return whether the owner's process is alive; True when only its lease can decide that."""
        if owner is None:
            return False
        if owner == self.id:
            return self._file is not None
        return not self.is_local(owner) or _is_locked(self._path(owner))

    def clean_up(self) -> int:
        """Delete the lock files of dead owners and return their number."""
        dead = [
            path for path in self._folder.glob(f"{self._folder_id}-*.lock") if not self.is_alive(path.stem)
        ]
        for path in dead:
            path.unlink(missing_ok=True)
        return len(dead)

    def close(self) -> None:
        """Release the lock: other owners may now claim the runs that this one left."""
        if self._file is not None:
            # Delete the file before releasing the lock: an unlocked lock file means a dead owner.
            self._path(self.id).unlink(missing_ok=True)
            self._file.close()
            self._file = None

    def _path(self, owner: str) -> Path:
        # A forged id must not lead out of the folder.
        name = owner if all(letter.isalnum() or letter in "-_" for letter in owner) else "unknown"
        return self._folder / f"{name}.lock"


def _is_locked(path: Path) -> bool:
    assert fcntl is not None
    try:
        file = path.open("rb")
    except OSError:
        return False
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
        return False


def _folder_id(folder: Path) -> str:
    """Return a short id of a folder on this machine that is stable across restarts."""
    location = f"{_machine()} {folder.resolve()} {folder.stat().st_ino}"
    return hashlib.blake2b(os.fsencode(location), digest_size=5).hexdigest()


@functools.cache
def _machine() -> str:
    try:
        seed = Path("/etc/machine-id").read_text()
    except OSError:
        seed = f"{uuid.getnode():x}"
    return f"{socket.gethostname()} {seed}"
