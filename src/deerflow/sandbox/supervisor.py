"""Stands between the server and a command that has no process namespace, and ends all that it started.

The server starts this file as a program, without site-packages, so it may import nothing but the
standard library. It becomes the one to whom orphans return (`PR_SET_CHILD_SUBREAPER`); when the command
ends, when the server asks (SIGTERM) or when the server is gone, it stops and kills every descendant.
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
STARTING_FAILED = 125
IS_LINUX = sys.platform == "linux"


def main() -> None:
    """Read the order from standard input's place in the arguments, run it and end as it ended."""
    with os.fdopen(int(sys.argv[1])) as file:
        order = json.load(file)
    if IS_LINUX:
        _prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        _prctl(PR_SET_CHILD_SUBREAPER, 1)
        if os.getppid() != order["parent"]:
            os._exit(STARTING_FAILED)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    child = os.fork()
    if child == 0:
        _become(order)
    _guard(child)


def _guard(child: int) -> None:
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
    """End every process below this one.

    All are stopped before any is killed: a stopped process keeps its place under the limit of
    processes, so a program that forks without end runs out of room instead of ahead of us.
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
        time.sleep(0.002)  # the killed are dying, and one may have been born while we looked


def _has_no_children() -> bool:
    """Bury the dead without waiting for the living; orphans are our children, so none means none at all."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return True
    return False


def descendants(pid: int) -> Iterator[int]:
    """Yield the processes below `pid`."""
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


def _become(order: dict[str, Any]) -> None:
    """Turn this process into the command, with no more rights than the order says."""
    try:
        os.setsid()
        os.chdir(order["cwd"])
        os.umask(0o022)
        rules = _open_rules(order["landlock"]) if order.get("landlock") else None
        if IS_LINUX:
            with suppress(OSError):  # should memory run out, the command goes first, not its keeper
                Path("/proc/self/oom_score_adj").write_text("1000")
        for folder in order["groups"]:
            Path(folder, "cgroup.procs").write_text("0")
        for name, value in order["rlimits"].items():
            _limit(getattr(resource, name), value)
        if order.get("uid") is not None:
            os.setgroups([])
            os.setresgid(order["uid"], order["uid"], order["uid"])
            os.setresuid(order["uid"], order["uid"], order["uid"])
        if IS_LINUX:
            _prctl(PR_SET_NO_NEW_PRIVS, 1)
        if rules is not None:
            _syscall(LANDLOCK_RESTRICT_SELF, rules, 0)
            os.close(rules)
        if order.get("seccomp"):
            _filter_calls(base64.b64decode(order["seccomp"]))
        for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, set())
        os.execve(order["argv"][0], order["argv"], order["env"])
    except BaseException as error:  # this is the child's root: whatever it was, nothing may run on
        os.write(2, f"the command could not be started: {error}\n".encode())
        os._exit(STARTING_FAILED)


def _limit(number: int, value: int) -> None:
    hard = resource.getrlimit(number)[1]
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    resource.setrlimit(number, (value, value))


def _open_rules(landlock: dict[str, Any]) -> int:
    """Make the ruleset while this process may still open what the rules name."""
    attributes = struct.pack("<QQQ", landlock["fs"], landlock["net"], landlock["scope"])
    rules = _syscall(
        LANDLOCK_CREATE_RULESET, ctypes.c_char_p(attributes), ctypes.c_size_t(landlock["size"]), 0
    )
    for path, access in landlock["paths"]:
        with suppress(FileNotFoundError):
            fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
            try:
                rule = struct.pack("<Qi", access, fd)
                _syscall(LANDLOCK_ADD_RULE, rules, LANDLOCK_RULE_PATH_BENEATH, ctypes.c_char_p(rule), 0)
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
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, ctypes.c_ulong(first), ctypes.c_ulong(second), 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _syscall(*arguments: Any) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    result: int = libc.syscall(*arguments)
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


if __name__ == "__main__":
    main()
