"""Tries a failed model call again, and says in words why it failed for good.

The transport has already repeated what it could at once. This waits longer, tells the people watching,
and leaves a model alone that fails one run after the other. An overflow of the context is not repeated:
whoever shortens the conversation stands further out.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable

from langchain_core.exceptions import ContextOverflowError, ModelRateLimitError
from langchain_core.exceptions import ModelError as ProviderError
from typing_extensions import override

from deerflow.agents.middlewares.base import HouseMiddleware
from deerflow.agents.middlewares.breaker import CircuitBreaker
from deerflow.agents.types import ModelAnswer, ModelCall, ModelHandler
from deerflow.config import CircuitBreakerSettings, LlmCallSettings
from deerflow.context import RunContext
from deerflow.errors import ModelError
from deerflow.models import explain
from deerflow.observability.meters import MODEL_RETRIES

logger = logging.getLogger(__name__)

Sleep = Callable[[float], Awaitable[None]]
OVERFLOW_WORDS = (
    "context length",
    "context_length",
    "context window",
    "maximum context",
    "prompt is too long",
    "too many tokens",
    "input is too long",
)


class ModelErrorMiddleware(HouseMiddleware):
    """Repeats model calls that may yet succeed."""

    before = ("ReadyToolsMiddleware",)
    after = ("EmptyAnswerMiddleware",)

    def __init__(
        self,
        *,
        settings: LlmCallSettings,
        breaker: CircuitBreakerSettings,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        super().__init__()
        self._settings = settings
        self._sleep = sleep
        self._breaker = CircuitBreaker(
            failure_threshold=breaker.failure_threshold, recovery_seconds=breaker.recovery_timeout_sec
        )

    @override
    async def awrap_model_call(self, request: ModelCall, handler: ModelHandler) -> ModelAnswer:
        attempt = 0
        while True:
            if (left := self._breaker.seconds_left()) > 0:
                raise ModelError(
                    f"The model failed too often in a row and is left alone for {left:.0f} more seconds. "
                    "Try again then, choose another model, or give this one `fallbacks`."
                )
            attempt += 1
            try:
                response = await handler(request)
            except Exception as error:  # a provider's SDK raises what it likes; `explain` knows them apart
                await self._recover(error, attempt, request.runtime.context)
            else:
                self._breaker.succeeded()
                return response

    async def _recover(self, error: Exception, attempt: int, context: RunContext) -> None:
        """Wait before another attempt, or raise what is to be said."""
        if is_overflow(error):
            if isinstance(error, ContextOverflowError):
                raise error
            raise ContextOverflowError(str(error)) from error
        explained = explain(error)
        if explained is None:
            raise error
        # A provider may repeat the key that it refuses, and everybody who follows the run reads this.
        explained = ModelError(context.watch.redact(str(explained)))
        if not is_retryable(error):
            raise explained from error
        self._breaker.failed()
        if attempt >= self._settings.retry_max_attempts:
            raise explained from error
        wait = delay_seconds(error, attempt, self._settings)
        logger.warning("run %s: model call failed (%s), again in %.1f s", context.run_id, error, wait)
        event = retry_event(error, attempt, wait, self._settings, explained)
        context.publish(event)
        context.watch.meters.add(MODEL_RETRIES, str(event["reason"]))
        await self._sleep(wait)


def is_overflow(error: BaseException) -> bool:
    """Tell whether the request was too long for the model, in whichever words the provider says so."""
    if isinstance(error, ContextOverflowError):
        return True
    status = getattr(error, "status_code", None)
    words = str(error).lower()
    return status in (400, 413, 422) and any(phrase in words for phrase in OVERFLOW_WORDS)


def is_retryable(error: BaseException) -> bool:
    """Tell whether the same request may succeed later."""
    if getattr(error, "code", None) == "insufficient_quota":
        return False
    if isinstance(error, ProviderError):
        return error.is_retryable
    status = getattr(error, "status_code", None)
    return isinstance(status, int) and (status in (408, 409, 429) or status >= 500)


def delay_seconds(error: BaseException, attempt: int, settings: LlmCallSettings) -> float:
    """Return how long to wait: longer each time, half of it chance, so that many do not come back at once."""
    is_burst = isinstance(error, ModelRateLimitError)
    base = settings.burst_retry_base_delay_ms if is_burst else settings.retry_base_delay_ms
    longest: float = min(base * 2 ** (attempt - 1), max(settings.retry_cap_delay_ms, base if is_burst else 0))
    return longest / 1000 * random.uniform(0.5, 1.0)


def retry_event(
    error: BaseException, attempt: int, wait: float, settings: LlmCallSettings, explained: ModelError
) -> dict[str, object]:
    """Return what the people watching are told."""
    return {
        "type": "llm_retry",
        "attempt": attempt,
        "max_attempts": settings.retry_max_attempts,
        "wait_ms": round(wait * 1000),
        "reason": "rate_limited" if isinstance(error, ModelRateLimitError) else "provider_error",
        "message": str(explained),
    }
