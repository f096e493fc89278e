"""Says in plain words why a model did not answer, and what to do about it."""

from langchain_core.exceptions import (
    ContextOverflowError,
    ModelAPIError,
    ModelAuthenticationError,
    ModelConnectionError,
    ModelInvalidRequestError,
    ModelNotFoundError,
    ModelPermissionDeniedError,
    ModelRateLimitError,
    ModelTimeoutError,
)

from deerflow.errors import ModelError

LONGEST_DETAIL = 500
ADVICE: tuple[tuple[type[Exception], str], ...] = (
    (ContextOverflowError, "The conversation is longer than the model can read; start a new thread."),
    (ModelAuthenticationError, "The model's provider refused the key; check `api_key`."),
    (
        ModelPermissionDeniedError,
        "The key may not use this model; check the account or choose another model.",
    ),
    (ModelNotFoundError, "The provider does not know this model; check `model` and `base_url`."),
    (ModelRateLimitError, "The provider takes no more calls for now; wait, or give the model `fallbacks`."),
    (ModelTimeoutError, "The model did not answer in time; try again, or raise `timeout`."),
    (ModelConnectionError, "The model's server could not be reached, or hung up; check `base_url`."),
    (ModelInvalidRequestError, "The provider refused the request."),
    (ModelAPIError, "The provider has a problem of its own; try again later."),
)
"""From the particular to the general: the first class that fits decides."""
PROVIDERS = ("openai", "anthropic", "google", "langchain_openai", "httpx", "httpx2", "ollama")


def explain(error: BaseException) -> ModelError | None:
    """Return what to tell the person when a model failed with `error`; None when it was no model's error."""
    advice = next((words for cls, words in ADVICE if isinstance(error, cls)), None)
    if advice is None and type(error).__module__.partition(".")[0] in PROVIDERS:
        advice = "The model did not answer."
    if advice is None:
        return None
    notes = " ".join(getattr(error, "__notes__", ()))
    return ModelError(f"{advice} ({f'{_detail(error)} {notes}'.strip()[:LONGEST_DETAIL]})")


def _detail(error: BaseException) -> str:
    """Return what the provider said: its own sentence, without the JSON that it came in."""
    body = getattr(error, "body", None)
    inner = body.get("error", body) if isinstance(body, dict) else None
    said = inner.get("message") if isinstance(inner, dict) else inner
    status = getattr(error, "status_code", None)
    if isinstance(said, str) and said.strip() and isinstance(status, int):
        return f"{status}: {' '.join(said.split())}"
    return " ".join(str(error).split())
