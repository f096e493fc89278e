"""The SDK's chat completions with a cheap chunk timeout.

LangChain's chunk timeout starts a task for every chunk (Python's `wait_for` did so before 3.12), which costs
as much as the SDK's work on the chunk. This one only sets a timer.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Self

from langchain_openai import StreamChunkTimeoutError
from openai import AsyncStream
from openai.resources.chat import AsyncCompletions
from openai.types.chat import ChatCompletion, ChatCompletionChunk


class PatientCompletions:
    """Wrapper of the SDK's `chat.completions` for `ChatOpenAI` whose streams have a chunk timeout."""

    def __init__(self, completions: AsyncCompletions, *, model: str, chunk_seconds: float) -> None:
        self._completions = completions
        self._model = model
        self._chunk_seconds = chunk_seconds

    @property
    def with_raw_response(self) -> Any:
        """The same methods, returning the headers too."""
        return self._completions.with_raw_response

    async def create(self, **payload: Any) -> "ChatCompletion | PatientStream":
        """Call the model; with `stream=True` the answer is an iterator of chunks."""
        answer: ChatCompletion | AsyncStream[ChatCompletionChunk] = await self._completions.create(**payload)
        if isinstance(answer, AsyncStream):
            return PatientStream(answer, model=self._model, chunk_seconds=self._chunk_seconds)
        return answer


class PatientStream:
    """An asynchronous iterator of the SDK's chunks that raises if the next chunk takes too long."""

    def __init__(self, stream: AsyncStream[ChatCompletionChunk], *, model: str, chunk_seconds: float) -> None:
        self._stream = stream
        self._model = model
        self._chunk_seconds = chunk_seconds
        self._received = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._stream.close()

    def __aiter__(self) -> AsyncIterator[ChatCompletionChunk]:
        return self

    async def __anext__(self) -> ChatCompletionChunk:
        limit = asyncio.timeout(self._chunk_seconds)
        try:
            async with limit:
                chunk = await anext(self._stream)
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise StreamChunkTimeoutError(
                self._chunk_seconds, model_name=self._model, chunks_received=self._received
            ) from error
        self._received += 1
        return chunk
