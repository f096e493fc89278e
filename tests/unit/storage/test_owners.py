import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from deerflow.storage.owners import OwnerLock

HOLD = """
import sys, time
from pathlib import Path
from deerflow.storage.owners import OwnerLock
lock = OwnerLock(Path(sys.argv[1]))
print(lock.id, flush=True)
time.sleep(60)
"""


def test_an_owner_is_alive_until_it_closes(tmp_path: Path) -> None:
    mine, other = OwnerLock(tmp_path / "owners"), OwnerLock(tmp_path / "owners")

    assert mine.id != other.id
    assert mine.is_alive(other.id)
    assert mine.is_alive(mine.id)
    other.close()
    other.close()
    assert not mine.is_alive(other.id)
    assert not other.is_alive(other.id)
    mine.close()
    assert stat.S_IMODE((tmp_path / "owners").stat().st_mode) == 0o700


def test_no_owner_and_unknown_owners(tmp_path: Path) -> None:
    lock = OwnerLock(tmp_path)
    machine = lock.id.split("-")[0]

    assert not lock.is_alive(None)
    assert not lock.is_alive(f"{machine}-1-never")
    assert not lock.is_alive(f"{machine}-/../../etc/passwd")
    assert lock.is_alive("elsewhere-1-abc")
    assert not lock.is_local("elsewhere-1-abc")
    lock.close()


@pytest.mark.skipif(sys.platform == "win32", reason="there the lease decides alone")
def test_a_killed_process_is_a_dead_owner_and_is_cleaned_up(tmp_path: Path) -> None:
    lock = OwnerLock(tmp_path)
    child = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    owner = child.stdout.readline().strip()

    assert lock.is_alive(owner)
    assert lock.clean_up() == 0
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    child.stdout.close()

    assert not lock.is_alive(owner)
    assert lock.clean_up() == 1
    assert [path.stem for path in tmp_path.iterdir()] == [lock.id]
    assert lock.is_alive(lock.id)
    lock.close()


def test_a_lock_in_another_folder_is_ignored(tmp_path: Path) -> None:
    mine, other = OwnerLock(tmp_path / "one"), OwnerLock(tmp_path / "two")

    assert not mine.is_local(other.id)
    assert mine.is_alive(other.id)
    other.close()
    assert mine.is_alive(other.id)
    mine.close()
