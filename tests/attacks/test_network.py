"""N69: from inside a sandbox, nothing answers and nothing hears."""

import asyncio
import socket

from .conftest import AttackTarget

ATTEMPTS = r"""
import os, socket, struct, sys
tcp, udp, abstract = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]

def attempt(name, family, kind, protocol, *use):
    try:
        with socket.socket(family, kind, protocol) as s:
            s.settimeout(2)
            for call, *arguments in use:
                getattr(s, call)(*arguments)
            print('could', name)
    except OSError:
        pass

for address in ('127.0.0.1', '10.0.0.1', '169.254.169.254', '1.1.1.1'):
    attempt('tcp ' + address, socket.AF_INET, socket.SOCK_STREAM, 0, ('connect', (address, tcp)))
    said, asked = ('send', b'hi'), ('sendto', b'\0\1\1\0\0\1' + b'\0' * 20, (address, 53))
    to = ('connect', (address, udp))
    attempt('udp ' + address, socket.AF_INET, socket.SOCK_DGRAM, 0, to, said, ('recv', 9))
    attempt('dns ' + address, socket.AF_INET, socket.SOCK_DGRAM, 0, asked, ('recv', 9))
attempt('tcp6', socket.AF_INET6, socket.SOCK_STREAM, 0, ('connect', ('::1', tcp)))
attempt('tcp6', socket.AF_INET6, socket.SOCK_STREAM, 0, ('connect', ('2606:4700:4700::1111', 443)))
attempt('icmp', socket.AF_INET, socket.SOCK_DGRAM, 1, ('sendto', b'\x08\0' + b'\0' * 6, ('127.0.0.2', 0)))
attempt('raw', socket.AF_INET, socket.SOCK_RAW, 1)
attempt('packet', 17, socket.SOCK_RAW, 3)
attempt('netlink', 16, socket.SOCK_RAW, 0)
attempt('vsock', 40, socket.SOCK_STREAM, 0)
attempt('alg', 38, socket.SOCK_SEQPACKET, 0)
attempt('bluetooth', 31, socket.SOCK_RAW, 1)
attempt('abstract', socket.AF_UNIX, socket.SOCK_STREAM, 0, ('connect', '\0' + abstract))
attempt('path', socket.AF_UNIX, socket.SOCK_STREAM, 0, ('connect', sys.argv[4]))
for path in ('/run/docker.sock', '/var/run/docker.sock', '/run/dbus/system_bus_socket'):
    attempt(path, socket.AF_UNIX, socket.SOCK_STREAM, 0, ('connect', path))
print('end')
"""


async def test_n69_no_way_out(target: AttackTarget) -> None:
    received: list[object] = []

    class Listener(asyncio.DatagramProtocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            self.transport = transport

        def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
            received.append(data)
            self.transport.sendto(b"answer", addr)  # type: ignore[attr-defined]

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received.append("connection")
        writer.close()

    loop = asyncio.get_running_loop()
    tcp = await asyncio.start_server(accept, "127.0.0.1", 0)
    udp, _ = await loop.create_datagram_endpoint(Listener, local_addr=("127.0.0.1", 0))
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(f"\0{target.mark}")
    abstract = await asyncio.start_unix_server(accept, sock=listener)
    door = target.outside.parent / "door.sock"
    path = await asyncio.start_unix_server(accept, str(door))
    door.chmod(0o777)
    ports = f"{tcp.sockets[0].getsockname()[1]} {udp.get_extra_info('sockname')[1]}"
    await target.sandbox.write_file("net.py", ATTEMPTS)

    result = await target.run(f"/usr/bin/python3 net.py {ports} {target.mark} {door}", timeout=60)

    assert result.output == "end\n"
    assert received == []
    for server in (tcp, abstract, path):
        server.close()
    udp.close()


async def test_n69_no_way_out_with_the_shells_own_means(target: AttackTarget) -> None:
    received: list[str] = []

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received.append("connection")
        writer.close()

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]

    result = await target.run(
        f"(exec 3<>/dev/tcp/127.0.0.1/{port}) && echo tcp; (exec 3<>/dev/tcp/localhost/{port}) && echo named;"
        f"curl -s --max-time 3 http://127.0.0.1:{port}/ && echo curl;"
        "getent hosts example.com && echo resolved; true"
    )

    assert received == []
    assert not {"tcp", "named", "curl", "resolved"} & set(result.output.split())
    server.close()
