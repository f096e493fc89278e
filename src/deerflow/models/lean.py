"""A lean way to OpenAI-compatible servers: plain dicts instead of the SDK's objects.

`LeanCompletions` takes the place of the SDK's `chat.completions` inside LangChain's `ChatOpenAI`, which
accepts dicts as well. That saves most of the CPU of a streamed answer. Retries, time-outs, proxies and
error classes are therefore ours; `response_format` and the Responses API stay with the SDK.
"""

import asyncio
import json
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import aiohttp
import openai
import orjson
from langchain_openai import StreamChunkTimeoutError

from deerflow.models.failures import (
    broken_answer,
    connection_error,
    request_to,
    retry_delay,
    status_error,
    stream_error,
)
from deerflow.models.pool import SessionPool
from deerflow.models.wire import ChunkDecoder, Json, MalformedStreamError, chunks_of_whole, has_substance

logger = logging.getLogger(__name__)

LARGEST_ANSWER_BYTES = 64 * 1024 * 1024
LARGEST_ERROR_BYTES = 64 * 1024
END_GRACE_SECONDS = 0.02
"""How long the end of the body may lag behind `[DONE]` for the connection to be kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where and how a model is reached."""

    url: str
    model: str
    headers: Callable[[], Awaitable[Mapping[str, str]]]
    """Asked for every call, since keys may change while the process runs."""
    query: Mapping[str, str] = field(default_factory=dict)
    proxy: str | None = None
    max_retries: int = 2
    connect_seconds: float = 10
    read_seconds: float | None = 600
    chunk_seconds: float | None = 240
    """How long a stream may be silent between chunks; comments that only keep it alive do not count."""
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep


@dataclass(frozen=True, slots=True)
class RawAnswer:
    """What `with_raw_response.create` returns: the answer and the headers it came with."""

    body: "Json | LeanStream"
    headers: Mapping[str, str]

    def parse(self) -> "Json | LeanStream":
        """Return the answer."""
        return self.body


class LeanCompletions:
    """Does for `ChatOpenAI` what the SDK's `chat.completions` does."""

    def __init__(self, endpoint: Endpoint, pool: SessionPool) -> None:
        self._endpoint = endpoint
        self._pool = pool

    @property
    def with_raw_response(self) -> "RawCompletions":
        """The same calls, returning headers too."""
        return RawCompletions(self)

    async def create(self, **payload: Any) -> "Json | LeanStream":
        """Ask the model; with `stream=True` the answer is an iterator of chunks."""
        return (await self.answer(payload)).body

    async def answer(self, payload: Json) -> RawAnswer:
        """Ask until there is an answer, its first piece included, or no sense in asking again."""
        call = _Call.of(payload)
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

    async def _attempt(self, call: "_Call") -> RawAnswer:
        response = await self._post(call)
        try:
            if not call.is_stream:
                return RawAnswer(await self._whole(response), response.headers)
            stream = LeanStream(response, self._endpoint)
            if response.content_type == "application/json":  # asked to stream, answered in one piece
                stream.preload(await self._whole(response))
            else:
                await stream.reach_substance()
        except BaseException:
            response.close()
            raise
        return RawAnswer(stream, response.headers)

    async def _post(self, call: "_Call") -> aiohttp.ClientResponse:
        endpoint = self._endpoint
        session = await self._pool.session()
        timeout = aiohttp.ClientTimeout(
            total=None,
            sock_connect=endpoint.connect_seconds,
            sock_read=call.read_seconds or endpoint.read_seconds,
        )
        try:
            response = await session.post(
                endpoint.url,
                data=call.body,
                headers={**await endpoint.headers(), **call.headers},
                params={**endpoint.query, **call.query},
                proxy=endpoint.proxy or self._pool.proxy_for(endpoint.url),
                ssl=self._pool.tls if endpoint.url.startswith("https") else True,
                timeout=timeout,
            )
        except TimeoutError as error:
            raise openai.APITimeoutError(request_to(endpoint.url)) from error
        except (aiohttp.ClientError, OSError) as error:
            raise connection_error(endpoint.url, error) from error
        if response.status >= 400:
            async with response:
                raw = await self._read(response, LARGEST_ERROR_BYTES)
            raise status_error(endpoint.url, response.status, response.headers, raw)
        return response

    async def _whole(self, response: aiohttp.ClientResponse) -> Json:
        """Return the whole answer, decoded."""
        async with response:
            raw = await self._read(response, LARGEST_ANSWER_BYTES)
        try:
            body = orjson.loads(raw)
        except orjson.JSONDecodeError as error:
            shown = raw[:120].decode(errors="replace")
            raise broken_answer(self._endpoint.url, f"malformed JSON: {shown!r}") from error
        if not isinstance(body, dict):
            raise broken_answer(self._endpoint.url, "JSON, but no object")
        if body.get("error"):
            raise stream_error(self._endpoint.url, body["error"])
        return body

    async def _read(self, response: aiohttp.ClientResponse, limit: int) -> bytes:
        raw = bytearray()
        async for data in _reads(response, self._endpoint.url):
            raw += data
            if len(raw) > limit:
                if response.status >= 400:  # the beginning of an error page says enough
                    break
                raise broken_answer(self._endpoint.url, f"longer than {limit} bytes")
        return bytes(raw)


class RawCompletions:
    """The calls of `LeanCompletions`, returning headers too."""

    def __init__(self, completions: LeanCompletions) -> None:
        self._completions = completions

    async def create(self, **payload: Any) -> RawAnswer:
        """Ask the model."""
        return await self._completions.answer(payload)


class LeanStream:
    """The chunks of one streamed answer; leaving it early closes the connection at once."""

    def __init__(self, response: aiohttp.ClientResponse, endpoint: Endpoint) -> None:
        self._response = response
        self._endpoint = endpoint
        self._decoder = ChunkDecoder()
        self._ready: deque[Json] = deque()
        self._received = 0
        self._is_over = False

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
            try:
                await self._fill()
            except TimeoutError as error:
                seconds = self._endpoint.chunk_seconds or 0
                raise StreamChunkTimeoutError(
                    seconds, model_name=self._endpoint.model, chunks_received=self._received
                ) from error
        self._received += 1
        return self._ready.popleft()

    def preload(self, body: Json) -> None:
        """Take an answer that is already complete."""
        self._ready.extend(chunks_of_whole(body))
        self._is_over = True

    async def reach_substance(self) -> None:
        """Read until there is something worth showing: up to here a failure can be retried unseen."""
        while not self._is_over and not any(has_substance(chunk) for chunk in self._ready):
            try:
                await self._fill()
            except TimeoutError as error:
                raise openai.APITimeoutError(request_to(self._endpoint.url)) from error

    async def aclose(self) -> None:
        """Give the connection back, or close it when the answer is not complete."""
        if self._decoder.is_done and not self._response.content.at_eof():
            try:
                async with asyncio.timeout(END_GRACE_SECONDS):
                    await self._response.content.readany()
            except (TimeoutError, aiohttp.ClientError):
                pass
        if self._response.content.at_eof():
            self._response.release()
        else:
            self._response.close()

    async def _fill(self) -> None:
        """Read until at least one more chunk is there, or the end."""
        before = len(self._ready)
        async with asyncio.timeout(self._endpoint.chunk_seconds):
            while len(self._ready) == before and not self._is_over:
                self._take(await self._read())

    def _take(self, data: bytes) -> None:
        try:
            chunks = self._decoder.feed(data)
            if not data or self._decoder.is_done:
                self._is_over = True
                chunks += self._decoder.finish()
        except MalformedStreamError as error:
            raise broken_answer(self._endpoint.url, str(error)) from error
        for chunk in chunks:
            if chunk.get("error"):
                raise stream_error(self._endpoint.url, chunk["error"])
        self._ready.extend(chunks)
        if self._is_over and not (self._decoder.is_done or self._decoder.is_finished):
            raise broken_answer(self._endpoint.url, "the stream ended in the middle")

    async def _read(self) -> bytes:
        try:
            return await self._response.content.readany()
        except aiohttp.SocketTimeoutError as error:
            raise openai.APITimeoutError(request_to(self._endpoint.url)) from error
        except aiohttp.ClientError as error:
            raise broken_answer(self._endpoint.url, f"the connection was cut: {error}") from error


@dataclass(frozen=True, slots=True)
class _Call:
    """One request, without what the SDK takes as options rather than as part of the body."""

    body: bytes
    is_stream: bool
    headers: Mapping[str, str]
    query: Mapping[str, str]
    read_seconds: float | None

    @classmethod
    def of(cls, payload: Json) -> "_Call":
        payload = dict(payload)
        headers = payload.pop("extra_headers", None) or {}
        query = payload.pop("extra_query", None) or {}
        timeout = payload.pop("timeout", None)
        payload.update(payload.pop("extra_body", None) or {})
        return cls(
            body=_encoded(payload),
            is_stream=bool(payload.get("stream")),
            headers=headers,
            query={key: str(value) for key, value in query.items()},
            read_seconds=timeout if isinstance(timeout, int | float) else None,
        )


def _encoded(payload: Json) -> bytes:
    try:
        return orjson.dumps(payload, option=orjson.OPT_NON_STR_KEYS)
    except orjson.JSONEncodeError:  # half a surrogate pair in the text, or integers beyond 64 bits
        return json.dumps(payload, ensure_ascii=False).encode(errors="replace")


async def _reads(response: aiohttp.ClientResponse, url: str) -> AsyncIterator[bytes]:
    try:
        async for data in response.content.iter_any():
            yield data
    except TimeoutError as error:
        raise openai.APITimeoutError(request_to(url)) from error
    except aiohttp.ClientError as error:
        raise broken_answer(url, f"the connection was cut: {error}") from error
