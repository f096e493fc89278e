"""The bash script that runs a command and saves its working directory and exports for the next one."""

import math
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Self

from deerflow.errors import ConfigError, SandboxError, SandboxTimeoutError
from deerflow.sandbox.base import CommandResult
from deerflow.sandbox.process import Ending, OutputBuffer

if sys.platform == "linux":
    import fcntl

MAX_COMMAND_BYTES = 100_000
MAX_TIMEOUT_SECONDS = 86_400.0
STATE_BYTES = 65_536
"""Maximum size of the working directory and all exported variables."""

BEGUN = b"\1\0"
NOT_KEPT = frozenset(("_", "IFS", "OLDPWD", "PWD", "SHLVL", "BASHOPTS", "SHELLOPTS", "BASH_ENV", "ENV"))
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

# $5 is a descriptor with the exports of the last command. The script sets them instead of passing them as
# bash's environment: a variable such as LD_PRELOAD would run the last command's code before the limits apply.
# `declare`, unlike `export`, never exits the shell.
EXPORTS = r"""
while IFS= read -r -d '' __pair; do declare -x -- "$__pair"; done <&"$5" 2>/dev/null
__exports=$5
exec {__exports}<&-
unset __pair __exports
"""

# $1 command, $2 working directory of the last command, $3 fallback when that is gone, $4 descriptor for the
# state: a start marker, the working directory, the exports, and an end marker.
SCRIPT = r"""
printf '\1\0' >&"$4" || exit 125
cd -- "$2" 2>/dev/null || cd -- "$3" || exit 126
__keep() {
  { set +eux; } 2>/dev/null
  local IFS=$'\n' name
  {
    builtin printf '%s\0' "$PWD"
    for name in $(builtin compgen -e); do builtin printf '%s=%s\0' "$name" "${!name}"; done
    builtin printf '=\0'
  } 2>/dev/null >&"$__state"
}
__state=$4
trap __keep EXIT
eval "set --
$1"
"""


@dataclass(frozen=True, slots=True)
class ShellState:
    """Shell state that persists between commands."""

    cwd: str
    exports: Mapping[str, str] = field(default_factory=dict)

    def packed_exports(self, environment: Mapping[str, str]) -> bytes:
        """Return the exports and the variables of one command in the format that `EXPORTS` reads."""
        variables = {**self.exports, **environment}
        return b"".join(f"{name}={value}\0".encode() for name, value in variables.items())

    def without(self, environment: Mapping[str, str]) -> Self:
        """Return this state without the variables of one command, and without copies of their values."""
        if not environment:
            return self
        kept = {
            name: value
            for name, value in self.exports.items()
            if name not in environment and not any(each in value for each in environment.values())
        }
        return replace(self, exports=kept)


@contextmanager
def sealed(data: bytes) -> Iterator[int]:
    """Yield a sealed, read-only memory file (memfd) that contains `data`."""
    fd = os.memfd_create("deerflow", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.write(fd, data)
        os.lseek(fd, 0, os.SEEK_SET)
        every = fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, every)
        yield fd
    finally:
        os.close(fd)


class StateFile:
    """An unnamed file of fixed size to which the script writes its state; its content is never executed."""

    def __init__(self) -> None:
        if sys.platform == "linux":
            self.fd = os.memfd_create("state", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            os.ftruncate(self.fd, STATE_BYTES)
            seals = fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL
            fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, seals)
        else:
            with tempfile.TemporaryFile() as file:
                self.fd = os.dup(file.fileno())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.fd)

    @property
    def has_begun(self) -> bool:
        return os.pread(self.fd, len(BEGUN), 0) == BEGUN

    def read(self, before: ShellState, base: Mapping[str, str]) -> ShellState:
        """Return the state after the command, or `before` when none was written."""
        return parse_state(os.pread(self.fd, STATE_BYTES, 0), before, base)


def result_of(command: str, ending: Ending, output: OutputBuffer, seconds: float) -> CommandResult:
    """Return the command's result; raise `SandboxTimeoutError` when it timed out."""
    text = output.text()
    if ending.timed_out:
        raise SandboxTimeoutError(command, seconds, text)
    if ending.stopped:
        text = f"{text}\n[stopped: {ending.stopped}]\n"
    return CommandResult(ending.exit_code, text)


def parse_state(data: bytes, before: ShellState, base: Mapping[str, str]) -> ShellState:
    """Parse the state that the script wrote; ignore invalid parts, which a command may have written."""
    data = data.removeprefix(BEGUN)
    end = data.find(b"\0=\0")
    fields = data[: end if end >= 0 else STATE_BYTES].split(b"\0")
    try:
        cwd = fields[0].decode()
    except UnicodeDecodeError:
        return before
    if not cwd.startswith("/") or len(cwd) > 4096:
        return before
    if end < 0:  # the exports exceeded the file size
        return ShellState(cwd, before.exports)
    exports: dict[str, str] = {}
    for entry in fields[1:]:
        name, equals, value = entry.decode("utf-8", "replace").partition("=")
        if equals and name not in NOT_KEPT and _NAME.fullmatch(name) and base.get(name) != value:
            exports[name] = value
    return ShellState(cwd, exports)


def check_environment(environment: Mapping[str, str]) -> None:
    """Raise `ConfigError` for an invalid variable name or value."""
    for name, value in environment.items():
        if not _NAME.fullmatch(name) or "\0" in value:
            raise ConfigError(
                f"sandbox.environment: {name!r} is no variable; names have letters, digits and _"
            )


def check_command(command: str, timeout: float) -> float:
    """Return the timeout within its bounds; raise `SandboxError` for an invalid command or timeout."""
    if not command.strip():
        raise SandboxError("the command is empty; say what to run")
    if "\0" in command:
        raise SandboxError("the command has a NUL character; write it without")
    try:
        size = len(command.encode())
    except UnicodeEncodeError as error:
        raise SandboxError("the command is not valid text; write it without unpaired surrogates") from error
    if size > MAX_COMMAND_BYTES:
        raise SandboxError(
            f"the command has {size} bytes, more than {MAX_COMMAND_BYTES}; write it to a file and run that"
        )
    if math.isnan(timeout) or timeout <= 0:
        raise SandboxError(f"the timeout must be more than 0 seconds, not {timeout:g}")
    return min(timeout, MAX_TIMEOUT_SECONDS)
