"""A real DNS server on the loopback whose answers change, and a resolver that asks it."""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from deerflow.web.policy import Resolve

_HEADER = struct.Struct("!6H")


@dataclass(slots=True)
class DnsServer:
    """The addresses of each answer in turn; the last one is repeated."""

    answers: list[list[str]]
    port: int = 0
    asked: list[str] = field(default_factory=list)


@asynccontextmanager
async def dns_server(*answers: list[str]) -> AsyncIterator[DnsServer]:
    """Yield a server that answers queries for IPv4 addresses."""
    served = DnsServer(list(answers))
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(lambda: _Protocol(served), local_addr=("127.0.0.1", 0))
    served.port = transport.get_extra_info("sockname")[1]
    try:
        yield served
    finally:
        transport.close()


class _Protocol(asyncio.DatagramProtocol):
    def __init__(self, served: DnsServer) -> None:
        self._served = served

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def datagram_received(self, data: bytes, address: tuple[str, int]) -> None:
        number = struct.unpack("!H", data[:2])[0]
        name, end = _name(data, 12)
        self._served.asked.append(name)
        answers = self._served.answers
        addresses = answers.pop(0) if len(answers) > 1 else answers[0]
        records = b"".join(
            b"\xc0\x0c" + struct.pack("!HHIH", 1, 1, 0, 4) + socket.inet_aton(text) for text in addresses
        )
        head = _HEADER.pack(number, 0x8180, 1, len(addresses), 0, 0)
        self._transport.sendto(head + data[12 : end + 4] + records, address)


def resolver(server: DnsServer) -> Resolve:
    """Return a function that resolves names by asking `server`."""

    async def resolve(host: str, port: int) -> Sequence[str]:
        loop = asyncio.get_running_loop()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
            client.setblocking(False)
            labels = b"".join(bytes([len(part)]) + part.encode() for part in host.split("."))
            query = _HEADER.pack(7, 0x0100, 1, 0, 0, 0) + labels + b"\0" + struct.pack("!HH", 1, 1)
            await loop.sock_connect(client, ("127.0.0.1", server.port))
            await loop.sock_sendall(client, query)
            answer = await loop.sock_recv(client, 512)
        count = _HEADER.unpack(answer[:12])[3]
        records = answer[len(query) :]
        return [socket.inet_ntoa(records[16 * n + 12 : 16 * n + 16]) for n in range(count)]

    return resolve


def _name(data: bytes, at: int) -> tuple[str, int]:
    labels = []
    while size := data[at]:
        labels.append(data[at + 1 : at + 1 + size].decode())
        at += 1 + size
    return ".".join(labels), at + 1
