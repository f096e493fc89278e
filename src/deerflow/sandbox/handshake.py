"""Delays a command until its sandbox is set up.

bwrap's processes request a parent-death signal while they start. A server that dies before that would leave
a sandbox behind. So the shell reports that it runs, which means that all signals are requested, and waits
for the server's go; when the server has died, the read fails and the shell exits.
"""

import os
from typing import Self

from deerflow.sandbox.process import readable


class Handshake:
    """Two pipes: on one the shell reports that it is ready, on the other the server sends the go."""

    def __init__(self) -> None:
        self._ready, ready = os.pipe()
        go, self._go = os.pipe()
        self.inner_fds = (ready, go)
        """Descriptors that the shell inherits."""
        self.has_begun = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for fd in (self._ready, self._go, *self.inner_fds):
            os.close(fd)

    @property
    def words(self) -> str:
        """The shell's part of the handshake, to be run before everything else."""
        ready, go = self.inner_fds
        return (
            f"printf r >&{ready} && read -r -N 1 __go <&{go} || exit 125\n"
            f"unset __go; exec {ready}>&- {go}<&-\n"
        )

    async def ready(self) -> None:
        """Wait until the shell is ready."""
        await readable(self._ready)
        self.has_begun = True

    def go(self) -> None:
        """Let the command start."""
        os.write(self._go, b"g")
