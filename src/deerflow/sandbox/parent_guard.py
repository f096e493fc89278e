"""Kills a sandbox when its server dies, at whatever moment that happens.

bwrap's processes die with their parent only after they have set PR_SET_PDEATHSIG. A server killed before
that would leave a process behind that waits for its parent forever. So a shell starts bwrap and, beside it,
a subshell that reads a pipe from the server: at end of file it kills its process group, which contains all
of them. The pipe is the first shell's standard input; bwrap and its children get an empty standard input.
"""

import os
from collections.abc import Collection, Sequence
from typing import Self

# `read` returns when the server's end is closed, explicitly or by its death. A shell such as dash gives
# background jobs no standard input, so the pipe moves to another descriptor, of one digit since such a shell
# supports no others. PWD is unset so that the sandbox does not see the host's path.
_SCRIPT = (
    "exec {fd}<&0 </dev/null; (read end <&{fd}; kill -9 0) > /dev/null 2>&1 & "
    'exec {fd}<&-; unset PWD OLDPWD; exec "$@"'
)


class Lifeline:
    """A pipe whose write end this process holds: it closes when the block exits or the process dies."""

    def __init__(self) -> None:
        self.reader, self._writer = os.pipe()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.reader)
        os.close(self._writer)

    def tied(self, argv: Sequence[str], *, taken: Collection[int], first: str = "") -> list[str]:
        """Return the command line that starts `argv` under the guard, after the shell commands in `first`.

        Args:
            taken: Descriptors that `argv` inherits. Descriptors of this process that it does not inherit
                leave a number free, since they were opened before most of these.
        """
        free = next(number for number in range(3, 10) if number not in taken)
        return ["/bin/sh", "-c", first + _SCRIPT.format(fd=free), "sh", *argv]
