"""An HTTP transport that connects to exactly the addresses that were checked, against DNS rebinding."""

import ssl
from collections.abc import Awaitable, Callable, Sequence

import httpx2
from typing_extensions import override

from deerflow.errors import AddressRefusedError

MAX_ADDRESSES = 4

CheckedLookup = Callable[[str, int], Awaitable[Sequence[str]]]
"""Resolves a host and port to addresses that may be called; raises `AddressRefusedError` for others."""


class PinnedTransport(httpx2.AsyncHTTPTransport):
    """Resolves each host once, with a lookup that checks the addresses, and connects to one of these."""

    def __init__(self, look_up: CheckedLookup, *, verify: ssl.SSLContext | bool = True) -> None:
        super().__init__(verify=verify, trust_env=False)
        self._look_up = look_up

    @override
    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        url = request.url
        port = url.port or (443 if url.scheme == "https" else 80)
        try:
            found = await self._look_up(url.host, port)
        except (AddressRefusedError, OSError, UnicodeError) as error:  # UnicodeError: no name of a host
            raise httpx2.ConnectError(str(error), request=request) from error
        # The host name stays in the Host header and in the TLS handshake.
        extensions = {**request.extensions, "sni_hostname": url.host}
        last = httpx2.ConnectError(f"{url.host} has no address", request=request)
        for address in found[:MAX_ADDRESSES]:
            dialled = httpx2.Request(
                request.method,
                url.copy_with(host=address),
                headers=request.headers,
                stream=request.stream,
                extensions=extensions,
            )
            try:
                return await super().handle_async_request(dialled)
            except httpx2.ConnectError as error:
                last = error
        raise last
