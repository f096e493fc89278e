"""A lean transport to OpenAI-compatible servers: plain dicts instead of the SDK's objects.

`LeanCompletions` replaces the SDK's `chat.completions` inside LangChain's `ChatOpenAI`, which also accepts
dicts. This saves most of the CPU of a streamed answer. Retries, timeouts, proxies and error classes are
therefore implemented here; `response_format` and the Responses API still use the SDK.
"""

import asyncio
import json
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any, Self

import aiohttp
import openai
import orjson
from langchain_openai import StreamChunkTimeoutError

from deerflow.connection_errors import connection_reason
from deerflow.models.failures import (
    broken_answer,
    connection_error,
    request_to,
    retry_delay,
    status_error,
    stream_error,
)
from deerflow.models.pool import SessionPool
from deerflow.models.wire import (
    ChunkDecoder,
    Json,
    MalformedStreamError,
    error_in,
    has_choices,
    has_substance,
    joined,
    tidy_whole,
)

logger = logging.getLogger(__name__)

LARGEST_ANSWER_BYTES = 64 * 1024 * 1024
LARGEST_ERROR_BYTES = 64 * 1024
END_GRACE_SECONDS = 0.02
"""How long to wait after `[DONE]` for the end of the body, so that the connection can be reused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """URL, headers, proxy, retries and timeouts of the requests to one model."""

    url: str
    model: str
    headers: Callable[[], Awaitable[Mapping[str, str]]]
    """Called for every request, since keys may change while the process runs."""
    query: Mapping[str, str] = field(default_factory=dict)
    proxy: str | None = None
    max_retries: int = 2
    connect_seconds: float = 10
    read_seconds: float | None = 600
    chunk_seconds: float | None = 240
    """Maximum time between chunks of a stream; keep-alive comments do not count as chunks."""
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep


@dataclass(frozen=True, slots=True)
class EncodedRequest:
    """An encoded request body, and the SDK's request options that are not part of the body."""

    body: bytes
    is_stream: bool
    headers: Mapping[str, str]
    query: Mapping[str, str]
    read_seconds: float | None

    @classmethod
    def of(cls, payload: Mapping[str, Any]) -> Self:
        """Split the arguments that LangChain's adapter passes to the SDK into body and options."""
        body = dict(payload)
        headers = body.pop("extra_headers", None) or {}
        query = body.pop("extra_query", None) or {}
        timeout = body.pop("timeout", None)
        body.update(body.pop("extra_body", None) or {})
        return cls(
            body=_encoded(body),
            is_stream=bool(body.get("stream")),
            headers=headers,
            query={key: str(value) for key, value in query.items()},
            read_seconds=timeout if isinstance(timeout, int | float) else None,
        )


def _encoded(body: Mapping[str, Any]) -> bytes:
    try:
        return orjson.dumps(body, option=orjson.OPT_NON_STR_KEYS)
    except orjson.JSONEncodeError:  # a lone surrogate in the text, or an integer beyond 64 bits
        return json.dumps(body, ensure_ascii=False).encode(errors="replace")


class SilentServerError(Exception):
    """The server sent nothing, or no chunk, within the timeout."""

    def __init__(self, seconds: float, *, is_alive: bool) -> None:
        super().__init__(f"silent for {seconds:g} s")
        self.seconds = seconds
        self.is_alive = is_alive
        """Whether bytes still arrived, but only keep-alive comments."""


class StreamTimeout:
    """Makes a read fail with SilentServerError after the timeout.

    Only time spent waiting in a read counts: a slow consumer is not the server's fault.
    """

    def __init__(
        self, content: aiohttp.StreamReader, *, read_seconds: float | None, chunk_seconds: float | None
    ) -> None:
        self._content = content
        self._read_seconds = read_seconds or inf
        self._chunk_seconds = chunk_seconds or inf
        self._loop = asyncio.get_running_loop()
        self._read_since: float | None = None
        self._chunk_since = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None
        self._period = min(self._read_seconds, self._chunk_seconds)
        if self._period < inf:
            self._timer = self._loop.call_later(self._period, self._check)

    def wait_for_chunk(self) -> None:
        """Start the timeout of the next chunk, which may take several reads."""
        self._chunk_since = self._loop.time()

    async def read(self) -> bytes:
        """Return the next bytes from the connection; empty at its end."""
        self._read_since = self._loop.time()
        try:
            return await self._content.readany()
        finally:
            self._read_since = None

    def stop(self) -> None:
        """Cancel the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check(self) -> None:
        now = self._loop.time()
        due = now + self._period
        if self._read_since is not None:
            due = min(self._read_since + self._read_seconds, self._chunk_since + self._chunk_seconds)
        if due > now:
            self._timer = self._loop.call_at(due, self._check)
        elif self._read_since is not None:
            is_alive = self._read_since + self._read_seconds > now
            seconds = self._chunk_seconds if is_alive else self._read_seconds
            self._content.set_exception(SilentServerError(seconds, is_alive=is_alive))


class LeanStream:
    """An asynchronous iterator of chunks; exiting it early closes the connection at once."""

    def __init__(self, response: aiohttp.ClientResponse, endpoint: Endpoint) -> None:
        self._response = response
        self._endpoint = endpoint
        self._decoder = ChunkDecoder()
        self._ready: deque[Json] = deque()
        self._received = 0
        self._is_over = False
        self._timeout = StreamTimeout(
            response.content, read_seconds=endpoint.read_seconds, chunk_seconds=endpoint.chunk_seconds
        )

    @classmethod
    async def begun(cls, response: aiohttp.ClientResponse, endpoint: Endpoint) -> Self:
        """Return the stream once it has visible content: before that a failure can be retried unnoticed."""
        stream = cls(response, endpoint)
        try:
            while not stream._is_over and not any(has_substance(chunk) for chunk in stream._ready):
                await stream._fill()
            if not stream._ready:
                raise broken_answer(endpoint.url, "there is nothing in it")
        except BaseException:
            stream._close()
            raise
        return stream

    @classmethod
    def of_whole(cls, response: aiohttp.ClientResponse, endpoint: Endpoint, body: Json) -> Self:
        """Return a non-streamed answer as a stream."""
        stream = cls(response, endpoint)
        try:
            stream._ready.extend(stream._decoder.whole(body))
        except MalformedStreamError as error:
            raise broken_answer(endpoint.url, str(error)) from error
        stream._is_over = True
        return stream

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()

    def __aiter__(self) -> AsyncIterator[Json]:
        return self

    async def __anext__(self) -> Json:
        while not self._ready:
            if self._is_over:
                raise StopAsyncIteration
            await self._fill()
        self._received += 1
        return self._ready.popleft()

    async def aclose(self) -> None:
        """Release the connection to the pool, or close it if the answer is incomplete."""
        try:
            if self._decoder.is_done and not self._response.content.at_eof():
                async with asyncio.timeout(END_GRACE_SECONDS):
                    await self._response.content.readany()
        except (TimeoutError, SilentServerError, aiohttp.ClientError):
            pass
        finally:
            self._close()

    def _close(self) -> None:
        self._timeout.stop()
        if self._response.content.at_eof():
            self._response.release()
        else:
            self._response.close()

    async def _fill(self) -> None:
        """Read until at least one more chunk is available or the stream ends."""
        before = len(self._ready)
        self._timeout.wait_for_chunk()
        while len(self._ready) == before and not self._is_over:
            self._take(await self._read())

    async def _read(self) -> bytes:
        try:
            return await self._timeout.read()
        except (SilentServerError, aiohttp.ClientError) as error:
            if self._decoder.is_finished:
                return b""  # the answer is complete; some servers then neither end the body nor close
            raise self._failure(error) from error

    def _failure(self, error: SilentServerError | aiohttp.ClientError) -> Exception:
        if isinstance(error, SilentServerError):
            if error.is_alive and self._received:
                return StreamChunkTimeoutError(
                    error.seconds, model_name=self._endpoint.model, chunks_received=self._received
                )
            return openai.APITimeoutError(request_to(self._endpoint.url))
        return broken_answer(self._endpoint.url, f"the connection was cut: {connection_reason(error)}")

    def _take(self, data: bytes) -> None:
        try:
            chunks = self._decoder.feed(data)
            if not data or self._decoder.is_done:
                self._is_over = True
                chunks += self._decoder.finish()
        except MalformedStreamError as error:
            raise broken_answer(self._endpoint.url, str(error)) from error
        for chunk in chunks:
            if detail := error_in(chunk):
                raise stream_error(self._endpoint.url, detail)
        self._ready.extend(joined(chunks))
        if self._is_over and not (self._decoder.is_done or self._decoder.is_finished):
            raise broken_answer(self._endpoint.url, self._why_it_ended())

    def _why_it_ended(self) -> str:
        kind = self._response.content_type
        if self._decoder.has_begun or kind == "text/event-stream":
            return "the stream ended in the middle"
        return f"it is no event stream but {kind}; check `base_url`"


@dataclass(frozen=True, slots=True)
class RawAnswer:
    """Result of `with_raw_response.create`: the answer and the response headers."""

    body: Json | LeanStream
    headers: Mapping[str, str]

    def parse(self) -> Json | LeanStream:
        """Return the answer."""
        return self.body


class LeanCompletions:
    """Replacement of the SDK's `chat.completions` for `ChatOpenAI`."""

    def __init__(self, endpoint: Endpoint, pool: SessionPool) -> None:
        self._endpoint = endpoint
        self._pool = pool

    @property
    def with_raw_response(self) -> "RawCompletions":
        """The same methods, returning the headers too."""
        return RawCompletions(self)

    async def create(self, **payload: Any) -> Json | LeanStream:
        """Call the model; with `stream=True` the answer is an iterator of chunks."""
        return (await self.answer(payload)).body

    async def answer(self, payload: Json) -> RawAnswer:
        """Call the model, retrying until the first chunk has arrived or the error is not retryable."""
        call = EncodedRequest.of(payload)
        attempt = 0
        while True:
            try:
                return await self._attempt(call)
            except openai.APIError as error:
                delay = retry_delay(error, attempt)
                if delay is None or attempt >= self._endpoint.max_retries:
                    raise
                name = type(error).__name__
                logger.info("model %s: %s, trying again in %.1f s", self._endpoint.model, name, delay)
            await self._endpoint.sleep(delay)
            attempt += 1

    async def _attempt(self, call: EncodedRequest) -> RawAnswer:
        response = await self._post(call)
        try:
            if not call.is_stream:
                body = await self._whole(response)
                tidy_whole(body)
                return RawAnswer(body, response.headers)
            if response.content_type == "application/json":  # a stream was requested, the answer is not one
                whole = await self._whole(response)
                return RawAnswer(LeanStream.of_whole(response, self._endpoint, whole), response.headers)
        except MalformedStreamError as error:
            response.close()
            raise broken_answer(self._endpoint.url, str(error)) from error
        except BaseException:
            response.close()
            raise
        return RawAnswer(await LeanStream.begun(response, self._endpoint), response.headers)

    async def _post(self, call: EncodedRequest) -> aiohttp.ClientResponse:
        endpoint = self._endpoint
        session = await self._pool.session()
        seconds = call.read_seconds or endpoint.read_seconds
        timeout = aiohttp.ClientTimeout(
            total=None,
            sock_connect=endpoint.connect_seconds,
            # `StreamTimeout` limits streams with one timer: aiohttp's limit sets a timer for every read.
            sock_read=None if call.is_stream else seconds,
        )
        try:
            async with asyncio.timeout(seconds if call.is_stream else None):
                response = await session.post(
                    endpoint.url,
                    data=call.body,
                    headers={**await endpoint.headers(), **call.headers},
                    params={**endpoint.query, **call.query} or None,
                    proxy=endpoint.proxy or self._pool.proxy_for(endpoint.url),
                    ssl=self._pool.tls if endpoint.url.startswith("https") else True,
                    timeout=timeout,
                )
        except TimeoutError as error:
            raise openai.APITimeoutError(request_to(endpoint.url)) from error
        except (aiohttp.ClientError, OSError) as error:
            raise connection_error(endpoint.url, error) from error
        if response.method != "POST":  # 301/302 redirects turn a POST into a GET
            response.close()
            where = response.url.origin()
            raise broken_answer(endpoint.url, f"the server redirects to {where}; put that into `base_url`")
        if response.status >= 400:
            async with response:
                raw = await self._read(response, LARGEST_ERROR_BYTES)
            raise status_error(endpoint.url, response.status, response.headers, raw)
        return response

    async def _whole(self, response: aiohttp.ClientResponse) -> Json:
        """Return the decoded body of a non-streamed answer."""
        async with response:
            raw = await self._read(response, LARGEST_ANSWER_BYTES)
        try:
            body = orjson.loads(raw)
        except orjson.JSONDecodeError as error:
            shown = raw[:120].decode(errors="replace")
            raise broken_answer(self._endpoint.url, f"malformed JSON: {shown!r}") from error
        if not isinstance(body, dict):
            raise broken_answer(self._endpoint.url, "JSON, but no object")
        if detail := error_in(body):
            raise stream_error(self._endpoint.url, detail)
        if not has_choices(body):
            raise broken_answer(self._endpoint.url, f"there are no choices in it: {raw[:120]!r}")
        return body

    async def _read(self, response: aiohttp.ClientResponse, limit: int) -> bytes:
        raw = bytearray()
        try:
            async with asyncio.timeout(self._endpoint.read_seconds):
                async for data in response.content.iter_any():
                    raw += data
                    if len(raw) > limit:
                        break
        except TimeoutError as error:
            raise openai.APITimeoutError(request_to(self._endpoint.url)) from error
        except aiohttp.ClientError as error:
            reason = f"the connection was cut: {connection_reason(error)}"
            raise broken_answer(self._endpoint.url, reason) from error
        if len(raw) > limit and response.status < 400:  # the start of an error body is enough
            raise broken_answer(self._endpoint.url, f"longer than {limit} bytes")
        return bytes(raw)


class RawCompletions:
    """The methods of `LeanCompletions`, returning the headers too."""

    def __init__(self, completions: LeanCompletions) -> None:
        self._completions = completions

    async def create(self, **payload: Any) -> RawAnswer:
        """Call the model."""
        return await self._completions.answer(payload)
