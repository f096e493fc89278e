"""HTTP to addresses from outside: public or allowed ones only, without redirects or proxies.

A server that requests arbitrary URLs gives access to its own network (SSRF). So the addresses of a host are
checked as resolved at that moment, and exactly these are connected to.
"""

import asyncio
import socket
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from typing_extensions import override

from deerflow.addresses import ALLOW_CIDRS, Network, checked_addresses, parse_network
from deerflow.config.secrets import masked_address
from deerflow.connection_errors import connection_reason
from deerflow.errors import InvalidInputError, TooLargeError

_PORTS = {"http": 80, "https": 443}


def check_web_address(url: str, *, what: str) -> None:
    """Raise `InvalidInputError` unless `url` is an HTTP URL; `what` names its purpose in the message."""
    try:
        parts = urlsplit(url)
        is_address = parts.scheme in _PORTS and bool(parts.hostname)
        is_address = is_address and parts.port != 0
        (parts.hostname or "").encode("idna")  # as the resolver does: rejects labels that are too long
    except ValueError:
        is_address = False
    if not is_address:
        shown = masked_address(url)[:80]
        raise InvalidInputError(f"{what} '{shown}' is no address; write it like https://example.org/done")


def allowed_networks(cidrs: Sequence[str]) -> tuple[Network, ...]:
    """Parse the networks of `runs.webhook_allow_cidrs`."""
    return tuple(parse_network(text, setting=ALLOW_CIDRS) for text in cidrs)


async def check_destination(url: str, allowed: Sequence[Network] = ()) -> list[str]:
    """Resolve the host of a URL; raise `AddressRefusedError` unless all its addresses may be called."""
    parts = urlsplit(url)
    port = parts.port or _PORTS[parts.scheme]
    return await checked_addresses(parts.hostname or "", port, allowed=allowed, setting=ALLOW_CIDRS)


def guarded_session(
    allowed: Sequence[Network], *, timeout: aiohttp.ClientTimeout, **options: Any
) -> aiohttp.ClientSession:
    """Create a session that connects to allowed addresses only.

    Call `check_destination` before a request: an IP address in a URL is not resolved.
    """
    connector = aiohttp.TCPConnector(resolver=_GuardedResolver(allowed), use_dns_cache=False)
    return aiohttp.ClientSession(connector=connector, timeout=timeout, trust_env=False, **options)


async def fetch(url: str, *, allowed: Sequence[Network], max_bytes: int, seconds: float) -> bytes:
    """Return the body of a GET request; raise `InvalidInputError` for everything but a plain success.

    Compressed responses are refused, since a few bytes of them may unpack to gigabytes.
    """
    shown = masked_address(url)[:200]
    check_web_address(url, what="address")
    headers = {"Accept-Encoding": "identity"}
    try:
        async with asyncio.timeout(seconds):
            await check_destination(url, allowed)
            timeout = aiohttp.ClientTimeout(total=seconds)
            async with (
                guarded_session(allowed, timeout=timeout, auto_decompress=False) as session,
                session.get(url, headers=headers, allow_redirects=False) as answer,
            ):
                return await _body(answer, shown, max_bytes)
    except TimeoutError as error:
        raise InvalidInputError(f"{shown} did not answer within {seconds:g} s") from error
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise InvalidInputError(f"{shown} cannot be read: {connection_reason(error)}") from error


async def _body(answer: aiohttp.ClientResponse, shown: str, max_bytes: int) -> bytes:
    if 300 <= answer.status < 400:
        target = masked_address(answer.headers.get("Location", ""))[:200]
        raise InvalidInputError(f"{shown} redirects to '{target}', which is not followed; name that address")
    if answer.status != 200:
        raise InvalidInputError(f"{shown} answered {answer.status}")
    if answer.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise InvalidInputError(f"{shown} answered with compressed data, although it was asked not to")
    body = bytearray()
    async for block in answer.content.iter_any():
        body += block
        if len(body) > max_bytes:
            raise TooLargeError(f"{shown} has more than {max_bytes:,} bytes")
    return bytes(body)


class _GuardedResolver(AbstractResolver):
    """Resolves names to allowed addresses only; the connection uses exactly these."""

    def __init__(self, allowed: Sequence[Network]) -> None:
        self._allowed = allowed

    @override
    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        addresses = await checked_addresses(host, port, allowed=self._allowed, setting=ALLOW_CIDRS)
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=0,
                flags=socket.AI_NUMERICHOST,
            )
            for address in addresses
        ]

    @override
    async def close(self) -> None:
        pass
