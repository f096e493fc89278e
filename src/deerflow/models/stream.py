"""Iterator over the chunks of one streamed answer."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from typing import Self

import aiohttp
import openai
from langchain_openai import StreamChunkTimeoutError

from deerflow.connection_errors import connection_reason
from deerflow.models.endpoint import Endpoint
from deerflow.models.failures import broken_answer, request_to, stream_error
from deerflow.models.stream_timeout import SilenceError, SilenceWatch
from deerflow.models.wire import (
    ChunkDecoder,
    Json,
    MalformedStreamError,
    error_in,
    has_substance,
    joined,
)

END_GRACE_SECONDS = 0.02
"""How long to wait after `[DONE]` for the end of the body, so that the connection can be reused."""


class LeanStream:
    """An asynchronous iterator of chunks; exiting it early closes the connection at once."""

    def __init__(self, response: aiohttp.ClientResponse, endpoint: Endpoint) -> None:
        self._response = response
        self._endpoint = endpoint
        self._decoder = ChunkDecoder()
        self._ready: deque[Json] = deque()
        self._received = 0
        self._is_over = False
        self._watch = SilenceWatch(
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
        except (TimeoutError, SilenceError, aiohttp.ClientError):
            pass
        finally:
            self._close()

    def _close(self) -> None:
        self._watch.stop()
        if self._response.content.at_eof():
            self._response.release()
        else:
            self._response.close()

    async def _fill(self) -> None:
        """Read until at least one more chunk is available or the stream ends."""
        before = len(self._ready)
        self._watch.wait_for_chunk()
        while len(self._ready) == before and not self._is_over:
            self._take(await self._read())

    async def _read(self) -> bytes:
        try:
            return await self._watch.read()
        except (SilenceError, aiohttp.ClientError) as error:
            if self._decoder.is_finished:
                return b""  # the answer is complete; some servers then neither end the body nor close
            raise self._failure(error) from error

    def _failure(self, error: SilenceError | aiohttp.ClientError) -> Exception:
        if isinstance(error, SilenceError):
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
