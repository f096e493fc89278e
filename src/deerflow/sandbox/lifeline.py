"""Ends a sandbox whose server is gone, at whatever moment that happens.

bwrap's processes die with their parents once they have asked the kernel for it. A server that is killed
before that would leave one behind that waits for a parent for ever. So a shell starts bwrap, and beside it
one that waits on a pipe from us: when the pipe ends, it ends its process group, in which all of them are.
"""

import os
from collections.abc import Sequence
from typing import Self

# `read` returns when our end is closed, by us or by our death. The pipe is opened by its name, since a small
# shell knows no descriptors above 9. The shell forgets where it stood, lest the sandbox sees it.
_SCRIPT = '(read end < /dev/fd/{fd}; kill -9 0) > /dev/null 2>&1 & unset PWD OLDPWD; exec "$@"'


class Lifeline:
    """A pipe whose other end is ours: it ends when we let go of it, or die."""

    def __init__(self) -> None:
        self.reader, self._writer = os.pipe()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.reader)
        os.close(self._writer)

    def tied(self, argv: Sequence[str], *, first: str = "") -> list[str]:
        """Return `argv` started with its lifeline, after the shell commands in `first`."""
        return ["/bin/sh", "-c", first + _SCRIPT.format(fd=self.reader), "sh", *argv]
