"""HTTP calls to the providers of search and page content, with retries, rate limits and bounded answers."""

import asyncio
import functools
import json
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import httpx2

from deerflow.connection_errors import connection_reason
from deerflow.errors import ConfigError, RateLimitedError, WebError

MAX_ANSWER_BYTES = 5 * 1024 * 1024
"""Parsing more JSON would hold the event loop."""
ATTEMPTS = 3
FIRST_PAUSE_SECONDS = 0.5
LONGEST_WAIT_SECONDS = 5.0
"""A provider that asks for a longer wait is left out until then, and the next one is used."""
DEFAULT_SECONDS = 20.0
DEFAULT_PAUSE_SECONDS = 30.0
MAX_PAUSE_SECONDS = 3600.0
KEY_VARIABLES: Mapping[str, tuple[str, ...]] = {
    "bing": ("BING_SEARCH_API_KEY",),
    "brave": ("BRAVE_SEARCH_API_KEY", "BRAVE_API_KEY"),
    "browserless": ("BROWSERLESS_TOKEN", "BROWSERLESS_API_KEY"),
    "crawl4ai": ("CRAWL4AI_API_TOKEN",),
    "exa": ("EXA_API_KEY",),
    "fastcrw": ("CRW_API_KEY",),
    "firecrawl": ("FIRECRAWL_API_KEY",),
    "groundroute": ("GROUNDROUTE_API_KEY",),
    "infoquest": ("INFOQUEST_API_KEY",),
    "jina": ("JINA_API_KEY",),
    "serper": ("SERPER_API_KEY",),
    "tavily": ("TAVILY_API_KEY",),
}
"""The variables with the keys of providers, for settings without `api_key`; the first that is set counts."""
_RETRIED = frozenset({429, 500, 502, 503, 504})
_REASON_CHARS = 200


@dataclass(frozen=True, slots=True)
class ProviderOptions:
    """One provider as the settings configure it."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def text(self, *names: str, default: str = "") -> str:
        """Return the first of these options that is set."""
        for name in names:
            value = self.options.get(name)
            if isinstance(value, str) and value.strip():
                return value.strip()
        return default

    def number(self, name: str, default: float) -> float:
        value = self.options.get(name)
        if value is None or isinstance(value, bool):
            return default
        try:
            number = float(value)
        except (TypeError, ValueError) as error:
            raise ConfigError(f"{self.name}: `{name}` must be a number, not {value!r}") from error
        return number

    def key(self, env: Mapping[str, str]) -> str:
        """Return the API key: of the settings, else of a variable; empty without one."""
        named = (env.get(variable, "").strip() for variable in KEY_VARIABLES.get(self.name, ()))
        return self.text("api_key", "token") or next(filter(None, named), "")

    @property
    def seconds(self) -> float:
        """How long one request may take, with its retries."""
        if "timeout_ms" in self.options:
            return max(self.number("timeout_ms", 0) / 1000, 0.1)
        return max(self.number("timeout", self.number("timeout_s", DEFAULT_SECONDS)), 0.1)


class RateLimits:
    """Until when each provider of this process asked not to be called."""

    def __init__(self) -> None:
        self._until: dict[str, float] = {}

    def pause(self, name: str, seconds: float) -> None:
        self._until[name] = time.monotonic() + min(seconds, MAX_PAUSE_SECONDS)

    def check(self, name: str) -> None:
        """Raise `RateLimitedError` while the provider asks not to be called."""
        left = self._until.get(name, 0.0) - time.monotonic()
        if left > 0:
            raise RateLimitedError(f"{name} allows no further requests for {left:.0f} seconds", seconds=left)


@functools.cache
def tls_context() -> ssl.SSLContext:
    """Return the TLS settings of all connections; reading the certificates takes tens of milliseconds."""
    return httpx2.create_ssl_context()


class ProviderApi:
    """Calls one configured provider."""

    def __init__(self, provider: ProviderOptions, *, limits: RateLimits, env: Mapping[str, str]) -> None:
        self.provider = provider
        self.name = provider.name
        self._limits = limits
        self._env = env
        self._key = ""

    def check_limit(self) -> None:
        self._limits.check(self.name)

    def key(self, *, is_needed: bool = True) -> str:
        """Return the API key of the settings, else of the provider's variable."""
        key = self.provider.key(self._env)
        if not key and is_needed:
            variable = KEY_VARIABLES[self.name][0]
            raise WebError(f"{self.name} needs a key: set `api_key`, or the variable {variable}")
        self._key = key
        return key

    def url(self, default: str, path: str = "", *, variable: str = "") -> str:
        """Return the address of a route, below the configured or the default base address."""
        base = self.provider.text("base_url", "api_base", "url") or self._env.get(variable, "") or default
        if not base:
            raise WebError(f"{self.name} needs an address: set `base_url`")
        return f"{base.rstrip('/')}{path}"

    async def get_json(self, url: str, *, params: Mapping[str, Any], headers: Mapping[str, str]) -> Any:
        return self._json(await self.send("GET", url, params=params, headers=headers))

    async def post_json(self, url: str, body: Mapping[str, Any], headers: Mapping[str, str]) -> Any:
        return self._json(await self.send("POST", url, body=body, headers=headers))

    async def send(
        self,
        method: str,
        url: str,
        *,
        params: Mapping[str, Any] | None = None,
        body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> bytes:
        """Return the body of a successful answer; retry what may pass, and respect rate limits."""
        self._limits.check(self.name)
        tls = await asyncio.to_thread(tls_context)
        try:
            async with (
                asyncio.timeout(self.provider.seconds),
                httpx2.AsyncClient(
                    verify=tls,
                    timeout=self.provider.seconds,
                    proxy=self.provider.text("proxy") or None,
                    trust_env=self.provider.options.get("trust_env", True) is not False,
                ) as client,
            ):
                request = client.build_request(method, url, params=params, json=body, headers=headers)
                return await self._with_retries(client, request)
        except TimeoutError as error:
            raise WebError(f"{self.name} did not answer in {self.provider.seconds:g} seconds") from error
        except (httpx2.HTTPError, httpx2.InvalidURL, ValueError) as error:
            raise WebError(
                f"{self.name} cannot be reached: {self._hide(connection_reason(error))}"
            ) from error

    async def _with_retries(self, client: httpx2.AsyncClient, request: httpx2.Request) -> bytes:
        for attempt in range(ATTEMPTS):
            is_last = attempt == ATTEMPTS - 1
            try:
                response = await client.send(request, stream=True)
            except httpx2.ConnectError:
                if is_last:
                    raise
                wait = None
            else:
                body = await _bounded(response, self.name)
                if response.is_success:
                    return body
                wait = self._wait_after(response, body, is_last=is_last)
            await asyncio.sleep(FIRST_PAUSE_SECONDS * 2**attempt if wait is None else wait)
        raise AssertionError("the last attempt returns or raises")

    def _wait_after(self, response: httpx2.Response, body: bytes, *, is_last: bool) -> float | None:
        """Return how long to wait before another attempt, None for the usual pause; else raise."""
        status = response.status_code
        wait = retry_after_seconds(response)
        if status == httpx2.codes.TOO_MANY_REQUESTS and (is_last or (wait or 0) > LONGEST_WAIT_SECONDS):
            pause = DEFAULT_PAUSE_SECONDS if wait is None else wait
            self._limits.pause(self.name, pause)
            raise RateLimitedError(f"{self.name} allows no further requests for now (429)", seconds=pause)
        if status not in _RETRIED or is_last or (wait or 0) > LONGEST_WAIT_SECONDS:
            reason = self._hide(_reason(body))
            raise WebError(f"{self.name} answered {status}{': ' if reason else ''}{reason}")
        return wait

    def _json(self, body: bytes) -> Any:
        try:
            return json.loads(body)
        except ValueError as error:
            raise WebError(f"{self.name} answered with something other than JSON") from error

    def _hide(self, text: str) -> str:
        return text.replace(self._key, "***") if self._key else text


async def _bounded(response: httpx2.Response, name: str) -> bytes:
    pieces: list[bytes] = []
    size = 0
    try:
        async for piece in response.aiter_bytes():
            size += len(piece)
            if size > MAX_ANSWER_BYTES:
                raise WebError(f"{name} answered with more than {MAX_ANSWER_BYTES} bytes")
            pieces.append(piece)
    finally:
        await response.aclose()
    return b"".join(pieces)


def retry_after_seconds(response: httpx2.Response) -> float | None:
    """Return the seconds of `Retry-After`, which has a number or a date; None without one."""
    value = response.headers.get("retry-after", "").strip()
    if value.isascii() and value.isdigit():
        return float(value[:9])
    try:
        return max((parsedate_to_datetime(value) - datetime.now(UTC)).total_seconds(), 0.0)
    except (TypeError, ValueError):
        return None


def _reason(body: bytes) -> str:
    """Return the message of an error answer."""
    text = body[:2000].decode(errors="replace")
    try:
        found = json.loads(body)
    except ValueError:
        return "" if text.lstrip().startswith("<") else " ".join(text.split())[:_REASON_CHARS]
    for name in ("error", "message", "detail", "msg"):
        value = found.get(name) if isinstance(found, dict) else None
        if isinstance(value, dict):
            value = value.get("message") or value.get("error")
        if isinstance(value, str) and value:
            return " ".join(value.split())[:_REASON_CHARS]
    return ""
