"""Who owns a run: a process, known by a lock that the system lets go when the process dies.

Beside it every run has a lease. The lock answers at once and cannot be wrong, but only on the machine
that the process runs on and for those who have the same folder of locks; for all others the lease decides.
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
except ImportError:  # not on Windows: there the lease decides alone
    fcntl = None  # type: ignore[assignment]

LEASE_SECONDS = 30
"""How long a run stays its owner's without a heartbeat."""


class OwnerLock:
    """This process as an owner; `id` goes into the runs it takes up."""

    def __init__(self, folder: Path) -> None:
        """Take a fresh id and its lock in `folder`, which all owners of one home share."""
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._folder = folder
        self._mark = _mark(folder)
        self.id = f"{self._mark}-{os.getpid()}-{uuid.uuid4().hex[:12]}"
        # Locked before it has its name: nobody ever sees the file of a living owner unlocked.
        draft = folder / f"{self.id}.new"
        self._file: IO[bytes] | None = draft.open("wb")
        if fcntl is not None:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        draft.rename(self._path(self.id))

    def is_local(self, owner: str) -> bool:
        """Tell whether `owner` has its lock on this machine and in this folder, where it tells the truth."""
        return fcntl is not None and owner.startswith(f"{self._mark}-")

    def is_alive(self, owner: str | None) -> bool:
        """Tell whether the owner's process lives; True for one that only its lease can tell of."""
        if owner is None:
            return False
        if owner == self.id:
            return self._file is not None
        return not self.is_local(owner) or _is_locked(self._path(owner))

    def clean_up(self) -> int:
        """Delete the lock files of dead owners and return how many there were."""
        dead = [path for path in self._folder.glob(f"{self._mark}-*.lock") if not self.is_alive(path.stem)]
        for path in dead:
            path.unlink(missing_ok=True)
        return len(dead)

    def close(self) -> None:
        """Give the lock back: from now on others may take up what this owner left."""
        if self._file is not None:
            # First the name, then the lock: a lock file that nobody holds is a dead owner's.
            self._path(self.id).unlink(missing_ok=True)
            self._file.close()
            self._file = None

    def _path(self, owner: str) -> Path:
        # An id that somebody made up must not lead out of the folder.
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


def _mark(folder: Path) -> str:
    """Return a short name of a folder on this machine that a restart does not change."""
    place = f"{_machine()} {folder.resolve()} {folder.stat().st_ino}"
    return hashlib.blake2b(os.fsencode(place), digest_size=5).hexdigest()


@functools.cache
def _machine() -> str:
    try:
        seed = Path("/etc/machine-id").read_text()
    except OSError:
        seed = f"{uuid.getnode():x}"
    return f"{socket.gethostname()} {seed}"
