"""Runs subprocesses over stdin and stdout, with declared variables only, and kills all that they start.

Each has its own process group. A helper that left the group is found by a marker in its environment, which
`fork` and `exec` pass on. The marker also names the server process, so that the next server can kill what a
killed one left behind.
"""

import asyncio
import os
import signal
from asyncio.subprocess import PIPE, Process
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from deerflow.domain import new_id
from deerflow.errors import ProgramError

USUAL_VARIABLES = ("HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER")
"""Variables of the server's environment that every program gets; none holds a key or token."""

MARK = "DEERFLOW_PROGRAM"
GRACE_SECONDS = 0.3
"""How long a program may take to exit after SIGTERM."""
EXIT_SECONDS = 5.0
"""How long a program may take to exit after closing its output; generous for busy machines."""
REMAINS_SECONDS = 2.0
MAX_ERROR_CHARS = 2000
_CHUNK_BYTES = 65_536
_ROUNDS = 5


class Program:
    """A running subprocess and the tail of its standard error."""

    def __init__(self, process: Process, mark: str) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self.stdin = process.stdin
        self.stdout = process.stdout
        self._process = process
        self._mark = mark
        self._errors: deque[str] = deque(maxlen=8)
        self._listening = asyncio.create_task(self._listen(process.stderr))

    @property
    def last_words(self) -> str:
        """The end of its standard error."""
        return "".join(self._errors)[-MAX_ERROR_CHARS:].strip()

    async def exit_code(self, *, is_urgent: bool = False) -> int | None:
        """Return the exit code; None if it has closed its output but still runs.

        Args:
            is_urgent: Wait only `GRACE_SECONDS`, since the failure is already known.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(GRACE_SECONDS if is_urgent else EXIT_SECONDS):
                await self._process.wait()
        with suppress(TimeoutError):  # the end of stderr may not have been read yet
            async with asyncio.timeout(GRACE_SECONDS):
                await asyncio.shield(self._listening)
        return self._process.returncode

    async def end(self) -> None:
        """Stop it and everything it started: SIGTERM first, SIGKILL after `GRACE_SECONDS`."""
        try:
            with suppress(OSError, RuntimeError):
                self.stdin.close()
            if self._process.returncode is None:
                self._signal(signal.SIGTERM)
                with suppress(TimeoutError):
                    async with asyncio.timeout(GRACE_SECONDS):
                        await asyncio.gather(_drain(self.stdout), self._process.wait())
        finally:
            self._signal(signal.SIGKILL)
            kill_marked(self._mark)
            await asyncio.shield(asyncio.ensure_future(self._remains()))

    async def _remains(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(REMAINS_SECONDS):
                await asyncio.gather(_drain(self.stdout), self._process.wait(), self._listening)
        self._listening.cancel()

    def _signal(self, number: signal.Signals) -> None:
        # Only before it is reaped: afterwards the process id may belong to another group.
        if self._process.returncode is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, number)

    async def _listen(self, stderr: asyncio.StreamReader) -> None:
        while block := await stderr.read(_CHUNK_BYTES):
            self._errors.append(block.decode(errors="replace")[-MAX_ERROR_CHARS:])


@asynccontextmanager
async def running_program(
    command: Sequence[str], *, env: Mapping[str, str], cwd: Path
) -> AsyncIterator[Program]:
    """Run a program for the length of a block; all of its processes are gone afterwards."""
    mark = f"{_owner_mark()}/{new_id()}"
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            cwd=cwd,
            env={**env, MARK: mark},
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ProgramError(f"the program '{command[0]}' cannot be started: {reason}") from error
    program = Program(process, mark)
    try:
        yield program
    finally:
        await program.end()


def declared_environment(env: Mapping[str, str], declared: Mapping[str, str]) -> dict[str, str]:
    """Return the `USUAL_VARIABLES` of `env` and the variables that the settings declare."""
    return {**{name: env[name] for name in USUAL_VARIABLES if name in env}, **declared}


def kill_marked(mark: str) -> None:
    """Kill every process with this marker in its environment, including those started meanwhile."""
    for _ in range(_ROUNDS):
        if not sum(_kill_if(entry, lambda found: found == mark) for entry in _process_folders()):
            return


def kill_orphans() -> None:
    """Kill programs whose server process has ended; those of a running server are kept."""
    for entry in _process_folders():
        _kill_if(entry, lambda found: _is_gone(found.rpartition("/")[0]))


def _owner_mark() -> str:
    """Return an identifier of this process that survives reuse of its process id."""
    return f"{_namespace()}-{os.getpid()}-{_started_at(os.getpid())}"


def _is_gone(owner: str) -> bool:
    """Return whether a server process has ended; False for other PID namespaces, where it is unknown."""
    namespace, _, process = owner.partition("-")
    number, _, started = process.partition("-")
    return namespace == _namespace() and number.isdigit() and _started_at(int(number)) != started


def _namespace() -> str:
    """Return the id of this process's PID namespace."""
    try:
        return str(Path("/proc/self/ns/pid").stat().st_ino)
    except OSError:
        return ""


def _started_at(pid: int) -> str:
    """Return the start time of a process in clock ticks; empty if there is no such process."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return fields[19]


def _process_folders() -> list[Path]:
    try:
        return [entry for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    except OSError:  # no /proc on this system: only the process group is known
        return []


def _kill_if(entry: Path, is_wanted: Callable[[str], bool]) -> bool:
    """Kill a process through a pidfd opened before the check, so that a reused process id is never hit."""
    try:
        descriptor = os.pidfd_open(int(entry.name))
    except (AttributeError, OSError):
        return False
    try:
        mark = _mark_in((entry / "environ").read_bytes())
        if mark is None or not is_wanted(mark):
            return False
        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)


def _mark_in(environment: bytes) -> str | None:
    start = f"{MARK}=".encode()
    found = next((entry for entry in environment.split(b"\0") if entry.startswith(start)), None)
    return None if found is None else found[len(start) :].decode(errors="replace")


async def _drain(stream: asyncio.StreamReader) -> None:
    with suppress(OSError):
        while await stream.read(_CHUNK_BYTES):
            pass
