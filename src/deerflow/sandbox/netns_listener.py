"""Opens a listening socket in a sandbox's network namespace and sends it to the server.

Runs as a separate program, without site-packages, as the commands' user: it enters the user namespace that
owns the network namespace, then the network namespace. No code of the sandbox runs meanwhile.
"""

import ctypes
import fcntl
import os
import socket
import sys

NS_GET_USERNS = 0xB701
CLONE_NEWUSER = 0x10000000
CLONE_NEWNET = 0x40000000


def main() -> None:
    """Listen on the port in the process's network namespace and send the socket over the descriptor."""
    pid, channel, port, user = (int(argument) for argument in sys.argv[1:5])
    network = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
    if user >= 0:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    # bwrap nests user namespaces, so the outer one may own the network: ask the kernel which
    owner = fcntl.ioctl(network, NS_GET_USERNS)
    _enter(owner, CLONE_NEWUSER)
    _enter(network, CLONE_NEWNET)
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen(64)
    with socket.socket(fileno=channel) as out:
        socket.send_fds(out, [b"\0"], [listener.fileno()])


def _enter(namespace: int, kind: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(namespace, kind) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


if __name__ == "__main__":
    main()
