"""Runs programs in bubblewrap sandboxes."""

import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress

from deerflow.config import SandboxSettings
from deerflow.errors import SandboxUnavailableError
from deerflow.sandbox import seccomp
from deerflow.sandbox.bwrap import NOT_FOUND, SYSTEM_PATH, Box, etc_files, find_bwrap, options
from deerflow.sandbox.cgroups import ControlGroups, joining
from deerflow.sandbox.egress import Egress, proxy_environment
from deerflow.sandbox.handshake import Handshake
from deerflow.sandbox.init_process import InnerProcess
from deerflow.sandbox.limits import ulimits
from deerflow.sandbox.network import NetworkPolicy
from deerflow.sandbox.parent_guard import Lifeline
from deerflow.sandbox.paths import WORKSPACE, PathTable
from deerflow.sandbox.process import Ending, Launch, Sink, Watch, run
from deerflow.sandbox.shell import sealed
from deerflow.sandbox.staging import staged
from deerflow.sandbox.usage import ThreadUsage
from deerflow.sandbox.users import sandbox_uid

BASH = ("/bin/bash", "--noprofile", "--norc", "-c")
FAMILIES = (seccomp.AF_UNIX, seccomp.AF_INET, seccomp.AF_INET6)
"""Internet sockets are harmless: the sandbox's network namespace has only its own loopback."""


class Bubblewrap:
    """Starts commands in sandboxes; shared by all threads."""

    def __init__(self, settings: SandboxSettings) -> None:
        self.settings = settings
        self.uid = sandbox_uid()
        self._groups = ControlGroups(settings.limits)
        self._etc = etc_files()
        self._ended_groups: list[int] = []
        self._ulimits = ulimits(settings.limits)
        self._policy = NetworkPolicy.from_settings(settings.network)
        # System V shared memory belongs to no process: only a control group accounts for it
        self._filter = (
            seccomp.build_filter(FAMILIES, has_system_v=self._groups.are_there)
            if seccomp.is_supported()
            else b""
        )

    def usage(self, table: PathTable) -> ThreadUsage:
        """Create the usage monitor of a thread's commands."""
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
        table, mounting = staged(table, self.uid)
        ended: list[int] = []
        try:
            with ExitStack() as stack:
                groups = stack.enter_context(usage.group())
                inner = stack.enter_context(InnerProcess())
                handshake = stack.enter_context(Handshake())
                lifeline = stack.enter_context(Lifeline())
                fds = self._descriptors(stack, Box(table, environment, self.settings.limits))
                shell = [*BASH, handshake.words + self._ulimits + script, "bash", *arguments]
                wish = [
                    f"./{bwrap.name}",
                    "--args",
                    str(fds[-1]),
                    "--info-fd",
                    str(inner.writer),
                    "--",
                    *shell,
                ]
                inherited = (*fds, inner.writer, *handshake.inner_fds, *pass_fds)
                launch = Launch(
                    # options by descriptor, program by relative name: no process list shows host paths
                    argv=lifeline.tied(
                        [*mounting, *self._as_user(), *wish], taken=inherited, first=joining(groups)
                    ),
                    stdin=lifeline.reader,
                    cwd=str(bwrap.parent),
                    env={"PATH": SYSTEM_PATH},
                    kill=lambda pid: _kill(pid, inner),
                    started=ended.append,
                    pass_fds=inherited,
                    watch=self._attending(table, usage, inner, handshake),
                    gone=inner.gone,
                )
                ending = await run(launch, output, timeout=timeout)
        except FileNotFoundError as error:  # bwrap was removed between lookup and start
            raise SandboxUnavailableError(NOT_FOUND) from error
        finally:
            self._bury(ended)
        if not handshake.has_begun and not ending.timed_out and not ending.stopped:
            raise SandboxUnavailableError(output.text().strip() or "it ended before it began")
        return ending

    async def aclose(self) -> None:
        """Remove the remaining control groups and reap orphans."""
        await self._groups.aclose()
        self._bury()

    def _bury(self, ended: Sequence[int] = ()) -> None:
        """Reap orphans of ended sandboxes, which are children of this server when it is pid 1."""
        self._ended_groups = [pid for pid in (*self._ended_groups, *ended) if _has_children_in(pid)]

    def _descriptors(self, stack: ExitStack, box: Box) -> list[int]:
        """Return the descriptors that bwrap reads: the files of `/etc`, the filter and, last, its options."""
        etc = {name: stack.enter_context(sealed(data)) for name, data in self._etc.items()}
        filter_fd = stack.enter_context(sealed(self._filter))
        args = options(box, etc_fds=etc, seccomp_fd=filter_fd)
        packed = b"".join(arg.encode() + b"\0" for arg in args)
        return [*etc.values(), filter_fd, stack.enter_context(sealed(packed))]

    def _attending(
        self, table: PathTable, usage: ThreadUsage, inner: InnerProcess, handshake: Handshake
    ) -> Watch:
        """Return a `Watch` that starts the egress proxy, lets the command start and monitors it."""
        workspace = table.locate(WORKSPACE).mapping.host
        egress = Egress(self._policy, uid=self.uid, name=workspace.parent.parent.name)

        async def attend(pid: int) -> str:
            await handshake.ready()
            first = inner.pid() or pid
            if not self._policy.is_open:
                handshake.go()
                return await usage.watch(first)
            async with egress.serving(inner):
                handshake.go()
                return await usage.watch(first)

        return attend

    def _as_user(self) -> list[str]:
        """Return the command prefix that drops root before bwrap starts."""
        if self.uid is None:
            return []
        user = str(self.uid)
        return ["/usr/bin/setpriv", "--reuid", user, "--regid", user, "--clear-groups", "--"]


def _has_children_in(group: int) -> bool:
    """Reap exited children of a process group; return whether running ones remain."""
    try:
        while os.waitpid(-group, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def _kill(pid: int, inner: InnerProcess) -> None:
    """Kill bwrap and the sandbox's first process; the kernel then kills all others in its namespace.

    Both share a process group until they have set their parent-death signals.
    """
    inner.kill()
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
