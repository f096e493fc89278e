"""A line between browser and gateway that can be cut and mended."""

import socket
import threading
from contextlib import suppress
from typing import Self

_BLOCK = 65536


class Line:
    """Passes bytes on to a port of this machine until it is cut."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._is_cut = False
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def cut(self) -> None:
        """Break all connections and refuse new ones."""
        with self._lock:
            self._is_cut = True
            ends, self._open = self._open, set()
        for end in ends:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def mend(self) -> None:
        """Let new connections through again."""
        with self._lock:
            self._is_cut = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.cut()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):  # the listener was closed
            while True:
                here, _ = self._listener.accept()
                self._connect(here)

    def _connect(self, here: socket.socket) -> None:
        with self._lock:
            if self._is_cut:
                here.close()
                return
            there = socket.create_connection(("127.0.0.1", self._port))
            self._open |= {here, there}
        for source, sink in ((here, there), (there, here)):
            threading.Thread(target=_pass_on, args=(source, sink), daemon=True).start()


def _pass_on(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while block := source.recv(_BLOCK):
            sink.sendall(block)
    for end in (source, sink):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
    source.close()
