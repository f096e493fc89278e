"""Ends a sandbox whose server is gone, at whatever moment that happens.

bwrap's processes die with their parents once they have asked the kernel for it. A server that is killed
before that would leave one behind that waits for a parent for ever. So a shell starts bwrap, and beside it
one that waits on a pipe from us: when the pipe ends, it ends its process group, in which all of them are.
The pipe is the first shell's standard input and goes no further: what bwrap starts reads an empty one.
"""

import os
from collections.abc import Collection, Sequence
from typing import Self

# `read` returns when our end is closed, by us or by our death. A small shell gives its background jobs no
# standard input, so the pipe takes another number, of one digit, since such a shell knows no others.
# The shell forgets where it stood, lest the sandbox sees it.
_SCRIPT = (
    "exec {fd}<&0 </dev/null; (read end <&{fd}; kill -9 0) > /dev/null 2>&1 & "
    'exec {fd}<&-; unset PWD OLDPWD; exec "$@"'
)


class Lifeline:
    """A pipe whose other end is ours: it ends when we let go of it, or die."""

    def __init__(self) -> None:
        self.reader, self._writer = os.pipe()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.reader)
        os.close(self._writer)

    def tied(self, argv: Sequence[str], *, taken: Collection[int], first: str = "") -> list[str]:
        """Return `argv` started with its lifeline, after the shell commands in `first`.

        Args:
            taken: Descriptors that `argv` inherits. Those of our own that it does not inherit leave a
                number free, since they were opened before most of these.
        """
        free = next(number for number in range(3, 10) if number not in taken)
        return ["/bin/sh", "-c", first + _SCRIPT.format(fd=free), "sh", *argv]
