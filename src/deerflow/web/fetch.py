"""Downloads pages safely: to checked addresses, within limits of size and time, with the site's consent.

Addresses are resolved once and the connection goes to what was checked; every redirect is checked again. The
body is decompressed here, in bounded steps, because a small compressed body can have any size.
"""

import asyncio
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from urllib.robotparser import RobotFileParser

import httpx2

from deerflow.config import WebSettings
from deerflow.connection_errors import connection_reason
from deerflow.errors import AddressRefusedError, WebError
from deerflow.pinned_http import PinnedTransport
from deerflow.web.api import retry_after_seconds, tls_context
from deerflow.web.policy import AddressPolicy

ROBOT_NAME = "DeerFlow"
ATTEMPTS = 3
FIRST_PAUSE_SECONDS = 0.3
LONGEST_WAIT_SECONDS = 5.0
MAX_ROBOTS_BYTES = 512 * 1024
_RETRIED = frozenset({429, 502, 503, 504})
_CHUNK = 256 * 1024
_ACCEPT = (
    "text/html,application/xhtml+xml,text/markdown,application/pdf,application/json,text/*;q=0.9,*/*;q=0.5"
)


@dataclass(frozen=True, slots=True)
class Download:
    """The content of a URL."""

    url: str
    """The address after redirects."""
    content: bytes
    media_type: str
    charset: str | None = None


Robots = Callable[[httpx2.URL], Awaitable[RobotFileParser | None]]
"""Returns the rules of a URL's site; None if there are none."""


class PageFetcher:
    """Fetches pages with one version of the settings."""

    def __init__(self, settings: WebSettings, policy: AddressPolicy, *, robots: Robots | None = None) -> None:
        """Args: `robots` returns the rules of a site from a cache; by default they are fetched each time."""
        self._settings = settings
        self._policy = policy
        self._robots = robots or self.fetch_robots

    async def fetch(self, text: str) -> Download:
        """Return the content of a URL; raise `WebError` with the reason if there is none."""
        url = self._policy.check_url(text)
        try:
            async with asyncio.timeout(self._settings.timeout_seconds), await self._client() as client:
                return await self._follow(client, url)
        except TimeoutError as error:
            seconds = self._settings.timeout_seconds
            raise WebError(f"{url} took longer than {seconds:g} seconds (web.timeout_seconds).") from error

    async def fetch_robots(self, url: httpx2.URL) -> RobotFileParser | None:
        """Return the rules in the site's `robots.txt`; None if all is allowed."""
        address = url.copy_with(raw_path=b"/robots.txt")
        try:
            async with await self._client() as client:
                response, body = await self._get(client, address, most=MAX_ROBOTS_BYTES, is_cut=True)
        except WebError:
            return None  # the page itself will fail with the reason
        rules = RobotFileParser()
        if response.status_code >= 500:
            rules.parse(["User-agent: *", "Disallow: /"])  # RFC 9309: all is forbidden while it fails
        elif response.is_success:
            lines = body.decode(errors="replace").removeprefix("\ufeff").splitlines()
            await asyncio.to_thread(rules.parse, lines)  # half a megabyte takes 100 ms
        else:
            return None
        return rules

    async def _client(self) -> httpx2.AsyncClient:
        tls = await asyncio.to_thread(tls_context)
        return httpx2.AsyncClient(
            transport=PinnedTransport(self._policy.addresses, verify=tls),
            trust_env=False,  # a proxy would resolve the name again
            timeout=self._settings.timeout_seconds,
            headers={
                "User-Agent": self._settings.user_agent,
                "Accept": _ACCEPT,
                "Accept-Language": "en,*;q=0.5",
                "Accept-Encoding": "gzip, deflate",
            },
        )

    async def _follow(self, client: httpx2.AsyncClient, url: httpx2.URL) -> Download:
        for _ in range(self._settings.max_redirects + 1):
            await self._check_robots(url)
            response, body = await self._get_retrying(client, url)
            target = response.headers.get("location")
            if response.is_redirect and target:
                try:
                    url = self._policy.check_url(str(url.join(target)))
                except (httpx2.InvalidURL, ValueError) as error:
                    raise WebError(f"{url} redirects to an invalid address.") from error
                continue
            if not response.is_success:
                raise WebError(
                    f"{url} answered {response.status_code} {response.reason_phrase}".rstrip() + "."
                )
            media_type, _, parameters = response.headers.get("content-type", "").partition(";")
            return Download(str(url), body, media_type.strip().lower(), _charset(parameters))
        raise WebError(f"{url} redirects more than {self._settings.max_redirects} times (web.max_redirects).")

    async def _check_robots(self, url: httpx2.URL) -> None:
        if not self._settings.respect_robots:
            return
        rules = await self._robots(url)
        if rules is not None and not rules.can_fetch(ROBOT_NAME, str(url)):
            raise WebError(
                f"{url} may not be fetched: the site's robots.txt forbids it (web.respect_robots)."
            )

    async def _get_retrying(
        self, client: httpx2.AsyncClient, url: httpx2.URL
    ) -> tuple[httpx2.Response, bytes]:
        for attempt in range(ATTEMPTS):
            is_last = attempt == ATTEMPTS - 1
            wait = None
            try:
                response, body = await self._get(client, url, most=self._settings.max_bytes)
            except ConnectionFailedError:
                if is_last:
                    raise
            else:
                wait = retry_after_seconds(response)
                if response.status_code not in _RETRIED or is_last or (wait or 0) > LONGEST_WAIT_SECONDS:
                    return response, body
            await asyncio.sleep(FIRST_PAUSE_SECONDS * 2**attempt if wait is None else wait)
        raise AssertionError("the last attempt returns or raises")

    async def _get(
        self, client: httpx2.AsyncClient, url: httpx2.URL, *, most: int, is_cut: bool = False
    ) -> tuple[httpx2.Response, bytes]:
        try:
            response = await client.send(client.build_request("GET", url), stream=True)
            try:
                _check_length(url, response, most, is_cut=is_cut)
                # The body of a redirect is not read: nobody sees it, and it may have any size.
                body = b"" if response.is_redirect else await _body(url, response, most, is_cut=is_cut)
            finally:
                await response.aclose()
        except httpx2.HTTPError as error:
            if isinstance(error.__cause__, AddressRefusedError):
                raise WebError(f"{url} may not be fetched: {error.__cause__}") from error
            raise ConnectionFailedError(f"{url} cannot be fetched: {connection_reason(error)}.") from error
        return response, body


class ConnectionFailedError(WebError):
    """A connection failed, which may pass."""


def _check_length(url: httpx2.URL, response: httpx2.Response, most: int, *, is_cut: bool) -> None:
    length = response.headers.get("content-length", "")
    if not is_cut and length.isascii() and length.isdigit() and int(length[:20]) > most:
        raise _too_large(url, most)


async def _body(url: httpx2.URL, response: httpx2.Response, most: int, *, is_cut: bool) -> bytes:
    pieces: list[bytes] = []
    size = 0
    async for piece in _decompressed(url, response):
        size += len(piece)
        pieces.append(piece)
        if size > most:
            if is_cut:
                break
            raise _too_large(url, most)
    return b"".join(pieces)[:most]


async def _decompressed(url: httpx2.URL, response: httpx2.Response) -> AsyncIterator[bytes]:
    """Yield the body in pieces of bounded size, whatever its compression ratio."""
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    if encoding in ("", "identity"):
        async for raw in response.aiter_raw():
            yield raw
        return
    if encoding not in ("gzip", "x-gzip", "deflate"):
        raise WebError(f"{url} is compressed with {encoding[:40]!r}, which was not asked for.")
    decoder = zlib.decompressobj(47)  # gzip or zlib, by the header
    try:
        async for raw in response.aiter_raw():
            data = raw
            while data or decoder.unconsumed_tail:
                try:
                    piece = decoder.decompress(data, _CHUNK)
                except zlib.error:
                    if encoding != "deflate" or decoder.unconsumed_tail or decoder.unused_data:
                        raise
                    decoder = zlib.decompressobj(-15)  # many servers send deflate without the zlib header
                    piece = decoder.decompress(data, _CHUNK)
                data = decoder.unconsumed_tail
                if piece:
                    yield piece
                if decoder.eof or not (piece or data):
                    break
    except zlib.error as error:
        raise WebError(f"{url} is compressed wrongly.") from error


def _too_large(url: httpx2.URL, most: int) -> WebError:
    return WebError(f"{url} has more than {most} bytes (web.max_bytes).")


def _charset(parameters: str) -> str | None:
    for parameter in parameters.split(";"):
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "charset":
            return value.strip().strip("\"'")[:40] or None
    return None
