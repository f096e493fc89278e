"""Self-test of a sandbox: probes of its isolation that run before the first command."""

import os
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Probe:
    """Result of one check."""

    name: str
    ok: bool
    detail: str = ""


@dataclass(frozen=True, slots=True)
class SelfTest:
    """Whether commands may run; otherwise `reason` says why not and `fix` what the operator can do."""

    ok: bool
    probes: tuple[Probe, ...] = ()
    reason: str | None = None
    fix: str | None = None

    @property
    def refusal(self) -> str | None:
        """The refusal message for the model and the user; None when the test passed."""
        if self.ok:
            return None
        fix = f" Fix: {self.fix}" if self.fix else ""
        return f"bash is off: {self.reason}.{fix} The file tools go on working."


NOT_HOLDING = "this is a defect or a very unusual system: report it, and use `sandbox.use: aio` meanwhile"

# Each probe prints its name, a tab, and its result; `ok` means passed.
_WORDS = r"""
say() { printf '%s\t%s\n' "$1" "$2"; }
is() { if [[ $2 == "$3" ]]; then say "$1" ok; else say "$1" "$2"; fi; }
cannot() { local name=$1; shift; if { "$@"; } 2>/dev/null; then say "$name" "$*"; else say "$name" ok; fi; }
append() { : >> "$1"; }
content() { : < "$1"; }
"""
PROBES = (
    _WORDS
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
    _WORDS
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
    spoken = {probe.name for probe in found}
    return (*found, *(Probe(name, False, "no answer") for name in needed if name not in spoken))


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
    """Return a unique process name."""
    return f"deerflow-probe-{secrets.token_hex(6)}"


def is_running(name: str) -> bool:
    """Return whether a process whose first argument is `name` is alive on this host."""
    wanted = os.fsencode(name)
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if entry.read_bytes().split(b"\0")[0] == wanted:
                return True
        except OSError:
            continue
    return False
