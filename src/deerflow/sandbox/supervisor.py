"""Supervises a command that has no pid namespace, and kills all its descendants.

The server starts this file as a program without site-packages, so it may import only the standard library.
It adopts orphans (`PR_SET_CHILD_SUBREAPER`); when the command ends, on SIGTERM from the server or when the
server dies, it stops and kills every descendant.
"""

import base64
import ctypes
import json
import os
import signal
import struct
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

if sys.platform != "win32":
    import resource

PR_SET_PDEATHSIG = 1
PR_SET_SECCOMP = 22
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38
SECCOMP_MODE_FILTER = 2
LANDLOCK_CREATE_RULESET, LANDLOCK_ADD_RULE, LANDLOCK_RESTRICT_SELF = 444, 445, 446
LANDLOCK_RULE_PATH_BENEATH = 1
START_FAILED = 125
IS_LINUX = sys.platform == "linux"


def main() -> None:
    """Read the order from the descriptor in the arguments, run the command and exit with its exit code."""
    with os.fdopen(int(sys.argv[1])) as file:
        order = json.load(file)
    if IS_LINUX:
        _prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        _prctl(PR_SET_CHILD_SUBREAPER, 1)
        if os.getppid() != order["parent"]:
            os._exit(START_FAILED)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    child = os.fork()
    if child == 0:
        _exec_command(order)
    _wait_for(child)


def _wait_for(child: int) -> None:
    def stop(_number: int, _frame: FrameType | None) -> None:
        kill_descendants(child)
        os._exit(128 + signal.SIGTERM)

    signal.signal(signal.SIGTERM, stop)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == child:
            break
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    kill_descendants(child)
    code = os.waitstatus_to_exitcode(status)
    os._exit(code if code >= 0 else 128 - code)


def kill_descendants(child: int) -> None:
    """Kill every descendant of this process.

    All are stopped before any is killed: a stopped process still counts towards the process limit, so a
    fork bomb reaches the limit instead of outrunning the supervisor.
    """
    if not IS_LINUX:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(child, signal.SIGKILL)
        return
    while True:
        stopped: set[int] = set()
        while fresh := set(descendants(os.getpid())) - stopped:
            for pid in fresh:
                _signal(pid, signal.SIGSTOP)
            stopped |= fresh
        for pid in stopped:
            _signal(pid, signal.SIGKILL)
        if _has_no_children():
            return
        time.sleep(0.002)  # killed processes take time to exit, and one may have forked during the scan


def _has_no_children() -> bool:
    """Reap exited children without blocking; orphans are adopted, so no children means no descendants."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return True
    return False


def descendants(pid: int) -> Iterator[int]:
    """Yield the pids of the descendants of `pid`."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError, ValueError, IndexError):
                stat = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
                if stat[0] != "Z":
                    parents.setdefault(int(stat[1]), []).append(int(entry.name))
    waiting = [pid]
    while waiting:
        for found in parents.get(waiting.pop(), ()):
            yield found
            waiting.append(found)


def _exec_command(order: dict[str, Any]) -> None:
    """Drop to the rights in the order and exec the command."""
    try:
        os.setsid()
        os.chdir(order["cwd"])
        os.umask(0o022)
        rules = _open_rules(order["landlock"]) if order.get("landlock") else None
        if IS_LINUX:
            with suppress(OSError):  # the OOM killer should pick the command, not the supervisor
                Path("/proc/self/oom_score_adj").write_text("1000")
        if order["group"]:
            Path(order["group"], "cgroup.procs").write_text("0")
        for name, value in order["rlimits"].items():
            _limit(getattr(resource, name), value)
        present = _threads_of(os.geteuid() if order.get("uid") is None else order["uid"])
        if order.get("uid") is not None:
            os.setgroups([])
            os.setresgid(order["uid"], order["uid"], order["uid"])
            os.setresuid(order["uid"], order["uid"], order["uid"])
        if IS_LINUX:
            # Set after the change of user: the kernel refuses to exec (EAGAIN) when a change of user exceeds
            # the limit, and commands of other threads may have started since the count.
            _limit(resource.RLIMIT_NPROC, order["max_processes"] + present)
            _prctl(PR_SET_NO_NEW_PRIVS, 1)
        if rules is not None:
            _libc("syscall", LANDLOCK_RESTRICT_SELF, rules, 0)
            os.close(rules)
        if order.get("seccomp"):
            _filter_calls(base64.b64decode(order["seccomp"]))
        for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, set())
        os.execve(order["argv"][0], order["argv"], order["env"])
    except BaseException as error:  # top of the forked child: after any error it must exit
        os.write(2, f"the command could not be started: {error}\n".encode())
        os._exit(START_FAILED)


def _limit(number: int, value: int) -> None:
    hard = resource.getrlimit(number)[1]
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    resource.setrlimit(number, (value, value))


def _threads_of(uid: int) -> int:
    """Count the threads of a user, all of which the kernel counts towards RLIMIT_NPROC."""
    count = 0
    for entry in Path("/proc").iterdir() if IS_LINUX else ():
        with suppress(OSError):
            if entry.name.isdigit() and entry.stat().st_uid == uid:
                count += sum(1 for _ in (entry / "task").iterdir())
    return count


def _open_rules(landlock: dict[str, Any]) -> int:
    """Create the ruleset while this process may still open the paths in it."""
    attributes = struct.pack("<QQQ", landlock["fs"], landlock["net"], landlock["scope"])
    size = ctypes.c_size_t(landlock["size"])
    rules = _libc("syscall", LANDLOCK_CREATE_RULESET, ctypes.c_char_p(attributes), size, 0)
    for path, access in landlock["paths"]:
        with suppress(FileNotFoundError):
            fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
            try:
                rule = ctypes.c_char_p(struct.pack("<Qi", access, fd))
                _libc("syscall", LANDLOCK_ADD_RULE, rules, LANDLOCK_RULE_PATH_BENEATH, rule, 0)
            finally:
                os.close(fd)
    return rules


def _filter_calls(program: bytes) -> None:
    buffer = ctypes.create_string_buffer(program, len(program))
    # struct sock_fprog: a count, padding, a pointer
    described = ctypes.create_string_buffer(
        struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(buffer))
    )
    _prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.addressof(described))


def _signal(pid: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def _prctl(option: int, first: int, second: int = 0) -> None:
    _libc("prctl", option, ctypes.c_ulong(first), ctypes.c_ulong(second), 0, 0)


def _libc(function: str, *arguments: Any) -> int:
    result: int = getattr(ctypes.CDLL(None, use_errno=True), function)(*arguments)
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


if __name__ == "__main__":
    main()
