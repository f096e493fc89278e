"""A lean transport to OpenAI-compatible servers: plain dicts instead of the SDK's objects.

`LeanCompletions` replaces the SDK's `chat.completions` inside LangChain's `ChatOpenAI`, which also accepts
dicts. This saves most of the CPU of a streamed answer. Retries, timeouts, proxies and error classes are
therefore implemented here; `response_format` and the Responses API still use the SDK.
"""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp
import openai
import orjson

from deerflow.connection_errors import connection_reason
from deerflow.models.call import Call
from deerflow.models.endpoint import Endpoint
from deerflow.models.failures import (
    broken_answer,
    connection_error,
    request_to,
    retry_delay,
    status_error,
    stream_error,
)
from deerflow.models.pool import SessionPool
from deerflow.models.stream import LeanStream
from deerflow.models.wire import Json, MalformedStreamError, error_in, has_choices, tidy_whole

logger = logging.getLogger(__name__)

LARGEST_ANSWER_BYTES = 64 * 1024 * 1024
LARGEST_ERROR_BYTES = 64 * 1024


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
        call = Call.of(payload)
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

    async def _attempt(self, call: Call) -> RawAnswer:
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

    async def _post(self, call: Call) -> aiohttp.ClientResponse:
        endpoint = self._endpoint
        session = await self._pool.session()
        seconds = call.read_seconds or endpoint.read_seconds
        timeout = aiohttp.ClientTimeout(
            total=None,
            sock_connect=endpoint.connect_seconds,
            # `SilenceWatch` limits streams with one timer: aiohttp's limit sets a timer for every read.
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
            raise broken_answer(endpoint.url, f"the server sends us on to {where}; put that into `base_url`")
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
