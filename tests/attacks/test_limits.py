"""X: what a command may use, and what it gets from the server. No trick makes it more."""

import asyncio
import os
import re
import shutil
import stat
import subprocess
from itertools import accumulate
from pathlib import Path

import pytest
from support.loop_watch import LoopWatch

from deerflow.sandbox import WORKSPACE, CommandResult

from .conftest import ALL, LIMITS, AttackTarget

MEGABYTE = 1_048_576

PRELOADED = r"""
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>
__attribute__((constructor)) static void run(void) {
  int count = 0, fd = open("@/big", O_CREAT | O_WRONLY, 0600);
  static char block[1 << 20];
  signal(SIGXFSZ, SIG_IGN);
  while (write(fd, block, sizeof block) > 0 && ++count < 64) {}
  for (count = 0; count < 400; count++) {
    pid_t child = fork();
    if (child < 0) break;
    if (child == 0) { pause(); _exit(0); }
  }
  FILE *said = fopen("@/forked", "a");
  if (said) { fprintf(said, "%d\n", count); fclose(said); }
}
"""


async def test_exported_variables_take_effect_only_within_the_limits(target: AttackTarget) -> None:
    if (compiler := shutil.which("cc")) is None:
        pytest.skip("the attack is written in C, and this system has no compiler")
    workspace = target.folders.workspace
    seen = WORKSPACE if target.tier == "isolated" else str(workspace)
    source, library = target.outside.parent / "evil.c", target.outside.parent / "evil.so"
    source.write_text(PRELOADED.replace("@", seen))
    await asyncio.to_thread(subprocess.run, [compiler, "-shared", "-fPIC", "-o", library, source], check=True)
    await target.sandbox.update_file("evil.so", library.read_bytes())

    await target.run(f"export LD_PRELOAD={WORKSPACE}/evil.so")
    await target.run("true; /bin/true")  # the shell itself, and what it starts

    counts = [int(line) for line in (workspace / "forked").read_text().split()]
    assert 0 < max(counts) <= LIMITS.max_processes + 8
    assert (workspace / "big").stat().st_size <= LIMITS.max_file_mb * MEGABYTE


@pytest.mark.tiers("isolated")
async def test_nothing_that_a_command_exported_is_in_the_shells_own_environment(target: AttackTarget) -> None:
    names = (
        *("LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT", "LD_DEBUG", "BASH_ENV", "ENV", "PROMPT_COMMAND"),
        *("PYTHONSTARTUP", "POSIXLY_CORRECT", "LOCPATH", "GCONV_PATH", "TZ", "FOO"),
    )
    await target.run("; ".join(f"export {name}=$PWD/evil" for name in names))

    result = await target.run(
        "while IFS= read -r -d '' pair; do echo \"$pair\"; done < /proc/$$/environ; echo -- $FOO"
    )

    before, after = result.output.split("-- ")
    assert "PATH=" in before
    assert "/evil" not in before
    assert after == "/mnt/user-data/workspace/evil\n"  # and the next command has it all the same


async def test_exports_that_no_shell_accepts_do_not_stop_the_next_command(target: AttackTarget) -> None:
    await target.run("export POSIXLY_CORRECT=1 UID EUID PPID LC_ALL=xx_YY; export A=$'1\\n2'")

    assert (await target.run('echo "$A"')).output.endswith("1\n2\n")


SET_ID = r"""
import os
folder = os.open(".", os.O_RDONLY)
def refused(name, attempt):
    try:
        attempt()
    except OSError:
        pass
    for file in os.listdir("."):
        if os.stat(file, follow_symlinks=False).st_mode & 0o6000:
            print(name, "made", file)
            os.chmod(file, 0o755)
for bits in (0o4755, 0o2755, 0o6755):
    open("plain", "w").close()
    refused("chmod", lambda: os.chmod("plain", bits))
    refused("fchmod", lambda: os.fchmod(os.open("plain", os.O_RDONLY), bits))
    refused("fchmodat", lambda: os.chmod("plain", bits, dir_fd=folder))
    refused("mknod", lambda: os.mknod("node", 0o100000 | bits))
    refused("mknodat", lambda: os.mknod("node2", 0o100000 | bits, dir_fd=folder))
    refused("open", lambda: os.open("opened", os.O_CREAT | os.O_WRONLY, bits))
    refused("openat", lambda: os.open("opened2", os.O_CREAT | os.O_WRONLY, bits, dir_fd=folder))
    def unnamed():
        fd = os.open(".", os.O_TMPFILE | os.O_RDWR, bits)
        print("unnamed", oct(os.fstat(fd).st_mode))
    refused("tmpfile", unnamed)
    import ctypes, platform, struct
    libc = ctypes.CDLL(None, use_errno=True)
    old = platform.machine() == "x86_64"
    how = struct.pack("QQQ", os.O_CREAT | os.O_WRONLY, bits, 0)
    refused("openat2", lambda: libc.syscall(437, folder, b"opened3", how, 24))
    refused("fchmodat2", lambda: libc.syscall(452, folder, b"plain", bits, 0))
    if old:
        refused("open, the call", lambda: libc.syscall(2, b"opened4", os.O_CREAT | os.O_WRONLY, bits))
        refused("creat", lambda: libc.syscall(85, b"opened5", bits))
        refused("chmod, the call", lambda: libc.syscall(90, b"plain", bits))
        refused("mknod, the call", lambda: libc.syscall(133, b"node3", 0o100000 | bits, 0))
os.close(os.open("fine", os.O_CREAT | os.O_WRONLY, 0o755))
print("end", oct(os.stat("fine").st_mode & 0o7777))
"""


async def test_x40_no_call_makes_a_set_id_file(target: AttackTarget) -> None:
    result = await target.python(SET_ID)

    assert result.output == "end 0o755\n"


@pytest.mark.tiers(*ALL)
async def test_other_users_of_the_host_do_not_get_into_a_thread(target: AttackTarget) -> None:
    other = target.other_thread()
    other.create()
    other.root.chmod(0o755)  # as earlier versions left it
    async with target.provider.acquire(other):
        pass

    assert stat.S_IMODE(other.root.stat().st_mode) & 0o067 == 0  # root lets the commands' group pass
    if os.geteuid() == 0:  # who else there is, nobody can find out without root
        assert "Permission denied" in await asyncio.to_thread(listed_by_nobody, other.workspace)


def listed_by_nobody(folder: Path) -> str:
    """Return what a user without rights hears who lists `folder`."""
    return subprocess.run(
        ["/bin/ls", folder],
        user=65534,
        group=65534,
        extra_groups=[],
        text=True,
        stderr=subprocess.STDOUT,
        stdout=subprocess.PIPE,
    ).stdout


@pytest.mark.tiers("isolated", "landlock", "local")
async def test_a_command_inherits_only_what_it_needs(target: AttackTarget) -> None:
    kept = os.open("/", os.O_RDONLY)  # what the server has open, in a way that children would inherit
    os.set_inheritable(kept, True)
    try:
        result = await target.python(
            "import fcntl, os, stat\n"
            "for fd in range(1024):\n"
            " try: about = os.fstat(fd)\n except OSError: continue\n"
            " mode = fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE\n"
            " try: seals = fcntl.fcntl(fd, 1034)\n except OSError: seals = 0\n"
            " print(fd if fd < 3 else 'more', mode, seals)\n"
        )
    finally:
        os.close(kept)

    # 7: it neither grows nor shrinks, and nobody unseals it
    assert result.output == "0 0 0\n1 1 0\n2 1 0\nmore 2 7\n"


@pytest.mark.tiers("isolated")
async def test_no_process_of_a_sandbox_holds_a_descriptor_of_the_server(target: AttackTarget) -> None:
    result = await target.run(
        "for fd in /proc/[0-9]*/fd/*; do readlink $fd; done | sed 's/[0-9]\\{2,\\}/N/' | sort -u"
    )

    allowed = {"/dev/null", "pipe:[N]", "anon_inode:[eventfd]", "/memfd:state (deleted)"}
    assert set(result.output.splitlines()) <= allowed | {f"pipe:[{n}]" for n in range(10)}


HOLD = r"""
import os, socket, sys, time
held, kept = [], socket.socketpair()
def block(fd, megabytes=4):
    for _ in range(megabytes):
        os.write(fd, b"x" * (1 << 20))
def deleted():
    fd = os.open("gone", os.O_CREAT | os.O_RDWR, 0o600)
    os.unlink("gone")
    block(fd)
    held.append(fd)
def unnamed():
    fd = os.open(".", os.O_TMPFILE | os.O_RDWR, 0o600)
    block(fd)
    held.append(fd)
def sent():
    deleted()
    fd = held.pop()
    socket.send_fds(kept[0], [b"x"], [fd])
    os.close(fd)
def memory():
    fd = os.memfd_create("x")
    block(fd)
    held.append(fd)
def locked():
    name = f"locked{len(held)}"
    os.mkdir(name)
    fd = os.open(name + "/file", os.O_CREAT | os.O_RDWR, 0o600)
    block(fd)
    os.close(fd)
    folder = os.open(name, os.O_RDONLY)
    os.fchmod(folder, 0)
    os.close(folder)
    held.append(name)
import ctypes
ctypes.CDLL(None).prctl(4, 0)  # hide from whoever looks
print("begun", flush=True)
for _ in range(100):  # 400 MB
    vars()[sys.argv[1]]()
    time.sleep(0.03)
print("not stopped")
"""


@pytest.mark.parametrize("way", ["deleted", "unnamed", "sent", "locked"])
async def test_files_without_a_name_or_behind_a_lock_count(target: AttackTarget, way: str) -> None:
    await target.sandbox.write_file("hold.py", HOLD)

    result = await target.run(f"/usr/bin/python3 hold.py {way}")

    assert result.output.startswith("begun\n")
    assert "not stopped" not in result.output
    assert "grew above 48 MB" in result.output
    if way == "locked":
        modes = {stat.S_IMODE(path.stat().st_mode) for path in target.folders.workspace.glob("locked*")}
        assert modes <= {0, 0o755}  # the last one may have been stopped before it was locked


async def test_files_in_memory_count_as_memory(target: AttackTarget) -> None:
    await target.sandbox.write_file("hold.py", HOLD)

    result = await target.run("/usr/bin/python3 hold.py memory")

    assert result.output.startswith("begun\n")
    assert "not stopped" not in result.output
    assert result.exit_code != 0


async def test_a_program_that_nobody_may_read_hides_nothing(target: AttackTarget) -> None:
    await target.run(
        "cp /usr/bin/python3 own && python3 -c \"import os; os.fchmod(os.open('own', 0), 0o111)\""
    )
    await target.sandbox.write_file("hold.py", HOLD)

    result = await target.run("./own hold.py deleted")

    assert "not stopped" not in result.output
    assert re.search("grew above 48 MB|hides its open files", result.output)


async def test_the_commands_of_a_thread_share_its_memory(target: AttackTarget) -> None:
    begun = asyncio.Barrier(8)
    hold = "data = bytearray(b'x') * (70 << 20); print(1, flush=True); import time; time.sleep(5)"

    async def one() -> CommandResult:
        await begun.wait()
        return await target.run(f'/usr/bin/python3 -c "{hold}; print(2)"')

    results = await asyncio.gather(*(one() for _ in range(8)))

    whole = [result for result in results if result.exit_code == 0 and "2" in result.output]
    assert len(whole) * 70 <= LIMITS.memory_mb  # of eight times seventy


@pytest.mark.tiers("isolated")  # without namespaces the kernel counts all processes of the user
async def test_the_commands_of_a_thread_share_its_processes(target: AttackTarget) -> None:
    many = "for i in $(seq 30); do sleep 6 & done; wait; echo whole"

    results = await asyncio.gather(*(target.run(many) for _ in range(4)))

    whole = [result for result in results if result.output.endswith("whole\n")]
    assert len(whole) * 30 <= LIMITS.max_processes + 8
    assert any("together had more than 64 processes" in result.output for result in results)


async def test_two_hundred_commands_at_once_wait_in_line(target: AttackTarget) -> None:
    await target.run("true")
    one = "echo + >> steps; for i in 1 2 3 4 5; do cat steps > /dev/null; done; echo - >> steps; echo done"

    async with LoopWatch():
        results = await asyncio.gather(*(target.run(one, timeout=300) for _ in range(200)))

    assert [result.output for result in results] == ["done\n"] * 200
    marks = (await target.run("cat steps")).output.split()
    at_once = accumulate(1 if mark == "+" else -1 for mark in marks)
    assert len(marks) == 400
    assert max(at_once) <= LIMITS.max_commands


async def test_memory_that_belongs_to_no_process_is_refused_or_counted(target: AttackTarget) -> None:
    result = await target.python(
        "import ctypes, time\nlibc = ctypes.CDLL(None)\nlibc.shmat.restype = ctypes.c_void_p\n"
        "for _ in range(40):\n"
        " number = libc.shmget(0, 16 << 20, 0o1600)\n"
        " if number < 0: print('refused'); break\n"
        " area = ctypes.c_void_p(libc.shmat(number, None, 0))\n"
        " ctypes.memset(area, 1, 16 << 20)\n libc.shmdt(area); time.sleep(.02)\n"
        "else: print('not stopped')"
    )

    assert result.output == "refused\n" or result.exit_code != 0


@pytest.mark.tiers("local")
async def test_where_nothing_confines_a_program_it_may_hide(target: AttackTarget) -> None:
    hide = "import ctypes, time; ctypes.CDLL(None).prctl(4, 0); time.sleep(1.2); print('end')"

    assert (await target.run(f'/usr/bin/python3 -c "{hide}"')).output == "end\n"
