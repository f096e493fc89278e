"""Builds the seccomp filter as a classic BPF program, without a library.

Allows every system call except those that ordinary programs do not need and that expose much kernel code.
`clone3` passes its flags behind a pointer that BPF cannot follow, so it fails with ENOSYS: the C library
then uses `clone`, whose flags are checked. `openat2` fails likewise, because it passes the mode of a new file
that way. A call of another architecture, or of x32, kills the process.
"""

import platform
import struct
from collections.abc import Iterable, Sequence

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _AND, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
_ALLOW = 0x7FFF0000
_KILL = 0x80000000
_ERRNO = 0x00050000
_EPERM, _ENOSYS, _EAFNOSUPPORT = 1, 38, 97
_NR, _ARCH, _ARG0, _ARG1, _ARG2, _ARG3 = 0, 4, 16, 24, 32, 40
"""Offsets into the `seccomp_data` that the filter reads; arguments by their low half."""

_NEW_NAMESPACES = 0x7E020000 | 0x00000080
"""Every CLONE_NEW… flag; the last one is CLONE_NEWTIME."""
_SET_ID = 0o6000
"""The mode bits set-user-id and set-group-id: a program runs with its owner's rights."""
_MAKES_A_FILE = 0o100 | 0o20000000
"""The flags O_CREAT and O_TMPFILE of `open`: without them its mode argument is ignored."""
_SET_DUMPABLE = 4
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
_SOCKET_TYPE = 0xF
AF_UNIX, AF_INET, AF_INET6 = 1, 2, 10
_STREAM, _DATAGRAM, _SEQPACKET = 1, 2, 5

_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_X32 = 0x40000000

_COMMON = {
    "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427, "open_tree": 428,
    "move_mount": 429, "fsopen": 430, "fsconfig": 431, "fsmount": 432, "fspick": 433, "pidfd_getfd": 438,
    "process_madvise": 440, "mount_setattr": 442, "quotactl_fd": 443, "memfd_secret": 447,
    "statmount": 457, "listmount": 458, "open_tree_attr": 467,
}  # fmt: skip
_DENIED = {
    "x86_64": _COMMON | {
        "uselib": 134, "vhangup": 153, "modify_ldt": 154, "pivot_root": 155, "_sysctl": 156, "adjtimex": 159,
        "chroot": 161, "acct": 163, "settimeofday": 164, "mount": 165, "umount2": 166, "swapon": 167,
        "swapoff": 168, "reboot": 169, "sethostname": 170, "setdomainname": 171, "iopl": 172, "ioperm": 173,
        "create_module": 174, "init_module": 175, "delete_module": 176, "quotactl": 179, "nfsservctl": 180,
        "lookup_dcookie": 212, "clock_settime": 227, "mbind": 237, "set_mempolicy": 238, "kexec_load": 246,
        "add_key": 248, "request_key": 249, "keyctl": 250, "migrate_pages": 256, "unshare": 272,
        "move_pages": 279, "perf_event_open": 298, "fanotify_init": 300, "name_to_handle_at": 303,
        "open_by_handle_at": 304, "clock_adjtime": 305, "setns": 308, "process_vm_readv": 310,
        "process_vm_writev": 311, "kcmp": 312, "finit_module": 313, "kexec_file_load": 320, "bpf": 321,
        "userfaultfd": 323, "ptrace": 101, "syslog": 103,
    },
    "aarch64": _COMMON | {
        "lookup_dcookie": 18, "umount2": 39, "mount": 40, "pivot_root": 41, "nfsservctl": 42, "chroot": 51,
        "vhangup": 58, "quotactl": 60, "acct": 89, "unshare": 97, "kexec_load": 104, "init_module": 105,
        "delete_module": 106, "clock_settime": 112, "syslog": 116, "ptrace": 117, "reboot": 142,
        "sethostname": 161, "setdomainname": 162, "settimeofday": 170, "adjtimex": 171, "add_key": 217,
        "request_key": 218, "keyctl": 219, "swapon": 224, "swapoff": 225, "mbind": 235, "set_mempolicy": 237,
        "migrate_pages": 238, "move_pages": 239, "perf_event_open": 241, "fanotify_init": 262,
        "name_to_handle_at": 264, "open_by_handle_at": 265, "clock_adjtime": 266, "setns": 268,
        "process_vm_readv": 270, "process_vm_writev": 271, "kcmp": 272, "finit_module": 273, "bpf": 280,
        "userfaultfd": 282, "kexec_file_load": 294,
    },
}  # fmt: skip
_CHECKED = {
    "x86_64": {"clone": 56, "clone3": 435, "ioctl": 16, "prctl": 157, "socket": 41, "socketpair": 53},
    "aarch64": {"clone": 220, "clone3": 435, "ioctl": 29, "prctl": 167, "socket": 198, "socketpair": 199},
}
_MODES = {
    "x86_64": {
        "creat": (85, _ARG1), "chmod": (90, _ARG1), "fchmod": (91, _ARG1), "mknod": (133, _ARG1),
        "mknodat": (259, _ARG2), "fchmodat": (268, _ARG2), "fchmodat2": (452, _ARG2),
    },
    "aarch64": {
        "mknodat": (33, _ARG2), "fchmod": (52, _ARG1), "fchmodat": (53, _ARG2), "fchmodat2": (452, _ARG2),
    },
}  # fmt: skip
"""Calls that set a file's mode, with the offset of the mode argument."""
_OPENING = {
    "x86_64": {"open": (2, _ARG1, _ARG2), "openat": (257, _ARG2, _ARG3)},
    "aarch64": {"openat": (56, _ARG2, _ARG3)},
}
"""Calls that may create a file, with the offsets of the flags and mode arguments."""
_OPENAT2 = 437
_SHARED = {
    "x86_64": {
        "shmget": 29, "shmat": 30, "shmctl": 31, "semget": 64, "semop": 65, "semctl": 66, "msgget": 68,
        "msgsnd": 69, "msgrcv": 70, "msgctl": 71, "setpriority": 141, "semtimedop": 220, "mq_open": 240,
        "mq_unlink": 241, "ioprio_set": 251, "inotify_add_watch": 254,
    },
    "aarch64": {
        "inotify_add_watch": 27, "ioprio_set": 30, "setpriority": 140, "mq_open": 180, "mq_unlink": 181,
        "msgget": 186, "msgctl": 187, "msgrcv": 188, "msgsnd": 189, "semget": 190, "semctl": 191,
        "semtimedop": 192, "semop": 193, "shmget": 194, "shmctl": 195, "shmat": 196,
    },
}  # fmt: skip
"""Calls that affect other processes of the same user: refused without namespaces."""
_OWN_ONLY = {
    "x86_64": {
        "sched_setparam": 142, "sched_setscheduler": 144, "sched_setaffinity": 203, "prlimit64": 302,
        "sched_setattr": 314,
    },
    "aarch64": {
        "sched_setparam": 118, "sched_setscheduler": 119, "sched_setaffinity": 122, "prlimit64": 261,
        "sched_setattr": 274,
    },
}  # fmt: skip
"""Calls that take a pid, allowed only on the caller itself (0)."""
_ON_PATHS = {
    "x86_64": {
        "chmod": 90, "chown": 92, "lchown": 94, "utime": 132, "setxattr": 188, "lsetxattr": 189,
        "removexattr": 197, "lremovexattr": 198, "utimes": 235, "fchownat": 260, "futimesat": 261,
        "fchmodat": 268, "fchmodat2": 452, "setxattrat": 463, "removexattrat": 466,
    },
    "aarch64": {
        "setxattr": 5, "lsetxattr": 6, "removexattr": 14, "lremovexattr": 15, "fchmodat": 53, "fchownat": 54,
        "fchmodat2": 452, "setxattrat": 463, "removexattrat": 466,
    },
}  # fmt: skip
"""Calls that change a file's metadata by path without opening it, which Landlock does not check."""
_UTIMENSAT = {"x86_64": 280, "aarch64": 88}


def is_supported(machine: str | None = None) -> bool:
    """Return whether a filter exists for this processor architecture."""
    return (machine or platform.machine()) in _ARCHITECTURES


def build_filter(
    families: Sequence[int],
    *,
    has_namespaces: bool = True,
    has_system_v: bool = True,
    machine: str | None = None,
) -> bytes:
    """Return a filter program that allows sockets of these `families`, and AF_UNIX socket pairs.

    Without namespaces the filter also blocks access to other processes and to paths that nothing else
    protects. Changing modes, owners and times by path is then a silent no-op: programs such as git fail
    when it is refused. Without `has_system_v` there is no System V shared memory, semaphore or message
    queue.
    """
    machine = machine or platform.machine()
    numbers = _CHECKED[machine]
    program = [
        *(_step(_LOAD, _ARCH), _step(_EQUAL, _ARCHITECTURES[machine], 1, 0), _step(_RETURN, _KILL)),
        _step(_LOAD, _NR),
    ]
    if machine == "x86_64":
        program += [_step(_AT_LEAST, _X32, 0, 1), _step(_RETURN, _KILL)]
    program += _refuse_calls(sorted(_DENIED[machine].values()), _EPERM)
    program += _refuse_calls((numbers["clone3"], _OPENAT2), _ENOSYS)
    if not has_namespaces:
        program += _without_namespaces(machine)
    if not has_system_v:
        shared = _SHARED[machine]
        program += _refuse_calls((shared["shmget"], shared["semget"], shared["msgget"]), _ENOSYS)
    program += _without_set_id(machine)
    program += _on(numbers["clone"], _refuse_if(_ARG0, _ANY_BIT, _NEW_NAMESPACES))
    # ioctls that inject input into the server's terminal
    terminal = [_step(_LOAD, _ARG1), _step(_EQUAL, _TIOCSTI, 1, 0), _step(_EQUAL, _TIOCLINUX, 0, 1)]
    program += _on(numbers["ioctl"], [*terminal, _refuse(_EPERM), _step(_RETURN, _ALLOW)])
    # PR_SET_DUMPABLE is a no-op: the open files of a non-dumpable process could not be counted
    program += _on(numbers["prctl"], _refuse_if(_ARG0, _EQUAL, _SET_DUMPABLE, errno=0))
    program += _on(numbers["socketpair"], [*_only_families([AF_UNIX]), _step(_RETURN, _ALLOW)])
    program += _on(numbers["socket"], [*_only_families(families), *_no_raw_sockets()])
    return b"".join([*program, _step(_RETURN, _ALLOW)])


def _without_namespaces(machine: str) -> list[bytes]:
    program = _refuse_calls(sorted(_SHARED[machine].values()), _EPERM)
    program += _refuse_calls(sorted(_ON_PATHS[machine].values()), 0)
    own = [_step(_LOAD, _ARG0), _step(_EQUAL, 0, 1, 0), _refuse(_EPERM), _step(_RETURN, _ALLOW)]
    for number in sorted(_OWN_ONLY[machine].values()):
        program += _on(number, own)
    # without a path (both halves of the pointer zero) the call applies to an open file, which is allowed
    by_file = [
        *(_step(_LOAD, _ARG1), _step(_EQUAL, 0, 0, 2), _step(_LOAD, _ARG1 + 4), _step(_EQUAL, 0, 1, 0)),
        *(_refuse(0), _step(_RETURN, _ALLOW)),
    ]
    return [*program, *_on(_UTIMENSAT[machine], by_file)]


def _without_set_id(machine: str) -> list[bytes]:
    """Return instructions that refuse set-user-id and set-group-id bits in every call that sets modes.

    They have no effect inside the sandbox, but such a file would affect other users of this host.
    """
    program: list[bytes] = []
    for number, mode in _MODES[machine].values():
        program += _on(number, _refuse_if(mode, _ANY_BIT, _SET_ID))
    for number, flags, mode in _OPENING[machine].values():
        creates = (_step(_LOAD, flags), _step(_ANY_BIT, _MAKES_A_FILE, 0, 3))
        program += _on(number, [*creates, *_refuse_if(mode, _ANY_BIT, _SET_ID)])
    return program


def _only_families(families: Sequence[int]) -> list[bytes]:
    jumps = [_step(_EQUAL, family, len(families) - index, 0) for index, family in enumerate(families)]
    return [_step(_LOAD, _ARG0), *jumps, _refuse(_EAFNOSUPPORT)]


def _no_raw_sockets() -> list[bytes]:
    types = (_STREAM, _DATAGRAM, _SEQPACKET)
    jumps = [_step(_EQUAL, kind, len(types) - index, 0) for index, kind in enumerate(types)]
    return [
        *(_step(_LOAD, _ARG1), _step(_AND, _SOCKET_TYPE), *jumps),
        *(_refuse(_EPERM), _step(_RETURN, _ALLOW)),
    ]


def _on(number: int, check: list[bytes]) -> list[bytes]:
    """Run `check` for the call `number` only."""
    return [_step(_EQUAL, number, 0, len(check)), *check]


def _refuse_calls(numbers: Iterable[int], errno: int) -> list[bytes]:
    return [step for number in numbers for step in _on(number, [_refuse(errno)])]


def _refuse_if(argument: int, test: int, value: int, *, errno: int = _EPERM) -> list[bytes]:
    """Refuse a call whose argument passes the test, else allow it."""
    return [_step(_LOAD, argument), _step(test, value, 0, 1), _refuse(errno), _step(_RETURN, _ALLOW)]


def _refuse(errno: int) -> bytes:
    return _step(_RETURN, _ERRNO | errno)


def _step(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("HBBI", code, if_true, if_false, value)
