"""Holds a command back until everything around it stands.

bwrap ties its processes to ours with a signal that each of them asks for while it starts. A server that
died in just that moment would leave a sandbox behind. So the shell says that it is there, which means that
all ties are made, and waits for our word; should we be gone, there is no word and the shell ends.
"""

import os
from typing import Self

from deerflow.sandbox.process import readable


class Handshake:
    """Two pipes: on one the shell says that it is ready, on the other we say go."""

    def __init__(self) -> None:
        self._ready, ready = os.pipe()
        go, self._go = os.pipe()
        self.inner_fds = (ready, go)
        """What the shell needs."""
        self.has_begun = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for fd in (self._ready, self._go, *self.inner_fds):
            os.close(fd)

    @property
    def words(self) -> str:
        """The shell's part, to stand before everything else."""
        ready, go = self.inner_fds
        return (
            f"printf r >&{ready} && read -r -N 1 __go <&{go} || exit 125\n"
            f"unset __go; exec {ready}>&- {go}<&-\n"
        )

    async def ready(self) -> None:
        """Wait until the shell is there."""
        await readable(self._ready)
        self.has_begun = True

    def go(self) -> None:
        """Let the command start."""
        os.write(self._go, b"g")
