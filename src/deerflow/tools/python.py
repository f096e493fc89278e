"""`python`: runs a model's program in the thread's sandbox, with the same limits as `bash`.

The code is passed inside one shell command, so isolation, limits, cancellation, live output and the working
directory are the shell's, in every sandbox.
"""

import secrets

from langchain_core.messages import ToolMessage
from pydantic import Field

from deerflow.tools.define import Described, PlainText, Runtime, refuse, tool_of
from deerflow.tools.shell import run_in_sandbox

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
    return await run_in_sandbox(as_command(code), runtime, tool="python")


def as_command(code: str) -> str:
    """Return the shell command that runs `code` exactly as it is."""
    # The here-document is quoted, so the shell interprets nothing in it; its delimiter is unguessable.
    return COMMAND.format(mark=f"END_{secrets.token_hex(16)}", code=code)
