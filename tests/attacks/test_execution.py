"""X: commands. None gets out, none outlives its command, none takes the server with it."""

import asyncio
import os
import re
import resource
import time
from contextlib import suppress
from pathlib import Path

import pytest

from deerflow.errors import SandboxError, SandboxTimeoutError
from deerflow.sandbox import OUTPUTS, WORKSPACE, remove_tree

from .conftest import ALL, LIMITS, AttackTarget, forty_marked, gone

MEGABYTE = 1_048_576


def is_shared(name: str) -> bool:
    return Path("/dev/shm", name).exists()


def core_pattern() -> str:
    return Path("/proc/sys/kernel/core_pattern").read_text()


@pytest.mark.tiers(*ALL)
async def test_x22_shell_words_in_arguments_that_we_build(target: AttackTarget) -> None:
    words = "$(touch pwned) `touch pwned`; touch pwned | touch pwned\ntouch pwned -e --help"
    await target.sandbox.write_file("-rf $(touch pwned);`id`.txt", "needle $(touch pwned)")

    for pattern in (words, "$(touch pwned)", "-e needle", "--help", "; touch pwned"):
        await target.sandbox.grep(WORKSPACE, pattern, literal=True)
        await target.sandbox.grep(WORKSPACE, "needle", glob=pattern)
        await target.sandbox.glob(WORKSPACE, pattern)
    found, _ = await target.sandbox.grep(WORKSPACE, "needle")

    assert [match.text for match in found] == ["needle $(touch pwned)"]
    assert not list(target.folders.root.rglob("pwned"))


@pytest.mark.tiers(*ALL)
async def test_x22_a_pattern_that_never_ends_is_stopped(target: AttackTarget) -> None:
    await target.sandbox.write_file("a.txt", "a" * 5000 + "\n")
    searching = asyncio.create_task(target.sandbox.grep(WORKSPACE, r"(a+)+(a+)+(a+)+b", glob="*.txt"))

    for _ in range(50):  # the server goes on meanwhile
        await asyncio.sleep(0.01)

    if searching.done():  # ripgrep's patterns always come to an end
        assert searching.result() == ([], False)
    else:
        searching.cancel()
        with pytest.raises(asyncio.CancelledError):
            await searching


async def test_x23_a_fork_bomb_of_the_shell(target: AttackTarget, memory: None) -> None:
    with pytest.raises(SandboxTimeoutError):
        await target.run("bomb() { bomb | bomb & bomb; }; bomb", timeout=1.5)

    assert (await target.run("echo alive")).output == "alive\n"


async def test_x24_a_fork_bomb_in_python(target: AttackTarget, memory: None) -> None:
    script = "import os\nwhile True:\n try: os.fork()\n except OSError: pass\n"

    with suppress(SandboxTimeoutError):  # it may also end for its memory
        assert (await target.python(script, timeout=1.5)).exit_code != 0

    assert (await target.run("echo alive")).output == "alive\n"


async def test_x24_the_number_of_processes_is_bounded(target: AttackTarget) -> None:
    result = await target.python(
        "import os, time\nn = 0\nfor _ in range(500):\n"
        " try:\n  if os.fork() == 0: time.sleep(90); os._exit(0)\n  n += 1\n except OSError: break\nprint(n)"
    )

    assert 10 < int(result.output) <= LIMITS.max_processes + 8


async def test_x25_a_memory_bomb(target: AttackTarget, memory: None) -> None:
    result = await target.python("data = []\nwhile True: data.append(bytearray(8 << 20))")

    assert result.exit_code != 0
    assert (await target.run("echo alive")).output == "alive\n"


async def test_x25_memory_that_no_process_limit_counts(target: AttackTarget, memory: None) -> None:
    result = await target.python(
        "import mmap, time\nareas = []\n"
        "while True:\n m = mmap.mmap(-1, 16 << 20)\n m.write(b'x' * (16 << 20))\n"
        " areas.append(m); time.sleep(.02)"
    )

    assert result.exit_code != 0


async def test_x26_a_memory_bomb_summed_over_children(target: AttackTarget, memory: None) -> None:
    result = await target.python(
        "import os, time\n"
        "for _ in range(20):\n if os.fork() == 0:\n  data = bytearray(40 << 20); time.sleep(8); os._exit(0)\n"
        "bad = 0\nfor _ in range(20): bad += os.wait()[1] != 0\nprint('killed', bad)"
    )

    killed = re.search(r"killed (\d+)", result.output)
    assert "stopped: it used more than" in result.output or (killed and int(killed[1]) > 0)


async def test_x27_filling_temporary_places(target: AttackTarget) -> None:
    result = await target.run(
        "head -c 400M /dev/zero > /tmp/fill; echo $?; head -c 400M /dev/zero > /dev/shm/fill; echo $?;"
        "stat -c %s /tmp/fill /dev/shm/fill 2>/dev/null; true"
    )

    sizes = [int(line) for line in result.output.splitlines() if line.isdigit() and len(line) > 4]
    assert all(size <= LIMITS.max_file_mb * MEGABYTE for size in sizes)
    assert not is_shared("fill")


async def test_x28_filling_the_workspace_with_files(target: AttackTarget) -> None:
    result = await target.run(
        "i=0; while :; do i=$((i+1)); head -c 4M /dev/zero > file$i || exit; done", timeout=60
    )

    used = sum(path.stat().st_blocks * 512 for path in target.folders.workspace.iterdir())
    assert "the thread's folders grew above 48 MB" in result.output
    assert used < 4096 * MEGABYTE


async def test_x28_one_huge_file(target: AttackTarget) -> None:
    result = await target.run("head -c 100M /dev/zero > big; echo code $?")

    assert "code 0" not in result.output
    assert (target.folders.workspace / "big").stat().st_size <= LIMITS.max_file_mb * MEGABYTE


async def test_x29_using_up_inodes(target: AttackTarget) -> None:
    result = await target.run("mkdir -p d; i=0; while :; do i=$((i+1)); : > d/$i; done", timeout=60)

    assert "have more than 2000 files" in result.output


async def test_x30_a_flood_of_output(target: AttackTarget, memory: None) -> None:
    pieces: list[int] = []

    result = await target.sandbox.execute_command(
        "yes", timeout=60, on_output=lambda text: pieces.append(len(text))
    )

    assert "stopped: it printed too much" in result.output
    assert len(result.output) < 25_000
    assert sum(pieces) <= 2 * MEGABYTE


async def test_x30_a_line_that_never_ends(target: AttackTarget, memory: None) -> None:
    result = await target.run("head -c 30M /dev/zero | tr '\\0' x", timeout=60)

    assert len(result.output) < 25_000
    assert "left out]" in result.output


async def test_x32_output_that_is_no_text(target: AttackTarget) -> None:
    result = await target.run(
        r"printf 'a\0b\xff\xfe\x1b[31mred\x1b[0m\x1b]0;title\x07\x1b]8;;http://x\x1b\\link\x08\x9b31m\r\nend\n'"
    )

    assert result.output.endswith("end\n")
    assert not set(result.output) & {chr(code) for code in range(32) if chr(code) not in "\n\t"}
    assert result.output.encode()


async def test_x33_a_daemon(target: AttackTarget) -> None:
    await target.run(
        "setsid sleep 60 >/dev/null 2>&1 & disown;"
        "(setsid bash -c '(sleep 60 &) & exec sleep 60' >/dev/null 2>&1 &); nohup sleep 60 >/dev/null 2>&1 &"
    )

    await gone(target.mark)


async def test_x34_a_child_that_holds_the_output_open(target: AttackTarget) -> None:
    started = time.monotonic()

    result = await target.run("(setsid sleep 60 &) ; echo done")

    assert result.output == "done\n"
    assert time.monotonic() - started < 45  # of sixty
    await gone(target.mark)


async def test_x35_ignoring_every_signal(target: AttackTarget) -> None:
    started = time.monotonic()

    with pytest.raises(SandboxTimeoutError):
        await target.run(
            "trap '' TERM INT HUP QUIT; (trap '' TERM; sleep 60) & while :; do sleep 1; done", timeout=1
        )

    assert time.monotonic() - started < 45  # of sixty
    await gone(target.mark)


async def test_x37_killing_the_server(target: AttackTarget) -> None:
    result = await target.run(
        f"kill -9 {os.getpid()}; kill -9 {os.getppid()}; kill -9 $PPID; kill -STOP {os.getpid()};"
        "(setsid bash -c 'kill -9 -1' &); sleep 0.3; echo still here"
    )

    assert result.exit_code in (0, 137)  # it may have shot itself, and nobody else
    assert (await target.run("echo alive")).output == "alive\n"


async def test_x38_looking_into_other_processes(target: AttackTarget) -> None:
    result = await target.python(
        f"import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\n"
        f"print('attach', libc.ptrace(16, {os.getpid()}, 0, 0), libc.ptrace(16, 1, 0, 0))\n"
        f"buf = ctypes.create_string_buffer(64)\n"
        f"print('readv', libc.syscall(310, {os.getpid()}, buf, 1, buf, 1, 0))\n"
        f"for name in ('mem', 'environ', 'maps', 'root/etc/passwd', 'cwd', 'fd/0'):\n"
        f" try: open('/proc/{os.getpid()}/' + name, 'rb').read(1); print('opened', name)\n"
        f" except OSError as error: pass\n"
    )

    assert result.output == "attach -1 -1\nreadv -1\n"


async def test_x39_namespaces_mounts_and_roots(target: AttackTarget) -> None:
    result = await target.python(
        "import ctypes, os\nlibc = ctypes.CDLL(None, use_errno=True)\n"
        "def no(name, value):\n if value == 0: print('could', name)\n"
        "for flag in (0x10000000, 0x20000, 0x40000000, 0x20000000, 0x4000000, 0x8000000, 0x2000000):\n"
        " no(f'unshare {flag:x}', libc.unshare(flag))\n"
        "no('mount', libc.mount(b'none', b'/tmp', b'tmpfs', 0, None))\n"
        "no('bind', libc.mount(b'/', b'/mnt', None, 4096, None))\n"
        "no('remount', libc.mount(None, b'/', None, 32, None))\n"
        "no('umount', libc.umount2(b'/proc', 2))\n"
        "no('chroot', libc.chroot(b'.'))\n"
        "no('pivot', libc.syscall(155, b'.', b'.'))\n"
        "no('setns', libc.setns(0, 0))\n"
        "no('clone', libc.syscall(56, 0x10000000 | 17, 0, 0, 0, 0))\n"
        "no('clone3', libc.syscall(435, 0, 0))\n"
        "print('end')"
    )

    assert result.output == "end\n"


async def test_x40_devices_owners_and_capabilities(target: AttackTarget) -> None:
    result = await target.run(
        "mknod disk b 254 0 2>/dev/null && cat disk 2>/dev/null | head -c 1 && echo read a disk;"
        "cp /bin/bash sh && chmod 4755 sh && ./sh -p -c 'id -u' ; chown 0:0 sh 2>/dev/null;"
        "setcap cap_sys_admin+ep sh 2>/dev/null && echo capable;"
        "su -c id 2>/dev/null; sudo -n id 2>/dev/null; true"
    )

    assert "uid=0" not in result.output
    assert not re.search(r"(?m)^0$|capable|read a disk", result.output)


async def test_x40_a_setuid_file_is_of_no_use_to_the_host(target: AttackTarget) -> None:
    await target.run("cp /bin/bash sh; chmod 6755 sh")

    copy = target.folders.workspace / "sh"
    assert copy.stat().st_uid != 0 or os.geteuid() != 0


async def test_x42_typing_into_our_terminal(target: AttackTarget) -> None:
    result = await target.python(
        "import fcntl, os\n"
        "for path in ('/dev/tty', '/dev/pts/0', '/dev/console', '/dev/ptmx'):\n"
        " try: fd = os.open(path, os.O_RDWR)\n except OSError: continue\n"
        " for call in (0x5412, 0x541c):\n"
        "  try: fcntl.ioctl(fd, call, b'x'); print('typed into', path)\n  except OSError: pass\n"
        "print('end')"
    )

    assert result.output == "end\n"


async def test_x43_settings_of_the_kernel(target: AttackTarget) -> None:
    before = core_pattern()

    result = await target.python(
        "import os\n"
        "for top in ('/proc/sys', '/sys'):\n"
        " for folder, _, names in os.walk(top):\n"
        "  for name in names:\n"
        "   path = os.path.join(folder, name)\n"
        "   try: os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK)); print('opened', path)\n"
        "   except OSError: pass\n"
        "for path in ('/proc/sysrq-trigger', '/proc/self/oom_score_adj', '/proc/self/uid_map', '/proc/kcore',"
        " '/proc/self/mem', '/proc/1/mem', '/dev/mem', '/dev/kmsg'):\n"
        " try: os.close(os.open(path, os.O_WRONLY)); print('opened', path)\n except OSError: pass\n"
        "print('end')"
    )

    assert result.output == "end\n"
    assert core_pattern() == before


async def test_x45_paths_of_the_host(target: AttackTarget) -> None:
    result = await target.run(
        "cat /proc/1/cmdline /proc/*/cmdline /proc/*/environ 2>/dev/null | tr '\\0' '\\n'; env; pwd"
    )

    assert str(target.folders.root.parent) not in result.output
    assert "site-packages" not in result.output


async def test_x46_secrets_of_the_server(target: AttackTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-canary-in-environment")
    home = Path.home()

    result = await target.run(
        "env; set; cat /proc/*/environ /proc/self/environ 2>/dev/null | tr '\\0' '\\n';"
        f"cat {home}/.netrc {home}/.bash_history {home}/.gitconfig {home}/.ssh/* ~/.netrc 2>/dev/null;"
        f"ls -a {home} 2>&1; cat /etc/shadow 2>&1"
    )

    assert "sk-canary" not in result.output
    assert "root:" not in result.output.replace("/root:", "")
    assert not re.search(r"(?m)^\.(bashrc|profile|ssh)$", result.output)


async def test_x47_another_threads_workspace(target: AttackTarget) -> None:
    other = target.other_thread()
    async with target.provider.acquire(other) as neighbour:
        await neighbour.write_file("secret.txt", "neighbour")

        result = await target.run(
            f"cat {other.workspace}/secret.txt; ls {other.workspace.parent} {other.root.parent};"
            f"echo bad > {other.workspace}/secret.txt; rm -rf {other.workspace}; chmod 000 {other.workspace};"
            "cat /mnt/user-data/../*/secret.txt; find / -xdev -name secret.txt 2>/dev/null"
        )

        assert "neighbour" not in result.output
        assert await neighbour.read_file("secret.txt") == "neighbour"
        assert (await neighbour.execute_command("cat secret.txt")).output == "neighbour"


async def test_x49_strange_timeouts(target: AttackTarget) -> None:
    for timeout in (0, -5, float("nan"), float("-inf")):
        with pytest.raises(SandboxError, match="timeout"):
            await target.sandbox.execute_command("true", timeout=timeout)
    for timeout in (1e12, float("inf")):
        assert (await target.sandbox.execute_command("echo ok", timeout=timeout)).output == "ok\n"
    with pytest.raises(SandboxTimeoutError):
        await target.sandbox.execute_command("sleep 5", timeout=1e-9)


async def test_x50_cancelled_at_every_moment(target: AttackTarget) -> None:
    await target.run("true")

    for delay in (0.0, 0.001, 0.005, 0.01, 0.02, 0.04, 0.08, 0.16):
        running = asyncio.create_task(
            target.sandbox.execute_command("yes | head -c 50M; sleep 60", timeout=30)
        )
        await asyncio.sleep(delay)
        running.cancel()
        await asyncio.sleep(0)
        running.cancel()  # twice
        with pytest.raises(asyncio.CancelledError):
            await running

    await gone(target.mark)
    assert (await target.run("echo alive")).output == "alive\n"


async def test_x50_cancel_of_forty_detached_children_takes_less_than_a_second(target: AttackTarget) -> None:
    seconds = []
    for _ in range(10):  # the best of ten: other jobs share this machine
        seconds.append(await seconds_to_cancel_forty(target))
        await gone(target.mark)
        if seconds[-1] < 1:
            break

    assert min(seconds) < 1, seconds


async def seconds_to_cancel_forty(target: AttackTarget) -> float:
    begun = asyncio.Event()
    running = asyncio.create_task(
        target.sandbox.execute_command(
            "for i in $(seq 40); do setsid sleep 60 >/dev/null 2>&1 & done; echo begun; sleep 60",
            timeout=60,
            on_output=lambda _: begun.set(),
        )
    )
    await begun.wait()
    await forty_marked(target.mark)
    started = time.monotonic()

    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    return time.monotonic() - started


async def test_deep_calls_into_the_kernel(target: AttackTarget) -> None:
    result = await target.python(
        "import ctypes, os, platform\nlibc = ctypes.CDLL(None, use_errno=True)\n"
        "calls = dict(io_uring_setup=425, bpf=321, perf_event_open=298, userfaultfd=323, keyctl=250,"
        " add_key=248, open_by_handle_at=304, kexec_load=246, init_module=175, swapon=167, reboot=169,"
        " process_vm_readv=310, pidfd_getfd=438, fsopen=430, open_tree=428, quotactl=179, syslog=103,"
        " acct=163, settimeofday=164)\n"
        "assert platform.machine() == 'x86_64'\n"
        "for name, number in calls.items():\n"
        " ctypes.set_errno(0)\n"
        " code = libc.syscall(number, 0, 0, 0, 0, 0)\n"
        " if code >= 0 or ctypes.get_errno() != 1: print(name, code, ctypes.get_errno())\n"
        "for name, number in (('x32', 0x40000000 | 39),):\n"
        " pid = os.fork()\n"
        " if pid == 0: libc.syscall(number); os._exit(0)\n"
        " if os.waitpid(pid, 0)[1] & 127 != 31: print(name, 'was served')\n"
        "print('end')"
    )

    assert result.output == "end\n"


async def test_modes_owners_and_times_of_files_outside(target: AttackTarget) -> None:
    before = target.canary.stat()
    canary, outside = target.canary, target.outside

    await target.run(
        f"chmod 000 {canary} {outside}; chown 1 {canary}; touch -d 2001-01-01 {canary};"
        f"setfattr -n user.x -v y {canary}; truncate -s 0 {canary}; mv {canary} moved;"
        f"ln {canary} linked; rm -rf {outside}; true"
    )

    after = target.canary.stat()
    assert (after.st_mode, after.st_uid, after.st_mtime) == (before.st_mode, before.st_uid, before.st_mtime)
    assert sorted(path.name for path in target.folders.workspace.iterdir()) == []


async def test_limits_and_priorities_of_the_server(target: AttackTarget) -> None:
    limits, affinity = resource.getrlimit(resource.RLIMIT_NOFILE), os.sched_getaffinity(0)

    await target.python(
        f"import os, resource\npid = {os.getpid()}\n"
        "for attempt in (lambda: resource.prlimit(pid, resource.RLIMIT_NOFILE, (3, 3)),\n"
        " lambda: os.sched_setaffinity(pid, {0}), lambda: os.setpriority(os.PRIO_USER, 0, 19),\n"
        " lambda: os.setpriority(os.PRIO_PROCESS, pid, 19)):\n"
        " try: attempt()\n except OSError: pass\n"
    )

    assert resource.getrlimit(resource.RLIMIT_NOFILE) == limits
    assert os.sched_getaffinity(0) == affinity
    assert os.getpriority(os.PRIO_PROCESS, 0) < 19


async def test_a_forged_state_changes_nothing_but_itself(target: AttackTarget) -> None:
    await target.run(
        "for fd in /proc/self/fd/* ; do :; done;"
        r"printf '\1\0/etc\0PATH=/evil\0LD_PRELOAD=/evil.so\0=\0' >&\"$__state\" 2>/dev/null;"
        "export 'BASH_FUNC_ls%%=() { echo hijacked; }'; cd /usr; export LD_LIBRARY_PATH=x",
    )

    result = await target.run(f"pwd; cd {OUTPUTS}; pwd; ls -d .")

    assert result.exit_code == 0
    assert "hijacked" not in result.output
    assert OUTPUTS in result.output


async def test_a_huge_environment_does_not_stop_the_next_command(target: AttackTarget) -> None:
    await target.run(
        "export BIG=$(head -c 100000 /dev/zero | tr '\\0' x); for i in $(seq 300); do export V$i=$i; done"
    )

    assert (await target.run("echo ${#BIG} alive")).output.endswith("alive\n")


DEEP = "for i in $(seq 1500); do mkdir d && cd d || break; done; echo deep; sleep 50"


async def test_folders_nested_without_end(target: AttackTarget) -> None:
    result = await target.run(DEEP)

    assert "nested deeper than" in result.output
    assert len(await target.sandbox.list_dir(WORKSPACE)) == 2
    assert (await target.sandbox.glob(WORKSPACE, "**/nothing"))[0] == []
    assert (await target.sandbox.grep(WORKSPACE, "nothing"))[0] == []
    remove_tree(target.folders.workspace)
    assert not target.folders.workspace.exists()
    target.folders.create()


async def test_locked_folders_and_links_are_removed_with_their_thread(target: AttackTarget) -> None:
    await target.run(
        f"mkdir -p a/b/c; echo x > a/b/f; ln -s {target.outside} a/link; touch \"$(printf 'a\\nb')\""
    )
    await target.run("chmod 000 a/b; chmod 000 a")

    remove_tree(target.folders.workspace)

    assert not target.folders.workspace.exists()
    assert target.canary.read_text() == "canary"
    target.folders.create()
