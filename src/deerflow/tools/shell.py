"""`bash` and `python`: run a model's commands and programs in the thread's sandbox.

Python code is passed inside one shell command, so isolation, limits, cancellation, live output and the
working directory are the shell's, in every sandbox.
"""

import asyncio
import re
import secrets
from collections.abc import Callable
from types import TracebackType

from langchain_core.messages import ToolMessage
from langchain_core.tools import ToolException
from pydantic import Field

from deerflow.errors import SandboxTimeoutError, SandboxUnavailableError
from deerflow.observability.logs import StreamRedactor
from deerflow.observability.meters import COMMANDS
from deerflow.skills.secrets import CommandSecrets
from deerflow.tools.define import Described, PlainText, Runtime, clip_middle, refuse, tool_of

COALESCE_SECONDS = 0.1
COALESCE_CHARS = 4096
MAX_LIVE_CHARS = 200_000
"""The maximum of live output per command; the event log stores every piece of it."""

EXIT_CODE = "exit_code"
"""Key in a result's `additional_kwargs` with the exit code of a failed command."""


class BashArguments(Described):
    """What `bash` takes."""

    command: PlainText = Field(min_length=1, description="The command, for bash. Use absolute paths.")


@tool_of("bash", BashArguments)
async def bash_tool(*, description: str, command: str, runtime: Runtime) -> str | ToolMessage:
    """Run a shell command in the sandbox.

    The working directory (at first /mnt/user-data/workspace) and exported variables carry over to the
    next call. Standard output and error come back together; a long output loses its middle. Nobody can
    answer prompts: pass -y, --no-input and the like. Start servers in the background with their output
    sent to a file. Prefer read_file, write_file, str_replace, grep and glob for work on files.
    """
    return await run_in_sandbox(command, runtime, tool="bash")


async def run_in_sandbox(command: str, runtime: Runtime, *, tool: str) -> str | ToolMessage:
    """Run a command within the limits of the settings and return the result for the model.

    A failed command is an error result with its `exit_code`, so that clients need not parse its text.
    """
    context = runtime.context
    if context.sandbox.refusal is not None:
        raise SandboxUnavailableError(context.sandbox.refusal)
    limits, secrets = context.settings.sandbox, context.command_secrets
    redact = secrets.redact.known if secrets else str
    with LiveOutput(lambda text: publish_output(runtime, text), secrets) as live:
        try:
            result = await context.sandbox.execute_command(
                command,
                timeout=limits.bash_command_timeout,
                on_output=live,
                **({"environment": secrets.environment} if secrets and secrets.environment else {}),
            )
        except SandboxTimeoutError as error:
            context.watch.meters.add(COMMANDS, "timed_out")
            printed = clip_middle(redact(error.output), limits.bash_output_max_chars)
            raise ToolException(_timed_out(printed, error.seconds)) from error
    context.watch.meters.add(COMMANDS, "failed" if result.exit_code else "success")
    output = clip_middle(redact(result.output), limits.bash_output_max_chars)
    if result.exit_code == 0:
        return output or "(no output)"
    return ToolMessage(
        f"{_with_line_end(output)}Exit code: {result.exit_code}",
        tool_call_id=runtime.tool_call_id or "",
        name=tool,
        status="error",
        additional_kwargs={EXIT_CODE: result.exit_code},
    )


class LiveOutput:
    """Buffers output and publishes it in batches: every 100 ms or 4 KB, whichever comes first."""

    def __init__(self, show: Callable[[str], None], secrets: CommandSecrets | None = None) -> None:
        self._show = show
        self._redact = StreamRedactor(secrets.redact) if secrets else None
        self._loop = asyncio.get_running_loop()
        self._pieces: list[str] = []
        self._waiting = 0
        self._left = MAX_LIVE_CHARS
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> "LiveOutput":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._redact is not None:
            self._add(self._redact.rest())
        self._flush()

    def __call__(self, text: str) -> None:
        """Add the next piece of output."""
        self._add(text if self._redact is None else self._redact(text))

    def _add(self, text: str) -> None:
        if not text or self._left <= 0:
            return
        piece = text[: self._left]
        self._left -= len(piece)
        self._pieces.append(
            piece if self._left > 0 else f"{piece}\n[more output follows; it is not shown live]\n"
        )
        self._waiting += len(piece)
        if self._waiting >= COALESCE_CHARS:
            self._flush()
        elif self._timer is None:
            self._timer = self._loop.call_later(COALESCE_SECONDS, self._flush)

    def _flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._pieces:
            text = "".join(self._pieces)
            self._pieces.clear()
            self._waiting = 0
            self._show(text)


def publish_output(runtime: Runtime, text: str) -> None:
    """Show clients a piece of a running call's output."""
    event = {"type": "tool_output", "tool_call_id": runtime.tool_call_id, "text": text}
    runtime.context.publish(event)


def _timed_out(printed: str, seconds: float) -> str:
    return (
        f"{_with_line_end(printed)}[Stopped: still running after {seconds:g} seconds. Run less at once, "
        "or start it in the background with its output sent to a file.]"
    )


def _with_line_end(text: str) -> str:
    return text if not text or text.endswith("\n") else f"{text}\n"


_SHELL_COMMAND = re.compile(
    r"\s*(?:(?:python[\d.]*|bash|sh)[ \t]+(?:/\w|[\w./-]+\.(?:py|sh)\b|-[a-zA-Z]+[ \t])"
    r"|pip3?[ \t]+install[ \t])"
)
MAX_CODE_BYTES = 90_000
"""A little less than a sandbox accepts as one command."""
COMMAND = """\
command -v python3 >/dev/null || {{ echo 'There is no python3 in this sandbox; use bash.'; exit 127; }}
python3 -u -X utf8 -c "$(cat <<'{mark}'
{code}
{mark}
)"
"""


class PythonArguments(Described):
    """What `python` takes."""

    code: PlainText = Field(min_length=1, description="The whole program. Print what you want to see.")


@tool_of("python", PythonArguments)
async def python_tool(*, description: str, code: str, runtime: Runtime) -> str | ToolMessage:
    """Run Python 3 code in the sandbox and see what it prints.

    Use it for calculations, data (CSV, JSON, dates, statistics) and checks that would take a long shell
    line. Every call is a new process: nothing but files carries over. It starts in the working directory
    of bash; an error comes back with its traceback. Packages are those of the sandbox's python3.
    """
    if len(code.encode()) > MAX_CODE_BYTES:
        raise refuse(
            f"The code has more than {MAX_CODE_BYTES} bytes. Write it to a file with write_file and run that."
        )
    # Small models do this with the scripts of skills, and a SyntaxError does not tell them what to change.
    if _SHELL_COMMAND.match(code):
        raise refuse("This is a shell command, not Python code: call the tool bash with it as the command.")
    return await run_in_sandbox(as_command(code), runtime, tool="python")


def as_command(code: str) -> str:
    """Return the shell command that runs `code` exactly as it is."""
    # The here-document is quoted, so the shell interprets nothing in it; its delimiter is unguessable.
    return COMMAND.format(mark=f"END_{secrets.token_hex(16)}", code=code)
