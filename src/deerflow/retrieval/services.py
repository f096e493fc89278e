"""Embedding models behind HTTP: OpenAI's API, which many servers have, and Ollama's own."""

import logging
import time
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import httpx2
from typing_extensions import override

from deerflow.config.embeddings import EmbeddingSettings
from deerflow.config.secrets import without_login
from deerflow.errors import EmbeddingError
from deerflow.retrieval.embeddings import EmbeddingModel, MeasuredModel, unit

if TYPE_CHECKING:
    from deerflow.retrieval.embeddings import Matrix

logger = logging.getLogger(__name__)

OPENAI_URL = "https://api.openai.com/v1"
OLLAMA_URL = "http://127.0.0.1:11434"
MAX_TEXT_CHARS = 8000
"""Of a text that is sent; embedding models read about 8,000 tokens."""
MAX_TRIES = 3
MAX_PAUSE_SECONDS = 5.0
AWAY_SECONDS = 30.0
"""After a failure the service is not asked for so long: no question waits for it again and again."""
_BUSY = (408, 409, 425, 429, 500, 502, 503, 504)
_SHOWN_CHARS = 200


class _ServiceEmbeddings(MeasuredModel):
    """Sends texts to a service and checks what it answers."""

    _path: str

    def __init__(self, settings: EmbeddingSettings, default_url: str) -> None:
        super().__init__()
        self._model = settings.model or ""
        self._settings = settings
        self._url = (settings.base_url or default_url).rstrip("/") + self._path
        headers = {"Authorization": f"Bearer {settings.api_key}"} if settings.api_key else {}
        self._away_until = 0.0
        self._client = httpx2.Client(timeout=settings.timeout_seconds, headers=headers)

    @abstractmethod
    def _body(self, texts: Sequence[str]) -> Mapping[str, Any]:
        """Return the request's body."""

    @abstractmethod
    def _vectors(self, answer: Any) -> Sequence[Sequence[float]]:
        """Return the vectors of an answer, in the order of the texts; any error means a wrong answer."""

    @override
    def close(self) -> None:
        self._client.close()

    @override
    def _embed(self, texts: Sequence[str]) -> "Matrix":
        import numpy as np  # noqa: PLC0415 - on first use

        # Services refuse an empty text.
        answer = self._post(self._body([text[:MAX_TEXT_CHARS] or " " for text in texts]))
        try:
            rows = np.asarray(self._vectors(answer), dtype=np.float32)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise self._failed("its answer has no vectors; is this the URL of an embedding API?") from error
        if rows.ndim != 2 or len(rows) != len(texts) or not np.isfinite(rows).all():
            raise self._failed(f"it answered with {rows.shape} numbers for {len(texts)} texts")
        return unit(rows)

    def _post(self, body: Mapping[str, Any]) -> Any:
        if time.monotonic() < self._away_until:
            raise self._failed(f"it failed less than {AWAY_SECONDS:g} seconds ago")
        try:
            return self._tried(body)
        except EmbeddingError:
            self._away_until = time.monotonic() + AWAY_SECONDS
            raise

    def _tried(self, body: Mapping[str, Any]) -> Any:
        for attempt in range(1, MAX_TRIES + 1):
            try:
                response = self._client.post(self._url, json=body)
            except httpx2.HTTPError as error:
                if attempt == MAX_TRIES or isinstance(error, httpx2.TimeoutException):
                    raise self._failed(str(error) or type(error).__name__) from error
                time.sleep(0.2 * attempt)
                continue
            if response.status_code < 300:
                return _json(response)
            if response.status_code not in _BUSY or attempt == MAX_TRIES:
                raise self._failed(f"status {response.status_code}: {response.text[:_SHOWN_CHARS]}")
            time.sleep(_pause(response.headers.get("retry-after"), attempt))
        raise AssertionError("the last try returns or raises")

    def _failed(self, reason: str) -> EmbeddingError:
        return EmbeddingError(f"{without_login(self._url)} did not embed with '{self._model}': {reason}")


class OpenAIEmbeddings(_ServiceEmbeddings):
    """Any server with `POST /v1/embeddings`."""

    _path = "/embeddings"

    def __init__(self, settings: EmbeddingSettings) -> None:
        super().__init__(settings, OPENAI_URL)
        self.name = f"openai/{settings.model}/{settings.dimensions or ''}"

    @override
    def _body(self, texts: Sequence[str]) -> Mapping[str, Any]:
        body = {"model": self._model, "input": list(texts), "encoding_format": "float"}
        return {**body, "dimensions": self._settings.dimensions} if self._settings.dimensions else body

    @override
    def _vectors(self, answer: Any) -> Sequence[Sequence[float]]:
        return [entry["embedding"] for entry in sorted(answer["data"], key=lambda entry: entry["index"])]


class OllamaEmbeddings(_ServiceEmbeddings):
    """Ollama's `POST /api/embed`."""

    _path = "/api/embed"

    def __init__(self, settings: EmbeddingSettings) -> None:
        super().__init__(settings, OLLAMA_URL)
        self.name = f"ollama/{settings.model}"

    @override
    def _body(self, texts: Sequence[str]) -> Mapping[str, Any]:
        return {"model": self._model, "input": list(texts), "truncate": True}

    @override
    def _vectors(self, answer: Any) -> Sequence[Sequence[float]]:
        found: Sequence[Sequence[float]] = answer["embeddings"]
        return found


def service_embeddings(settings: EmbeddingSettings) -> EmbeddingModel:
    """Return the model of a service."""
    return OllamaEmbeddings(settings) if settings.provider == "ollama" else OpenAIEmbeddings(settings)


def _json(response: httpx2.Response) -> Any:
    try:
        return response.json()
    except ValueError:
        return None


def _pause(retry_after: str | None, attempt: int) -> float:
    try:
        return min(max(float(retry_after or ""), 0.0), MAX_PAUSE_SECONDS)
    except ValueError:
        return 0.2 * attempt
